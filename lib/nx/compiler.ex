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
    * `:debug` - `true` compiles anew and prints the program, in MLX's operations.
    * `:hooks` - a map of callbacks by the names of the hooks that they serve.
    * `:max_concurrency` - the number of partitions of an `Nx.Serving` per device. Default: 1.

  Other options are ignored: `Nx.Serving`, Axon and Bumblebee hand every compiler options that are
  meant for themselves or for another one, so an unknown key is no mistake of the caller.

  ## What is compiled

  Everything that a `defn` can say: all operations, `Nx.block/4`, constants, containers, named and
  vectorized tensors, gradients, and

    * `while`: a loop whose trip count the function fixes, such as `while {i = 0, x}, i < 4` or a
      range, never waits for its condition. Up to 256 iterations of a small body are written out. Any
      other loop waits for one number per iteration.
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

  ## Telemetry

  `[:mlx, :compile]` is a `:telemetry.span/3` around every compilation. Metadata: `:key`, the
  function, and `:device`; at the stop event also `:instructions`, `:inputs` and `:outputs`, their
  numbers. A call that finds its program in the cache emits nothing.
  """

  @behaviour Nx.Defn.Compiler

  alias Mlx.{Backend, Device, Native}
  alias Mlx.Compiler.{Cache, Debug, Evaluated, Export, Output, Trace}
  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

  ## Nx.Defn.Compiler

  @impl true
  def __jit__(key, vars, fun, args_list, opts) do
    hooks = Keyword.get(opts, :hooks, %{})
    program = program(key, vars, fun, device(opts), hooks, opts[:debug] == true)
    for args <- args_list, do: run(program, args, hooks)
  end

  @impl true
  def __compile__(key, vars, fun, opts) do
    device = device(opts)
    hooks = Keyword.get(opts, :hooks, %{})
    program = program(key, vars, fun, device, hooks, opts[:debug] == true)

    fn args_list ->
      # The worker may have been restarted since, and the program and its constants are its own.
      program =
        if program.worker == Device.worker(device),
          do: program,
          else: program(key, vars, fun, device, hooks, false)

      for args <- args_list, do: run(program, args, hooks)
    end
  end

  @impl true
  def __partitions_options__(opts) do
    devices =
      case {opts[:device], device(opts)} do
        {nil, {:gpu, _}} -> for {:gpu, _} = gpu <- Device.list(), do: gpu
        {_, device} -> [device]
      end

    count = Keyword.get(opts, :max_concurrency, 1)

    unless is_integer(count) and count > 0 do
      raise ArgumentError, ":max_concurrency must be a positive integer, got: #{inspect(count)}"
    end

    for device <- devices, _ <- 1..count, do: Keyword.put(opts, :device, device)
  end

  @impl true
  def __to_backend__(opts), do: {Backend, device: device(opts)}

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
  effect.

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

  ## Programs

  # A program belongs to its worker: the key names it, so that a restarted worker finds nothing.
  # Callbacks of named hooks may change from call to call; which ones there are may not.
  defp program(key, vars, fun, device, hooks, true) do
    names = hooks |> Map.keys() |> Enum.sort()
    compile(key, vars, fun, device, Device.worker(device), names, &IO.puts/1)
  end

  defp program(key, vars, fun, device, hooks, false) do
    worker = Device.worker(device)
    names = hooks |> Map.keys() |> Enum.sort()
    cache_key = {version(key), worker, signature(vars), names}

    case Cache.lookup(cache_key) do
      nil -> Cache.fetch(cache_key, fn -> compile(key, vars, fun, device, worker, names) end)
      program -> program
    end
  end

  # A capture such as `&Mod.fun/1` stays equal when its module is compiled again, as happens in
  # every Livebook; other functions do not.
  defp version(key) do
    case :erlang.fun_info(key, :type) do
      {:type, :external} ->
        {:module, module} = :erlang.fun_info(key, :module)
        {key, module.module_info(:md5)}

      {:type, :local} ->
        key
    end
  end

  defp compile(key, vars, fun, device, worker, hook_names, print \\ nil) do
    metadata = %{key: key, device: device}

    :telemetry.span([:mlx, :compile], metadata, fn ->
      expr = fun.(vars)

      case Trace.run(expr, vars, hooks: hook_names) do
        :c128 ->
          sizes = %{instructions: 0, inputs: length(Composite.flatten_list(vars)), outputs: 0}
          {%{evaluated: expr, worker: worker, device: device}, Map.merge(metadata, sizes)}

        trace ->
          inputs = input_types(trace, vars)
          if print, do: print.("#{inspect(key)}\n" <> Debug.text(trace, inputs))

          program = %{
            native: Native.build(inputs, trace.instructions, trace.outputs),
            worker: worker,
            device: device,
            used: used(trace.parameters, 0),
            captured: Enum.map(trace.captured, &upload(&1, device)),
            output: Output.plan(expr),
            effects: trace.effects |> Enum.map(&effect/1) |> List.to_tuple(),
            attended?: trace.attended?
          }

          sizes = %{
            instructions: length(trace.instructions),
            inputs: length(inputs),
            outputs: length(trace.outputs)
          }

          {program, Map.merge(metadata, sizes)}
      end
    end)
  end

  # Callbacks see vectorized axes as the leading axes that they are, as in the evaluator.
  defp effect({:hook, callback, expr}), do: {:hook, callback, devectorized(expr)}

  defp effect({:call, fun, expr, template, opts}),
    do: {:call, fun, devectorized(expr), template, opts}

  defp devectorized(expr), do: expr |> Composite.traverse(&Nx.devectorize/1) |> Output.plan()

  # A run checks its inputs against these: a lazy container may hand over something else than it
  # announced, and not all instructions could stand that.
  defp input_types(trace, vars) do
    vars = vars |> Composite.flatten_list() |> List.to_tuple()
    parameters = for i <- trace.parameters, do: elem(vars, i)

    for t <- parameters ++ trace.captured do
      %T{type: type, shape: shape} = Nx.devectorize(t)
      {Mlx.Type.held!(type), shape}
    end
  end

  # Which of the flat arguments are inputs, ending with the last one that is.
  defp used([], _position), do: []
  defp used([position | rest], position), do: [true | used(rest, position + 1)]
  defp used(parameters, position), do: [false | used(parameters, position + 1)]

  # Everything about the arguments that tracing can see. A container's own fields are part of it.
  defp signature(vars), do: Enum.map(vars, &signature_of/1)

  defp signature_of(%T{type: type, shape: shape, names: names, vectorized_axes: axes}),
    do: {type, shape, names, axes}

  defp signature_of(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> signature() |> List.to_tuple()

  defp signature_of(%_{} = struct) do
    {container, :ok} = Nx.Container.traverse(struct, :ok, fn t, :ok -> {signature_of(t), :ok} end)
    container
  end

  defp signature_of(%{} = map), do: :maps.map(fn _key, value -> signature_of(value) end, map)

  defp run(%{evaluated: expr, device: device} = program, args, hooks) do
    args = for arg <- args, do: fn -> placed(arg.(), program) end
    Evaluated.run(expr, args, device, hooks)
  end

  defp run(%{attended?: true} = program, args, hooks) do
    inputs = inputs(args, program.used, program)

    refs =
      Native.attend(program.native, inputs, program.worker, &attend(&1, &2, &3, program, hooks))

    {result, []} = Output.fill(program.output, refs)
    result
  end

  defp run(%{output: output} = program, args, hooks) do
    inputs = inputs(args, program.used, program)
    refs = Native.run_program(program.native, inputs, program.worker)
    {result, refs} = Output.fill(output, refs)
    if program.effects != {}, do: call_hooks(program.effects, refs, hooks)
    result
  end

  defp call_hooks(effects, refs, hooks) do
    effects
    |> Tuple.to_list()
    |> Enum.reduce(refs, fn {:hook, callback, plan}, refs ->
      {value, refs} = Output.fill(plan, refs)
      callback(callback, hooks).(value)
      refs
    end)
  end

  defp attend(:hook, id, refs, program, hooks) do
    {:hook, callback, plan} = elem(program.effects, id)
    {value, []} = Output.fill(plan, refs)
    callback(callback, hooks).(value)
  end

  defp attend(:call, id, refs, program, _hooks) do
    {:call, fun, plan, template, opts} = elem(program.effects, id)
    {value, []} = Output.fill(plan, refs)
    result = fun.(value, opts)

    flat = Composite.traverse(template, &Nx.devectorize/1)

    unless Nx.compatible?(template, result) or Nx.compatible?(flat, result) do
      raise "expected the runtime_call function to match the given output template " <>
              "#{inspect(template)}, got: #{inspect(result)}"
    end

    for t <- Composite.flatten_list([result]), do: input(Nx.devectorize(t), program)
  end

  defp callback({:fn, fun}, _hooks), do: fun
  defp callback({:named, name, default}, hooks), do: hooks[name] || default

  defp inputs(_args, [], program), do: program.captured
  defp inputs([_ | args], [false | used], program), do: inputs(args, used, program)

  defp inputs([arg | args], [true | used], program),
    do: [input(arg.(), program) | inputs(args, used, program)]

  defp placed(%T{type: {:c, 128}} = tensor, _program), do: tensor
  defp placed(tensor, program), do: %{tensor | data: %Backend{ref: input(tensor, program)}}

  defp input(%T{data: %Backend{ref: ref}}, %{device: device} = program) do
    case Native.device(ref) do
      ^device -> ref
      _other -> Native.copy_to(ref, program.worker)
    end
  end

  defp input(%T{data: %Expr{}} = tensor, _program) do
    raise ArgumentError,
          "cannot pass a tensor expression as argument to defn, got: #{inspect(tensor)}"
  end

  defp input(tensor, %{device: device}), do: upload(tensor, device)

  defp upload(tensor, device) do
    %T{data: %Backend{ref: ref}} = Nx.backend_copy(tensor, {Backend, device: device})
    ref
  end

  ## Devices

  defp device(opts) do
    case Keyword.get(opts, :device) do
      nil -> Device.default()
      device -> Device.normalize!(device)
    end
  end
end
