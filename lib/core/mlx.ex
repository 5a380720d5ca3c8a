defmodule Mlx do
  @moduledoc """
  MLX for Elixir: an Nx backend and compiler for Linux CPUs, NVIDIA GPUs and Apple GPUs.

  `Mlx.Backend` holds tensors in MLX and computes operations as they come; `Mlx.Compiler` turns a
  whole `Nx.Defn` function into one program. Both go through the same lowering, so they compute the
  same.

      Nx.default_backend(Mlx.Backend)
      Nx.Defn.default_options(compiler: Mlx.Compiler)

  In a project's `config/config.exs`:

      config :nx, default_backend: Mlx.Backend, default_defn_options: [compiler: Mlx.Compiler]

  Without Nx, `Mlx.Array` and `Mlx.Program` run programs that were saved as files.

  ## Results are promises

  An operation returns before it is computed. Reading a result (`Nx.to_binary/1`, `Nx.to_number/1`,
  `inspect/2`) waits for it, and raises `Mlx.Error` if it, or anything it was computed from, failed.

  ## Configuration

    * `config :mlx, device: :cpu` - the default device, see `Mlx.Device`
    * `config :mlx, dispatch: :sync` - waits for every operation, so that an error is raised where
      it happens; slow, for debugging. `:async` if left out. See also `put_dispatch/1`
    * `config :mlx, add_backend_on_inspect: false` - inspects tensors without the device's line;
      read when Mlx is compiled
    * `config :mlx, fallback: :raise` - what an operation that Mlx lacks does: `:silent` computes it
      with `Nx.BinaryBackend`, `:warn` says so as well, `:raise` raises
    * `config :mlx, compiler_cache_size: 512` - how many compiled functions are kept
  """

  alias Mlx.{Device, NIF}

  @doc """
  What Mlx runs on: to look at, and to paste into an issue.

  `:mlx` is the version of the MLX library, `:blas` the file whose BLAS serves matrix products on the
  CPU (`nil` where that is MLX's own, about 50 times slower), `:devices` what MLX can use.

      iex> %{mlx: version, devices: [:cpu | _]} = Mlx.info()
      iex> is_binary(version)
      true
  """
  @spec info() :: %{
          mlx: String.t(),
          blas: String.t() | nil,
          devices: [Device.t()],
          default: Device.t()
        }
  def info do
    {_headers, library, blas} = NIF.versions()

    %{
      mlx: library,
      blas: if(blas != "", do: blas),
      devices: Device.list(),
      default: Device.default()
    }
  end

  @doc """
  Has the calling process wait for each of its operations (`:sync`), so that an error is raised by
  the one that failed, or go on at once (`:async`). Returns the mode before.

      iex> Mlx.put_dispatch(:sync)
      :async
      iex> Mlx.put_dispatch(:async)
      :sync
  """
  @spec put_dispatch(:sync | :async) :: :sync | :async
  defdelegate put_dispatch(mode), to: Mlx.Native
end
