defmodule Mlx.Backend.ReduceTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it is wrong: complex zeros are
  # true to it, and which NaN argmax points to is open.
  use Mlx.NxCase, async: true

  property [:sum, :product], "over axes and keep_axes", [over: types()], fn op, type ->
    assert_reduced(op, tensor(type, shape(0..4, 3), :small), tolerance: 16)
  end

  property [:sum, :product], "of integers wrap", [over: int_types()], fn op, type ->
    assert_reduced(op, tensor(type, shape(1..2)), [])
  end

  property [:all, :any, :reduce_max, :reduce_min],
           "over axes and keep_axes, at the limits of every type",
           [over: real_types(), runs: 4],
           fn op, type -> assert_reduced(op, tensor(type, shape(), :extreme), []) end

  property [:argmax, :argmin],
           "over axes, ties and keep_axis",
           [over: real_types(), runs: 6],
           fn op, type ->
             t = tensor(type, shape(), pick([:small, 0..1]))

             axis =
               if t.shape == {}, do: nil, else: pick([nil, int(0..(tuple_size(t.shape) - 1))])

             opts = [axis: axis, tie_break: pick([:low, :high]), keep_axis: pick([true, false])]
             assert_same([t], &apply(Nx, op, [&1, opts]))
           end

  property [:argmax, :argmin], "at the limits of every type", [over: real_types()], fn op, type ->
    t = tensor(type, {9}, :extreme)
    found = Nx.to_number(apply(Nx, op, [mlx(t), [tie_break: pick([:low, :high])]]))
    reduction = if op == :argmax, do: :reduce_max, else: :reduce_min
    # The element that is the extreme, or any NaN.
    assert Nx.to_number(t[found]) == Nx.to_number(apply(Nx, reduction, [t]))
  end

  test "all and any of complex numbers" do
    assert_equal(Nx.all(Nx.tensor([Complex.new(0, 1), Complex.new(1, 0)])), 1)
    assert_equal(Nx.any(Nx.tensor([Complex.new(0, 0), Complex.new(0, 0)])), 0)
  end

  test "NaN passes through extremes and counts as true" do
    t = Nx.tensor([[1.0, :nan, 2.0], [1.0, 2.0, 3.0]])
    assert_equal(Nx.reduce_max(t, axes: [1]), [:nan, 3.0])
    assert_equal(Nx.reduce_min(t, axes: [0]), [1.0, :nan, 2.0])
    assert_equal(Nx.all(Nx.tensor([:nan, 1.0])), 1)
    assert_equal(Nx.any(Nx.tensor([0.0, -0.0])), 0)
    assert_equal(Nx.argmax(Nx.tensor([1.0, :nan, 3.0, :infinity])), 1)
    assert_equal(Nx.argmin(Nx.tensor([1.0, :nan, 3.0])), 1)
    assert_equal(Nx.argmax(Nx.tensor([1.0, :nan, 3.0]), tie_break: :high), 1)
    # Also where a block of a long axis has none.
    long = Nx.put_slice(Nx.broadcast(1.0, {1000}), [777], Nx.tensor([:nan]))
    assert_equal(Nx.reduce_max(long), :nan)
    assert_equal(Nx.sum(long), :nan)
    assert_equal(Nx.argmax(long), 777)
  end

  test "results take the type they are asked for" do
    u8 = Nx.tensor(1, type: :u8, backend: Nx.BinaryBackend)
    assert_equal(Nx.argmax(Nx.tensor([1, 3, 2]), type: :u8), u8)
    assert_equal(Nx.product(Nx.tensor([2], type: :s8)), 2)
    assert Nx.type(Nx.product(Nx.tensor([2], type: :s8))) == {:s, 32}
    assert Nx.type(Nx.sum(Nx.tensor([2], type: :u64))) == {:s, 64}
  end

  describe "long sums lose nothing" do
    test "of ones" do
      for {type, count} <- [f16: 60_000, bf16: 1_000_000, f32: 10_000_000, f64: 1_000_000] do
        ones = Nx.broadcast(Nx.tensor(1, type: type), {count})
        # Half precision rounds the result alone.
        assert_equal(Nx.sum(ones), count * 1.0, tolerance: 1)
        assert_equal(Nx.mean(ones), 1.0, tolerance: 1)
        square = Nx.reshape(ones, {div(count, 100), 100})
        assert_equal(Nx.sum(Nx.sum(square, axes: [0])), count * 1.0, tolerance: 1)
        assert_equal(Nx.sum(square, axes: [1]) |> Nx.reduce_max(), 100.0, tolerance: 1)
      end
    end

    test "of what is no sum of few powers of two" do
      tenth = Nx.broadcast(Nx.tensor(0.1), {1_000_003})
      exact = 1_000_003 * Nx.to_number(Nx.as_type(Nx.tensor(0.1), :f64))
      assert_in_delta Nx.to_number(Nx.sum(tenth)), exact, exact * 5.0e-6
      assert_in_delta Nx.to_number(Nx.mean(tenth)), 0.1, 5.0e-7
      rows = Nx.sum(Nx.broadcast(0.1, {3, 40_000}), axes: [1])
      assert_in_delta Nx.to_number(rows[2]), 4000.0, 4.0e-3
    end

    test "in variances" do
      # The mean is 1000, the variance 1: a sum that rounds would lose it.
      {t, count} = {Nx.add(1000, Nx.remainder(Nx.iota({200_000}), 2)), 200_000}
      assert_in_delta Nx.to_number(Nx.variance(t)), 0.25, 1.0e-5
      assert_in_delta Nx.to_number(Nx.standard_deviation(t)), 0.5, 1.0e-5
      assert_equal(Nx.sum(t), 1000 * count + div(count, 2))
    end
  end

  defp assert_reduced(op, t, opts) do
    axes = axes(t.shape)
    reduction = [axes: axes, keep_axes: pick([true, false])]
    assert_same([t], &apply(Nx, op, [&1, reduction]), opts)
  end
end
