defmodule Mlx.LowerCase do
  @moduledoc false
  # Golden tests of the lowering: an operation in, its instructions out. Operands take the slots
  # 0, 1, ... in the order in which they appear among the arguments. Needs no native code.
  use ExUnit.CaseTemplate

  alias Mlx.Program.Builder
  alias Nx.Tensor, as: T

  using do
    quote do
      import Mlx.LowerCase
    end
  end

  @doc "A template: the result of an operation, or an operand of it."
  def t(type, shape) do
    %T{
      type: Nx.Type.normalize!(type),
      shape: shape,
      names: List.duplicate(nil, tuple_size(shape))
    }
  end

  @doc "The instructions of the callback `name` for `out` and `args`."
  def lower(name, out, args), do: instructions(args, &Mlx.Lower.lower(name, out, &1))

  @doc "The instructions and results of a block, or `:default`."
  def block(struct, out, args) do
    {leaves, count} = slots(args)

    case Mlx.Lower.block(struct, out, leaves) do
      :default -> :default
      trees -> flatten(trees, count)
    end
  end

  defp instructions(args, fun) do
    {leaves, count} = slots(args)
    {instructions, [last]} = leaves |> fun.() |> flatten(count)
    # The result is the last instruction's, unless nothing had to be done.
    if instructions == [], do: {:operand, last}, else: instructions
  end

  defp flatten(trees, count) do
    {slots, builder} =
      trees |> List.wrap() |> Enum.map_reduce(Builder.new(count), &Builder.add(&2, &1))

    {Builder.instructions(builder), slots}
  end

  defp slots(args), do: Enum.map_reduce(args, 0, &slot/2)

  defp slot(%T{} = t, slot), do: {%{t | data: slot}, slot + 1}
  defp slot([%T{} | _] = list, slot), do: Enum.map_reduce(list, slot, &slot/2)

  defp slot([int | _] = list, slot) when is_integer(int),
    do: Enum.map_reduce(list, slot, &slot/2)

  defp slot(term, slot), do: {term, slot}

  @doc "The instruction that makes a scalar."
  def const(number, type) do
    type = Nx.Type.normalize!(type)
    {{:constant, type, Mlx.Type.scalar(number, type)}, []}
  end
end
