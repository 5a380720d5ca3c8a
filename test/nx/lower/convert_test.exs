defmodule Mlx.Lower.ConvertTest do
  use Mlx.LowerCase, async: true

  @s64 {:s, 64}

  test "no conversion, no instruction" do
    assert lower(:as_type, t(:f32, {2}), [t(:f32, {2})]) == {:operand, 0}
  end

  test "integers wrap and widen" do
    assert lower(:as_type, t(:u8, {}), [t(:s64, {})]) == [{{:astype, {:u, 8}}, [0]}]
    assert lower(:as_type, t(:f32, {}), [t(:s64, {})]) == [{{:astype, {:f, 32}}, [0]}]
  end

  test "complex numbers lose their imaginary part" do
    assert lower(:as_type, t(:f32, {}), [t(:c64, {})]) == [{:real, [0]}]

    assert lower(:as_type, t(:f16, {}), [t(:c64, {})]) ==
             [{:real, [0]}, {{:astype, {:f, 16}}, [1]}]
  end

  test "f32 to an integer goes through s64, and what is beyond is selected" do
    assert lower(:as_type, t(:u8, {}), [t(:f32, {})]) ==
             [
               {:abs, [0]},
               const(9_223_372_036_854_775_808.0, :f32),
               {:less, [1, 2]},
               {{:astype, @s64}, [0]},
               {{:astype, {:u, 8}}, [4]},
               const(:infinity, :f32),
               {:equal, [0, 6]},
               const(255, :u8),
               const(:neg_infinity, :f32),
               {:equal, [0, 9]},
               const(0, :u8),
               {:where, [10, 11, 11]},
               {:where, [7, 8, 12]},
               {:where, [3, 5, 13]}
             ]
  end

  test "bitcast is a view" do
    assert lower(:bitcast, t(:s32, {}), [t(:f32, {})]) == [{{:view, {:s, 32}}, [0]}]
  end
end
