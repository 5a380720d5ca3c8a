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

  test "writes outside are left to the native side" do
    args = [t(:s32, {4}), t(:u32, {2, 1}), t(:s32, {2}), [axes: [0]]]
    written = [{{:reshape, {2, 1}}, [2]}, {{:reshape, {2}}, [1]}]
    add = {{:scatter_add, [0]}, [0, 3, 4]}
    put = {{:scatter, [0]}, [0, 3, 4]}
    assert lower(:indexed_add, t(:s32, {4}), args) == written ++ [add]
    assert lower(:indexed_put, t(:s32, {4}), args) == written ++ [put]
  end

  test "halves are added up in single precision" do
    args = [t(:bf16, {4}), t(:u32, {2, 1}), t(:bf16, {2}), [axes: [0]]]

    assert lower(:indexed_add, t(:bf16, {4}), args) ==
             [
               {{:astype, {:f, 32}}, [0]},
               {{:astype, {:f, 32}}, [2]},
               {{:reshape, {2, 1}}, [4]},
               {{:reshape, {2}}, [1]},
               {{:scatter_add, [0]}, [3, 5, 6]},
               {{:astype, {:bf, 16}}, [7]}
             ]
  end
end
