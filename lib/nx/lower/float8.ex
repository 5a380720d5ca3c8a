defmodule Mlx.Lower.Float8 do
  @moduledoc false
  # 8-bit floats as f32 and back, with the values of Nx. `f8` is the upper byte of an f16, and is
  # made by cutting one off. `f8_e4m3fn` has 4 bits of exponent, 3 of mantissa and no infinity;
  # Nx rounds its mantissa half away from zero, without a carry into the exponent.
  import Mlx.Lower.Tree

  @u8 {:u, 8}
  @u16 {:u, 16}
  @u32 {:u, 32}
  @f16 {:f, 16}
  @f32 {:f, 32}
  @e5m2 {:f, 8}
  @e4m3 {:f8_e4m3fn, 8}

  @doc "The f32 of a tree of bytes."
  def decode(bytes, @e5m2),
    do: bytes |> astype(@u16) |> shift(:left_shift, 8, @u16) |> view(@f16) |> astype(@f32)

  # As the upper bits of an f16 the mantissa and exponent have a bias of 15 instead of 7.
  def decode(bytes, @e4m3) do
    wide = astype(bytes, @u16)
    sign = wide |> masked(0x80, @u16) |> shift(:left_shift, 8, @u16)
    rest = wide |> masked(0x7F, @u16) |> shift(:left_shift, 7, @u16)
    half = view({:bitwise_or, [sign, rest]}, @f16)
    number = {:multiply, [astype(half, @f32), const(256, @f32)]}
    nan = {:equal, [masked(bytes, 0x7F, @u8), const_binary(<<0x7F>>, @u8)]}
    where(nan, const(:nan, @f32), number)
  end

  @doc "The bytes of a tree of f32."
  def encode(tree, @e5m2) do
    half = tree |> astype(@f16) |> view(@u16)
    byte = half |> shift(:right_shift, 8, @u16) |> astype(@u8)
    where({:isnan, [tree]}, const(:nan, @e5m2), byte)
  end

  def encode(tree, @e4m3) do
    bits = view(tree, @u32)
    sign = bits |> shift(:right_shift, 24, @u32) |> masked(0x80, @u32)
    magnitude = {:minimum, [{:abs, [tree]}, const(448, @f32)]}
    normal = {:greater_equal, [magnitude, const(2 ** -6, @f32)]}
    code = where(normal, normal(view(magnitude, @u32)), subnormal(magnitude))
    byte = astype({:bitwise_or, [sign, code]}, @u8)
    where({:isnan, [tree]}, const(:nan, @e4m3), byte)
  end

  # The exponent, with a bias of 7 instead of 127, and the rounded mantissa.
  defp normal(bits) do
    exponent = {:subtract, [shift(bits, :right_shift, 23, @u32), const(120, @u32)]}
    fraction = {:add, [masked(bits, 0x7F_FFFF, @u32), const(0x8_0000, @u32)]}
    mantissa = {:minimum, [shift(fraction, :right_shift, 20, @u32), const(7, @u32)]}
    {:bitwise_or, [shift(exponent, :left_shift, 3, @u32), mantissa]}
  end

  # Multiples of 2^-9: twice as many are cut off exactly, and rounded from there.
  defp subnormal(magnitude) do
    twice = {{:astype, @u32}, [{:multiply, [magnitude, const(1024, @f32)]}]}
    rounded = shift({:add, [twice, const(1, @u32)]}, :right_shift, 1, @u32)
    {:minimum, [rounded, const(7, @u32)]}
  end

  defp view(tree, type), do: {{:view, type}, [tree]}
  defp masked(tree, mask, type), do: {:bitwise_and, [tree, const(mask, type)]}
  defp shift(tree, op, by, type), do: {op, [tree, const(by, type)]}
end
