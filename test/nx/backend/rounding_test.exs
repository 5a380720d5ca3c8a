defmodule Mlx.Backend.RoundingTest do
  # Oracle: Nx.BinaryBackend for what is finite; rounding NaN and infinity raises there, and its
  # sign of NaN is 1.
  use Mlx.NxCase, async: true

  property [:floor, :ceil, :round],
           "over types, halves and large numbers among them",
           [over: float_types(), runs: 6],
           fn op, type ->
             t = tensor(type, shape(), pick([:small, :finite]))
             assert_same([t], &apply(Nx, op, [&1]), tolerance: 0)
             large = Nx.multiply(t, Nx.tensor(pick([2.0 ** 10, 2.0 ** 13, 32.0]), type: type))
             assert_same([large], &apply(Nx, op, [&1]), tolerance: 0)
           end

  property [:sign, :negate, :abs], "over types", [over: real_types()], fn op, type ->
    # The sign of infinities is wrong, too.
    values = if op == :sign, do: :finite, else: :extreme
    assert_same([tensor(type, shape(), values)], &apply(Nx, op, [&1]))
  end

  property [:floor, :ceil, :round], "keep what is no number", [over: float_types()], fn op,
                                                                                        type ->
    specials = [:nan, :infinity, :neg_infinity] |> Enum.shuffle()
    assert_equal(apply(Nx, op, [Nx.tensor(specials, type: type)]), specials)
  end

  test "halves round away from zero" do
    for type <- float_types() do
      halves = Nx.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], type: type)
      assert_equal(Nx.round(halves), [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0])
    end

    # The sum with one half would round to 1.
    assert_equal(Nx.round(Nx.tensor([0.49999997, -0.49999997])), [0.0, 0.0])
    assert_equal(Nx.round(Nx.tensor(0.49999999999999994, type: :f64)), 0.0)
    # Above 2^23 every f32 is whole.
    assert_equal(Nx.round(Nx.tensor([8_388_609.0, 16_777_215.0])), [8_388_609.0, 16_777_215.0])
  end

  test "zeros keep their sign" do
    for op <- [:round, :floor, :ceil, :sign],
        do: assert(Nx.to_binary(apply(Nx, op, [Nx.tensor(-0.0)])) == <<-0.0::float-32-native>>)
  end

  test "signs" do
    assert_equal(Nx.sign(Nx.tensor([:nan, :infinity, :neg_infinity])), [:nan, 1.0, -1.0])
    assert_equal(Nx.sign(Nx.tensor([0, 255, 1], type: :u8)), [0, 1, 1])
    assert_equal(Nx.abs(Nx.tensor(-128, type: :s8)), -128)
    assert_equal(Nx.negate(Nx.tensor([1, 0], type: :u8)), [255, 0])
  end

  test "the two kinds of half precision meet in single" do
    # 3.4e38 is infinite as f16, 1 + 2^-10 is 1 as bf16.
    {a, b} =
      {Nx.tensor([3.0e38, 2.0], type: :bf16),
       Nx.tensor([:neg_infinity, 1.0009765625], type: :f16)}

    quotient = both([a, b], &Nx.divide/2)
    assert Nx.to_flat_list(quotient) == [-0.0, 1.998046875]
  end
end
