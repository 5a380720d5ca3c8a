defmodule Mlx.Backend.FoldTest do
  # Oracle: Nx.BinaryBackend, whose left fold in row-major order is what Nx defines.
  use Mlx.NxCase, async: true

  @functions [
    quote(do: &Nx.add/2),
    quote(do: &Nx.multiply(&2, &1)),
    quote(do: &Nx.max/2),
    quote(do: &Nx.min/2),
    quote(do: &Nx.subtract/2),
    quote(do: fn x, acc -> Nx.add(Nx.multiply(acc, 2), x) end),
    quote(do: fn x, acc -> Nx.select(Nx.greater(x, 1), Nx.add(acc, x), acc) end)
  ]

  for {fun, index} <- Enum.with_index(@functions) do
    test "reduce by #{Macro.to_string(fun)} (#{index})" do
      fun = unquote(fun)

      for_all(15, fn ->
        t = tensor(pick([{:s, 32}, {:f, 32}, {:f, 64}]), shape(1..3, 3), 0..3)
        opts = [axes: axes(t.shape), keep_axes: pick([true, false])]
        assert_same([t], &Nx.reduce(&1, 1, opts, fun))
        assert_same([t, Nx.tensor(2.5, backend: Nx.BinaryBackend)], &Nx.reduce(&1, &2, opts, fun))
      end)
    end

    test "window_reduce by #{Macro.to_string(fun)} (#{index})" do
      fun = unquote(fun)

      for_all(10, fn ->
        t = tensor(pick([{:s, 32}, {:f, 32}]), shape(1..2, 5), 0..3)
        window = List.to_tuple(for d <- Tuple.to_list(t.shape), do: int(1..min(d, 2)))
        opts = [padding: pick([:valid, :same]), strides: for(_ <- 1..Nx.rank(t), do: int(1..2))]
        assert_same([t], &Nx.window_reduce(&1, 0, window, opts, fun))
      end)
    end
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
