defmodule Mlx.Backend.FoldTest do
  # Oracle: Nx.BinaryBackend, whose left fold in row-major order is what Nx defines.
  use Mlx.NxCase, async: false

  property :reduce, "by functions of all kinds", [over: functions(), runs: 15], fn _op, fun ->
    t = tensor(pick([{:s, 32}, {:f, 32}, {:f, 64}]), shape(1..3, 3), 0..3)
    opts = [axes: axes(t.shape), keep_axes: pick([true, false])]
    assert_same([t], &Nx.reduce(&1, 1, opts, fun))
    assert_same([t, Nx.tensor(2.5, backend: Nx.BinaryBackend)], &Nx.reduce(&1, &2, opts, fun))
  end

  property :window_reduce, "by functions of all kinds", [over: functions(), runs: 10], fn _op,
                                                                                          fun ->
    t = tensor(pick([{:s, 32}, {:f, 32}]), shape(1..2, 5), 0..3)
    window = List.to_tuple(for d <- Tuple.to_list(t.shape), do: int(1..min(d, 2)))
    opts = [padding: pick([:valid, :same]), strides: for(_ <- 1..Nx.rank(t), do: int(1..2))]
    assert_same([t], &Nx.window_reduce(&1, 0, window, opts, fun))
  end

  property [:reduce, :window_reduce], "over all real types", [over: real_types()], fn op, type ->
    t = tensor(type, {2, 3}, :small)
    zero = tensor(type, {}, 0..0)
    # The binary backend hands numbers to a window's function, whose type is not the tensor's.
    fun = &Nx.as_type(Nx.add(&2, Nx.multiply(&1, &1)), type)

    if op == :reduce,
      do: assert_same([t, zero], &Nx.reduce(&1, &2, [axes: [1]], fun)),
      else: assert_same([t, zero], &Nx.window_reduce(&1, &2, {1, 2}, [], fun))
  end

  # Those that are a reduction of their own, and those that are not.
  defp functions do
    [
      &Nx.add/2,
      &Nx.multiply(&2, &1),
      &Nx.max/2,
      &Nx.min/2,
      &Nx.subtract/2,
      fn x, acc -> Nx.add(Nx.multiply(acc, 2), x) end,
      fn x, acc -> Nx.select(Nx.greater(x, 1), Nx.add(acc, x), acc) end
    ]
  end

  test "the element comes first, the accumulator second" do
    assert_equal(Nx.reduce(Nx.tensor([1, 2, 3]), 0, &Nx.subtract/2), 2)
  end

  test "the function may ignore its arguments" do
    t = Nx.tensor([[1, 2], [3, 4]])

    Nx.with_default_backend(Nx.BinaryBackend, fn ->
      assert_equal(Nx.reduce(t, 0, [axes: [1]], fn _x, _acc -> Nx.tensor(7) end), [7, 7])
    end)
  end

  test "names go with their axes" do
    t = Nx.tensor([[1, 2], [3, 4]], names: [:x, :y])
    assert Nx.names(Nx.reduce(t, 0, [axes: [:x]], &Nx.subtract/2)) == [:y]
  end

  test "a function is a program of its own inside a defn as well" do
    t = tensor({:f, 32}, {3, 4}, 0..3)
    window = fn t -> Nx.window_reduce(t, 0, {2, 2}, [padding: :same], &Nx.subtract/2) end

    for fun <- [
          &Nx.reduce(&1, 0, [axes: [0]], fn x, acc -> Nx.subtract(Nx.multiply(acc, 2), x) end),
          &Nx.reduce(&1, 1.5, fn x, acc -> Nx.max(Nx.sin(x), acc) end),
          &Nx.reduce(&1, 0, fn x, acc -> Nx.add(Nx.reshape(x, {}), Nx.sum(acc)) end),
          window
        ] do
      wanted = Nx.Defn.jit_apply(fun, [t], compiler: Nx.Defn.Evaluator)
      found = Nx.Defn.jit_apply(fun, [t], compiler: Mlx.Compiler)
      assert_equal(found, wanted, ulp: 2)
      assert_equal(fun.(mlx(t)), wanted, ulp: 2)
    end
  end

  # Oracle: the same with its operand converted beforehand.
  test "a window of narrow elements inside a defn" do
    t = Nx.tensor([1.5, -2.0, 0.5, 3.5], type: :f8)
    fold = &Nx.window_reduce(&1, 0, {2}, fn x, acc -> Nx.subtract(acc, x) end)
    wanted = Nx.Defn.jit_apply(fold, [Nx.as_type(t, :f32)], compiler: Mlx.Compiler)

    for type <- [:f8, :bf16] do
      t = Nx.as_type(t, type)
      found = Nx.Defn.jit_apply(&fold.(&1), [t], compiler: Mlx.Compiler)
      assert_equal(Nx.as_type(found, :f32), mlx(Nx.backend_copy(wanted, Nx.BinaryBackend)))
    end

    s4 = Nx.tensor([1, -2, 3, -4], type: :s4)
    sums = &Nx.window_reduce(&1, Nx.s32(100), {2}, fn x, acc -> Nx.subtract(acc, x) end)

    # 101 and 99, in the tensor's four bits.
    found = Nx.Defn.jit_apply(sums, [s4], compiler: Mlx.Compiler)
    assert_equal(Nx.as_type(found, :s32), [5, 3, 5])
  end

  test "complex numbers fold step by step" do
    t =
      Nx.tensor([[Complex.new(1, 2), Complex.new(0, 1)], [Complex.new(3, 0), Complex.new(1, 1)]])

    fun = &Nx.reduce(&1, Complex.new(1, 0), [axes: [0]], fn x, acc -> Nx.multiply(x, acc) end)
    assert_equal(fun.(t), [Complex.new(3, 6), Complex.new(-1, 1)])
  end

  test "a type that grows in the function is kept until the end" do
    t = Nx.tensor([1, 2, 3], backend: Nx.BinaryBackend)
    fun = fn x, acc -> Nx.add(Nx.multiply(acc, 0.5), x) end
    assert_same([t], &Nx.reduce(Nx.as_type(&1, :f32), 0, fun))
  end

  test "a million elements are folded at once" do
    t = Nx.iota({1_000_000}, type: :s64)
    fun = fn x, acc -> Nx.remainder(Nx.add(Nx.multiply(acc, 31), x), 1_000_003) end
    wanted = Enum.reduce(0..999_999, 7, fn x, acc -> rem(acc * 31 + x, 1_000_003) end)
    assert_equal(Nx.reduce(t, 7, fun), wanted)
  end

  test "a function that reads values, or has tensors of its own, is a case for the fallback" do
    t = Nx.tensor([1, 2, 3])
    own = Nx.tensor(2)
    reads = fn x, acc -> if Nx.to_number(x) > 1, do: Nx.add(x, acc), else: acc end
    owns = fn x, acc -> Nx.add(acc, Nx.multiply(x, own)) end

    for fun <- [reads, owns] do
      assert_raise Mlx.Error, ~r/reduce: .*cannot be traced/, fn -> Nx.reduce(t, 0, fun) end
    end

    Application.put_env(:mlx, :fallback, :silent)
    on_exit(fn -> Application.put_env(:mlx, :fallback, :raise) end)
    assert_equal(Nx.reduce(t, 0, reads), 5)
    assert_equal(Nx.reduce(t, 0, owns), 12)
  end

  test "the order of the axes is not that of the elements" do
    t = Nx.tensor([[[1.0, 2.0]], [[3.0, 5.0]]])
    minus = &Nx.subtract(&1, &2)

    for axes <- [[0, 1, 2], [2, 0, 1], [1, 2, 0]],
        do: assert_equal(both([t], &Nx.reduce(&1, 0, [axes: axes], minus)), 5 - (3 - (2 - 1.0)))
  end
end
