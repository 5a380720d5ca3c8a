defmodule Mlx.Lower.ReduceTest do
  use Mlx.LowerCase, async: true

  @all [axes: nil, keep_axes: false]

  test "sums are made in out's type" do
    assert lower(:sum, t(:u32, {}), [t(:u8, {2, 3}), @all]) ==
             [{{:astype, {:u, 32}}, [0]}, {{:sum_axes, [0, 1], false}, [1]}]

    assert lower(:sum, t(:f32, {2, 1}), [t(:f32, {2, 3}), [axes: [1], keep_axes: true]]) ==
             [{{:sum_axes, [1], true}, [0]}]
  end

  test "half precision is summed in f32" do
    assert lower(:sum, t(:f16, {}), [t(:f16, {3}), @all]) ==
             [
               {{:astype, {:f, 32}}, [0]},
               {{:sum_axes, [0], false}, [1]},
               {{:astype, {:f, 16}}, [2]}
             ]
  end

  test "a scalar is its own sum" do
    assert lower(:sum, t(:f32, {}), [t(:f32, {}), @all]) == {:operand, 0}
  end

  test "all and any go by truth" do
    assert lower(:all, t(:u8, {}), [t(:u8, {2}), @all]) ==
             [
               {{:astype, :bool}, [0]},
               {{:all_axes, [0], false}, [1]},
               {{:astype, {:u, 8}}, [2]}
             ]
  end

  test "argmax of all elements" do
    opts = [axis: nil, tie_break: :low, keep_axis: false]

    assert lower(:argmax, t(:s32, {}), [t(:s32, {2, 3}), opts]) ==
             [
               {{:reshape, {6}}, [0]},
               {{:argmax_axis, 0, false}, [1]},
               {{:astype, {:s, 32}}, [2]}
             ]
  end

  test "the highest of equals is the first from behind" do
    opts = [axis: 1, tie_break: :high, keep_axis: true]

    assert lower(:argmin, t(:s32, {2, 1}), [t(:u8, {2, 3}), opts]) ==
             [
               const(2, :u32),
               {{:flip, [1]}, [0]},
               {{:argmin_axis, 1, false}, [2]},
               {:subtract, [1, 3]},
               {{:astype, {:s, 32}}, [4]},
               {{:reshape, {2, 1}}, [5]}
             ]
  end

  test "argmax of floats points to NaN" do
    opts = [axis: 0, tie_break: :low, keep_axis: false]

    assert lower(:argmax, t(:u32, {}), [t(:f32, {3}), opts]) ==
             [
               {:isnan, [0]},
               {{:any_axes, [0], false}, [1]},
               const(2, :u32),
               {{:astype, {:u, 8}}, [1]},
               {{:flip, [0]}, [4]},
               {{:argmax_axis, 0, false}, [5]},
               {:subtract, [3, 6]},
               {{:argmax_axis, 0, false}, [0]},
               {:where, [2, 7, 8]}
             ]
  end

  test "descending order is the reverse of the ascending order of the reverse" do
    assert lower(:sort, t(:f32, {3}), [t(:f32, {3}), [axis: 0, direction: :desc]]) ==
             [{{:flip, [0]}, [0]}, {{:sort_axis, 0}, [1]}, {{:flip, [0]}, [2]}]

    assert lower(:argsort, t(:s32, {3}), [t(:f32, {3}), [axis: 0, direction: :desc]]) ==
             [
               const(2, :u32),
               {{:flip, [0]}, [0]},
               {{:argsort_axis, 0}, [2]},
               {{:flip, [0]}, [3]},
               {:subtract, [1, 4]},
               {{:astype, {:s, 32}}, [5]}
             ]
  end

  test "windows are made of halves, which take every stride" do
    opts = [padding: [{1, 0}], strides: [2], window_dilations: [1]]

    assert lower(:window_max, t(:s32, {2}), [t(:s32, {4}), {2}, opts]) ==
             [
               {{:constant, {:s, 32}, <<-2_147_483_648::32-native>>}, []},
               {{:pad, [0], [1], [0]}, [0, 1]},
               {{:slice, [0], [3], [2]}, [2]},
               {{:slice, [1], [4], [2]}, [2]},
               {:maximum, [3, 4]}
             ]
  end

  test "long windows double" do
    opts = [padding: [{0, 0}], strides: [1], window_dilations: [2]]

    # Five elements, two apart: one, two and two.
    assert lower(:window_sum, t(:s32, {4}), [t(:s32, {12}), {5}, opts]) ==
             [
               {{:slice, [0], [4], [1]}, [0]},
               {{:slice, [0], [10], [1]}, [0]},
               {{:slice, [2], [12], [1]}, [0]},
               {:add, [2, 3]},
               {{:slice, [2], [6], [1]}, [4]},
               {:add, [1, 5]},
               {{:slice, [6], [10], [1]}, [4]},
               {:add, [6, 7]}
             ]
  end
end
