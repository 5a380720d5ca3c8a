defmodule Mlx.Compiler.Home do
  @moduledoc false
  # Where the nodes of an expression belong: at the top, or inside of a cond. A branch may use what
  # is around it, so only all uses together tell: a node belongs to the innermost scope that holds
  # them all. There it happens once, and only if it is wanted.
  #
  # `Nx.Defn.Tree.scope_ids/1` answers nearly this. It counts a node of a branch as used by every
  # cond that uses the cond of that branch, and so has it outside, where branches not taken cost
  # their time and call their hooks.

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T

  @doc """
  The ids of the nodes below `exprs` that belong to the scope of `exprs` itself, as keys.

  Constants are left out: equal ones have the same id everywhere.
  """
  @spec ids([Nx.Container.t()]) :: %{(id :: term) => true}
  def ids(exprs) do
    roots = exprs |> Composite.flatten_list() |> Enum.reject(&constant?/1)
    {_seen, users_first} = Enum.reduce(roots, {%{}, []}, &order/2)
    homes = Map.new(roots, &{&1.data.id, []})
    homes = Enum.reduce(users_first, homes, &settle/2)
    for {id, []} <- homes, into: %{}, do: {id, true}
  end

  defp order(%T{data: %Expr{id: id}} = t, {seen, ordered}) do
    if is_map_key(seen, id) do
      {seen, ordered}
    else
      operands = operands(t)
      below = {Map.put(seen, id, true), ordered}
      {seen, ordered} = Enum.reduce(operands, below, fn {_, t}, acc -> order(t, acc) end)
      {seen, [{id, operands} | ordered]}
    end
  end

  # All users of a node come before it, so its home is final. A scope is the path of the conds
  # around it, the innermost first.
  defp settle({id, operands}, homes) do
    home = Map.fetch!(homes, id)

    Enum.reduce(operands, homes, fn {where, t}, homes ->
      scope = if where == :beside, do: home, else: [id | home]
      Map.update(homes, t.data.id, scope, &around(&1, scope))
    end)
  end

  # The first predicate is always looked at; all else in a cond only sometimes.
  defp operands(%T{data: %Expr{op: :cond, args: [[{predicate, body} | clauses], last]}}) do
    others = Enum.flat_map(clauses, &Tuple.to_list/1)
    within = Composite.flatten_list([body | others] ++ [last])
    beside([predicate]) ++ for(t <- within, not constant?(t), do: {:inside, t})
  end

  defp operands(t) do
    {_t, operands} = Tree.apply_args(t, :scope, [], &{&1, [&1 | &2]})
    beside(operands)
  end

  defp beside(ts), do: for(t <- ts, not constant?(t), do: {:beside, t})

  defp constant?(%T{data: %Expr{op: op}}), do: op == :constant

  # The innermost scope around two others.
  defp around(left, right) do
    excess = length(left) - length(right)
    common(Enum.drop(left, max(excess, 0)), Enum.drop(right, max(-excess, 0)))
  end

  defp common(same, same), do: same
  defp common([_ | left], [_ | right]), do: common(left, right)
end
