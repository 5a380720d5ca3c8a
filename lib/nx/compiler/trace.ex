defmodule Mlx.Compiler.Trace do
  @moduledoc false
  # The one walk over an `Nx.Defn.Expr` graph: every node is visited once, lowered by `Mlx.Lower`
  # and appended to one flat program. It is pure, so what a function compiles to can be tested
  # without native code.
  #
  # What is an input shows only during the walk (used parameters, captured tensors), while a
  # program numbers its inputs first. The walk therefore numbers results from a base no program
  # reaches, and inputs in the order met below it; the end renumbers both.

  alias Mlx.Compiler.{Control, Counter, Function, Unsupported}
  alias Mlx.Lower
  alias Mlx.Program.Builder
  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

  @enforce_keys [:instructions, :outputs, :parameters, :captured, :hooks]
  defstruct [:instructions, :outputs, :parameters, :captured, :hooks]

  @type hook ::
          {callback :: {:fn, fun} | {:named, atom, fun | nil}, Nx.Container.t(),
           branch? :: boolean}

  @type t :: %__MODULE__{
          instructions: [{term, [non_neg_integer]}],
          outputs: [non_neg_integer],
          parameters: [non_neg_integer],
          captured: [Nx.Tensor.t()],
          hooks: [hook]
        }

  @results 1_048_576
  @operations Map.new(Lower.table())

  @doc """
  Compiles `container`, whose parameters are those in `vars`, into one program.

  `:parameters` lists the positions of the parameters that became inputs, in input order;
  `:captured` the constant tensors that follow them. `:outputs` are those of the container,
  followed by what each of `:hooks` is called with and, where it is in a branch, whether that is
  taken.

  Options: `:keep`, how many of the first parameters are inputs even when they are not used;
  `:hooks`, the names of hooks that the call gives a callback to.

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

    state = %{
      builder: Builder.new(@results),
      memo: %{},
      bindings: bindings,
      arguments: nil,
      inputs: %{},
      iterations: nil,
      nodes: 0,
      scope: nil,
      path: [],
      guarded?: false,
      safe: [],
      hooks: [],
      hook_names: Keyword.get(opts, :hooks, [])
    }

    state =
      Enum.reduce(0..(Keyword.get(opts, :keep, 0) - 1)//1, state, fn i, state ->
        {_slot, state} = input({:parameter, i}, state)
        state
      end)

    {outputs, state} = slots(flatten(container), state)
    hooks = Enum.reverse(state.hooks)
    number(outputs ++ Enum.flat_map(hooks, & &1.slots), hooks, state)
  end

  defp number(outputs, hooks, state) do
    {parameters, captured} =
      state.inputs
      |> Enum.sort_by(fn {_input, {slot, _tensor}} -> slot end)
      |> Enum.split_with(&match?({{:parameter, _}, _}, &1))

    inputs = Enum.sort(parameters) ++ captured
    count = length(inputs)
    slots = for {_input, {slot, _tensor}} <- inputs, do: slot
    renamed = slots |> Enum.with_index() |> Map.new()

    rename = fn
      slot when slot < @results -> Map.fetch!(renamed, slot)
      slot -> slot - @results + count
    end

    instructions =
      for {op, operands} <- Builder.instructions(state.builder),
          do: {op, Enum.map(operands, rename)}

    %__MODULE__{
      instructions: instructions,
      outputs: Enum.map(outputs, rename),
      parameters: for({{:parameter, i}, _} <- parameters, do: i) |> Enum.sort(),
      captured: for({_input, {_slot, tensor}} <- captured, do: tensor),
      hooks: for(hook <- hooks, do: {hook.callback, hook.expr, hook.path != []})
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
        {value, state} = node(op, args, t, state)
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
      %{^id => {:parameter, _} = parameter} -> input(parameter, state)
      %{^id => binding} -> bound(binding, t, state)
      %{} when state.arguments == nil -> input({:parameter, position}, state)
      %{} -> {elem(state.arguments, position), state}
    end
  end

  defp node(:tensor, [tensor], %T{data: %Expr{id: id}}, state) do
    input({:captured, id}, tensor, state)
  end

  defp node(:metadata, [expr, _metadata], t, state), do: composite(expr, t, state)

  defp node(:elem, [tuple, position], t, state) do
    {value, state} = value(tuple, state)
    bound(elem(value, position), t, state)
  end

  defp node(:cond, [clauses, last], t, state), do: Control.select(clauses, last, t, state)
  defp node(:while, args, t, state), do: Control.unroll(Enum.map(args, &flatten/1), t, state)

  defp node(:block, [struct, in_args, default, _callback], t, state) do
    {tensors, options} = Enum.split_while(in_args, &(not is_list(&1)))
    {slots, state} = slots(tensors, state)
    leaves = Enum.zip_with(tensors, slots, &leaf/2)

    lower = fn leaves -> Lower.block(struct, out(default), leaves ++ options) end

    case lower.(leaves) do
      :default ->
        arguments = state.arguments
        {value, state} = composite(default, t, %{state | arguments: List.to_tuple(slots)})
        {value, %{state | arguments: arguments}}

      tree ->
        if Control.fallible?(struct, state),
          do: Control.guarded(leaves, state, &emit(lower.(&1), t, &2)),
          else: emit(tree, t, state)
    end
  end

  defp node(op, [expr, callback, _template, ref], t, state) when op in [:hook, :io_call] do
    {value, state} = composite(expr, t, state)
    {value, hook(callback, expr, ref, state)}
  end

  defp node(:runtime_call, _args, _t, _state), do: Unsupported.node!(:runtime_call)

  defp node(op, args, t, state) do
    unless is_map_key(@operations, op),
      do: Unsupported.operation!(op, "it is not an operation of this version of Nx")

    {args, state} = arguments(op, args, state)
    lower = fn args, state -> emit(Lower.lower(op, flat(t), args), t, state) end

    if Control.fallible?(op, state),
      do: Control.guarded(args, state, lower),
      else: lower.(args, state)
  end

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
    do: {Function.of(params, body, type, type), state}

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
  def constant(number, t, state), do: add(Lower.lower(:constant, flat(t), [number]), state)

  @doc "The slot of what a loop variable is bound to."
  def bound({:known, number}, t, state), do: constant(number, t, state)
  def bound(slot, _t, state), do: {slot, state}

  defp input(input, tensor \\ nil, state) do
    case state.inputs do
      %{^input => {slot, _tensor}} ->
        {slot, state}

      %{} = inputs ->
        slot = map_size(inputs)
        {slot, %{state | inputs: Map.put(inputs, input, {slot, tensor})}}
    end
  end

  @doc "A leaf for lowering."
  def leaf(t, slot), do: %{flat(t) | data: slot}

  @doc "A template without vectorized axes."
  def flat(%T{vectorized_axes: []} = t), do: t
  def flat(%T{} = t), do: Nx.devectorize(t)

  defp out(%T{} = t), do: flat(t)
  defp out(container), do: Composite.traverse(container, &flat/1)

  @doc "The tensors of a container."
  def flatten(composite), do: Composite.flatten_list([composite])

  # A hook is called with further outputs of the program, once it is posted, in the order in
  # which the walk meets them: that of the evaluator. A named one without a callback is nothing.
  # In the evaluator, what a token is attached to comes first as well.
  defp hook({:token_hook, expr, callback}, _expr, ref, state),
    do: hook(callback, expr, ref, state)

  defp hook({:named, name, nil} = callback, expr, ref, state) do
    if name in state.hook_names, do: add_hook(callback, expr, ref, state), else: state
  end

  defp hook(callback, expr, ref, state), do: add_hook(callback, expr, ref, state)

  # In a branch, one more output says whether it is taken. A node that branches share is met in
  # each of them; where it is met again on the way to all of an earlier place, it counts here.
  defp add_hook(callback, expr, ref, %{path: path, scope: scope} = state) do
    {slots, state} = slots(flatten(expr), state)
    {taken, state} = if path == [], do: {[], state}, else: Control.taken_slots(state)

    hooks =
      Enum.reject(state.hooks, fn hook ->
        hook.ref == ref and hook.scope == scope and Control.within?(hook.path, path)
      end)

    hook = %{
      callback: callback,
      expr: expr,
      slots: slots ++ taken,
      ref: ref,
      path: path,
      scope: scope
    }

    %{state | hooks: [hook | hooks], guarded?: state.guarded? or path != []}
  end
end
