defmodule Mlx.Compiler do
  @moduledoc """
  A `Nx.Defn.Compiler` that turns a numerical function into one MLX program.

      iex> fun = Nx.Defn.jit(fn x -> Nx.multiply(Nx.cos(x), 2) end, compiler: Mlx.Compiler)
      iex> result = fun.(Nx.tensor([0.0, 0.0]))
      iex> Nx.to_flat_list(result)
      [2.0, 2.0]

  The function is traced and lowered once per combination of argument types, shapes and names.
  Each call then posts the whole program to the worker of its device and returns at once: results
  are promises, computed in the background and waited for when they are read.

  ## Choosing the compiler

    * for every `defn` and `Nx.Defn.jit/2`:
      `config :nx, default_defn_options: [compiler: Mlx.Compiler]`
      or `Nx.Defn.global_default_options(compiler: Mlx.Compiler)`
    * for a process: `Nx.Defn.default_options(compiler: Mlx.Compiler)`
    * for a module: `use Mlx.Defn` (see `Mlx.Defn`)
    * for a call: `Nx.Defn.jit(fun, compiler: Mlx.Compiler)`, `Nx.Defn.compile/3` and the like

  ## Options

    * `:device` - the device that runs the program and holds its results: `:cpu`, `:gpu` or
      `{:gpu, index}`. Default: `Mlx.Device.default/0`. Arguments that live elsewhere are copied.
    * `:stream` - an `Mlx.Stream` that runs the program. Default: the process's, if it is of the
      device, and else the worker that all processes share.
    * `:debug` - `true` compiles anew and prints the program, in MLX's operations.
    * `:hooks` - a map from the names of hooks to functions of one argument, which are called with
      what the hook is given.
    * `:max_concurrency` - the number of partitions of an `Nx.Serving` per device, each but the first
      on a stream of its own. Default: 1.
    * `:fuse` - whether connected elementwise operations, and loops of them, are computed together,
      as they are on CPUs. Default: `true`. Results have the same bits either way, but for those that
      tell one NaN from another; `false` leaves every operation to MLX, in later versions as well.

    * `:bounds_check`, `:detect_non_finite`, `:check_results`, `:dispatch` - flags, see `Mlx`. Default:
      the calling process's or the application's; for `Nx.Defn.compile/3` those of the process that
      compiles. Checks are part of the program, in its loops, branches and functions of reductions, so
      that each combination of them is compiled of its own; what is not run is not checked.
      Operations with checks between them are not fused. A call waits for the checks, and with
      `dispatch: :sync` for the results. Tensors' own flags are not looked at.

  Arguments that are marked with `Nx.donatable/1`, where Nx has it, are deallocated when the program
  has used them.

  A wrong value raises `ArgumentError`, also where the option has no effect.
  Other options are ignored: `Nx.Serving`, Axon and Bumblebee hand every compiler options that are
  meant for themselves or for another one, so an unknown key is no mistake of the caller.

  ## What is compiled

  Everything that a `defn` can say: all operations, `Nx.block/4`, constants, containers, named and
  vectorized tensors, gradients, and

    * `while`: a loop whose trip count the function fixes, such as `while {i = 0, x}, i < 4` or a
      range, never waits for its condition. Up to 256 iterations of a small body are written out. Any
      other loop waits for one number per iteration. Loops of elementwise operations, with conditions
      on numbers, are not MLX's on a CPU: they take nanoseconds per operation and iteration.
    * `cond` and `if`: only the branch that is taken runs, which waits for the predicate. Where all
      branches are a few operations on small tensors, they are computed and the result is selected.
      What several `cond`s share is computed ahead of them.
    * hooks, `Nx.Defn.Kernel.print_value/2` and `Nx.runtime_call/4`: the caller runs their functions,
      in program order. With a `runtime_call`, or a hook inside a loop or branch, the call returns
      when the program has ended; the worker serves other processes while a function runs, which may
      itself compute on it. With other hooks the call returns as soon as the program is posted and
      its hooks were called, and reading the tensors they are given waits.

  A function with `c128` in it cannot be a program. `config :mlx, fallback: :warn` and `:silent`
  have `Nx.Defn.Evaluator` evaluate it on `Mlx.Backend`, and `:raise` raises, see `Mlx.Backend`.

  ## Cache

  Programs are kept by function and argument types, so a function is traced once even when
  several processes call it at the same time. Anonymous functions are told apart by what they
  capture: one that captures ever new values compiles every time. Pass such values as arguments.
  The cache holds `config :mlx, compiler_cache_size: 512` programs and drops the least recently
  used. See `cache_info/0` and `clear_cache/0`.

  ## Telemetry and progress

  `Mlx.Telemetry` lists the events of compilations, calls and the cache. A compilation that takes
  longer than a second says so by `Logger`, at the level `:info`, with the function's name, and again
  after 2, 4, 8 seconds and so on; `config :mlx, compile_log: false` keeps it silent.

  ## Errors

  What a function under compilation raises is raised as it is. An `Mlx.Error` or `ArgumentError` of
  the compiler names the function that it was compiling, and an `Mlx.Error` of a compiled program
  the function that it was compiled from, with its file and line: `:function` in `Mlx.Error`.
  """

  @behaviour Nx.Defn.Compiler

  alias Mlx.{Backend, Device, Stream}
  alias Mlx.Compiler.{Build, Cache, Export, Options, Run}

  ## Nx.Defn.Compiler

  @impl true
  def __jit__(key, vars, fun, args_list, opts) do
    options = Options.parse!(opts)
    now = System.monotonic_time()
    {program, cached?} = Build.fetch(key, vars, fun, options, now)
    # A call does not count the compilation that it had to wait for.
    start = if cached?, do: now, else: System.monotonic_time()
    worker = Options.worker(options)

    for args <- args_list,
        do: Run.run(program, worker, args, options, key, cached?, start)
  end

  @impl true
  def __compile__(key, vars, fun, opts) do
    options = Options.parse!(opts)
    # Whatever becomes the default later.
    options = %{options | device: Options.device(options)}
    {program, _cached?} = Build.fetch(key, vars, fun, options, System.monotonic_time())
    again = %{options | debug: false}

    fn args_list ->
      start = System.monotonic_time()

      # The worker may have been restarted since, and the program and its constants are its own.
      program =
        if program.home == Options.home(options),
          do: program,
          else: key |> Build.fetch(vars, fun, again, start) |> elem(0)

      worker = Options.worker(options)
      options = Options.called(options)
      for args <- args_list, do: Run.run(program, worker, args, options, key, true, start)
    end
  end

  @impl true
  def __partitions_options__(opts) do
    options = Options.parse!(opts)

    devices =
      case {options.device, Options.device(options)} do
        {nil, {:gpu, _}} -> for {:gpu, _} = gpu <- Device.list(), do: gpu
        {_, device} -> [device]
      end

    for device <- devices, partition <- 1..options.max_concurrency do
      opts = Keyword.put(opts, :device, device)

      # The first one computes where everybody does, who then has no stream to wait for.
      if partition == 1 or options.stream,
        do: opts,
        else: Keyword.put(opts, :stream, Stream.new(device))
    end
  end

  @impl true
  def __to_backend__(opts) do
    options = Options.parse!(opts)
    stream = if options.stream, do: [stream: options.stream], else: []
    {Backend, [device: Options.device(options)] ++ stream}
  end

  ## Public API

  @doc """
  Compiles `fun` for `args` into an `Mlx.Program`, a value that can be saved and run where Nx is
  not available.

  `args` are tensors, templates or containers of them, of which only types and shapes matter;
  lists and functions among them are options, part of the program. The program takes one input
  per tensor and gives one output per tensor, both flattened in the order of `Nx.Container`. Types
  that MLX lacks take the arrays that hold them: integers below 8 bits are in `u8` and `s8`, a byte
  each, and the bits of 8-bit floats in `u8`.

  Constant tensors that the function captures become part of the program, up to 256 elements
  each. For larger ones it raises `ArgumentError`: pass those as arguments. Raises `Mlx.Error`
  with the kind `:unsupported` where the compiler does, and for hooks.

  `opts` are those of `Nx.Defn.jit/2`. A program is bound to no device, so `:device` has no
  effect; hooks with a callback in `:hooks` count as hooks.

  ## Examples

      iex> t = Nx.template({2}, :f32)
      iex> program = Mlx.Compiler.to_program(&Nx.add/2, [t, t])
      iex> program.inputs
      [{{:f, 32}, {2}}, {{:f, 32}, {2}}]

  """
  @spec to_program(fun, [term], keyword) :: Mlx.Program.t()
  def to_program(fun, args, opts \\ []) when is_function(fun) and is_list(args) do
    Nx.Defn.jit_apply(fun, args, Keyword.put(opts, :compiler, Export))
  end

  @doc """
  What the cache of compiled programs holds and has seen since the application started.

  `:entries` of at most `:limit` programs are kept. `:hits` counts calls that found their program,
  `:misses` compilations that went to the cache, `:evictions` programs dropped to make room.

  ## Examples

      iex> info = Mlx.Compiler.cache_info()
      iex> info.entries <= info.limit
      true

  """
  @spec cache_info() :: %{
          entries: non_neg_integer,
          limit: non_neg_integer,
          hits: non_neg_integer,
          misses: non_neg_integer,
          evictions: non_neg_integer
        }
  def cache_info, do: Cache.info()

  @doc """
  Drops all compiled programs and the constants they hold on their devices.

  Functions made by `Nx.Defn.compile/3` keep theirs. A module that is compiled again in a running
  system gets programs anew; worth a call then are functions of other modules that inline its
  functions, since those keep what they compiled.

  ## Examples

      iex> Mlx.Compiler.clear_cache()
      :ok

  """
  @spec clear_cache() :: :ok
  def clear_cache, do: Cache.clear()
end
