defmodule Mlx.Lower.IndexTest do
  use Mlx.LowerCase, async: true

  describe "slice" do
    test "clamps static starts" do
      assert lower(:slice, t(:s32, {2}), [t(:s32, {4}), [10], [2], [1]]) ==
               [{{:slice, [2], [4], [1]}, [0]}]

      assert lower(:slice, t(:s32, {2, 2}), [t(:s32, {2, 2}), [-3, 0], [2, 2], [1, 1]]) ==
               {:operand, 0}
    end

    test "strides what it cut" do
      assert lower(:slice, t(:s32, {2}), [t(:s32, {4}), [1], [3], [2]]) ==
               [{{:slice, [1], [4], [2]}, [0]}]
    end

    test "leaves one moving start to the native side" do
      start = t(:u8, {})

      assert lower(:slice, t(:s32, {2, 1}), [t(:s32, {2, 3}), [0, start], [2, 1], [1, 1]]) ==
               [{{:reshape, {1}}, [1]}, {{:slice_dynamic, [1], [2, 1]}, [0, 2]}]
    end

    test "brings several starts into one type" do
      args = [t(:s32, {4, 4}), [t(:u64, {}), 1], [2, 2], [1, 2]]

      assert lower(:slice, t(:s32, {2, 1}), args) ==
               [
                 const(2, :u64),
                 {:minimum, [1, 2]},
                 {{:astype, {:s, 64}}, [3]},
                 const(1, :s64),
                 {{:stack_axis, 0}, [4, 5]},
                 {{:slice_dynamic, [0, 1], [2, 2]}, [0, 6]},
                 {{:slice, [0, 0], [2, 2], [1, 2]}, [7]}
               ]
    end
  end

  test "put_slice casts to the merged type" do
    assert lower(:put_slice, t(:f32, {3}), [t(:f32, {3}), [5], t(:s32, {2})]) ==
             [{{:astype, {:f, 32}}, [1]}, {{:slice_update, [1], [3], [1]}, [0, 2]}]

    assert lower(:put_slice, t(:f32, {3}), [t(:f32, {3}), [t(:s32, {})], t(:f32, {2})]) ==
             [{{:reshape, {1}}, [1]}, {{:slice_update_dynamic, [0]}, [0, 2, 3]}]
  end

  test "gather takes a column of indices per axis" do
    assert lower(:gather, t(:f32, {5}), [t(:f32, {2, 3}), t(:s32, {5, 2}), [axes: [0, 1]]]) ==
             [
               {{:slice, [0, 0], [5, 1], [1, 1]}, [1]},
               {{:reshape, {5}}, [2]},
               {{:slice, [0, 1], [5, 2], [1, 1]}, [1]},
               {{:reshape, {5}}, [4]},
               {{:gather, [0, 1], [1, 1]}, [0, 3, 5]},
               {{:reshape, {5}}, [6]}
             ]
  end

  test "indexed_add nulls the updates outside" do
    args = [t(:s32, {4}), t(:u32, {2, 1}), t(:s32, {2}), [axes: [0]]]

    assert lower(:indexed_add, t(:s32, {4}), args) ==
             [
               {{:reshape, {2}}, [1]},
               const(4, :u32),
               {:less, [3, 4]},
               const(0, :s32),
               {:where, [5, 2, 6]},
               {{:reshape, {2, 1}}, [7]},
               {{:scatter_add, [0]}, [0, 8, 3]}
             ]
  end

  test "indexed_put sends the updates outside to a spare element" do
    args = [t(:s32, {4}), t(:s32, {2, 1}), t(:s32, {2}), [axes: [0]]]

    assert lower(:indexed_put, t(:s32, {4}), args) ==
             [
               const(0, :s32),
               {{:pad, [0], [0], [1]}, [0, 3]},
               {{:reshape, {2, 1}}, [2]},
               {{:reshape, {2}}, [1]},
               const(4, :s32),
               {:less, [6, 7]},
               {:greater_equal, [6, 3]},
               {:logical_and, [8, 9]},
               {:where, [10, 6, 7]},
               {{:scatter, [0]}, [4, 5, 11]},
               {{:slice, [0], [4], [1]}, [12]}
             ]
  end
end
