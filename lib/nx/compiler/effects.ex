defmodule Mlx.Compiler.Effects do
  @moduledoc false
  # Hooks and calls of Elixir functions, which the caller of a program serves.

  alias Mlx.Compiler.Trace
  alias Mlx.Program.Builder
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @doc "Whether a node has the caller run a function, given the names of hooks with a callback."
  def effect?(%T{data: %Expr{op: :runtime_call}}, _hook_names), do: true

  def effect?(%T{data: %Expr{op: op, args: [_, callback, _, _]}}, hook_names)
      when op in [:hook, :io_call],
      do: called?(callback, hook_names)

  def effect?(_t, _hook_names), do: false

  # A named hook without a callback is nothing.
  defp called?({:token_hook, _expr, callback}, hook_names), do: called?(callback, hook_names)
  defp called?({:named, name, nil}, hook_names), do: name in hook_names
  defp called?(_callback, _hook_names), do: true

  # In the evaluator, what a token is attached to comes first, and so here.
  @doc "Notes a hook that is met with `expr`."
  def hook({:token_hook, expr, callback}, _expr, state), do: hook(callback, expr, state)

  def hook(callback, expr, state) do
    if called?(callback, state.hook_names), do: add_hook(callback, expr, state), else: state
  end

  defp add_hook(callback, expr, state) do
    {slots, state} = Trace.slots(Trace.flatten(expr), state)
    hook = {:hook, callback, expr}

    if state.parent do
      {id, state} = effect(hook, :nested, [], state)
      {_slot, state} = Trace.add({{:hook, id}, Enum.map(slots, &%{data: &1})}, state)
      state
    else
      at = Builder.size(state.builder)
      {_id, state} = effect(hook, if(state.iterations, do: {:loop, at}, else: at), slots, state)
      state
    end
  end

  @doc "The number of an effect. They count for the whole program, so the outermost walk keeps them."
  def effect(effect, at, slots, %{parent: nil} = state) do
    id = length(state.effects)
    {id, %{state | effects: [%{effect: effect, at: at, slots: slots} | state.effects]}}
  end

  def effect(effect, at, slots, state) do
    {id, parent} = effect(effect, at, slots, state.parent)
    {id, %{state | parent: parent}}
  end

  @doc """
  Whether the caller has to attend the run. It does for a loop that was written out as well: what
  that tells, step by step, is wanted when it is made, and not at the end.
  """
  def attended?(effects), do: Enum.any?(effects, &(not is_integer(&1.at)))

  @doc "Makes the hooks of the top level instructions, where they were met."
  def place(effects, state) do
    hooks =
      for {%{at: at, slots: slots}, id} when at != :nested <- Enum.with_index(effects),
          do: {position(at), {{:hook, id}, slots}}

    %{state | builder: Builder.insert(state.builder, hooks)}
  end

  defp position({:loop, at}), do: at
  defp position(at), do: at
end
