defmodule Mlx.Compiler.Order do
  @moduledoc false
  # Hooks and calls run in the order in which the function makes them, also where no value leads
  # from one to the next. An expression does not record that order, but its nodes are named by
  # references, and a scheduler makes ever greater ones.
  #
  # A walk meets its effects in the order of their operands' users. So it is sent to them first, one
  # after the other; what it was sent to for is then there when it is met.

  alias Mlx.Compiler.{Effects, Home, Scope, Trace}
  alias Nx.Defn.{Expr, Tree}
  alias Nx.Tensor, as: T

  @nested [:cond, :while, :block]

  @doc """
  The result of `trace`, whose references tell their order.

  Those of different schedulers do not, so the process stays on the one that it is on.
  """
  @spec traced((-> result)) :: result when result: var
  def traced(trace) do
    before = stay(:erlang.system_info(:scheduler_id))

    try do
      trace.()
    after
      stay(before)
    end
  end

  # The flag is not documented. Without it the order is that of the operands, nearly always the same.
  defp stay(scheduler) do
    :erlang.process_flag(:scheduler, scheduler)
  rescue
    ArgumentError -> 0
  end

  @doc """
  The ids of the effects in `exprs`, and of the nodes with effects inside of them: branches, loops
  and blocks.
  """
  @spec effectful([T.t()], [atom]) :: %{reference => true}
  def effectful(exprs, hook_names) do
    {_seen, ids, _any?} = Enum.reduce(exprs, {%{}, %{}, false}, &visit(&1, &2, hook_names))
    ids
  end

  defp visit(%T{data: %Expr{id: id, op: op}} = t, {seen, ids, any?}, hook_names) do
    case seen do
      %{^id => effectful?} ->
        {seen, ids, any? or effectful?}

      %{} ->
        acc = {seen, ids, false}
        {_args, {seen, ids, inner?}} = Tree.apply_args(t, acc, &{&1, visit(&1, &2, hook_names)})
        effect? = Effects.effect?(t, hook_names)
        effectful? = effect? or inner?
        ids = if effect? or (inner? and op in @nested), do: Map.put(ids, id, true), else: ids
        {Map.put(seen, id, effectful?), ids, any? or effectful?}
    end
  end

  @doc "The walk, sent to the effects of `exprs` that are its own, and not of a branch or a loop."
  @spec effects([T.t()], map) :: map
  def effects(_exprs, %{effectful: ids} = state) when ids == %{}, do: state

  def effects(exprs, state) do
    own = exprs |> Home.ids() |> Map.take(Map.keys(state.effectful))
    {_seen, found} = Enum.reduce(exprs, {%{}, []}, &collect(&1, &2, own, state.memo))

    found
    |> Enum.sort()
    |> Enum.reduce(state, fn {_made, t}, state ->
      {outer?, parent} = Scope.outer?(t.data.id, state.parent)
      state = %{state | parent: parent}
      if outer?, do: state, else: t |> Trace.value(state) |> elem(1)
    end)
  end

  defp collect(%T{data: %Expr{id: id}}, {seen, _found} = acc, _own, memo)
       when is_map_key(seen, id) or is_map_key(memo, id),
       do: acc

  defp collect(%T{data: %Expr{id: id}} = t, {seen, found}, own, memo) do
    found = if is_map_key(own, id), do: [{made(t), t} | found], else: found
    acc = {Map.put(seen, id, true), found}
    {_args, acc} = Tree.apply_args(t, :scope, acc, &{&1, collect(&1, &2, own, memo)})
    acc
  end

  # Rewriting an expression names nodes anew, and a hook therefore has a reference of its own.
  defp made(%T{data: %Expr{op: op, args: [_, _, _, ref]}}) when op in [:hook, :io_call], do: ref
  defp made(%T{data: %Expr{id: id}}), do: id
end
