defmodule Mlx.Backend.ArithmeticTest do
  # Oracle: Nx.BinaryBackend, and Mlx.Oracle where that raises (division by zero, overflow), is
  # wrong (powers and angles of infinities) or goes through numbers of unlimited size.
  use Mlx.NxCase, async: true

  alias Mlx.Oracle

  property [:add, :subtract, :multiply],
           "over mixed types, shapes and broadcasting",
           [runs: 40],
           fn op ->
             shape = shape()
             left = tensor(pick(types()), broadcastable(shape), :small)
             right = tensor(pick(types()), broadcastable(shape), :small)

             # f64 with c64 merges into c128.
             if Nx.Type.merge(left.type, right.type) != {:c, 128},
               do: assert_same([left, right], &apply(Nx, op, [&1, &2]), tolerance: 1)
           end

  property [:add, :subtract, :multiply, :min, :max],
           "at the limits of every type",
           [over: real_types()],
           fn op, type ->
             shape = shape()
             # The binary backend raises where f64 overflows.
             values = if type == {:f, 64}, do: :any, else: :extreme
             args = [tensor(type, shape, values), tensor(type, broadcastable(shape), values)]
             assert_same(args, &apply(Nx, op, [&1, &2]), tolerance: 1, relative: true)
           end

  property [:min, :max], "over mixed types", fn op ->
    shape = shape()
    {l, r} = {tensor(pick(real_types()), shape, :small), tensor(pick(real_types()), shape, 0..3)}
    assert_same([l, r], &apply(Nx, op, [&1, &2]))
  end

  property [:add, :subtract, :multiply, :divide], "of complex numbers", fn op ->
    shape = shape(0..2)
    {l, r} = {tensor({:c, 64}, shape, :small), tensor({:c, 64}, shape, 1..4)}
    assert_same([l, r], &apply(Nx, op, [&1, &2]))
    assert_same([tensor({:s, 32}, shape, 1..4), r], &apply(Nx, op, [&1, &2]))
  end

  property [:divide, :atan2],
           "over mixed types, whose operands take the result's",
           fn op ->
             shape = shape()
             l = tensor(pick(real_types()), broadcastable(shape), :small)
             r = tensor(pick(real_types()), broadcastable(shape), 1..9)
             assert_same([l, r], &apply(Nx, op, [&1, &2]), tolerance: 2)
           end

  property [:divide, :atan2, :pow, :remainder],
           "at the limits of every float type",
           [over: float_types(), runs: 12],
           fn op, type ->
             args = [tensor(type, {8}, :extreme), tensor(type, {8}, :extreme)]
             # A remainder is exact; powers lose what their logarithm loses.
             {precision, wide} = if op == :pow, do: {600, 16}, else: {3, 3}
             tolerance = if type in [f: 16, bf: 16], do: wide, else: precision
             expected = Oracle.map(args, type, &within(type, apply(Oracle, op, [&1, &2])))
             actual = apply(Nx, op, Enum.map(args, &mlx/1))
             assert_equal(actual, expected, args: args, tolerance: tolerance, relative: true)
           end

  property :pow, "of integers wraps", [over: int_types()], fn _op, type ->
    shape = shape()
    exponents = tensor(pick(int_types()), shape, 0..70)
    assert_same([tensor(type, shape), exponents], &Nx.pow/2)
  end

  property :pow, "of floats", [over: float_types()], fn _op, type ->
    shape = shape()
    args = [tensor(type, shape, 1..4), tensor(pick(int_types() ++ [type]), shape, 0..6)]
    assert_same(args, &Nx.pow/2, tolerance: 16, relative: true)
  end

  property :pow, "of complex numbers", fn _op ->
    args = [tensor({:c, 64}, {6}, 1..3), tensor(pick(c: 64, f: 32), {6}, 1..3)]
    assert_same(args, &Nx.pow/2, tolerance: 64, relative: true)
  end

  property :quotient, "truncates, over mixed types", fn op ->
    {l, r} = {tensor(pick(int_types()), {16}, 0..100), tensor(pick(int_types()), {16}, 1..9)}
    assert_same([l, r], &apply(Nx, op, [&1, &2]))
  end

  property [:quotient, :remainder],
           "of integers at their limits has a value for every divisor",
           [over: int_types()],
           fn op, {_, size} = type ->
             args = [tensor(type, {24}), tensor(type, {24})]

             expected =
               Oracle.map(args, type, fn
                 _a, 0 when op == :quotient -> 2 ** size - 1
                 a, 0 -> a
                 a, b when op == :quotient -> div(a, b)
                 a, b -> rem(a, b)
               end)

             assert_equal(apply(Nx, op, Enum.map(args, &mlx/1)), expected, args: args)
           end

  property :remainder, "over mixed types takes the dividend's sign", fn op ->
    shape = shape()
    l = tensor(pick(real_types()), broadcastable(shape), :small)
    r = tensor(pick(real_types()), broadcastable(shape), 1..9)
    assert_same([l, r], &apply(Nx, op, [&1, &2]), tolerance: 0)
  end

  test "division by zero and of zero" do
    numbers = Nx.tensor([1, -1, 0])
    assert_equal(Nx.divide(numbers, 0), [:infinity, :neg_infinity, :nan])
    assert_equal(Nx.divide(numbers, -0.0), [:neg_infinity, :infinity, :nan])
  end

  test "angles know the sign of zero" do
    pi = :math.pi()
    angles = Nx.atan2(Nx.tensor([0.0, -0.0, 0.0, -0.0]), Nx.tensor([-1.0, -1.0, 1.0, 1.0]))
    assert_equal(angles, [pi, -pi, 0.0, -0.0])
  end

  test "powers" do
    assert_equal(Nx.pow(Nx.tensor(3), 40), 689_956_897)
    assert_equal(Nx.pow(Nx.tensor(Complex.new(0, 0)), 0), Complex.new(1, 0))
    # C's rules: one and zeroth powers know no NaN.
    assert_equal(
      Nx.pow(Nx.tensor([1.0, :nan, :nan, -1.0]), Nx.tensor([:nan, 0.0, 1.0, :infinity])),
      [
        1.0,
        1.0,
        :nan,
        1.0
      ]
    )
  end

  test "quotients truncate and remainders take the dividend's sign" do
    {left, right} = {Nx.tensor([-7, 7, -7, 7, -20]), Nx.tensor([2, -2, -2, 2, 4])}
    assert_equal(Nx.quotient(left, right), [-3, -3, 3, 3, -5])
    assert_equal(Nx.remainder(left, right), [-1, 1, -1, 1, 0])
    # The dividend is returned as it is, where a remainder of Python's would round.
    assert_equal(Nx.remainder(Nx.tensor(-1.0e-20), 3.0), -1.0e-20)
    assert Nx.to_binary(Nx.remainder(-0.0, 2.0)) == <<-0.0::float-32-native>>
  end

  test "sums of the same kind from other types are in the merged one" do
    u64 = Nx.tensor([2 ** 53 + 1], type: :u64)
    assert_equal(Nx.add(u64, Nx.tensor([-1], type: :s32)), [2 ** 53])
    assert_equal(Nx.add(Nx.tensor([127], type: :s8), Nx.tensor([255], type: :u8)), [382])
  end

  property ~w(add subtract multiply divide min max remainder atan2 less greater equal)a,
           "of half precision and integers that it cannot hold",
           [runs: 12],
           fn op ->
             type = pick([:f16, :bf16])
             integers = pick([{:u, 16}, {:s, 32}, {:u, 64}])
             l = Nx.add(tensor({:f, 32}, {6}, 1..9), 0.5) |> Nx.as_type(type)
             r = tensor(integers, {6}, 1000..60_000)
             args = pick([[l, r], [r, l]])
             # All products but those with the smallest fit.
             args =
               if op == :multiply, do: [Nx.multiply(l, 0.001) |> Nx.as_type(type), r], else: args

             assert_same(args, &apply(Nx, op, [&1, &2]), tolerance: 2, relative: true)
           end

  test "half precision is not too narrow for the size that a mean divides by" do
    for type <- [:f16, :bf16] do
      halves = Nx.broadcast(Nx.tensor(0.5, type: type), {100_000})
      assert_equal(Nx.mean(halves), 0.5, tolerance: 2)

      assert_equal(Nx.variance(Nx.remainder(Nx.iota({100_000}), 2) |> Nx.as_type(type)), 0.25,
        tolerance: 2
      )
    end

    assert_equal(Nx.add(Nx.tensor(65_535, type: :u16), Nx.tensor(-100, type: :f16)), 65_440.0)
    assert_equal(Nx.equal(Nx.tensor(:infinity, type: :f16), Nx.tensor(100_000)), 0)
  end

  # What a float of `type` beyond its limit becomes.
  defp within(type, x) when is_number(x) do
    limit = %{{:f, 16} => 65_519.9, {:bf, 16} => 3.39e38, {:f, 32} => 3.4028235e38}[type]

    cond do
      limit == nil or abs(x) <= limit -> x
      x > 0 -> :infinity
      true -> :neg_infinity
    end
  end

  defp within(_type, x), do: x
end
