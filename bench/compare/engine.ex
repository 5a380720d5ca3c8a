defmodule Bench.Engine do
  @moduledoc """
  The peers that are written in Elixir: how each is configured, and what it says about itself.
  """

  @type t :: %{
          name: String.t(),
          backend: module | {module, keyword},
          defn: keyword,
          info: String.t()
        }

  @names ~w(mlx binary emlx exla)

  @doc "Their names. The first is what the others are compared with."
  @spec names() :: [String.t()]
  def names, do: @names

  # The modules of EMLX and EXLA are there only in the processes that are these peers.
  @spec new(String.t()) :: t
  def new("mlx") do
    blas = Mlx.info().blas
    threads = "one of OpenBLAS, rayon: #{System.schedulers_online()}"
    blas = if blas, do: Path.basename(blas), else: "MLX's BLAS"

    %{
      name: "mlx",
      backend: {Mlx.Backend, device: :cpu},
      defn: [compiler: Mlx.Compiler, device: :cpu],
      info: "Mlx #{version(:mlx)}, MLX #{Mlx.info().mlx}, #{blas}; threads: #{threads}"
    }
  end

  def new("binary") do
    %{
      name: "binary",
      backend: Nx.BinaryBackend,
      defn: [compiler: Nx.Defn.Evaluator],
      info: "Nx.BinaryBackend, Nx #{version(:nx)}; threads: 1"
    }
  end

  def new("emlx") do
    Application.put_env(:emlx, :default_device, :cpu)

    %{
      name: "emlx",
      backend: {Module.concat([EMLX.Backend]), device: :cpu},
      defn: [compiler: Module.concat([EMLX]), device: :cpu],
      info: "EMLX #{version(:emlx)}, Nx #{version(:nx)}; threads: its defaults"
    }
  end

  def new("exla") do
    %{
      name: "exla",
      backend: {Module.concat([EXLA.Backend]), client: :host},
      defn: [compiler: Module.concat([EXLA]), client: :host],
      info: "EXLA #{version(:exla)}, Nx #{version(:nx)}; threads: its defaults"
    }
  end

  @doc "Makes the engine the calling process's."
  @spec configure(Engine.t()) :: :ok
  def configure(engine) do
    Nx.default_backend(engine.backend)
    Nx.Defn.default_options(engine.defn)
    :ok
  end

  @doc "An input as a tensor of the process's backend."
  @spec tensor({atom, tuple, binary}) :: Nx.Tensor.t()
  def tensor({:bf16, shape, binary}),
    do: {:f32, shape, binary} |> tensor() |> Nx.as_type(:bf16)

  def tensor({type, shape, binary}), do: binary |> Nx.from_binary(type) |> Nx.reshape(shape)

  defp version(app), do: to_string(Application.spec(app, :vsn))
end
