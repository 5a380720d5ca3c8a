defmodule Mlx.Program.Builder do
  @moduledoc false
  # Turns trees of operations into instructions over numbered slots, equal subtrees into one.
  #
  # A tree is a leaf `%{data: slot}`, a node `{op, [tree]}`, or `{:elem, node, k}`, the k-th result
  # of a node that has several. A leaf's data may be a tree, which computes it.

  alias Mlx.NIF

  @type tree ::
          %{data: non_neg_integer | tree}
          | {atom | tuple, [tree]}
          | {:elem, tuple, non_neg_integer}
  @opaque t :: {next :: non_neg_integer, NIF.instructions(), %{tuple => non_neg_integer}}

  # Known without the native library, so that lowering needs none; a test compares it with the op
  # table, which decides.
  @outputs %{qr: 2, eigh: 2, svd: 3, lu: 3}

  @doc "How many results an operation has."
  @spec outputs(atom | tuple) :: pos_integer
  def outputs(op) when is_atom(op), do: Map.get(@outputs, op, 1)
  def outputs(op), do: Map.get(@outputs, elem(op, 0), 1)

  @doc "A builder whose first slots are `inputs` inputs."
  @spec new(non_neg_integer) :: t
  def new(inputs), do: {inputs, [], %{}}

  @doc "Adds what the tree needs, and answers the slot of its value."
  @spec add(t, tree) :: {non_neg_integer, t}
  def add(builder, %{data: slot}) when is_integer(slot), do: {slot, builder}
  def add(builder, %{data: tree}), do: add(builder, tree)

  def add(builder, {:elem, node, k}) do
    {slot, builder} = add(builder, node)
    {slot + k, builder}
  end

  def add(builder, {op, operands}) do
    {slots, {next, instructions, seen}} = add_all(operands, builder)
    instruction = {op, slots}

    case seen do
      %{^instruction => slot} ->
        {slot, {next, instructions, seen}}

      _ ->
        seen = Map.put(seen, instruction, next)
        {next, {next + outputs(op), [instruction | instructions], seen}}
    end
  end

  @doc "The instructions in order."
  @spec instructions(t) :: NIF.instructions()
  def instructions({_next, instructions, _seen}), do: Enum.reverse(instructions)

  # Enum.map_reduce without its closure: this is on every eager operation's path.
  defp add_all([tree | trees], builder) do
    {slot, builder} = add(builder, tree)
    {slots, builder} = add_all(trees, builder)
    {[slot | slots], builder}
  end

  defp add_all([], builder), do: {[], builder}
end
