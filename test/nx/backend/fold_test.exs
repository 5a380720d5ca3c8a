defmodule Mlx.Backend.FoldTest do
  # Oracle: Nx.BinaryBackend, whose left fold in row-major order is what Nx defines.
  use Mlx.NxCase, async: true

  property(:reduce, "by functions of all kinds", [over: functions(), runs: 15], fn _op, fun ->
    t = tensor(pick([{:s, 32}, {:f, 32}, {:f, 64}]), shape(1..3, 3), 0..3)
    opts = [axes: axes(t.shape), keep_axes: pick([true, false])]
    assert_same([t], &Nx.reduce(&1, 1, opts, fun))
    assert_same([t, Nx.tensor(2.5, backend: Nx.BinaryBackend)], &Nx.reduce(&1, &2, opts, fun))
  end)

  property(:window_reduce, "by functions of all kinds", [over: functions(), runs: 10], fn _op,
                                                                                          fun ->
    t = tensor(pick([{:s, 32}, {:f, 32}]), shape(1..2, 5), 0..3)
    window = List.to_tuple(for d <- Tuple.to_list(t.shape), do: int(1..min(d, 2)))
    opts = [padding: pick([:valid, :same]), strides: for(_ <- 1..Nx.rank(t), do: int(1..2))]
    assert_same([t], &Nx.window_reduce(&1, 0, window, opts, fun))
  end)

  property([:reduce, :window_reduce], "over all real types", [over: real_types()], fn op, type ->
    t = tensor(type, {2, 3}, :small)
    zero = tensor(type, {}, 0..0)
    # The binary backend hands numbers to a window's function, whose type is not the tensor's.
    fun = &Nx.as_type(Nx.add(&2, Nx.multiply(&1, &1)), type)

    if op == :reduce,
      do: assert_same([t, zero], &Nx.reduce(&1, &2, [axes: [1]], fun)),
      else: assert_same([t, zero], &Nx.window_reduce(&1, &2, {1, 2}, [], fun))
  end)

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
end
