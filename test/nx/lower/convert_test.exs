defmodule Mlx.Lower.ConvertTest do
  use Mlx.LowerCase, async: true

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

  test "a float to an integer is a conversion by Nx's rules" do
    assert lower(:as_type, t(:u8, {}), [t(:f32, {})]) == [{{:convert, {:u, 8}}, [0]}]

    assert lower(:as_type, t(:s64, {}), [t(:c64, {})]) ==
             [{:real, [0]}, {{:convert, {:s, 64}}, [1]}]
  end

  test "bitcast is a view" do
    assert lower(:bitcast, t(:s32, {}), [t(:f32, {})]) == [{{:view, {:s, 32}}, [0]}]
  end
end
