defmodule Mlx.Compiler.Control do
  @moduledoc false
  # Control flow without control flow: loops whose trip count the expression fixes are written
  # out, and of branches all are computed and the result is selected. Both are sound for programs
  # whose instructions cannot fail and have no effect; those that may fail get an operand that
  # they cannot fail on wherever their branch is not taken.

  alias Mlx.Compiler.{Counter, Trace, Unsupported}
  alias Mlx.Lower
  alias Mlx.Program.Builder
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  # An unrolled loop pays for each iteration when it is compiled and runs without reading a
  # predicate. Nx.Random's threefry takes 25.
  @max_iterations 256
  @max_nodes 32_768

  # Instructions that fail on some values. Their first operand is a matrix.
  @fallible [:inv, :solve_triangular, :svd]

  @truth %T{type: {:u, 8}, shape: {}, names: []}

  ## Branches

  @doc """
  The value of a cond. Its branches have the same types and shapes: Nx casts and broadcasts them
  when it builds the node.
  """
  def select(clauses, last, t, state) do
    {clauses, last, state} = decide(clauses, [], last, state)

    if clauses == [] do
      Trace.composite(last, t, state)
    else
      before = state
      {branches, state} = Enum.map_reduce(clauses, state, &clause/2)
      {default, state} = branch(last, state)
      if before.path == [], do: refuse_fallible!(before, state)

      {slots, state} =
        branches
        |> Enum.reverse()
        |> Enum.reduce({default, %{state | path: before.path}}, &choose/2)

      result = if match?({:tuple, _}, t.type), do: List.to_tuple(slots), else: hd(slots)
      {result, state}
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

  # `path` holds what has to be true, or false, for the walk to be where it is.
  defp clause({predicate, body}, %{path: path} = state) do
    {[slot], state} = branch(predicate, state)
    predicate = Trace.leaf(predicate, slot)
    {slots, state} = branch(body, %{state | path: [{predicate, true} | path]})
    templates = Enum.map(Trace.flatten(body), &Trace.flat/1)
    {{predicate, templates, slots}, %{state | path: [{predicate, false} | path]}}
  end

  # What was computed with a guard holds in its branch only, so the walk forgets all that it
  # learned there.
  defp branch(expr, outer) do
    {slots, state} = Trace.slots(Trace.flatten(expr), %{outer | guarded?: false})
    memo = if state.guarded? and outer.path != [], do: outer.memo, else: state.memo
    {slots, %{state | memo: memo, guarded?: state.guarded? or outer.guarded?}}
  end

  defp choose({predicate, templates, slots}, {otherwise, state}) do
    [templates, slots, otherwise]
    |> Enum.zip()
    |> Enum.map_reduce(state, fn {template, slot, other}, state ->
      args = [predicate, Trace.leaf(template, slot), Trace.leaf(template, other)]
      Trace.add(Lower.lower(:select, template, args), state)
    end)
  end

  @doc "Whether an operation, or a block, may fail here though its branch is not taken."
  def fallible?(_name, %{path: []}), do: false
  def fallible?(:triangular_solve, _state), do: true
  def fallible?(%name{}, _state), do: match?(["Nx", "Block", "LinAlg" | _], Module.split(name))
  def fallible?(_name, _state), do: false

  @doc "Emits with the identity in place of the first operand where the branch is not taken."
  def guarded([%T{} = matrix | args], state, emit) do
    {taken, state} = taken(state)
    {identity, state} = Trace.add(Lower.lower(:eye, matrix, []), state)
    operands = [taken, matrix, Trace.leaf(matrix, identity)]
    {safe, state} = Trace.add(Lower.lower(:select, matrix, operands), state)
    {value, emitted} = emit.([Trace.leaf(matrix, safe) | args], state)
    {value, %{emitted | guarded?: true, safe: fallible(state, emitted) ++ emitted.safe}}
  end

  @doc "One slot that says whether the branch of the walk is taken, in a list."
  def taken_slots(state) do
    {%{data: slot}, state} = taken(state)
    {[slot], state}
  end

  @doc "Whether the branch at `path` is, or is inside of, the one at `outer`."
  def within?(path, outer), do: List.starts_with?(Enum.reverse(path), Enum.reverse(outer))

  defp taken(%{path: path} = state) do
    [first | rest] = path
    {first, state} = holds(first, state)

    Enum.reduce(rest, {first, state}, fn condition, {all, state} ->
      {holds, state} = holds(condition, state)
      truth(:logical_and, [holds, all], state)
    end)
  end

  defp holds({predicate, value}, state) do
    {zero, state} = Trace.constant(0, predicate, state)
    operands = [predicate, Trace.leaf(predicate, zero)]
    truth(if(value, do: :not_equal, else: :equal), operands, state)
  end

  defp truth(op, operands, state) do
    {slot, state} = Trace.add(Lower.lower(op, @truth, operands), state)
    {Trace.leaf(@truth, slot), state}
  end

  # A lowering that uses one of these where nothing guards it must not pass.
  defp refuse_fallible!(before, now) do
    case fallible(before, now) -- now.safe do
      [] -> :ok
      [{op, _operands} | _] -> Unsupported.fallible!(name(op))
    end
  end

  # The instructions that may fail among those that came since `before`.
  defp fallible(before, now) do
    now.builder
    |> Builder.instructions()
    |> Enum.drop(length(Builder.instructions(before.builder)))
    |> Enum.filter(fn {op, _operands} -> name(op) in @fallible end)
  end

  defp name(op) when is_tuple(op), do: elem(op, 0)
  defp name(op), do: op

  ## Loops

  @doc """
  The value of a loop whose condition depends on nothing but counters that the expression fixes.
  Raises for others.

  What each loop variable is worth at an iteration is a slot or `{:known, number}`.
  """
  def unroll([initial, params, [condition], body], t, state) do
    {bindings, outer} = Enum.map_reduce(initial, state, &bind/2)

    state =
      if outer.iterations,
        do: outer,
        else: %{outer | iterations: @max_iterations, nodes: 0}

    {bindings, state} = iterate(bindings, params, condition, body, state)

    state = %{
      state
      | memo: outer.memo,
        bindings: outer.bindings,
        scope: outer.scope,
        iterations: outer.iterations
    }

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
    state = %{state | memo: %{}, bindings: scope, scope: make_ref()}

    case Counter.known(condition, state) do
      {nil, _state} ->
        Unsupported.loop!("its condition depends on values computed in the loop")

      {0, state} ->
        {bindings, state}

      {_true, %{iterations: 0}} ->
        Unsupported.loop!("it takes more than #{@max_iterations} iterations")

      {_true, state} ->
        {bindings, state} = Enum.map_reduce(body, state, &bind/2)
        nodes = state.nodes + map_size(state.memo)

        if nodes > @max_nodes,
          do: Unsupported.loop!("written out, it has more than #{@max_nodes} operations")

        state = %{state | iterations: state.iterations - 1, nodes: nodes}
        iterate(bindings, params, condition, body, state)
    end
  end

  defp bind(t, state) do
    case Counter.known(t, state) do
      {nil, state} -> Trace.value(t, state)
      {number, state} -> {{:known, number}, state}
    end
  end
end
