defmodule Mlx.Compiler.Trace do
  @moduledoc false
  # The one walk over an `Nx.Defn.Expr` graph: every node is visited once, lowered by `Mlx.Lower`
  # and appended to one flat program. It is pure, so what a function compiles to can be tested
  # without native code; the one thing that it does is to count what it lowers, where asked to.

  alias Mlx.Compiler.{Control, Counter, Effects, Function, Order, Progress, Scope, Unsupported}
  alias Mlx.Lower
  alias Mlx.Lower.Check
  alias Mlx.Program.Builder
  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

  @enforce_keys [:instructions, :outputs, :parameters, :captured, :effects, :attended?]
  defstruct [:instructions, :outputs, :parameters, :captured, :effects, :attended?]

  @type effect ::
          {:hook, callback :: {:fn, fun} | {:named, atom, fun | nil}, Nx.Container.t()}
          | {:call, fun, Nx.Container.t(), template :: Nx.Container.t(), opts :: term}

  @type t :: %__MODULE__{
          instructions: [{term, [non_neg_integer]}],
          outputs: [non_neg_integer],
          parameters: [non_neg_integer],
          captured: [Nx.Tensor.t()],
          effects: [effect],
          attended?: boolean
        }

  @operations Map.new(Lower.table())

  # Nodes that only say where a value comes from.
  @no_operations [:parameter, :tensor, :metadata, :elem]

  @doc """
  Compiles `container`, whose parameters are those in `vars`, into one program.

  `:parameters` lists the positions of the parameters that became inputs, in input order;
  `:captured` the constant tensors that follow them.

  `:effects` are the hooks and calls, by number. Where all of them are hooks outside of loops, the
  program has what they are called with as further outputs, so that nobody need wait for it.
  Otherwise it is `:attended?`, and says when each is to be called.

  Options: `:keep`, how many of the first parameters are inputs even when they are not used;
  `:hooks`, the names of hooks that the call gives a callback to; `:counters`, where to count the
  operations that are lowered, see `Mlx.Compiler.Progress`; `:flags`, what the program is to check, see
  `Mlx.Lower.Check`.

  Answers `:c128` for a function that computes with complex numbers of that type, or takes or
  returns them: MLX has none.
  """
  @spec run(Nx.Container.t(), [Nx.Container.t()], keyword) :: t | :c128
  def run(container, vars, opts \\ []) do
    walk(container, vars, opts)
  catch
    {__MODULE__, :c128} -> :c128
  end

  defp walk(container, vars, opts) do
    bindings =
      for %T{data: %Expr{op: :parameter, args: [i], id: id}} <- Composite.flatten_list(vars),
          into: %{},
          do: {id, {:parameter, i}}

    hook_names = Keyword.get(opts, :hooks, [])

    state = %{
      builder: Scope.builder(),
      memo: %{},
      bindings: bindings,
      arguments: nil,
      inputs: %{},
      iterations: nil,
      nodes: 0,
      trips: %{},
      elements: %{},
      parent: nil,
      root: [container],
      shared: nil,
      effects: [],
      hook_names: hook_names,
      effectful: Order.effectful(flatten(container), hook_names),
      counters: opts[:counters],
      flags: Keyword.get(opts, :flags, :off)
    }

    state =
      Enum.reduce(0..(Keyword.get(opts, :keep, 0) - 1)//1, state, fn i, state ->
        {_slot, state} = Scope.input({:parameter, i}, state)
        state
      end)

    state = Order.effects(flatten(container), state)
    {outputs, state} = slots(flatten(container), state)
    effects = Enum.reverse(state.effects)
    attended? = Effects.attended?(effects)
    state = if attended?, do: Effects.place(effects, state), else: state
    more = if attended?, do: [], else: Enum.flat_map(effects, & &1.slots)
    {{_count, instructions, outputs}, inputs} = Scope.numbered(outputs ++ more, state)
    {parameters, captured} = Enum.split_with(inputs, &match?({{:parameter, _}, _}, &1))

    %__MODULE__{
      instructions: instructions,
      outputs: outputs,
      parameters: for({{:parameter, i}, _} <- parameters, do: i),
      captured: for({_input, {_slot, tensor}} <- captured, do: tensor),
      effects: Enum.map(effects, & &1.effect),
      attended?: attended?
    }
  end

  ## Nodes
  #
  # A node's value is a slot, or a tuple where its type is a tuple: of slots and, where it comes
  # from a loop, of numbers that have none yet. `elem` nodes are all that looks into tuples.

  # The id of a constant is its number, type and shape. Where 0.0 and -0.0 are one map key, two
  # constants would share a slot; the builder merges equal ones by their bytes instead.
  @doc "The value of a node."
  def value(%T{type: {:c, 128}}, _state), do: throw({__MODULE__, :c128})

  def value(%T{data: %Expr{op: :constant, args: [number]}} = t, state) do
    constant(number, t, state)
  end

  def value(%T{data: %Expr{id: id, op: op, args: args}} = t, state) do
    case state.memo do
      %{^id => value} ->
        {value, state}

      %{} ->
        if op not in @no_operations, do: Progress.tick(state.counters)
        {outer?, parent} = Scope.outer?(id, state.parent)
        state = %{state | parent: parent}
        {value, state} = if outer?, do: Scope.outer(t, state), else: node(op, args, t, state)
        {value, %{state | memo: Map.put(state.memo, id, value)}}
    end
  end

  defp values(ts, state), do: Enum.map_reduce(ts, state, &value/2)

  @doc "The slots of nodes that are tensors."
  def slots(ts, state) do
    Enum.map_reduce(ts, state, fn t, state ->
      {slot, state} = value(t, state)
      true = is_integer(slot)
      {slot, state}
    end)
  end

  # Parameters are known by id, which also resolves those that a nested scope captured. Only a
  # block does not name its parameters: inside one, an unknown id stands for an argument. At the
  # root it is a parameter of an expression that was made before, as Nx.Defn.Graph does.
  defp node(:parameter, [position], %T{data: %Expr{id: id}} = t, state) do
    case state.bindings do
      %{^id => {:parameter, _} = parameter} -> Scope.input(parameter, state)
      %{^id => binding} -> bound(binding, t, state)
      %{} when state.arguments != nil -> {elem(state.arguments, position), state}
      %{} when state.parent != nil -> Scope.outer(t, state)
      %{} -> Scope.input({:parameter, position}, state)
    end
  end

  defp node(:tensor, [tensor], %T{data: %Expr{id: id}} = t, state) do
    if state.parent, do: Scope.outer(t, state), else: Scope.input({:captured, id}, tensor, state)
  end

  defp node(:metadata, [expr, _metadata], t, state), do: composite(expr, t, state)

  defp node(:elem, [tuple, position], t, state) do
    {value, state} = value(tuple, state)
    bound(elem(value, position), t, state)
  end

  defp node(:cond, [clauses, last], t, state), do: Control.select(clauses, last, t, state)
  defp node(:while, args, t, state), do: Control.loop(Enum.map(args, &flatten/1), t, state)

  defp node(:block, [struct, in_args, default, _callback], t, state) do
    {tensors, options} = Enum.split_while(in_args, &(not is_list(&1)))
    {slots, state} = slots(tensors, state)
    leaves = Enum.zip_with(tensors, slots, &leaf/2)

    case Check.block(state.flags, struct, out(default), leaves ++ options) do
      :default ->
        arguments = state.arguments
        state = Order.effects(flatten(default), %{state | arguments: List.to_tuple(slots)})
        {value, state} = composite(default, t, state)
        {value, %{state | arguments: arguments}}

      tree ->
        emit(tree, t, state)
    end
  end

  defp node(op, [expr, callback, _template, _ref], t, state) when op in [:hook, :io_call] do
    {value, state} = composite(expr, t, state)
    {value, Effects.hook(callback, expr, state)}
  end

  defp node(:runtime_call, [expr, fun, template, opts], t, state) do
    {slots, state} = slots(flatten(expr), state)

    results =
      for %T{type: type, shape: shape} <- Enum.map(flatten(template), &flat/1),
          do: {Mlx.Type.held!(type), shape}

    {id, state} = Effects.effect({:call, fun, expr, template, opts}, :nested, [], state)
    Control.results({{:call, id, results}, Enum.map(slots, &%{data: &1})}, t, state)
  end

  defp node(op, args, t, state) do
    unless is_map_key(@operations, op),
      do: Unsupported.operation!(op, "it is not an operation of this version of Nx")

    {args, state} = arguments(op, args, state)

    case element(op, args, t, state) do
      nil ->
        emit(Check.lower(state.flags, op, flat(t), args), t, state)

      number ->
        {slot, state} = constant(number, t, state)
        {slot, %{state | elements: Map.put(state.elements, slot, number)}}
    end
  end

  # A whole number that is picked out of a tensor that the function holds, as Nx.Random does with its
  # rotations, is known. As an instruction it would stand between those that can be fused.
  defp element(:slice, [%T{data: slot}, starts, lengths, strides], %T{type: {kind, _}} = t, state)
       when kind in [:u, :s] do
    tensor = if Nx.size(t) == 1 and Enum.all?(starts, &is_integer/1), do: Scope.held(slot, state)

    if tensor do
      tensor
      |> Nx.devectorize()
      |> Nx.slice(starts, lengths, strides: strides)
      |> Nx.reshape({})
      |> Nx.to_number()
    end
  end

  defp element(op, [%T{data: slot} | _], %T{type: {kind, _}}, state)
       when op in [:squeeze, :reshape, :as_type] and kind in [:u, :s],
       do: state.elements[slot]

  defp element(_op, _args, _t, _state), do: nil

  # The argument lists of op nodes are those of the `Nx.Backend` callbacks, except that the
  # expression turns static starts of put_slice into constants.
  defp arguments(op, [tensor, starts | rest], state) when op in [:slice, :put_slice] do
    {tensor, state} = argument(tensor, state)

    {starts, state} =
      Enum.map_reduce(starts, state, fn
        start, state when is_integer(start) ->
          {start, state}

        start, state ->
          case Counter.known(start, state) do
            {nil, state} -> argument(start, state)
            {number, state} -> {number, state}
          end
      end)

    {rest, state} = Enum.map_reduce(rest, state, &argument/2)
    {[tensor, starts | rest], state}
  end

  defp arguments(_op, args, state), do: Enum.map_reduce(args, state, &argument/2)

  @doc """
  A node as a leaf for lowering, a function as a program of its own; anything but nodes and lists
  of them as it is.
  """
  def argument(%T{data: %Expr{op: :fun, args: [params, body, _name]}, type: type}, state),
    do: {Function.of(params, body, type, type, state.hook_names, state.flags), state}

  def argument(%T{data: %Expr{}} = t, state) do
    {slot, state} = value(t, state)
    {leaf(t, slot), state}
  end

  def argument([%T{} | _] = list, state), do: Enum.map_reduce(list, state, &argument/2)
  def argument(other, state), do: {other, state}

  @doc "The value of a node or of a container of nodes."
  def composite(%T{} = expr, _t, state), do: value(expr, state)

  def composite(container, _t, state) do
    {values, state} = values(flatten(container), state)
    {List.to_tuple(values), state}
  end

  ## Instructions

  defp emit(trees, %T{type: {:tuple, _}}, state) when is_list(trees) do
    {slots, state} = Enum.map_reduce(trees, state, &add/2)
    {List.to_tuple(slots), state}
  end

  defp emit(tree, _t, state), do: add(tree, state)

  @doc "The slot of a tree."
  def add(tree, state) do
    {slot, builder} = Builder.add(state.builder, tree)
    {slot, %{state | builder: builder}}
  end

  @doc "The slot of a constant with the type and shape of `t`."
  def constant(number, t, state),
    do: add(Check.lower(state.flags, :constant, flat(t), [number]), state)

  @doc "The slot of what a loop variable is bound to."
  def bound({:known, number}, t, state), do: constant(number, t, state)
  def bound(slot, _t, state), do: {slot, state}

  @doc "A leaf for lowering."
  def leaf(t, slot), do: %{flat(t) | data: slot}

  @doc "A template without vectorized axes."
  def flat(%T{vectorized_axes: []} = t), do: t
  def flat(%T{} = t), do: Nx.devectorize(t)

  defp out(%T{} = t), do: flat(t)
  defp out(container), do: Composite.traverse(container, &flat/1)

  @doc "The tensors of a container."
  def flatten(composite), do: Composite.flatten_list([composite])
end
