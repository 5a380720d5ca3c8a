defmodule Mlx.Backend.OrderTest do
  # Oracle: Nx.BinaryBackend, which sorts stably in both directions and takes NaN for the greatest.
  use Mlx.NxCase, async: true

  property [:sort, :argsort],
           "over axes and directions, at the limits of every type",
           [over: real_types(), runs: 6],
           fn op, type ->
             t = tensor(type, shape(1..4), pick([:extreme, 0..2]))
             axis = int(0..(tuple_size(t.shape) - 1))
             opts = [axis: axis, direction: pick([:asc, :desc]), stable: pick([true, false])]
             assert_same([t], &apply(Nx, op, [&1, opts]))
           end

  property Nx.Block.TopK, "is the head of the descending order", [over: real_types()], fn _,
                                                                                          type ->
    t = tensor(type, shape(1..3), :extreme)
    k = int(1..elem(t.shape, tuple_size(t.shape) - 1))
    assert_same([t], &Nx.top_k(&1, k: k))
  end

  property [:sort, :argsort],
           "of long axes",
           [over: [{:s, 32}, {:f, 32}, {:u, 8}], runs: 1],
           fn op, type ->
             t = tensor(type, {3, 700}, pick([:any, 0..9]))

             for direction <- [:asc, :desc],
                 axis <- [0, 1],
                 do: assert_same([t], &apply(Nx, op, [&1, [axis: axis, direction: direction]]))
           end

  test "NaN is the greatest, and descending is stable" do
    t = Nx.tensor([:nan, 1.0, :infinity, :neg_infinity])
    assert_equal(Nx.sort(t), [:neg_infinity, 1.0, :infinity, :nan])
    assert_equal(Nx.sort(t, direction: :desc), [:nan, :infinity, 1.0, :neg_infinity])
    assert_equal(Nx.argsort(t), [3, 1, 2, 0])
    assert_equal(Nx.argsort(t, direction: :desc), [0, 2, 1, 3])
    assert_equal(Nx.argsort(Nx.tensor([1, 2, 1, 2, 1]), direction: :desc), [1, 3, 0, 2, 4])
    assert_equal(Nx.argsort(Nx.tensor([0.0, -0.0, 0.0]), direction: :desc), [0, 1, 2])
  end

  test "the least and the greatest of a type sort downwards" do
    unsigned = Nx.tensor([0, 200, 2, 1], type: :u8)
    assert_equal(Nx.sort(unsigned, direction: :desc), [200, 2, 1, 0])
    signed = Nx.tensor([0, -128, 127], type: :s8)
    assert_equal(Nx.sort(signed, direction: :desc), [127, 0, -128])

    assert_equal(
      Nx.argsort(unsigned, type: :u8),
      Nx.tensor([0, 3, 2, 1], type: :u8, backend: Nx.BinaryBackend)
    )
  end

  test "medians and modes build on the order" do
    assert_same([tensor({:s, 32}, {3, 5}, 0..3)], &Nx.median(&1, axis: 1))
    assert_same([tensor({:s, 32}, {3, 5}, 0..3)], &Nx.mode(&1, axis: 1))
  end
end
