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
    * `config :mlx, compile_log: false` - `Mlx.Compiler` says nothing of compilations that take longer
      than a second. `true` if left out: it logs them, at the level `:info`
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

  @doc """
  Waits until everything posted to the worker of `device`, or to the process's stream of it, is
  computed. See also `Mlx.Stream.sync/1`.

  For measuring time, and for nothing else: reading a result waits for it.

      iex> Mlx.synchronize()
      :ok
  """
  @spec synchronize(Device.t() | :gpu) :: :ok
  def synchronize(device \\ Device.default()),
    do: Device.sync(device)

  if Code.ensure_loaded?(Nx.Defn) do
    @doc """
    A function that compiles `fun` with `Mlx.Compiler` when it is called: `Nx.Defn.jit/2` with the
    compiler named.

    `opts` are those of `Nx.Defn.jit/2` and `Mlx.Compiler`.

        iex> double = Mlx.jit(&Nx.multiply(&1, 2))
        iex> Nx.to_flat_list(double.(Nx.tensor([1, 2])))
        [2, 4]
    """
    @spec jit(fun, keyword) :: fun
    def jit(fun, opts \\ []), do: Nx.Defn.jit(fun, compiled(opts))

    @doc """
    Calls `fun` with `args`, compiled by `Mlx.Compiler`: `Nx.Defn.jit_apply/3` with the compiler named.

        iex> Nx.to_number(Mlx.jit_apply(&Nx.add/2, [1, 2]))
        3
    """
    @spec jit_apply(fun, [term], keyword) :: term
    def jit_apply(fun, args, opts \\ []), do: Nx.Defn.jit_apply(fun, args, compiled(opts))

    @doc """
    Compiles `fun` at once for arguments like `templates`, and returns a function of such arguments:
    `Nx.Defn.compile/3` with the compiler named.

        iex> double = Mlx.compile(&Nx.multiply(&1, 2), [Nx.template({2}, :s32)])
        iex> Nx.to_flat_list(double.(Nx.tensor([1, 2])))
        [2, 4]
    """
    @spec compile(fun, [term], keyword) :: fun
    def compile(fun, templates, opts \\ []), do: Nx.Defn.compile(fun, templates, compiled(opts))

    defp compiled(opts), do: Keyword.put(opts, :compiler, Mlx.Compiler)
  end
end
