defmodule Mlx.Compiler.Build do
  @moduledoc false
  # From a function and the types of its arguments to a program that is ready to run: found in the
  # cache, or traced, lowered and built.

  alias Mlx.{Flags, Native, Source}
  alias Mlx.Backend.Bits
  alias Mlx.Compiler.{Cache, Debug, Key, Options, Order, Output, Progress, Trace}
  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T

  @typedoc "What a call needs. A function with c128 in it has an expression in place of a program."
  @type program :: map

  @doc """
  The program of a function for arguments like `vars`, and whether it was there.

  A program belongs to the worker of its device, whose its constants are, and its key names that, so
  that a restarted worker finds nothing. Streams of the device run it as well.
  `now` is the time of the call, for the cache to note.
  """
  @spec fetch(fun, [term], fun, Options.t(), integer) :: {program, cached? :: boolean}
  def fetch(key, vars, fun, %Options{debug: true} = options, _now),
    do: {compile(key, vars, fun, options), false}

  def fetch(key, vars, fun, options, now) do
    names = Options.hook_names(options)
    variant = Options.variant(options)
    cache_key = {Key.of(key), Options.home(options), signature(vars), names, variant}

    case Cache.lookup(cache_key, now) do
      nil ->
        metadata = %{key: key, device: Options.device(options)}
        compile = fn -> key |> compile(vars, fun, options) |> without_expression() end
        {with_expression(Cache.fetch(cache_key, metadata, compile), vars, fun), false}

      program ->
        {with_expression(program, vars, fun), true}
    end
  end

  # What the cache holds is copied, which an expression must not be: see Mlx.Compiler.Key.
  defp without_expression(%{evaluated: _expr} = program), do: %{program | evaluated: nil}
  defp without_expression(program), do: program

  defp with_expression(%{evaluated: nil} = program, vars, fun),
    do: %{program | evaluated: fun.(vars)}

  defp with_expression(program, _vars, _fun), do: program

  # Everything about the arguments that tracing can see. A container's own fields are part of it.
  defp signature(vars), do: Enum.map(vars, &signature_of/1)

  defp signature_of(%{__struct__: T, donatable?: true} = t),
    do: {:donatable, signature_of(%{t | donatable?: false})}

  defp signature_of(%T{type: type, shape: shape, names: names, vectorized_axes: axes}),
    do: {type, shape, names, axes}

  defp signature_of(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> signature() |> List.to_tuple()

  defp signature_of(%_{} = struct) do
    {container, :ok} = Nx.Container.traverse(struct, :ok, fn t, :ok -> {signature_of(t), :ok} end)
    container
  end

  defp signature_of(%{} = map), do: :maps.map(fn _key, value -> signature_of(value) end, map)

  ## Compilation

  defp compile(key, vars, fun, options) do
    source = Source.entry(key)
    metadata = %{key: key, device: Options.device(options)}

    :telemetry.span([:mlx, :compile], metadata, fn ->
      {program, sizes, times} =
        Progress.watch(source, &compile(source, vars, fun, options, &1))

      {program, times, Map.merge(metadata, sizes)}
    end)
  end

  # What the function itself raises is raised as it is: its stacktrace has the line.
  defp compile(source, vars, fun, options, progress) do
    {expr, trace_time} =
      Progress.phase(progress, :trace, fn -> Order.traced(fn -> fun.(vars) end) end)

    flags = Flags.compiled(options.flags)
    opts = [hooks: Options.hook_names(options), counters: progress.counters, flags: flags]

    {trace, lower_time} =
      Progress.phase(progress, :lower, fn ->
        naming(source, fn -> Trace.run(expr, vars, opts) end)
      end)

    {{program, sizes}, build_time} =
      Progress.phase(progress, :build, fn ->
        naming(source, fn -> build(trace, expr, vars, source, options) end)
      end)

    times = %{trace: trace_time, lower: lower_time, build: build_time}
    if options.debug and trace != :c128, do: IO.puts(Debug.summary(trace, times))
    {program, Map.put(sizes, :operations, Progress.operations(progress)), times}
  end

  defp build(:c128, expr, vars, source, options) do
    if options.debug, do: IO.puts(Debug.text(:c128, source, vars, expr))
    {home, device} = {Options.home(options), Options.device(options)}
    program = %{evaluated: expr, source: source, home: home, device: device}
    {program, %{instructions: 0, inputs: length(Composite.flatten_list(vars)), outputs: 0}}
  end

  defp build(trace, expr, vars, source, options) do
    inputs = input_types(trace, vars)
    home = Options.home(options)
    output = Output.plan(expr)
    if options.debug, do: IO.puts(Debug.text(trace, source, vars, expr))

    program = %{
      native: Native.build(inputs, trace.instructions, trace.outputs, source, options.fuse),
      home: home,
      device: Options.device(options),
      used: used(trace.parameters, 0),
      donated: donated(trace, vars),
      captured: Enum.map(trace.captured, &upload(&1, home)),
      output: output,
      effects: trace.effects |> Enum.map(&effect/1) |> List.to_tuple(),
      attended?: trace.attended?
    }

    sizes = %{
      instructions: length(trace.instructions),
      inputs: length(inputs),
      outputs: length(trace.outputs)
    }

    {program, sizes}
  end

  @doc "Calls `fun`. What Mlx raises there says that it happened while compiling `source`."
  @spec naming(Source.t() | nil, (-> result)) :: result when result: var
  def naming(nil, fun), do: fun.()

  def naming(source, fun) do
    fun.()
  rescue
    error in Mlx.Error ->
      reraise %{error | function: source, stage: :compile}, __STACKTRACE__

    error in ArgumentError ->
      message = Exception.message(error) <> Mlx.Error.place(:compile, source)
      reraise %{error | message: message}, __STACKTRACE__
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

  # The inputs that the caller of a newer Nx has marked with Nx.donatable/1.
  defp donated(trace, vars) do
    vars = vars |> Composite.flatten_list() |> List.to_tuple()

    for {i, input} <- Enum.with_index(trace.parameters),
        match?(%{donatable?: true}, elem(vars, i)),
        do: input
  end

  # Which of the flat arguments are inputs, ending with the last one that is.
  defp used([], _position), do: []
  defp used([position | rest], position), do: [true | used(rest, position + 1)]
  defp used(parameters, position), do: [false | used(parameters, position + 1)]

  @doc "The elements of a tensor, of any backend, as an array of the worker."
  @spec upload(Nx.Tensor.t(), Native.worker()) :: Native.array()
  def upload(tensor, worker) do
    %T{type: type, shape: shape} = tensor = Nx.devectorize(tensor)
    Bits.write(worker, type, shape, Nx.to_binary(tensor))
  end
end
