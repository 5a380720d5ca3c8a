defmodule Mlx.Lower.Integer do
  @moduledoc false
  # Integer arithmetic whose values C, and so MLX, leaves undefined, and bit counting, which MLX
  # lacks. What Nx leaves open is fixed: x / 0 is -1 (all ones), x rem 0 is x, INT_MIN / -1 wraps,
  # shifts by the width or more (and by negative amounts) shift everything out, negative powers
  # are reciprocals cut off to integers.
  use Mlx.Lower.Family

  # The native side never divides by zero, nor the least number by -1.
  lower :quotient, %{type: type}, [l, r] do
    {:floor_divide, [cast(l, type), cast(r, type)]}
  end

  compose :remainder, out, [l, r] do
    type = operand_type(out.type, l.type, r.type)
    {l, r} = {cast(l, type), cast(r, type)}

    if integer?(type),
      do: integer_remainder(l, r),
      else: cast(float_remainder(l, r, type), type, out.type)
  end

  compose :pow, out, [l, r] do
    type = operand_type(out.type, l.type, r.type)
    {l, r} = {cast(l, type), cast(r, type)}

    case type do
      # MLX computes exp(r * log(l)), which has no value at 0 ** 0.
      {:c, _} -> where({:equal, [r, const(0, type)]}, const(1, type), {:power, [l, r]})
      {:s, _} -> signed_power(l, r, type)
      _ -> cast({:power, [l, r]}, type, out.type)
    end
  end

  compose :left_shift, %{type: type}, [l, r] do
    {l, r} = {cast(l, type), cast(r, type)}
    shift_or_zero(:left_shift, type, l, r)
  end

  compose :right_shift, %{type: {kind, size} = type}, [l, r] do
    {l, r} = {cast(l, type), cast(r, type)}

    # A signed number shifted by width - 1 is its sign everywhere.
    if kind == :u do
      shift_or_zero(:right_shift, type, l, r)
    else
      amount = {:minimum, [unsigned(r, type), const(size - 1, {:u, size})]}
      {:right_shift, [l, {{:view, type}, [amount]}]}
    end
  end

  compose :population_count, %{type: type}, [t] do
    signed(population_count(unsigned(t, type), bits(type)), type)
  end

  compose :count_leading_zeros, %{type: type}, [t] do
    size = bits(type)
    smeared = smear(unsigned(t, type), 1, size)
    zeros = {:subtract, [const(size, {:u, size}), population_count(smeared, size)]}
    signed(zeros, type)
  end

  # The reciprocal of a power is 0, except that of 1 and -1, for which only whether the exponent
  # is odd matters. MLX squares its way up to the exponent and knows no negative ones.
  defp signed_power(l, r, type) do
    negative = {:less, [r, const(0, type)]}
    power = {:power, [l, where(negative, {:bitwise_and, [r, const(1, type)]}, r)]}
    below_one = {:logical_and, [negative, {:not_equal, [{:abs, [l]}, const(1, type)]}]}
    where(below_one, const(0, type), power)
  end

  # What the truncated quotient leaves has the dividend's sign; as x / 0 is -1, x rem 0 is x.
  defp integer_remainder(l, r),
    do: {:subtract, [l, {:multiply, [{:floor_divide, [l, r]}, r]}]}

  # Between magnitudes the signs cannot differ, and no correction loses digits. A dividend that is
  # left as it is keeps the sign of its zero.
  defp float_remainder(l, r, type) do
    rest = {:remainder, [{:abs, [l]}, {:abs, [r]}]}
    signed = where({:less, [l, const(0, type)]}, {:negative, [rest]}, rest)
    where({:equal, [rest, l]}, l, signed)
  end

  # The amount is masked, for a shift beyond the width is undefined even where it is not selected.
  defp shift_or_zero(op, {_, size} = type, l, r) do
    masked = {:bitwise_and, [r, const(size - 1, type)]}
    fits = {:less, [unsigned(r, type), const(size, {:u, size})]}
    where(fits, {op, [l, masked]}, const(0, type))
  end

  # Bits are counted in pairs, then nibbles, then bytes; a multiplication adds up the bytes.
  defp population_count(x, size) do
    pairs = sub(x, masked(shift(x, 1, size), 0x55, size))
    nibbles = add(masked(pairs, 0x33, size), masked(shift(pairs, 2, size), 0x33, size))
    bytes = masked(add(nibbles, shift(nibbles, 4, size)), 0x0F, size)

    if size == 8,
      do: bytes,
      else: shift({:multiply, [bytes, repeated(0x01, size)]}, size - 8, size)
  end

  # Every bit below the highest set one becomes set.
  defp smear(x, step, size) when step < size,
    do: smear({:bitwise_or, [x, shift(x, step, size)]}, step * 2, size)

  defp smear(x, _step, _size), do: x

  defp shift(x, by, size), do: {:right_shift, [x, const(by, {:u, size})]}
  defp masked(x, byte, size), do: {:bitwise_and, [x, repeated(byte, size)]}
  defp add(a, b), do: {:add, [a, b]}
  defp sub(a, b), do: {:subtract, [a, b]}

  defp repeated(byte, size),
    do: const_binary(:binary.copy(<<byte>>, div(size, 8)), {:u, size})

  defp unsigned(tree, {:u, _}), do: tree
  defp unsigned(tree, {:s, size}), do: {{:view, {:u, size}}, [tree]}
  defp signed(tree, {:u, _}), do: tree
  defp signed(tree, type), do: {{:view, type}, [tree]}

  defp bits({_, size}), do: size
  defp integer?({kind, _}), do: kind in [:u, :s]
end
