defmodule Mlx.Compiler.Scope do
  @moduledoc false
  # What a walk over an expression numbers, and the walks inside of it: the programs of branches and
  # loops, which take what they use of the walk around them as inputs.
  #
  # What is an input shows only during the walk, while a program numbers its inputs first. A walk
  # therefore numbers results from a base no program reaches, and inputs in the order met below it;
  # the end renumbers both.

  alias Mlx.Compiler.{Home, Order, Trace}
  alias Mlx.Program.Builder
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @results 1_048_576

  @doc "The builder of a new walk."
  def builder, do: Builder.new(@results)

  @doc "The slot of an input, which the walk may meet for the first time."
  def input(input, tensor \\ nil, state) do
    case state.inputs do
      %{^input => {slot, _tensor}} ->
        {slot, state}

      %{} = inputs ->
        slot = map_size(inputs)
        {slot, %{state | inputs: Map.put(inputs, input, {slot, tensor})}}
    end
  end

  @doc """
  The program `{inputs, instructions, outputs}` of a walk, and its inputs in order: parameters by
  position, then the others as they were met.
  """
  def numbered(outputs, state) do
    {parameters, others} =
      state.inputs
      |> Enum.sort_by(fn {_input, {slot, _tensor}} -> slot end)
      |> Enum.split_with(&match?({{:parameter, _}, _}, &1))

    inputs = Enum.sort(parameters) ++ others
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

    {{count, instructions, Enum.map(outputs, rename)}, inputs}
  end

  @doc """
  The program of a branch or of a loop's body. Its inputs are `params`, and after them what it uses
  of the walk around it: the slots there, which are the second of what it answers.

  `walk` answers the slots to return. `exprs` are the expressions that it walks, if they are whole.
  """
  @spec inside([T.t()], [Nx.Container.t()], map, (map -> {[non_neg_integer], map})) ::
          {{non_neg_integer, list, [non_neg_integer]}, [non_neg_integer], map}
  def inside(params, exprs, state, walk) do
    own = for {%T{data: %Expr{id: id}}, i} <- Enum.with_index(params), do: {id, {:parameter, i}}
    known = Map.filter(state.bindings, &match?({_id, {:known, _}}, &1))

    inner = %{
      state
      | builder: Builder.new(@results),
        memo: %{},
        bindings: Map.merge(known, Map.new(own)),
        arguments: nil,
        inputs: %{},
        elements: %{},
        parent: state,
        root: exprs,
        shared: nil
    }

    inner =
      Enum.reduce(own, inner, fn {_id, parameter}, inner ->
        {_slot, inner} = input(parameter, inner)
        inner
      end)

    {outputs, inner} = exprs |> Enum.flat_map(&Trace.flatten/1) |> Order.effects(inner) |> walk.()
    {program, inputs} = numbered(outputs, inner)

    # What is written out inside counts for the loop that is written out around it.
    nodes = inner.nodes + map_size(inner.memo)
    parent = %{inner.parent | iterations: inner.iterations, nodes: nodes}
    {program, for({{:outer, slot}, _} <- inputs, do: slot), parent}
  end

  @doc "Programs that take the same inputs: `own` ones, and all slots that any of them uses."
  def unite(programs, own) do
    uses = programs |> Enum.flat_map(fn {_program, uses} -> uses end) |> Enum.uniq()
    positions = uses |> Enum.with_index(own) |> Map.new()

    united =
      for {{inputs, instructions, outputs}, used} <- programs do
        moved = Map.new(Enum.with_index(used, own), fn {slot, i} -> {i, positions[slot]} end)
        shift = own + length(uses) - inputs

        rename = fn
          slot when slot < own -> slot
          slot when slot < inputs -> Map.fetch!(moved, slot)
          slot -> slot + shift
        end

        instructions = for {op, slots} <- instructions, do: {op, Enum.map(slots, rename)}
        {own + length(uses), instructions, Enum.map(outputs, rename)}
      end

    {united, uses}
  end

  @doc "Whether a walk has used any of its parameters at `positions`, or returns it as `slots`."
  def uses?(positions, slots, state) do
    inputs = for i <- positions, into: MapSet.new(), do: elem(state.inputs[{:parameter, i}], 0)
    operands = Stream.flat_map(Builder.instructions(state.builder), fn {_op, slots} -> slots end)
    Enum.any?(Stream.concat(slots, operands), &(&1 in inputs))
  end

  @doc "The walk without its parameters at `positions`, which it has not used."
  def without(positions, state),
    do: %{state | inputs: Map.drop(state.inputs, for(i <- positions, do: {:parameter, i}))}

  @doc """
  Whether a node that is met inside belongs outside: what has been computed there, and what is used
  there as well, which must not happen twice. Answers the walk there with it.
  """
  def outer?(_id, nil), do: {false, nil}

  def outer?(id, parent) do
    if is_map_key(parent.memo, id) do
      {true, parent}
    else
      parent = %{parent | shared: parent.shared || Home.ids(parent.root)}

      if is_map_key(parent.shared, id) do
        {true, parent}
      else
        {outer?, grandparent} = outer?(id, parent.parent)
        {outer?, %{parent | parent: grandparent}}
      end
    end
  end

  @doc "The tensor of the function's own that a slot stands for, if it does."
  def held(slot, state) do
    Enum.find_value(state.inputs, fn
      {{:captured, _id}, {^slot, tensor}} -> tensor
      _other -> nil
    end)
  end

  @doc "The value of a node that belongs outside, as an input."
  def outer(t, state) do
    {value, parent} = Trace.value(t, state.parent)
    state = %{state | parent: parent}

    cond do
      is_integer(value) ->
        input({:outer, value}, state)

      is_tuple(value) and elem(value, 0) != :known ->
        {slots, state} = value |> Tuple.to_list() |> Enum.map_reduce(state, &outer_slot/2)
        {List.to_tuple(slots), state}

      true ->
        {value, state}
    end
  end

  defp outer_slot(slot, state) when is_integer(slot), do: input({:outer, slot}, state)
  defp outer_slot(known, state), do: {known, state}
end
