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
      it happens. `:async` if left out. A flag, see below
    * `config :mlx, bounds_check: true`, `detect_non_finite: true`, `check_results: true` - flags too
    * `config :mlx, add_backend_on_inspect: false` - inspects tensors without the device's line;
      read when Mlx is compiled
    * `config :mlx, fallback: :raise` - what an operation that Mlx lacks does: `:silent` computes it
      with `Nx.BinaryBackend`, `:warn` says so as well, `:raise` raises
    * `config :mlx, compiler_cache_size: 512` - how many compiled functions are kept
    * `config :mlx, compile_log: false` - `Mlx.Compiler` says nothing of compilations that take longer
      than a second. `true` if left out: it logs them, at the level `:info`

  ## Flags

  They find mistakes, and take time; off, they cost nothing. Each can be set for the application in
  its configuration, which is read when Mlx starts, for a process with `put_flags/1` or
  `with_flags/2`, for tensors as an option of `Mlx.Backend`, and for compiled functions as one of
  `Mlx.Compiler`. The guide "Finding mistakes" shows them.

    * `:dispatch` - `:sync` waits until each operation, and each call of a compiled function, is
      computed, so that what MLX refuses is raised there. `:async` is off
    * `:bounds_check` - `true` has `Nx.gather/3`, `Nx.take/3`, `Nx.take_along_axis/3`,
      `Nx.indexed_add/4` and `Nx.indexed_put/4` raise `ArgumentError` for an index outside of the
      tensor, in the words of `Nx.BinaryBackend`. Slices clamp their starts, as Nx defines it
    * `:detect_non_finite` - raises `Mlx.Error` of the kind `:non_finite` for an operation that makes
      NaN or infinity of operands without. `:nan` and `:infinity` look for one of them, and take the
      other for a number; `true` is both
    * `:check_results` - `true` compares the type and shape of every operation's results with what
      Nx announced, and raises `Mlx.Error` of the kind `:wrong_result`, a bug of Mlx. `:eager` leaves
      compiled functions as they are

  A call of a compiled function with checks in it waits for them; a failed check raises there, and the
  message names the operation and the function with its file and line.
  """

  alias Mlx.{Device, Flags, NIF}

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
  the one that failed, or go on at once (`:async`). Returns the mode before. Raises `ArgumentError`
  for anything else.

      iex> Mlx.put_dispatch(:sync)
      :async
      iex> Mlx.put_dispatch(:async)
      :sync
  """
  @spec put_dispatch(:sync | :async) :: :sync | :async
  def put_dispatch(mode) do
    [dispatch: before] = put_flags(dispatch: mode)
    before
  end

  @doc """
  Sets flags for the calling process, and returns what these were before. Others stay as they are.

  Processes that it starts have the application's. Raises `ArgumentError` for a name or a value that
  is none; see "Flags" above.

      iex> Mlx.put_flags(bounds_check: true)
      [bounds_check: false]
      iex> Mlx.put_flags(bounds_check: false, detect_non_finite: :nan)
      [bounds_check: true, detect_non_finite: false]
      iex> Mlx.put_flags(detect_non_finite: false)
      [detect_non_finite: :nan]
  """
  @spec put_flags(keyword) :: keyword
  def put_flags(flags) when is_list(flags) do
    before = Flags.put(flagged(flags))
    for {name, _value} <- flags, do: {name, Flags.get(before, name)}
  end

  @doc """
  Calls the function while the calling process has these flags as well. Raises as `put_flags/1` does.

      iex> Mlx.with_flags([dispatch: :sync], fn -> Mlx.put_flags(dispatch: :async) end)
      [dispatch: :sync]
      iex> Mlx.put_flags(dispatch: :async)
      [dispatch: :async]
  """
  @spec with_flags(keyword, (-> result)) :: result when result: var
  def with_flags(flags, fun) when is_list(flags) and is_function(fun, 0),
    do: Flags.with(flagged(flags), fun)

  defp flagged(flags) do
    flags
    |> Keyword.validate!(Flags.names())
    |> Enum.reduce(Flags.current(), fn {name, value}, flags ->
      Flags.set!(flags, name, value, "the flag #{inspect(name)}")
    end)
  end

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
