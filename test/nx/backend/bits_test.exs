defmodule Mlx.Backend.BitsTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it raises.
  use Mlx.NxCase, async: true

  property [:bitwise_and, :bitwise_or, :bitwise_xor],
           "over mixed types, shapes and broadcasting",
           [runs: 40],
           fn op ->
             shape = shape()
             l = tensor(pick(int_types()), broadcastable(shape))
             r = tensor(pick(int_types()), broadcastable(shape))
             assert_same([l, r], &apply(Nx, op, [&1, &2]))
           end

  property [:bitwise_not, :population_count, :count_leading_zeros],
           "in every width",
           [over: int_types()],
           fn op, type -> assert_same([tensor(type, shape())], &apply(Nx, op, [&1])) end

  property [:left_shift, :right_shift],
           "by any amount, the width and more included",
           [over: int_types()],
           fn op, type ->
             {x, amount} = {tensor(type, {12}), tensor(type, {12}, 0..70)}
             assert_same([x, amount], &apply(Nx, op, [&1, &2]))
           end

  property [:left_shift, :right_shift], "over mixed types and broadcasting", fn op ->
    shape = shape()
    # Numbers that u64 and its merger with a signed type, s64, both hold.
    x = tensor(pick(int_types()), broadcastable(shape), 0..100)
    amount = tensor(pick(int_types()), broadcastable(shape), 0..9)
    assert_same([x, amount], &apply(Nx, op, [&1, &2]))
  end

  test "shifts by the width or more, or by negative amounts, shift everything out" do
    for {kind, size} = type <- int_types() do
      x = Nx.tensor([5, 1], type: type)

      for amount <- [size, size + 1, 100] do
        assert_equal(Nx.left_shift(x, Nx.tensor(amount, type: type)), [0, 0])
        assert_equal(Nx.right_shift(x, Nx.tensor(amount, type: type)), [0, 0])
      end

      if kind == :s do
        assert_equal(Nx.right_shift(Nx.negate(x), Nx.tensor(100, type: type)), [-1, -1])
        assert_equal(Nx.left_shift(x, Nx.tensor([-1, -100], type: type)), [0, 0])
        assert_equal(Nx.right_shift(Nx.negate(x), Nx.tensor(-1, type: type)), [-1, -1])
      end
    end
  end

  test "u64 with a signed type keeps every bit" do
    u64 = Nx.tensor([9_007_199_254_740_993], type: :u64)
    assert_equal(Nx.bitwise_and(u64, Nx.tensor([-1], type: :s32)), [9_007_199_254_740_993])
  end
end
