# Matrix products on the CPU, with the BLAS that Mlx links and with the one that MLX's wheel brings:
# mix run bench/matmul.exs
Code.require_file("support.exs", __DIR__)

measure = fn ->
  Nx.default_backend({Mlx.Backend, device: :cpu})

  for size <- [64, 256, 1024, 2048] do
    x = Nx.divide(Nx.iota({size, size}, type: :f32), size * size)
    Nx.to_binary(x)
    # The corner alone is read, so that reading costs nothing; computing it computes all.
    product = fn -> Nx.to_binary(Nx.slice(Nx.dot(x, x), [0, 0], [1, 1])) end
    for _ <- 1..3, do: product.()
    count = max(1, div(2_000_000_000, 2 * size * size * size) |> min(200))

    rates =
      for _ <- 1..9 do
        {time, _} = :timer.tc(fn -> for(_ <- 1..count, do: product.()) end, :nanosecond)
        2 * size * size * size * count / time
      end

    Bench.report(
      "f32 #{size}x#{size}",
      rates |> Enum.sort() |> Enum.at(4),
      "GFLOP/s",
      Enum.min(rates),
      Enum.max(rates)
    )
  end
end

if System.get_env("LD_PRELOAD") do
  measure.()
else
  IO.puts("BLAS: #{Mlx.info().blas || "MLX's own"}")
  measure.()

  # Loaded ahead of everything, the wheel's BLAS serves MLX.
  case Path.wildcard(Path.join(:code.priv_dir(:mlx), "mlx_cpu.libs/libblas-*")) do
    [wheel | _] ->
      IO.puts("BLAS: #{wheel}")
      env = [{"LD_PRELOAD", wheel}]
      System.cmd("mix", ["run", "--no-compile", __ENV__.file], env: env, into: IO.stream())

    [] ->
      IO.puts("The wheel's BLAS is not there to compare with.")
  end
end
