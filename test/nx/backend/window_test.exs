defmodule Mlx.Backend.WindowTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand.
  use Mlx.NxCase, async: true

  property [:window_sum, :window_product, :window_max, :window_min],
           "over strides, paddings and dilations",
           [over: real_types(), runs: 4],
           fn op, type ->
             t = tensor(type, shape(1..4, 5), :small)
             {window, opts} = window(t)
             assert_same([t], &apply(Nx, op, [&1, window, opts]), tolerance: 16)
           end

  property [:window_sum, :window_product], "of complex numbers", fn op ->
    t = tensor({:c, 64}, shape(1..2, 5), :small)
    {window, opts} = window(t)
    assert_same([t], &apply(Nx, op, [&1, window, opts]), tolerance: 16)
  end

  property [:window_max, :window_min],
           "at the limits of every type",
           [over: real_types()],
           fn op, type ->
             t = tensor(type, shape(1..2, 5), :extreme)
             {window, opts} = window(t)
             assert_same([t], &apply(Nx, op, [&1, window, opts]))
           end

  property [:window_sum, :window_product], "of integers wrap", [over: int_types()], fn op, type ->
    t = tensor(type, shape(1..2, 5))
    {window, opts} = window(t)
    assert_same([t], &apply(Nx, op, [&1, window, opts]))
  end

  property [:window_scatter_max, :window_scatter_min],
           "add at the extreme, the last among equals, over mixed types",
           [over: real_types(), runs: 4],
           fn op, type ->
             shape = shape(1..3, 4)
             window = List.to_tuple(for d <- Tuple.to_list(shape), do: int(1..min(d, 2)))
             opts = [strides: for(_ <- 1..tuple_size(shape), do: int(1..2)), padding: :valid]
             source = tensor(pick([type, {:u, 8}, {:f, 32}]), places(shape, window, opts), 1..5)
             args = [tensor(type, shape, 0..3), source, tensor(type, {}, 0..2)]
             assert_same(args, &apply(Nx, op, [&1, &2, &3, window, opts]))
           end

  property [:window_scatter_max, :window_scatter_min],
           "leave out what falls on the padding",
           fn op ->
             shape = shape(1..2, 4)
             window = List.to_tuple(for _ <- 1..tuple_size(shape), do: 2)
             padding = for _ <- 1..tuple_size(shape), do: {int(0..1), int(0..1)}
             opts = [strides: for(_ <- 1..tuple_size(shape), do: int(1..2)), padding: padding]

             if Enum.all?(Enum.zip(Tuple.to_list(shape), padding), fn {d, {l, h}} ->
                  d + l + h > 1
                end) do
               args = [
                 tensor({:s, 32}, shape, 0..5),
                 tensor({:s, 32}, places(shape, window, opts), 1..5),
                 tensor({:s, 32}, {}, 0..2)
               ]

               assert_same(args, &apply(Nx, op, [&1, &2, &3, window, opts]))
             end
           end

  property [
             Nx.Block.CumulativeSum,
             Nx.Block.CumulativeProduct,
             Nx.Block.CumulativeMin,
             Nx.Block.CumulativeMax
           ],
           "along any axis, forwards and backwards",
           [over: real_types()],
           fn block, type ->
             t = tensor(type, shape(1..4), pick([:small, 0..3]))
             opts = [axis: int(0..(tuple_size(t.shape) - 1)), reverse: pick([true, false])]
             assert_same([t], &apply(Nx, cumulative(block), [&1, opts]), tolerance: 16)
           end

  property [
             Nx.Block.CumulativeSum,
             Nx.Block.CumulativeProduct,
             Nx.Block.CumulativeMin,
             Nx.Block.CumulativeMax
           ],
           "of integers at their limits",
           [over: int_types()],
           fn block, type ->
             assert_same([tensor(type, {7})], &apply(Nx, cumulative(block), [&1]))
           end

  property [Nx.Block.CumulativeSum, Nx.Block.CumulativeProduct], "of complex numbers", fn block ->
    t = tensor({:c, 64}, {2, 4}, :small)
    assert_same([t], &apply(Nx, cumulative(block), [&1, [axis: 1]]), tolerance: 16)
  end

  test "NaN stays in its windows, and in what accumulates after it" do
    nan = Nx.tensor([1.0, 3.0, :nan, 5.0, 4.0])
    assert_equal(Nx.window_min(Nx.tensor([:nan, :nan, :nan]), {2}), [:nan, :nan])
    assert_equal(Nx.window_max(nan, {2}), [3.0, :nan, :nan, 5.0])
    assert_equal(Nx.window_sum(nan, {2}), [4.0, :nan, :nan, 9.0])

    for op <- [:cumulative_max, :cumulative_min, :cumulative_sum, :cumulative_product] do
      assert [_, _, :nan, :nan, :nan] = Nx.to_flat_list(apply(Nx, op, [nan]))
      assert [:nan, :nan, :nan, _, _] = Nx.to_flat_list(apply(Nx, op, [nan, [reverse: true]]))
    end
  end

  test "types are kept" do
    assert_equal(Nx.window_sum(Nx.tensor([200, 200], type: :u8), {2}), [144])
    assert_equal(Nx.cumulative_sum(Nx.tensor([200, 100], type: :u8)), [200, 44])
  end

  test "padding never wins" do
    for type <- int_types() ++ float_types() do
      {_, size} = type
      low = if match?({:u, _}, type), do: 0, else: -(2 ** min(size - 1, 14))
      t = Nx.tensor([low, low], type: type)
      assert_equal(Nx.window_max(t, {2}, padding: [{1, 1}]), List.duplicate(low, 3))
      high = 2 ** min(size - 1, 14) - 1
      t = Nx.tensor([high, high], type: type)
      assert_equal(Nx.window_min(t, {2}, padding: [{1, 1}]), List.duplicate(high, 3))
    end
  end

  test "windows and dilations by hand" do
    assert_equal(Nx.window_max(Nx.iota({5}), {2}, window_dilations: [3]), [3, 4])

    scattered =
      Nx.window_scatter_max(Nx.tensor([7, 2, 5, 3, 8]), Nx.tensor([1, 2, 3, 4]), 0, {2},
        strides: [1]
      )

    assert_equal(scattered, [1, 0, 5, 0, 4])
  end

  test "half precision accumulates in single" do
    for type <- [:bf16, :f16] do
      ones = Nx.broadcast(Nx.tensor(1, type: type), {2000})
      assert_equal(Nx.window_sum(ones, {2000}), [2000.0], tolerance: 1)
      assert_equal(Nx.cumulative_sum(ones)[1999], 2000.0, tolerance: 1)
      assert_equal(Nx.window_mean(ones, {2000}), [1.0], tolerance: 1)
      # The one greatest element is in a thousand windows.
      peak = Nx.indexed_put(Nx.multiply(ones, 0), Nx.tensor([[1000]]), Nx.tensor([5], type: type))
      source = Nx.broadcast(Nx.tensor(1, type: type), {1001})
      sums = Nx.window_scatter_max(peak, source, 0, {1000}, padding: :valid, strides: [1])
      assert_equal(sums[1000], 1000.0, tolerance: 1)
    end
  end

  property Nx.Block.CumulativeSum, "of long axes is made of blocks", [runs: 6], fn _block ->
    sizes = for _ <- 1..2, do: int(1..3)
    axis = int(0..2)
    shape = sizes |> List.insert_at(axis, pick([257, 300, 320, 1000])) |> List.to_tuple()
    t = tensor(pick([{:f, 32}, {:f, 64}, {:bf, 16}, {:s, 32}]), shape, 0..1)
    assert_same([t], &Nx.cumulative_sum(&1, axis: axis, reverse: true))
    assert_same([t], &Nx.cumulative_sum(&1, axis: axis))
  end

  test "long cumulative sums lose nothing" do
    count = 1_000_003
    tenths = Nx.broadcast(Nx.tensor(0.1), {count})
    exact = count * Nx.to_number(Nx.as_type(Nx.tensor(0.1), :f64))
    assert_in_delta Nx.to_number(Nx.cumulative_sum(tenths)[count - 1]), exact, exact * 5.0e-6

    assert_in_delta Nx.to_number(Nx.cumulative_sum(tenths, reverse: true)[0]),
                    exact,
                    exact * 5.0e-6

    assert_in_delta Nx.to_number(Nx.window_sum(tenths, {count})[0]), exact, exact * 1.0e-6
    nan = Nx.put_slice(Nx.broadcast(1.0, {1000}), [500], Nx.tensor([:nan]))
    sums = Nx.to_flat_list(Nx.cumulative_sum(nan))
    assert Enum.take(sums, 500) == for(i <- 1..500, do: i * 1.0)
    assert Enum.all?(Enum.drop(sums, 500), &(&1 == :nan))
  end

  defp window(t) do
    dims = Tuple.to_list(t.shape)
    window = for d <- dims, do: int(1..min(d, 3))
    # What a dilated window spans fits into its axis.
    dilations =
      for {w, d} <- Enum.zip(window, dims),
          do: int(1..max(1, if(w == 1, do: 2, else: div(d - 1, w - 1))))

    opts = [
      padding: pick([:valid, :same, for(_ <- dims, do: {int(0..2), int(0..2)})]),
      strides: for(_ <- dims, do: int(1..2)),
      window_dilations: pick([dilations, List.duplicate(1, length(dims))])
    ]

    {List.to_tuple(window), opts}
  end

  defp places(shape, window, opts) do
    iota = Nx.iota(shape, backend: Nx.BinaryBackend)
    Nx.with_default_backend(Nx.BinaryBackend, fn -> Nx.window_sum(iota, window, opts).shape end)
  end

  defp cumulative(block) do
    "Cumulative" <> kind = block |> Module.split() |> List.last()
    String.to_existing_atom("cumulative_" <> String.downcase(kind))
  end
end
