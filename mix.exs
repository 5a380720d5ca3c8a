defmodule Mlx.MixProject do
  use Mix.Project

  Code.require_file("native/compile.exs", __DIR__)

  @version "0.1.0"

  def project do
    [
      app: :mlx,
      version: @version,
      elixir: "~> 1.17",
      compilers: [:mlx_native] ++ Mix.compilers(),
      elixirc_paths: Mix.Tasks.Compile.MlxNative.elixirc_paths(Mix.env(), nx?()),
      test_paths: ["test/core"] ++ if(nx?(), do: ["test/nx"], else: []),
      start_permanent: Mix.env() == :prod,
      deps: deps(),
      aliases: aliases(),
      name: "Mlx",
      description: "Nx backend and compiler on MLX: Linux CPUs, NVIDIA GPUs and Apple GPUs",
      package: package(),
      docs: docs()
    ]
  end

  def application do
    [extra_applications: [:logger], mod: {Mlx.Application, []}]
  end

  def cli do
    [preferred_envs: [ci: :test]]
  end

  # Nx is optional: lib/core needs nothing, lib/nx is compiled where Nx is there.
  # MLX_DEPS_PATH, by default ~/.mlx/deps, is a folder of sources for a machine without Hex.
  defp deps do
    cond do
      System.get_env("MLX_WITHOUT_NX") in ["1", "true"] ->
        []

      # A project that depends on this one resolves Nx itself.
      Mix.Project.get() not in [nil, __MODULE__] and Code.ensure_loaded?(Hex) ->
        [{:nx, "~> 0.13", optional: true}]

      source?(:nx) ->
        [
          {:nx, path: source(:nx), override: true, optional: true},
          {:complex, path: source(:complex), override: true, optional: true},
          {:telemetry, path: source(:telemetry), override: true, optional: true}
        ] ++ ecosystem()

      Code.ensure_loaded?(Hex) ->
        [
          {:nx, "~> 0.13", optional: true},
          {:axon, "~> 0.8", only: :test, runtime: false},
          {:scholar, "~> 0.4", only: :test, runtime: false}
        ]

      true ->
        []
    end
  end

  # What is built on Nx is tested where its sources are too. test/nx/test_helper.exs says what is
  # left out.
  defp ecosystem do
    wanted =
      for {_library, sources} <- [
            axon: [:axon, :polaris],
            scholar: [:scholar, :polaris, :nimble_options]
          ],
          Enum.all?(sources, &source?/1),
          source <- sources,
          do: source

    for name <- Enum.uniq(wanted),
        do: {name, path: source(name), override: true, only: :test, runtime: false}
  end

  defp nx?, do: deps() != []

  defp source?(name), do: File.dir?(source(name))
  defp source(name), do: Path.join(deps_path(), Atom.to_string(name))

  defp deps_path do
    System.get_env("MLX_DEPS_PATH") || Path.join(System.user_home() || "/", ".mlx/deps")
  end

  defp aliases do
    [ci: [&ci/1]]
  end

  defp ci(_args) do
    {_, status} = System.cmd("bin/test", [], into: IO.stream())
    if status != 0, do: exit({:shutdown, status})
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: %{},
      files: ~w(lib native guides mix.exs .formatter.exs Cargo.toml Cargo.lock
                README.md ARCHITECTURE.md SECURITY.md CHANGELOG.md LICENSE)
    ]
  end

  defp docs do
    [
      main: "Mlx",
      source_ref: "v#{@version}",
      extras:
        ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"] ++
          Path.wildcard("guides/**/*.md"),
      assets: %{"guides/assets" => "assets"},
      groups_for_modules: [
        Nx: ~r/^Elixir\.Mlx\.(Backend|Compiler|Defn|Telemetry|Fast|Quantization|Generation)/,
        Core: ~r/^Elixir\.Mlx\.(Array|Program|Device|Stream|IO|Memory|Error)/
      ]
    ]
  end
end
