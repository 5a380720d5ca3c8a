defmodule Mlx.Lower.DotTest do
  use Mlx.LowerCase, async: true

  test "a matrix product is one" do
    args = [t(:f32, {2, 3}), [1], [], t(:f32, {3, 4}), [0], []]
    assert lower(:dot, t(:f32, {2, 4}), args) == [{:matmul, [0, 1]}]
  end

  test "vectors become matrices" do
    args = [t(:f32, {3}), [0], [], t(:f32, {3}), [0], []]

    assert lower(:dot, t(:f32, {}), args) ==
             [
               {{:reshape, {1, 3}}, [0]},
               {{:reshape, {3, 1}}, [1]},
               {:matmul, [2, 3]},
               {{:reshape, {}}, [4]}
             ]
  end

  test "contraction axes pair up in their order" do
    args = [t(:f32, {2, 3}), [0, 1], [], t(:f32, {3, 2}), [1, 0], []]

    assert lower(:dot, t(:f32, {}), args) ==
             [
               {{:reshape, {1, 6}}, [0]},
               {{:transpose_axes, [1, 0]}, [1]},
               {{:reshape, {6, 1}}, [3]},
               {:matmul, [2, 4]},
               {{:reshape, {}}, [5]}
             ]
  end

  test "batches lead" do
    args = [t(:f32, {5, 3, 2}), [1], [0], t(:f32, {5, 3, 4}), [1], [0]]

    assert lower(:dot, t(:f32, {5, 2, 4}), args) ==
             [{{:transpose_axes, [0, 2, 1]}, [0]}, {:matmul, [2, 1]}]
  end

  test "short integer products are multiplied and summed" do
    args = [t(:u8, {2, 3}), [1], [], t(:u8, {3, 2}), [0], []]

    assert lower(:dot, t(:u8, {2, 2}), args) ==
             [
               {{:reshape, {2, 3, 1}}, [0]},
               {{:reshape, {1, 3, 2}}, [1]},
               {:multiply, [2, 3]},
               {{:sum_axes, [1], false}, [4]},
               {{:astype, {:u, 8}}, [5]}
             ]
  end

  test "long ones are exact in limbs" do
    args = [t(:s32, {64, 64}), [1], [], t(:s32, {64, 64}), [0], []]
    instructions = lower(:dot, t(:s32, {64, 64}), args)

    assert Enum.count(instructions, &match?({:matmul, _}, &1)) == 3
    assert {{:astype, {:s, 32}}, [_]} = List.last(instructions)
  end
end
