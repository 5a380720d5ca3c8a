defmodule Mlx.Compiler.Control do
  @moduledoc false
  # Control flow. Short loops whose trip count the expression fixes are written out, and of cheap
  # branches all are computed and the result is selected: neither waits for a value. Other loops
  # and branches become operations that hold programs.

  alias Mlx.Compiler.{Counter, Order, Scope, Trace}
  alias Mlx.Lower
  alias Nx.Defn.{Expr, Tree}
  alias Nx.Tensor, as: T

  # An unrolled loop pays for each iteration when it is compiled. Nx.Random's threefry takes 25.
  @max_iterations 256
  @max_nodes 32_768

  # Branches that cost less than to wait for their predicate.
  @cheap_nodes 32
  @cheap_size 65_536
  @pointwise for family <- [Lower.Elementwise, Lower.Float, Lower.Integer, Lower.Convert],
                 {name, _status} <- family.__lowered__(),
                 into: %{parameter: true, constant: true, metadata: true},
                 do: {name, true}
  @cheap Map.merge(@pointwise, %{
           tensor: true,
           elem: true,
           reshape: true,
           squeeze: true,
           broadcast: true,
           transpose: true
         })

  # A loop of pointwise operations is run over tiles, up to so many nodes of Nx. Written out, each
  # of them would be an operation of MLX for each iteration.
  @pointwise_nodes 64

  @truth %T{type: {:u, 8}, shape: {}, names: []}

  ## Branches

  @doc """
  The value of a cond. Its branches have the same types and shapes: Nx casts and broadcasts them
  when it builds the node.
  """
  def select(clauses, last, t, state) do
    {clauses, last, state} = decide(clauses, [], last, state)

    cond do
      clauses == [] ->
        Trace.composite(last, t, state)

      selects?(state.flags) and cheap?(clauses, last, state) ->
        select_all(clauses, last, t, state)

      true ->
        branch(clauses, last, t, state)
    end
  end

  # Predicates whose value is known at this point need no selection.
  defp decide([{predicate, body} = clause | rest], undecided, last, state) do
    case Counter.known(predicate, state) do
      {nil, state} -> decide(rest, [clause | undecided], last, state)
      {0, state} -> decide(rest, undecided, last, state)
      {_true, state} -> {Enum.reverse(undecided), body, state}
    end
  end

  defp decide([], undecided, last, state), do: {Enum.reverse(undecided), last, state}

  # What is not taken must not be looked at.
  defp selects?(:off), do: true
  defp selects?(flags), do: flags.detect_non_finite == false

  defp cheap?(clauses, last, state) do
    exprs = Enum.flat_map(clauses, fn {predicate, body} -> [predicate | Trace.flatten(body)] end)
    seen = Enum.reduce_while(exprs ++ Trace.flatten(last), %{}, &cost(&1, &2, state.memo))
    seen != :dear
  catch
    :dear -> false
  end

  defp cost(t, seen, memo), do: {:cont, visit(t, seen, memo)}

  defp visit(%T{data: %Expr{id: id}}, seen, memo)
       when is_map_key(seen, id) or is_map_key(memo, id),
       do: seen

  defp visit(%T{data: %Expr{id: id, op: op}} = t, seen, memo) do
    fits? = match?({:tuple, _}, t.type) or Nx.size(t.shape) <= @cheap_size
    unless is_map_key(@cheap, op) and fits? and map_size(seen) < @cheap_nodes, do: throw(:dear)
    {_t, seen} = Tree.apply_args(t, Map.put(seen, id, true), &{&1, visit(&1, &2, memo)})
    seen
  end

  defp select_all(clauses, last, t, state) do
    {branches, state} = Enum.map_reduce(clauses, state, &clause/2)
    {default, state} = Trace.slots(Trace.flatten(last), state)
    {slots, state} = branches |> Enum.reverse() |> Enum.reduce({default, state}, &choose/2)
    {value(slots, t), state}
  end

  defp clause({predicate, body}, state) do
    {slot, state} = Trace.value(predicate, state)
    {slots, state} = Trace.slots(Trace.flatten(body), state)
    templates = Enum.map(Trace.flatten(body), &Trace.flat/1)
    {{Trace.leaf(predicate, slot), templates, slots}, state}
  end

  defp choose({predicate, templates, slots}, {otherwise, state}) do
    [templates, slots, otherwise]
    |> Enum.zip()
    |> Enum.map_reduce(state, fn {template, slot, other}, state ->
      args = [predicate, Trace.leaf(template, slot), Trace.leaf(template, other)]
      Trace.add(Lower.lower(:select, template, args), state)
    end)
  end

  # The first clause, and all others as the program of its other branch.
  defp branch([{predicate, body} | rest], last, t, state) do
    {predicate, state} = truth(predicate, state)
    {then, then_uses, state} = Scope.inside([], [body], state, &whole([body], &1))

    {otherwise, otherwise_uses, state} =
      if rest == [],
        do: Scope.inside([], [last], state, &whole([last], &1)),
        else: Scope.inside([], [], state, &others(rest, last, t, &1))

    {[then, otherwise], uses} = Scope.unite([{then, then_uses}, {otherwise, otherwise_uses}], 0)
    results({{:if, then, otherwise}, [predicate | leaves(uses)]}, t, state)
  end

  defp whole(exprs, state), do: exprs |> Enum.flat_map(&Trace.flatten/1) |> Trace.slots(state)

  defp others([{predicate, _body} | _rest] = clauses, last, t, state) do
    state = Order.effects([predicate], state)

    case branch(clauses, last, t, state) do
      {slots, state} when is_tuple(slots) -> {Tuple.to_list(slots), state}
      {slot, state} -> {[slot], state}
    end
  end

  # A scalar whose bytes say whether it is true: all but those of zero. A float has two zeros.
  defp truth(%T{type: {kind, _}} = predicate, state) when kind in [:u, :s] do
    {slot, state} = Trace.value(predicate, state)
    {%{data: slot}, state}
  end

  defp truth(predicate, state) do
    {slot, state} = Trace.value(predicate, state)
    predicate = Trace.leaf(predicate, slot)
    {zero, state} = Trace.constant(0, predicate, state)
    tree = Lower.lower(:not_equal, @truth, [predicate, Trace.leaf(predicate, zero)])
    {slot, state} = Trace.add(tree, state)
    {%{data: slot}, state}
  end

  ## Loops

  @doc """
  The value of a loop. What each of its variables is worth at an iteration is a slot or
  `{:known, number}`.
  """
  def loop([initial, params, [condition], body] = loop, t, state) do
    {trips, state} = Counter.trips(initial, params, condition, body, state)

    if pointwise?(trips, params, body) do
      rolled(loop, trips, t, state)
    else
      case unrolled(loop, trips, t, state) do
        {:ok, value, state} -> {value, state}
        :too_large -> rolled(loop, trips, t, state)
      end
    end
  end

  defp pointwise?({trips, _ends}, params, body) when trips > 2 do
    shape = Enum.find_value(params, {}, fn %T{shape: shape} -> shape != {} && shape end)
    Enum.reduce(body, %{}, &pointwise(&1, &2, shape))
    true
  catch
    :other -> false
  end

  defp pointwise?(_trips, _params, _body), do: false

  defp pointwise(%T{data: %Expr{id: id}}, seen, _shape) when is_map_key(seen, id), do: seen

  defp pointwise(%T{data: %Expr{id: id, op: op}} = t, seen, shape) do
    number? = t.shape == {} and is_map_key(@pointwise, op)
    row? = t.shape == shape and op != :constant and is_map_key(@pointwise, op)
    unless (number? or row?) and map_size(seen) < @pointwise_nodes, do: throw(:other)
    {_t, seen} = Tree.apply_args(t, Map.put(seen, id, true), &{&1, pointwise(&1, &2, shape)})
    seen
  end

  # An inner loop that goes beyond what may be written out has the outermost one try otherwise.
  defp unrolled(_loop, :unknown, _t, _state), do: :too_large
  defp unrolled(_loop, {trips, _}, _t, _state) when trips > @max_iterations, do: :too_large

  defp unrolled(loop, _trips, t, %{iterations: nil} = state) do
    {value, state} = unroll(loop, t, %{state | iterations: @max_iterations, nodes: 0})
    {:ok, value, %{state | iterations: nil}}
  catch
    {__MODULE__, :too_large} -> :too_large
  end

  defp unrolled(loop, _trips, t, state) do
    {value, state} = unroll(loop, t, state)
    {:ok, value, state}
  end

  defp unroll([initial, params, [condition], body], t, outer) do
    {bindings, state} = Enum.map_reduce(initial, outer, &bind/2)
    {bindings, state} = iterate(bindings, params, condition, body, state)
    state = %{state | memo: outer.memo, bindings: outer.bindings}

    # Counters that nothing reads later need no instruction.
    case {t.type, bindings, params} do
      {{:tuple, _}, bindings, _params} -> {List.to_tuple(bindings), state}
      {_single, [binding], [param]} -> Trace.bound(binding, param, state)
    end
  end

  defp iterate(bindings, params, condition, body, state) do
    scope =
      for {%T{data: %Expr{id: id}}, binding} <- Enum.zip(params, bindings),
          into: state.bindings,
          do: {id, binding}

    # The body means something else each time around, so what it computed is forgotten.
    state = %{state | memo: %{}, bindings: scope}

    case Counter.known(condition, state) do
      {0, state} ->
        {bindings, state}

      {_true, %{iterations: left}} when left > 0 ->
        # Loops inside draw on the same number of iterations.
        state = Order.effects(body, %{state | iterations: left - 1})
        {bindings, state} = body |> Enum.zip(params) |> Enum.map_reduce(state, &rebind/2)
        nodes = state.nodes + map_size(state.memo)
        if nodes > @max_nodes, do: throw({__MODULE__, :too_large})
        iterate(bindings, params, condition, body, %{state | nodes: nodes})

      _unknown_or_too_long ->
        throw({__MODULE__, :too_large})
    end
  end

  defp bind(t, state) do
    case Counter.known(t, state) do
      {nil, state} -> Trace.value(t, state)
      {number, state} -> {{:known, number}, state}
    end
  end

  # In its gradients, Nx has loops whose body makes another type than the variable has.
  defp rebind({t, param}, state) do
    case bind(t, state) do
      {slot, state} when is_integer(slot) -> converted(slot, t, param, state)
      known -> known
    end
  end

  defp returned(body, params, state),
    do: Enum.zip(body, params) |> Enum.map_reduce(state, &return/2)

  defp return({t, param}, state) do
    {[slot], state} = Trace.slots([t], state)
    converted(slot, t, param, state)
  end

  defp converted(slot, %T{type: type}, %T{type: type}, state), do: {slot, state}

  defp converted(slot, t, %T{type: type}, state) do
    leaf = Trace.leaf(t, slot)
    Trace.add(Lower.lower(:as_type, %{leaf | type: type}, [leaf]), state)
  end

  defp rolled([initial, params, [condition], body], :unknown, t, state) do
    {start, state} = Trace.slots(initial, state)
    {body, body_uses, state} = Scope.inside(params, body, state, &returned(body, params, &1))

    {condition, condition_uses, state} =
      Scope.inside(params, [condition], state, fn state ->
        {%{data: slot}, state} = truth(condition, state)
        {[slot], state}
      end)

    programs = [{condition, condition_uses}, {body, body_uses}]
    {[condition, body], uses} = Scope.unite(programs, length(params))
    results({{:while, condition, body}, leaves(start ++ uses)}, t, state)
  end

  # Counters that nothing but the condition needs are not counted.
  defp rolled([initial, params, _condition, body], {trips, ends}, t, state) do
    {program, uses, state} = Scope.inside(params, body, state, &repeat(body, params, ends, &1))
    all? = length(elem(program, 2)) == length(body)
    kept = for number <- ends, do: all? or number == nil
    {start, state} = Trace.slots(for({true, t} <- Enum.zip(kept, initial), do: t), state)
    {slot, state} = Trace.add({{:repeat, trips, program}, leaves(start ++ uses)}, state)
    {values, _} = Enum.map_reduce(Enum.zip(kept, ends), slot, &repeated/2)
    {value(values, t), state}
  end

  # Neither takes nor returns the variables whose end is known, if nothing else needs them.
  defp repeat(body, params, ends, state) do
    {unknown, theirs} =
      Enum.unzip(for {t, param, nil} <- Enum.zip([body, params, ends]), do: {t, param})

    {slots, state} = returned(unknown, theirs, state)
    counted = for {number, i} <- Enum.with_index(ends), number != nil, do: i

    if slots == [] or Scope.uses?(counted, slots, state),
      do: returned(body, params, state),
      else: {slots, Scope.without(counted, state)}
  end

  defp repeated({true, _number}, slot), do: {slot, slot + 1}
  defp repeated({false, number}, slot), do: {{:known, number}, slot}

  ## Programs as operands

  defp leaves(slots), do: Enum.map(slots, &%{data: &1})

  @doc "The value of an operation that has a result for each tensor of `t`."
  def results({op, _operands} = tree, t, state) do
    {slot, state} = Trace.add(tree, state)
    {value(Enum.to_list(slot..(slot + Mlx.Program.Builder.outputs(op) - 1)//1), t), state}
  end

  defp value(slots, %T{type: {:tuple, _}}), do: List.to_tuple(slots)
  defp value([slot], _t), do: slot
end
