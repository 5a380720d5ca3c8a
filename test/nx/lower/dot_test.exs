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

  test "integers are multiplied as they are" do
    args = [t(:u8, {2, 3}), [1], [], t(:s32, {3, 2}), [0], []]

    assert lower(:dot, t(:s32, {2, 2}), args) ==
             [{{:astype, {:s, 32}}, [0]}, {:matmul, [2, 1]}]
  end
end
