defmodule Mlx.Backend.ShapeTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it is wrong (padding with a value
  # of another type).
  use Mlx.NxCase, async: true

  property :bitcast, "between types of one width", [over: real_types()], fn _op, type ->
    {_, size} = type
    to = pick(for {_, ^size} = to <- real_types(), do: to)
    t = tensor(type, shape(), :extreme)
    actual = Nx.bitcast(mlx(t), to)
    assert Nx.type(actual) == to
    # A type is not cast to itself.
    assert Nx.to_binary(actual) == Nx.to_binary(t)
    assert Nx.to_binary(Nx.bitcast(mlx(t), other(type))) == Nx.to_binary(t)
  end

  property :broadcast, "by right alignment", [over: types()], fn _op, type ->
    shape = shape()
    assert_same([tensor(type, broadcastable(shape))], &Nx.broadcast(&1, shape))
  end

  property :broadcast, "by axes", fn _op ->
    shape = shape(1..4)
    count = int(1..tuple_size(shape))
    axes = 0..(tuple_size(shape) - 1) |> Enum.take_random(count) |> Enum.sort()
    dims = axes |> Enum.map(&pick([elem(shape, &1), 1])) |> List.to_tuple()
    assert_same([tensor({:s, 32}, dims)], &Nx.broadcast(&1, shape, axes: axes))
  end

  property :reshape, "keeps the order", [over: types()], fn _op, type ->
    t = tensor(type, shape())
    assert_same([t], &Nx.flatten/1)
    to = t.shape |> Tuple.to_list() |> Enum.shuffle() |> List.to_tuple()
    assert_same([t], &Nx.reshape(&1, to))
    assert_same([t], &Nx.new_axis(&1, -1))
    # Of what is a view in MLX, too.
    assert_same([t], &(&1 |> Nx.transpose() |> Nx.flatten()))
  end

  property :squeeze, "all unit axes or some", fn _op ->
    t = tensor(pick(types()), shape(1..4, 2))
    assert_same([t], &Nx.squeeze/1)
    units = for {1, axis} <- Enum.with_index(Tuple.to_list(t.shape)), do: axis
    some = Enum.take_random(units, int(0..length(units)))
    assert_same([t], &Nx.squeeze(&1, axes: some))
  end

  property :transpose, "by any permutation", [over: types()], fn _op, type ->
    t = tensor(type, shape(1..4))
    axes = Enum.shuffle(Nx.axes(t))

    assert_same(
      [t],
      &Nx.transpose(&1, axes: Enum.map(axes, fn a -> pick([a, a - Nx.rank(t)]) end))
    )

    assert_same([t], &(&1 |> Nx.transpose(axes: axes) |> Nx.flatten()))
  end

  property :reverse, "along any axes", [over: types()], fn _op, type ->
    t = tensor(type, shape(1..4))
    axes = Enum.take_random(Nx.axes(t), int(1..Nx.rank(t)))
    assert_same([t], &Nx.reverse(&1, axes: axes))
  end

  property :pad, "with low, high and interior widths of any sign", [over: types()], fn _op,
                                                                                       type ->
    shape = shape(1..4, 3)

    config =
      for dim <- Tuple.to_list(shape) do
        interior = int(0..2)
        spread = dim + (dim - 1) * interior
        # At least one element is left.
        crop = int(0..min(2, spread - 1))
        {pick([0, 1, 2, -crop]), pick([0, 1, 3, -int(0..(min(2, spread - 1) - crop))]), interior}
      end

    assert_same([tensor(type, shape), tensor(type, {})], &Nx.pad(&1, &2, config))
  end

  property :pad, "takes the merged type", fn _op ->
    {t, value} = {tensor(pick(int_types()), {3}, 0..9), tensor(pick(real_types()), {}, :small)}
    type = Nx.Type.merge(t.type, value.type)
    # The binary backend takes the bits of one type for another's.
    expected = Nx.pad(Nx.as_type(t, type), Nx.as_type(value, type), [{1, 1, 1}])
    assert_equal(Nx.pad(mlx(t), mlx(value), [{1, 1, 1}]), expected)
  end

  property :concatenate, "of mixed types along any axis", [runs: 40], fn _op ->
    shape = shape(1..4)
    axis = int(0..(tuple_size(shape) - 1))

    parts =
      for _ <- 1..int(1..3),
          do: tensor(pick(types() -- [f: 64]), put_elem(shape, axis, int(1..3)), :small)

    assert_same(parts, fn_of(length(parts), &Nx.concatenate(&1, axis: axis)))
  end

  property :stack, "of mixed types along any axis", [runs: 40], fn _op ->
    shape = shape(0..3)
    axis = int(0..tuple_size(shape))
    parts = for _ <- 1..int(1..3), do: tensor(pick(types() -- [c: 64]), shape, :small)
    assert_same(parts, fn_of(length(parts), &Nx.stack(&1, axis: axis)))
  end

  test "what is a view in MLX is read in order" do
    assert Nx.to_binary(Nx.transpose(Nx.iota({2, 3}, type: :u8))) == <<0, 3, 1, 4, 2, 5>>
    assert Nx.to_binary(Nx.reverse(Nx.iota({4}, type: :u8))) == <<3, 2, 1, 0>>
    assert Nx.to_binary(Nx.broadcast(Nx.tensor([1, 2], type: :u8), {2, 2})) == <<1, 2, 1, 2>>
    assert Nx.to_binary(Nx.iota({6}, type: :u8)[1..4//2]) == <<1, 3>>
  end

  test "padding by hand" do
    assert_equal(Nx.pad(Nx.tensor([1, 2, 3]), 5, [{1, 0, 3}]), [5, 1, 5, 5, 5, 2, 5, 5, 5, 3])
    assert_equal(Nx.pad(Nx.tensor([1, 2, 3]), 0, [{-1, -1, 0}]), [2])
    assert_equal(Nx.pad(Nx.tensor([1, 2]), 0.5, [{1, 0, 0}]), [0.5, 1.0, 2.0])
    assert_equal(Nx.pad(Nx.tensor(3), 0, []), 3)
  end

  defp other({:u, size}), do: {:s, size}
  defp other({:s, size}), do: {:u, size}
  defp other({_float, size}), do: {:u, size}

  defp fn_of(1, fun), do: fn a -> fun.([a]) end
  defp fn_of(2, fun), do: fn a, b -> fun.([a, b]) end
  defp fn_of(3, fun), do: fn a, b, c -> fun.([a, b, c]) end
end
