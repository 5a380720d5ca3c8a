defmodule Mlx.Compiler.Effects do
  @moduledoc false
  # Hooks and calls of Elixir functions, which the caller of a program serves.

  alias Mlx.Compiler.Trace
  alias Mlx.Program.Builder

  # A named hook without a callback is nothing. In the evaluator, what a token is attached to comes
  # first, and so here.
  @doc "Notes a hook that is met with `expr`."
  def hook({:token_hook, expr, callback}, _expr, state), do: hook(callback, expr, state)

  def hook({:named, name, nil} = callback, expr, state) do
    if name in state.hook_names, do: add_hook(callback, expr, state), else: state
  end

  def hook(callback, expr, state), do: add_hook(callback, expr, state)

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
