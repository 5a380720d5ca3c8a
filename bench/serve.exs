# A process that is one of the peers in Elixir, for bin/bench: elixir bench/serve.exs PEER
# Mlx and Nx.BinaryBackend come from this project; EMLX and EXLA are installed from their checkouts.
[peer] = System.argv()

if peer in ["emlx", "exla"] do
  folder = System.fetch_env!("MLX_DEPS_PATH")

  here =
    for name <- [:nx, :complex, :telemetry],
        path = Path.join(folder, "#{name}"),
        File.dir?(path),
        do: {name, path: path, override: true}

  Mix.install([{String.to_atom(peer), path: Path.join(folder, peer)} | here])
end

for file <- ~w(inputs functions engine custom server),
    do: Code.require_file("compare/#{file}.ex", __DIR__)

peer |> Bench.Engine.new() |> Bench.Server.serve()
