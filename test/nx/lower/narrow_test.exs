defmodule Mlx.Lower.NarrowTest do
  use Mlx.LowerCase, async: true

  test "integers are computed in the bytes that hold them, and cut to their width" do
    assert lower(:add, t(:u4, {2}), [t(:u4, {2}), t(:u4, {2})]) ==
             [{:add, [0, 1]}, const(15, :u8), {:bitwise_and, [2, 3]}]

    assert lower(:add, t(:s4, {2}), [t(:s4, {2}), t(:u2, {2})]) ==
             [
               {{:astype, {:s, 8}}, [1]},
               {:add, [0, 2]},
               const(4, :s8),
               {:left_shift, [3, 4]},
               {:right_shift, [5, 4]}
             ]
  end

  test "8-bit floats are computed in f32" do
    assert lower(:negate, t(:f8, {}), [t(:f8, {})]) ==
             [
               {{:astype, {:u, 16}}, [0]},
               const(8, :u16),
               {:left_shift, [1, 2]},
               {{:view, {:f, 16}}, [3]},
               {{:astype, {:f, 32}}, [4]},
               {:negative, [5]},
               {:isnan, [6]},
               {{:constant, {:u, 8}, <<0x7E>>}, []},
               {{:astype, {:f, 16}}, [6]},
               {{:view, {:u, 16}}, [9]},
               {:right_shift, [10, 2]},
               {{:astype, {:u, 8}}, [11]},
               {:where, [7, 8, 12]}
             ]
  end

  test "results of another type need no way back" do
    assert lower(:less, t(:u8, {2}), [t(:u4, {2}), t(:u2, {2})]) ==
             [{:less, [0, 1]}, {{:astype, {:u, 8}}, [2]}]
  end

  test "what moves elements moves their bytes" do
    for type <- [:u2, :s4, :f8, :f8_e4m3fn] do
      assert lower(:transpose, t(type, {2, 3}), [t(type, {3, 2}), [1, 0]]) ==
               [{{:transpose_axes, [1, 0]}, [0]}]

      assert lower(:concatenate, t(type, {4}), [[t(type, {2}), t(type, {2})], 0]) ==
               [{{:concatenate_axis, 0}, [0, 1]}]

      assert lower(:select, t(type, {2}), [t(:u8, {2}), t(type, {2}), t(type, {2})]) ==
               [{{:astype, :bool}, [0]}, {:where, [3, 1, 2]}]
    end
  end

  test "but not into another type" do
    assert [{{:astype, {:s, 8}}, [0]} | _] =
             lower(:concatenate, t(:s4, {4}), [[t(:u2, {2}), t(:s4, {2})], 0])
  end

  test "constants are made as they are held" do
    assert lower(:constant, t(:s4, {2}), [-3]) ==
             [{{:constant, {:s, 8}, <<-3>>}, []}, {{:broadcast_to, {2}}, [0]}]

    assert lower(:constant, t(:f8, {}), [1.0]) == [{{:constant, {:u, 8}, <<0x3C>>}, []}]
  end
end
