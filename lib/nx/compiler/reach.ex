defmodule Mlx.Compiler.Reach do
  @moduledoc false
  # Which nodes of an expression are computed in any case, and which only where a branch is taken.
  # `Nx.Defn.Tree.scope_ids/2` answers that too, but counts what is inside the branches of a cond
  # that is met inside of another one first, and then outside, as used in several places.

  alias Nx.Defn.{Expr, Tree}
  alias Nx.Tensor, as: T

  @doc """
  The ids of the nodes that `exprs` need whichever branches are taken, with true, and of those that
  several conds may need, which are not to be computed twice.
  """
  @spec ids([T.t()]) :: %{reference => true}
  def ids(exprs) do
    {ids, conds} = Enum.reduce(exprs, {%{}, []}, &always/2)
    share(ids, conds)
  end

  # What is found to be shared may hold conds itself, which has the others looked at again.
  defp share(ids, []), do: ids

  defp share(ids, conds) do
    {_owners, shared} = Enum.reduce(conds, {%{}, []}, &own(&1, &2, ids))

    case Enum.reduce(shared, {ids, conds}, &always/2) do
      {^ids, _conds} -> ids
      {ids, conds} -> share(ids, conds)
    end
  end

  defp always(%T{data: %Expr{op: :constant}}, acc), do: acc
  defp always(%T{data: %Expr{id: id}}, {ids, _conds} = acc) when is_map_key(ids, id), do: acc

  # The first predicate is looked at in any case.
  defp always(%T{data: %Expr{id: id, op: :cond, args: [[{predicate, _} | _], _]}} = t, acc) do
    {ids, conds} = acc
    always(predicate, {Map.put(ids, id, true), [t | conds]})
  end

  defp always(%T{data: %Expr{id: id}} = t, {ids, conds}) do
    {_args, acc} =
      Tree.apply_args(t, :scope, {Map.put(ids, id, true), conds}, &{&1, always(&1, &2)})

    acc
  end

  defp own(%T{data: %Expr{id: owner}} = t, acc, ids) do
    {_args, acc} = Tree.apply_args(t, :scope, acc, &{&1, own(&1, &2, owner, ids)})
    acc
  end

  defp own(%T{data: %Expr{op: :constant}}, acc, _owner, _ids), do: acc
  defp own(%T{data: %Expr{id: id}}, acc, _owner, ids) when is_map_key(ids, id), do: acc

  defp own(%T{data: %Expr{id: id}} = t, {owners, shared} = acc, owner, ids) do
    case owners do
      %{^id => ^owner} ->
        acc

      %{^id => _other} ->
        {owners, [t | shared]}

      %{} ->
        acc = {Map.put(owners, id, owner), shared}
        {_args, acc} = Tree.apply_args(t, :scope, acc, &{&1, own(&1, &2, owner, ids)})
        acc
    end
  end
end
