defmodule Mlx.Backend.ComparisonTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it is wrong (complex zeros are
  # true to it, and NaN clips to the minimum).
  use Mlx.NxCase, async: true

  alias Mlx.Oracle

  property [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal],
           "at the limits of every type, with broadcasting",
           [over: real_types()],
           fn op, type ->
             shape = shape()
             args = [tensor(type, shape, :extreme), tensor(type, broadcastable(shape), :extreme)]
             assert_same(args, &apply(Nx, op, [&1, &2]))
           end

  property [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal],
           "over mixed types",
           fn op ->
             shape = shape()
             args = for _ <- 1..2, do: tensor(pick(real_types()), broadcastable(shape), 0..3)
             assert_same(args, &apply(Nx, op, [&1, &2]))
           end

  property [:equal, :not_equal], "of complex numbers", fn op ->
    args = [tensor({:c, 64}, {8}, 0..1), tensor(pick(c: 64, f: 32, s: 32), {8}, 0..1)]
    assert_same(args, &apply(Nx, op, [&1, &2]))
  end

  property [:logical_and, :logical_or, :logical_xor],
           "go by truth, over mixed types and broadcasting",
           [runs: 40],
           fn op ->
             shape = shape()
             args = for _ <- 1..2, do: tensor(pick(real_types()), broadcastable(shape), :extreme)
             assert_same(args, &apply(Nx, op, [&1, &2]))
           end

  property [:logical_and, :logical_or, :logical_xor], "of complex numbers", fn op ->
    args = for _ <- 1..2, do: tensor({:c, 64}, {6}, 0..1)

    expected =
      Oracle.map(args, {:u, 8}, fn a, b ->
        [a, b] = for z <- [a, b], do: z.re != 0 or z.im != 0

        case op do
          :logical_and -> if a and b, do: 1, else: 0
          :logical_or -> if a or b, do: 1, else: 0
          :logical_xor -> if a != b, do: 1, else: 0
        end
      end)

    assert_equal(apply(Nx, op, Enum.map(args, &mlx/1)), expected, args: args)
  end

  property Nx.Block.LogicalNot, "over all types", [over: types()], fn _block, type ->
    # The binary backend takes every complex number for true.
    values = if type == {:c, 64}, do: 1..2, else: :any
    assert_same([tensor(type, shape(), values)], &Nx.logical_not/1)
  end

  property [:is_nan, :is_infinity], "over all types", [over: types()], fn op, type ->
    values = if type == {:c, 64}, do: :any, else: :extreme
    assert_same([tensor(type, shape(), values)], &apply(Nx, op, [&1]))
  end

  property :select, "over mixed types and broadcasting", [runs: 40], fn _op ->
    shape = shape()
    branches = for _ <- 1..2, do: tensor(pick(types() -- [f: 64]), broadcastable(shape), :small)
    pred = tensor(pick(real_types()), shape, pick([0..1, :any]))
    assert_same([pred | branches], &Nx.select/3)
  end

  property :select, "by one predicate for all, any values", [over: types()], fn _op, type ->
    shape = shape()
    values = if type == {:c, 64}, do: :any, else: :extreme
    branches = for _ <- 1..2, do: tensor(type, shape, values)
    assert_same([tensor({:u, 8}, {}, 0..1) | branches], &Nx.select/3)
  end

  property :clip, "over mixed types", [over: real_types()], fn _op, type ->
    bounds = for range <- [0..1, 2..3], do: tensor(pick([type, {:u, 8}, {:f, 32}]), {}, range)
    assert_same([tensor(type, shape(), :small) | bounds], &Nx.clip/3)
  end

  property :clip, "of any float but NaN", [over: float_types()], fn _op, type ->
    t = tensor(type, {12}, :extreme)
    one = Nx.tensor(1, type: type, backend: Nx.BinaryBackend)
    t = Nx.select(Nx.is_nan(t), one, t)
    assert_same([t, tensor(type, {}, -2..0), tensor(type, {}, 0..2)], &Nx.clip/3)
  end

  test "logic by hand" do
    {a, b} = {Nx.tensor([2, 2, 0]), Nx.tensor([3, 0, 0])}
    assert_equal(Nx.logical_and(a, b), [1, 0, 0])
    assert_equal(Nx.logical_or(a, b), [1, 1, 0])
    assert_equal(Nx.logical_xor(a, b), [0, 1, 0])
    assert_equal(Nx.logical_not(Nx.tensor([:nan, 0.0, -0.0, 1.0])), [0, 1, 1, 0])
    # NaN is no zero.
    assert_equal(Nx.logical_and(Nx.tensor([:nan, :nan]), Nx.tensor([1, 0])), [1, 0])
    assert_equal(Nx.logical_xor(Nx.tensor([:nan, :nan]), Nx.tensor([1, 0])), [0, 1])
    assert_equal(Nx.logical_not(Nx.tensor([Complex.new(0, 0), Complex.new(0, 1)])), [1, 0])
    assert_equal(Nx.select(Nx.tensor([Complex.new(0, 0), Complex.new(0, 1)]), 7, 8), [8, 7])
  end

  test "results are u8 that add up" do
    both = Nx.greater(Nx.tensor([3, 3]), Nx.tensor([1, 5]))
    assert_equal(Nx.add(both, both), [2, 0])
    assert_equal(Nx.sum(Nx.equal(Nx.iota({5}), Nx.iota({5}))), 5)
  end

  test "NaN is not ordered, and clips to itself" do
    nan = Nx.tensor([:nan, 1.0])

    for op <- [:equal, :greater, :less, :greater_equal, :less_equal],
        do: assert_equal(apply(Nx, op, [nan, :nan]), [0, 0])

    assert_equal(Nx.not_equal(nan, nan), [1, 0])
    assert_equal(Nx.clip(Nx.tensor([:nan, :infinity, -5.0]), 0, 1), [:nan, 1.0, 0.0])
  end

  test "64-bit integers are compared in all their bits" do
    for type <- [:s64, :u64] do
      {a, b} = {Nx.tensor(2 ** 53, type: type), Nx.tensor(2 ** 53 + 1, type: type)}
      assert_equal(Nx.equal(a, b), 0)
      assert_equal(Nx.less(a, b), 1)
      assert_equal(Nx.max(a, b), 2 ** 53 + 1)
    end
  end

  test "a u64 and a signed number compare as numbers" do
    most = 2 ** 64 - 1
    u64 = [0, 5, 2 ** 63, most]

    for {signed, type} <- [{[-1, 0, 5, -2], :s64}, {[-1, 5, 0, 2], :s4}, {5, nil}],
        op <- [:less, :less_equal, :greater, :greater_equal, :equal, :not_equal] do
      other = if type, do: Nx.tensor(signed, type: type), else: signed
      numbers = if is_list(signed), do: signed, else: List.duplicate(signed, 4)
      t = Nx.tensor(u64, type: :u64)
      right = for {a, b} <- Enum.zip(u64, numbers), do: compared(op, a, b)
      assert_equal(both([t, other], &apply(Nx, op, [&1, &2])), right)
      right = for {a, b} <- Enum.zip(u64, numbers), do: compared(op, b, a)
      assert_equal(both([other, t], &apply(Nx, op, [&1, &2])), right)
    end
  end

  @operators %{
    less: :<,
    less_equal: :<=,
    greater: :>,
    greater_equal: :>=,
    equal: :==,
    not_equal: :!=
  }
  defp compared(op, a, b), do: if(apply(Kernel, @operators[op], [a, b]), do: 1, else: 0)

  test "a complex number equals an f64 of its real part, and no other" do
    z = Nx.tensor([Complex.new(1.5, 0.0), Complex.new(1.5, 1.0), Complex.new(2.0, -0.0)])
    # The last differs by less than f32 can tell.
    x = Nx.tensor([1.5, 1.5, 2.0 + 1.0e-12], type: :f64)
    assert_equal(both([z, x], &Nx.equal/2), [1, 0, 0])
    assert_equal(both([x, z], &Nx.not_equal/2), [0, 1, 1])
  end
end
