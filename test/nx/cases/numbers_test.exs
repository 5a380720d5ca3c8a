defmodule Mlx.Cases.NumbersTest do
  # Public bug reports about numbers and types, as cases: the input that failed elsewhere and its
  # right value, operation by operation and compiled. Each test names a case, or the thread.
  use Mlx.NxCase, async: true

  describe "arithmetic" do
    test "A1-18: quotients of mixed signs truncate" do
      {a, b} = {Nx.tensor([-7, 7, -7, 7]), Nx.tensor([2, -2, -2, 2])}
      assert_equal(both([a, b], &Nx.quotient/2), [-3, -3, 3, 3])
    end

    test "A1-59: remainders take the dividend's sign, in every type" do
      {a, b} = {Nx.tensor([-7, 7, -7, 7]), Nx.tensor([3, -3, -3, 3])}

      for type <- [:s8, :s32, :s64, :f16, :bf16, :f32, :f64] do
        [a, b] = for t <- [a, b], do: Nx.as_type(t, type)
        assert_equal(both([a, b], &Nx.remainder/2), [-1, 1, -1, 1])
      end

      {a, b} = {Nx.tensor([-1, -3, 1, 3], type: :bf16), Nx.tensor([3, 8, -3, -8], type: :bf16)}
      assert_equal(both([a, b], &Nx.remainder/2), [-1, -3, 1, 3])
    end

    test "A1-19: u64 beside a signed type keeps its bits" do
      u64 = Nx.tensor([9_007_199_254_740_993], type: :u64)
      minus = Nx.tensor([-1], type: :s32)
      assert_equal(both([u64, minus], &Nx.bitwise_and/2), [9_007_199_254_740_993])
      most = Nx.tensor([2 ** 64 - 1], type: :u64)
      sum = both([most, Nx.tensor([1], type: :s32)], &Nx.add/2)
      assert Nx.type(sum) == {:s, 64}
      assert_equal(sum, [0])
    end

    test "A1-54: integer powers with negative exponents come to an end" do
      {base, exponent} = {Nx.tensor([2, -2, 1, -1, -1, 0]), Nx.tensor([-1, -3, -9, -3, -2, -1])}
      task = Task.async(fn -> Nx.to_flat_list(both([base, exponent], &Nx.pow/2)) end)
      assert [0, 0, 1, -1, 1, 0] == Task.await(task, 5000)
    end

    test "A1-63: constants of f64 are those of f64" do
      # Operation by operation Nx makes them tensors of f32.
      one = Nx.tensor([1.0], type: :f64)

      for constant <- [0.1, 1.0e300] do
        product = Nx.Defn.jit_apply(&Nx.multiply(&1, constant), [one], compiler: Mlx.Compiler)
        assert Nx.to_flat_list(product) == [constant]
      end
    end

    test "A1-25: linspace of f64 has its precision" do
      points = both(fn -> Nx.linspace(0.0, 0.5, n: 6, type: :f64) end)
      right = [0.0, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5]
      for {a, e} <- Enum.zip(Nx.to_flat_list(points), right), do: assert_in_delta(a, e, 1.0e-15)
    end

    test "A1-64: the modulus of unsigned integers compiles" do
      for type <- [:u8, :u16, :u32, :u64] do
        t = Nx.tensor([1, 2, 3], type: type)
        assert_equal(both([t], &Nx.add(Nx.abs(&1), 1)), [2, 3, 4])
      end
    end

    test "A1-65: an infinite imaginary part is infinite" do
      z = Nx.tensor([Complex.new(0.0, :infinity), Complex.new(3.0, 4.0)])
      assert_equal(both([z], &Nx.is_infinity/1), [1, 0])
    end

    test "A1-61: logarithms of two bases are two" do
      q = Nx.tensor([0.1, 0.2, 0.3, 0.4])

      {nats, digits} =
        both([q], &{Nx.sum(Nx.multiply(&1, Nx.log(&1))), Nx.sum(Nx.multiply(&1, Nx.log10(&1)))})

      assert_in_delta Nx.to_number(nats), -1.2798543, 1.0e-6
      assert_in_delta Nx.to_number(digits), -0.5558336, 1.0e-6
    end
  end

  describe "reductions" do
    test "A1-60: half precision sums do not saturate" do
      ones = fn type, count -> Nx.broadcast(Nx.tensor(1.0, type: type), {count}) end
      assert_equal(both([ones.(:bf16, 1000)], &Nx.sum/1), 1000.0, tolerance: 1)
      assert_equal(both([ones.(:f16, 20_000)], &Nx.sum/1), 20_000.0, tolerance: 1)
      assert_in_delta Nx.to_number(both([ones.(:bf16, 70_000)], &Nx.mean/1)), 1.0, 0.01
    end

    test "A1-66: products aggregate, of one element too" do
      for {list, product} <- [{[2], 2}, {[2, 2], 4}, {[100, 100], 10_000}] do
        result = both([Nx.tensor(list, type: :s8)], &Nx.product/1)
        assert Nx.type(result) == {:s, 32}
        assert_equal(result, product)
      end
    end

    test "A1-56: zeros of either sign are false" do
      assert_equal(both([Nx.tensor([0.0, -0.0])], &Nx.any/1), 0)
      assert_equal(both([Nx.tensor([-0.0, 1.0])], &Nx.all/1), 0)
    end

    test "A1-33: infinities add up to NaN, and are close to themselves only" do
      assert_equal(both([Nx.tensor([:infinity, :neg_infinity])], &Nx.sum/1), :nan)
      close = fn a, b, opts -> both([Nx.tensor(a), Nx.tensor(b)], &Nx.all_close(&1, &2, opts)) end
      assert_equal(close.(:infinity, :neg_infinity, []), 0)
      assert_equal(close.(:infinity, :infinity, []), 1)
      assert_equal(close.(:nan, :nan, []), 0)
      assert_equal(close.(:nan, :nan, equal_nan: true), 1)
    end

    test "A1-32: argmax and argmin point to NaN" do
      t = Nx.tensor([1.0, :nan, 3.0])
      assert_equal(both([t], &Nx.argmax/1), 1)
      assert_equal(both([t], &Nx.argmin/1), 1)
    end

    test "A1-45: comparisons are numbers, and have an argmax" do
      t = Nx.tensor([1, 3, 2, 5])
      assert_equal(both([t], &Nx.argmax(Nx.greater(&1, 2))), 1)
      {a, b} = {Nx.tensor([1, 2]), Nx.tensor([1, 3])}
      sum = both([a, b], &Nx.add(Nx.equal(&1, &1), Nx.equal(&1, &2)))
      assert Nx.type(sum) == {:u, 8}
      assert_equal(sum, [2, 1])
    end

    test "A1-55: cumulative extremes keep NaN" do
      t = Nx.tensor([1.0, 3.0, :nan, 5.0, 4.0])
      assert_equal(both([t], &Nx.cumulative_max/1), [1.0, 3.0, :nan, :nan, :nan])
      assert_equal(both([t], &Nx.cumulative_min/1), [1.0, 1.0, :nan, :nan, :nan])
    end

    test "A1-57: scans along a unit axis of a slice read the slice" do
      scan = &(&1 |> Nx.slice([0, 2], [1, 8]) |> Nx.cumulative_sum(axis: 0))
      row = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
      assert_equal(both([Nx.iota({1, 10}, type: :f32)], scan), [row])
    end

    test "A1-34: windows keep NaN" do
      t = Nx.tensor([:nan, :nan, :nan])
      assert_equal(both([t], &Nx.window_min(&1, {2})), [:nan, :nan])
    end

    test "A1-12: scattering over windows keeps the type and adds where windows meet" do
      {t, source} = {Nx.tensor([0, 1, 2, 3, 4, 5], type: :f64), Nx.tensor([1, 2, 3], type: :f64)}
      scatter = &Nx.window_scatter_max(&1, &2, 0.0, {2}, strides: [2], padding: :valid)
      result = both([t, source], scatter)
      assert Nx.type(result) == {:f, 64}
      assert_equal(result, [0, 1, 0, 2, 0, 3])

      {t, source} = {Nx.tensor([7, 2, 5, 3, 8]), Nx.tensor([1, 2, 3, 4])}
      scatter = &Nx.window_scatter_max(&1, &2, 0, {2}, strides: [1], padding: :valid)
      assert_equal(both([t, source], scatter), [1, 0, 5, 0, 4])
    end
  end

  describe "order and chance" do
    test "A1-11: NaN is the greatest" do
      t = Nx.tensor([:nan, 1.0, :infinity, :neg_infinity])
      assert_equal(both([t], &Nx.sort/1), [:neg_infinity, 1.0, :infinity, :nan])
      down = [:nan, :infinity, 1.0, :neg_infinity]
      assert_equal(both([t], &Nx.sort(&1, direction: :desc)), down)
      assert_equal(both([t], &Nx.argsort/1), [3, 1, 2, 0])
      assert_equal(both([t], &Nx.argsort(&1, direction: :desc)), [0, 2, 1, 3])
    end

    test "A1-31: random integers are Nx's" do
      draw = fn -> Nx.Random.randint(Nx.Random.key(127), 0, 100, shape: {10}) |> elem(0) end
      right = [29, 80, 95, 12, 17, 17, 23, 9, 28, 85]
      assert Nx.to_flat_list(both(draw)) == right
    end

    test "A1-30: a shuffle has every value once" do
      count = 200_000
      {shuffled, _key} = Nx.Random.shuffle(Nx.Random.key(1), Nx.iota({count}))
      assert_equal(Nx.sum(Nx.as_type(shuffled, :s64)), div(count * (count - 1), 2))
      assert_equal(Nx.all(Nx.equal(Nx.sort(shuffled), Nx.iota({count}))), 1)
    end
  end
end
