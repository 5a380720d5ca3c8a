defmodule Mlx.Compiler.Function do
  @moduledoc false
  # The functions of reductions, traced into programs of two scalars.

  @behaviour Nx.Defn.Compiler

  alias Mlx.Compiler.{Closed, Trace, Tracer, Unsupported}
  alias Mlx.Flags
  alias Mlx.Lower.Body
  alias Mlx.Program.Builder
  alias Nx.Tensor, as: T

  # A function may make another type than it was given to begin with; a few times around, the type
  # is one that it keeps.
  @attempts 4

  @doc """
  Traces `fun` for elements and a start of these types. What cannot be traced (a function that
  reads values, or computes with tensors of its own) answers the exception that says so.
  """
  @spec trace(fun, Nx.Type.t(), Nx.Type.t(), Flags.t()) ::
          {:ok, Body.t()} | {:error, Exception.t()}
  def trace(fun, element, acc, flags), do: trace(fun, element, acc, flags, @attempts)

  defp trace(fun, element, acc, flags, attempts) do
    case expression(fun, element, acc) do
      {params, %T{type: type} = body} when type == acc or attempts == 0 ->
        {:ok, of(params, body, element, acc, [], flags)}

      {_params, %T{type: type}} ->
        trace(fun, element, Nx.Type.merge(acc, type), flags, attempts - 1)
    end
  rescue
    exception -> {:error, exception}
  end

  # A function that refuses expressions may take tensors that stand for them.
  defp expression(fun, element, acc) do
    jit(&fun.(&1, &2), element, acc)
  rescue
    ArgumentError -> jit(&(fun |> through(&1, &2) |> Tracer.unwrap()), element, acc)
  end

  defp through(fun, x, acc) do
    Nx.with_default_backend(Tracer, fn -> fun.(Tracer.wrap(x), Tracer.wrap(acc)) end)
  end

  defp jit(fun, element, acc) do
    templates = [Nx.template({}, element), Nx.template({}, acc)]
    Nx.Defn.jit_apply(fun, templates, compiler: __MODULE__, on_conflict: :force)
  end

  @doc """
  The body of a `fun` node, whose parameters are an element and what is so far, and hooks of what
  names have a callback: none can be called from there.

  It makes checks as the flags say. One operation is checked with the reduction that it is part of,
  for it may become another; elements are looked at by the many, so that shapes say nothing.
  """
  @spec of([T.t()], T.t(), Nx.Type.t(), Nx.Type.t(), [atom], Flags.t()) :: Body.t()
  def of(params, body, element, acc, hooks, flags) do
    plain = of(params, body, element, acc, hooks: hooks)

    if flags == :off or length(plain.instructions) == 1,
      do: plain,
      else: of(params, body, element, acc, hooks: hooks, flags: %{flags | check_results: false})
  end

  defp of(params, body, element, acc, opts) do
    case Trace.run(body, params, [keep: 2] ++ opts) do
      :c128 ->
        Unsupported.node!(:c128)

      %{effects: [_ | _]} ->
        Unsupported.node!(:fun)

      trace ->
        {instructions, [output]} = Closed.instructions(trace, 2)
        {output, instructions} = converted(output, instructions, body.type, acc)
        %Body{instructions: instructions, output: output, element: element, acc: acc}
    end
  end

  defp converted(output, instructions, type, type), do: {output, instructions}

  defp converted(output, instructions, from, to) do
    slots = 2 + Enum.sum_by(instructions, fn {op, _} -> Builder.outputs(op) end)
    made = %T{data: output, type: from, shape: {}, names: []}
    tree = Mlx.Lower.lower(:as_type, %{made | type: to}, [made])
    {slot, builder} = Builder.add(Builder.new(slots), tree)
    {slot, instructions ++ Builder.instructions(builder)}
  end

  ## Nx.Defn.Compiler, whose result is the parameters and the expression

  @impl true
  def __jit__(_key, vars, fun, [_args], _opts) do
    case fun.(vars) do
      %T{shape: {}, vectorized_axes: []} = body ->
        [{vars, body}]

      other ->
        raise ArgumentError,
              "the function of a reduction must return a scalar, got: #{inspect(other)}"
    end
  end

  @impl true
  def __compile__(_key, _vars, _fun, _opts), do: raise("a function is traced, not compiled")

  @impl true
  def __partitions_options__(opts), do: [opts]

  @impl true
  def __to_backend__(opts), do: Mlx.Compiler.__to_backend__(opts)
end
