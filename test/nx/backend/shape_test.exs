defmodule Mlx.Backend.ShapeTest do
  # Oracle: Nx.BinaryBackend.
  use Mlx.NxCase, async: true

  describe "creation" do
    test "iota counts along any axis in any type" do
      for_all(40, fn ->
        shape = shape()
        axis = if shape == {}, do: nil, else: pick([nil, int(0..(tuple_size(shape) - 1))])
        type = pick(types())
        assert_same([], fn -> Nx.iota(shape, type: type, axis: axis) end)
      end)

      assert_same([], fn -> Nx.iota({300}, type: :u8) end)
      assert_same([], fn -> Nx.iota({300}, type: :s8) end)
    end

    test "eye of any size, type and batch" do
      for_all(fn ->
        shape = shape(2..4)
        type = pick(types())
        assert_same([], fn -> Nx.eye(shape, type: type) end)
      end)
    end

    test "constants are exact" do
      assert_equal(Nx.tensor(9_007_199_254_740_993, type: :s64), 9_007_199_254_740_993)
      assert_equal(Nx.tensor(18_446_744_073_709_551_615, type: :u64), 18_446_744_073_709_551_615)
      assert_equal(Nx.broadcast(Nx.tensor(:nan, type: :bf16), {2}), [:nan, :nan])
      assert_equal(Nx.tensor(:infinity), :infinity)
      assert_equal(Nx.tensor(Complex.new(1, -2)), Complex.new(1, -2))
    end

    test "binaries are read as they are" do
      for_all(fn ->
        t = tensor(pick(types()), shape())
        copy = Nx.from_binary(Nx.to_binary(t), t.type) |> Nx.reshape(t.shape)
        assert Nx.to_binary(copy) == Nx.to_binary(t)
      end)
    end
  end

  describe "as_type" do
    test "between all types" do
      for from <- types(), to <- types() do
        # The binary backend cannot truncate the infinite parts of complex numbers.
        values = if from == {:c, 64}, do: :finite, else: :any

        for_all(2, fn -> assert_same([tensor(from, shape(0..2), values)], &Nx.as_type(&1, to)) end)
      end
    end

    test "from float to integer truncates, wraps, and knows NaN and infinity" do
      assert_equal(Nx.as_type(Nx.tensor([300.7, -1.5]), :u8), [44, 255])

      for {kind, size} = to <- int_types(), from <- [:f16, :bf16, :f32, :f64] do
        {least, most} =
          if kind == :u, do: {0, 2 ** size - 1}, else: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}

        special = Nx.tensor([:nan, :infinity, :neg_infinity], type: from)
        assert_equal(Nx.as_type(special, to), [0, most, least])
      end

      big =
        Nx.tensor([3.0e9, -3.0e9, 1.0e15, 1.0e19, -1.0e19, 1.0e30, -1.0e30, 9.2e18],
          type: :f64,
          backend: Nx.BinaryBackend
        )

      for to <- int_types(), do: assert_same([big], &Nx.as_type(&1, to))

      big =
        Nx.tensor([3.0e9, -3.0e9, 1.0e15, 1.0e19, -1.0e19, 1.0e30, -1.0e30],
          type: :f32,
          backend: Nx.BinaryBackend
        )

      for to <- int_types(), do: assert_same([big], &Nx.as_type(&1, to))
    end
  end

  test "bitcast" do
    for {from, to} <- [f32: :s32, f32: :u32, f64: :u64, u8: :s8, bf16: :u16, u16: :f16] do
      for_all(3, fn ->
        t = tensor(Nx.Type.normalize!(from), shape(), :small)
        actual = Nx.bitcast(mlx(t), to)
        assert Nx.to_binary(actual) == Nx.to_binary(t)
        assert Nx.type(actual) == Nx.Type.normalize!(to)
      end)
    end
  end

  test "broadcast by right alignment and by axes" do
    for_all(fn ->
      shape = shape()
      assert_same([tensor(pick(types()), broadcastable(shape))], &Nx.broadcast(&1, shape))
    end)

    for_all(fn ->
      shape = shape(1..4)

      axes =
        0..(tuple_size(shape) - 1) |> Enum.take_random(int(1..tuple_size(shape))) |> Enum.sort()

      dims = axes |> Enum.map(&pick([elem(shape, &1), 1])) |> List.to_tuple()
      assert_same([tensor({:s, 32}, dims)], &Nx.broadcast(&1, shape, axes: axes))
    end)
  end

  test "reshape, squeeze, transpose and reverse" do
    for_all(fn ->
      t = tensor(pick(types()), shape(1..4))
      axes = Enum.shuffle(Nx.axes(t))
      assert_same([t], &Nx.transpose(&1, axes: axes))
      some = Enum.take(axes, int(1..length(axes)))
      assert_same([t], &Nx.reverse(&1, axes: some))
      assert_same([t], &Nx.squeeze/1)
      assert_same([t], &Nx.flatten/1)
      assert_same([t], &(&1 |> Nx.transpose(axes: axes) |> Nx.flatten()))
      assert_same([t], &Nx.new_axis(&1, -1))
    end)
  end

  test "what is a view in MLX is read in order" do
    assert Nx.to_binary(Nx.transpose(Nx.iota({2, 3}, type: :u8))) == <<0, 3, 1, 4, 2, 5>>
    assert Nx.to_binary(Nx.reverse(Nx.iota({4}, type: :u8))) == <<3, 2, 1, 0>>
    assert Nx.to_binary(Nx.broadcast(Nx.tensor([1, 2], type: :u8), {2, 2})) == <<1, 2, 1, 2>>
    assert Nx.to_binary(Nx.iota({6}, type: :u8)[1..4//2]) == <<1, 3>>
  end

  test "pad with low, high and interior widths of any sign" do
    for_all(60, fn ->
      shape = shape(1..3)
      type = pick(types())

      config =
        for dim <- Tuple.to_list(shape) do
          interior = int(0..2)
          spread = dim + (dim - 1) * interior
          # Within one dimension at most a part is cropped, which is what both agree on.
          {pick([0, 1, 2, -min(1, spread - 1)]), pick([0, 1, 3]), interior}
        end

      assert_same(
        [tensor(type, shape, :small), tensor(type, {}, :small)],
        &Nx.pad(&1, &2, config)
      )
    end)

    assert_equal(Nx.pad(Nx.tensor([1, 2, 3]), 5, [{1, 0, 3}]), [5, 1, 5, 5, 5, 2, 5, 5, 5, 3])
    assert_equal(Nx.pad(Nx.tensor([1, 2, 3]), 0, [{-1, -1, 0}]), [2])
    assert_equal(Nx.pad(Nx.tensor([1, 2]), 0.5, [{1, 0, 0}]), [0.5, 1.0, 2.0])
  end

  test "concatenate and stack tensors of several types" do
    for_all(fn ->
      shape = shape(1..3)
      axis = int(0..(tuple_size(shape) - 1))

      parts =
        for _ <- 1..int(1..3),
            do: tensor(pick(real_types()), put_elem(shape, axis, int(1..3)), :small)

      assert_same(parts, fn_of(length(parts), &Nx.concatenate(&1, axis: axis)))

      parts = for _ <- 1..int(1..3), do: tensor(pick(real_types()), shape, :small)
      assert_same(parts, fn_of(length(parts), &Nx.stack(&1, axis: axis)))
    end)
  end

  defp fn_of(1, fun), do: fn a -> fun.([a]) end
  defp fn_of(2, fun), do: fn a, b -> fun.([a, b]) end
  defp fn_of(3, fun), do: fn a, b, c -> fun.([a, b, c]) end
end
