defmodule Mlx.Lower.IntegerTest do
  use Mlx.LowerCase, async: true

  test "quotient is MLX's division" do
    assert lower(:quotient, t(:s32, {}), [t(:s32, {}), t(:s32, {})]) == [{:floor_divide, [0, 1]}]
  end

  test "the integer remainder goes with the truncated quotient" do
    assert lower(:remainder, t(:s32, {}), [t(:s32, {}), t(:s32, {})]) ==
             [{:floor_divide, [0, 1]}, {:multiply, [2, 1]}, {:subtract, [0, 3]}]
  end

  test "the float remainder goes by magnitudes" do
    assert lower(:remainder, t(:f32, {}), [t(:f32, {}), t(:f32, {})]) ==
             [
               {:abs, [0]},
               {:abs, [1]},
               {:remainder, [2, 3]},
               {:equal, [4, 0]},
               const(0, :f32),
               {:less, [0, 6]},
               {:negative, [4]},
               {:where, [7, 8, 4]},
               {:where, [5, 0, 9]}
             ]
  end

  test "a shift by the width or more is selected away, and never reaches MLX" do
    assert lower(:left_shift, t(:u8, {}), [t(:u8, {}), t(:u8, {})]) ==
             [
               const(8, :u8),
               {:less, [1, 2]},
               const(7, :u8),
               {:bitwise_and, [1, 4]},
               {:left_shift, [0, 5]},
               const(0, :u8),
               {:where, [3, 6, 7]}
             ]
  end

  test "a signed right shift stops at the sign" do
    assert lower(:right_shift, t(:s32, {}), [t(:s32, {}), t(:s32, {})]) ==
             [
               {{:view, {:u, 32}}, [1]},
               const(31, :u32),
               {:minimum, [2, 3]},
               {{:view, {:s, 32}}, [4]},
               {:right_shift, [0, 5]}
             ]
  end

  test "bits are counted in the unsigned view" do
    instructions = lower(:population_count, t(:s8, {}), [t(:s8, {})])
    assert hd(instructions) == {{:view, {:u, 8}}, [0]}
    assert {{:view, {:s, 8}}, [_]} = List.last(instructions)
    refute Enum.any?(instructions, &match?({:multiply, _}, &1))

    assert Enum.any?(
             lower(:population_count, t(:u32, {}), [t(:u32, {})]),
             &match?({:multiply, _}, &1)
           )
  end
end
