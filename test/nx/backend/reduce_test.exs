defmodule Mlx.Backend.ReduceTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand.
  use Mlx.NxCase, async: true

  # The binary backend takes complex zeros for true in all and any.
  for {op, types, values} <- [
        {:sum, :types, :small},
        {:product, :types, :small},
        {:all, :real_types, :any},
        {:any, :real_types, :any},
        {:reduce_max, :real_types, :any},
        {:reduce_min, :real_types, :any}
      ] do
    test "#{op} over types, axes and keep_axes" do
      for_all(60, fn ->
        t = tensor(pick(unquote(types)()), shape(), unquote(values))
        opts = [axes: axes(t.shape), keep_axes: pick([true, false])]
        assert_same([t], &apply(Nx, unquote(op), [&1, opts]), tolerance: 16)
      end)
    end
  end

  test "all and any of complex numbers" do
    assert_equal(Nx.all(Nx.tensor([Complex.new(0, 1), Complex.new(1, 0)])), 1)
    assert_equal(Nx.any(Nx.tensor([Complex.new(0, 0), Complex.new(0, 0)])), 0)
  end

  test "integer sums and products wrap in their aggregate type" do
    for type <- int_types() do
      for_all(3, fn ->
        t = tensor(type, {6})
        assert_same([t], &Nx.sum/1)
        assert_same([t], &Nx.product/1)
      end)
    end
  end

  test "NaN passes through extremes and counts as true" do
    t = Nx.tensor([[1.0, :nan, 2.0], [1.0, 2.0, 3.0]])
    assert_equal(Nx.reduce_max(t, axes: [1]), [:nan, 3.0])
    assert_equal(Nx.reduce_min(t, axes: [0]), [1.0, :nan, 2.0])
    assert_equal(Nx.all(Nx.tensor([:nan, 1.0])), 1)
    assert_equal(Nx.any(Nx.tensor([0.0, -0.0])), 0)
  end

  test "a million ones add up in every float type" do
    for type <- [:f16, :bf16, :f32, :f64] do
      mean = Nx.broadcast(Nx.tensor(1, type: type), {1000, 1000}) |> Nx.as_type(:f32) |> Nx.sum()
      assert_equal(mean, 1.0e6)
    end

    tenth = Nx.broadcast(Nx.tensor(0.1), {1_000_003})
    assert_in_delta Nx.to_number(Nx.sum(tenth)), 100_000.3, 0.5

    assert_in_delta Nx.to_number(Nx.sum(Nx.broadcast(0.1, {3, 40_000}), axes: [1])[2]),
                    4000.0,
                    0.01

    assert_equal(Nx.sum(Nx.broadcast(Nx.tensor(1, type: :f16), {60_000})), 60_000.0)
  end

  describe "argmax and argmin" do
    test "over types, axes, ties and keep_axis" do
      for_all(80, fn ->
        t = tensor(pick(real_types()), shape(), :small)
        axis = if t.shape == {}, do: nil, else: pick([nil, int(0..(tuple_size(t.shape) - 1))])
        opts = [axis: axis, tie_break: pick([:low, :high]), keep_axis: pick([true, false])]
        op = pick([:argmax, :argmin])
        assert_same([t], &apply(Nx, op, [&1, opts]))
      end)
    end

    test "point to NaN" do
      t = Nx.tensor([1.0, :nan, 3.0, :infinity])
      assert_equal(Nx.argmax(t), 1)
      assert_equal(Nx.argmin(t), 1)
      assert_equal(Nx.argmax(t, tie_break: :high), 1)
    end

    test "take the type they are asked for" do
      assert_equal(
        Nx.argmax(Nx.tensor([1, 3, 2]), type: :u8),
        Nx.tensor(1, type: :u8, backend: Nx.BinaryBackend)
      )
    end
  end

  describe "sort and argsort" do
    test "over types, axes and directions" do
      for_all(60, fn ->
        t = tensor(pick(real_types()), shape(1..3))
        opts = [axis: int(0..(tuple_size(t.shape) - 1)), direction: pick([:asc, :desc])]
        assert_same([t], &Nx.sort(&1, opts))
        assert_same([t], &Nx.argsort(&1, opts))
      end)
    end

    test "NaN is the greatest, and descending is stable" do
      t = Nx.tensor([:nan, 1.0, :infinity, :neg_infinity])
      assert_equal(Nx.sort(t), [:neg_infinity, 1.0, :infinity, :nan])
      assert_equal(Nx.sort(t, direction: :desc), [:nan, :infinity, 1.0, :neg_infinity])
      assert_equal(Nx.argsort(t), [3, 1, 2, 0])
      assert_equal(Nx.argsort(t, direction: :desc), [0, 2, 1, 3])
      assert_equal(Nx.argsort(Nx.tensor([1, 2, 1, 2, 1]), direction: :desc), [1, 3, 0, 2, 4])

      unsigned = Nx.tensor([0, 200, 2, 1], type: :u8)
      assert_equal(Nx.sort(unsigned, direction: :desc), [200, 2, 1, 0])
    end

    test "top_k" do
      for_all(fn ->
        t = tensor(pick(real_types()), shape(1..3))
        k = int(1..elem(t.shape, tuple_size(t.shape) - 1))
        assert_same([t], &Nx.top_k(&1, k: k))
      end)
    end
  end

  for op <- [:cumulative_sum, :cumulative_product, :cumulative_min, :cumulative_max] do
    test "#{op}" do
      op = unquote(op)

      for_all(fn ->
        t = tensor(pick(real_types()), shape(1..3), :small)
        opts = [axis: int(0..(tuple_size(t.shape) - 1)), reverse: pick([true, false])]
        assert_same([t], &apply(Nx, op, [&1, opts]), tolerance: 16)
      end)
    end
  end

  test "cumulative sums keep their type" do
    assert_equal(Nx.cumulative_sum(Nx.tensor([200, 100], type: :u8)), [200, 44])
  end

  for op <- [:window_sum, :window_product, :window_max, :window_min] do
    test "#{op} over strides, paddings and dilations" do
      op = unquote(op)

      for_all(40, fn ->
        t = tensor(pick(real_types()), shape(1..3, 6), :small)
        rank = tuple_size(t.shape)
        window = List.to_tuple(for d <- Tuple.to_list(t.shape), do: int(1..min(d, 3)))

        opts = [
          padding: pick([:valid, :same, for(_ <- 1..rank, do: {int(0..2), int(0..2)})]),
          strides: for(_ <- 1..rank, do: int(1..2))
        ]

        assert_same([t], &apply(Nx, op, [&1, window, opts]), tolerance: 16)

        dilated = [
          window_dilations: for(w <- Tuple.to_list(window), do: if(w == 1, do: 2, else: 1))
        ]

        assert_same([t], &apply(Nx, op, [&1, window, dilated]), tolerance: 16)
      end)
    end
  end

  test "windows of special values" do
    assert_equal(Nx.window_min(Nx.tensor([:nan, :nan, :nan]), {2}), [:nan, :nan])
    assert_equal(Nx.window_sum(Nx.tensor([200, 200], type: :u8), {2}), [144])
    assert_equal(Nx.window_max(Nx.tensor([-5, -7], type: :s8), {2}, padding: [{1, 0}]), [-5, -5])
    assert_equal(Nx.window_max(Nx.iota({5}), {2}, window_dilations: [3]), [3, 4])
  end

  test "window_scatter adds at the extreme, the last among equals" do
    for_all(30, fn ->
      shape = shape(1..2, 5)
      window = List.to_tuple(for d <- Tuple.to_list(shape), do: int(1..min(d, 2)))
      strides = for _ <- 1..tuple_size(shape), do: int(1..2)
      type = pick([{:s, 32}, {:f, 32}, {:f, 64}])
      places = Nx.window_sum(Nx.iota(shape, backend: Nx.BinaryBackend), window, strides: strides)
      op = pick([:window_scatter_max, :window_scatter_min])
      args = [tensor(type, shape, 0..3), tensor(type, places.shape, 1..5), tensor(type, {}, 0..2)]
      assert_same(args, &apply(Nx, op, [&1, &2, &3, window, [strides: strides, padding: :valid]]))
    end)

    result =
      Nx.window_scatter_max(Nx.tensor([7, 2, 5, 3, 8]), Nx.tensor([1, 2, 3, 4]), 0, {2},
        strides: [1]
      )

    assert_equal(result, [1, 0, 5, 0, 4])
  end
end
