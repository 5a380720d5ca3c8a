defmodule Mlx.Lower.ShapeTest do
  use Mlx.LowerCase, async: true

  test "creation broadcasts instead of filling" do
    assert lower(:constant, t(:f32, {2, 3}), [1]) ==
             [const(1, :f32), {{:broadcast_to, {2, 3}}, [0]}]

    assert lower(:constant, t(:u8, {}), [-1]) == [{{:constant, {:u, 8}, <<255>>}, []}]

    assert lower(:eye, t(:f32, {4, 2, 3}), []) ==
             [{{:eye, 2, 3, 0, {:f, 32}}, []}, {{:broadcast_to, {4, 2, 3}}, [0]}]
  end

  test "iota counts in a type that holds the count" do
    assert lower(:iota, t(:s32, {6}), [nil]) == [{{:arange, 6, {:s, 32}}, []}]

    assert lower(:iota, t(:u8, {2, 300}), [1]) ==
             [
               {{:arange, 300, {:s, 32}}, []},
               {{:astype, {:u, 8}}, [0]},
               {{:reshape, {1, 300}}, [1]},
               {{:broadcast_to, {2, 300}}, [2]}
             ]

    assert lower(:iota, t(:bf16, {}), [nil]) == [const(0, :bf16)]
  end

  test "broadcast honours the axes" do
    assert lower(:broadcast, t(:f32, {2, 3}), [t(:f32, {3}), {2, 3}, [1]]) ==
             [{{:broadcast_to, {2, 3}}, [0]}]

    assert lower(:broadcast, t(:f32, {2, 3}), [t(:f32, {2}), {2, 3}, [0]]) ==
             [{{:reshape, {2, 1}}, [0]}, {{:broadcast_to, {2, 3}}, [1]}]

    assert lower(:broadcast, t(:f32, {2, 3}), [t(:f32, {3, 2}), {2, 3}, [1, 0]]) ==
             [{{:transpose_axes, [1, 0]}, [0]}, {{:broadcast_to, {2, 3}}, [1]}]
  end

  test "views" do
    assert lower(:reshape, t(:f32, {6}), [t(:f32, {2, 3})]) == [{{:reshape, {6}}, [0]}]

    assert lower(:squeeze, t(:f32, {2}), [t(:f32, {1, 2, 1}), [0, 2]]) == [
             {{:squeeze_axes, [0, 2]}, [0]}
           ]

    assert lower(:transpose, t(:f32, {3, 2}), [t(:f32, {2, 3}), [1, 0]]) == [
             {{:transpose_axes, [1, 0]}, [0]}
           ]

    assert lower(:transpose, t(:f32, {2, 3}), [t(:f32, {2, 3}), [0, 1]]) == {:operand, 0}
    assert lower(:reverse, t(:f32, {2, 3}), [t(:f32, {2, 3}), [1]]) == [{{:flip, [1]}, [0]}]
  end

  describe "pad" do
    test "of positive widths" do
      config = [{0, 2, 0}, {0, 0, 0}]

      assert lower(:pad, t(:f32, {4, 2}), [t(:f32, {2, 2}), t(:s32, {}), config]) ==
               [{{:astype, {:f, 32}}, [1]}, {{:pad, [0], [0], [2]}, [0, 2]}]
    end

    test "of negative widths crops after padding" do
      assert lower(:pad, t(:s32, {3}), [t(:s32, {3}), t(:s32, {}), [{-1, 1, 0}]]) ==
               [{{:pad, [0], [0], [1]}, [0, 1]}, {{:slice, [1], [4], [1]}, [2]}]
    end

    test "of the interior spreads the elements" do
      assert lower(:pad, t(:s32, {10}), [t(:s32, {3}), t(:s32, {}), [{1, 0, 3}]]) ==
               [
                 {{:reshape, {3, 1}}, [0]},
                 {{:pad, [1], [0], [3]}, [2, 1]},
                 {{:reshape, {12}}, [3]},
                 {{:pad, [0], [1], [0]}, [4, 1]},
                 {{:slice, [0], [10], [1]}, [5]}
               ]
    end
  end

  test "joining casts every operand" do
    assert lower(:concatenate, t(:f32, {3}), [[t(:s32, {1}), t(:f32, {2})], 0]) ==
             [{{:astype, {:f, 32}}, [0]}, {{:concatenate_axis, 0}, [2, 1]}]

    assert lower(:stack, t(:u8, {2, 1}), [[t(:u8, {1}), t(:u8, {1})], 0]) == [
             {{:stack_axis, 0}, [0, 1]}
           ]
  end
end
