defmodule Mlx.Lower.Window do
  @moduledoc false
  # A window is reduced along one axis after the other, and along an axis by doubling: what begins
  # at every element, of 2, 4, 8, ... elements, is made of two halves. That takes memory for a few
  # tensors, whatever the size of the window, and floats are summed in pairs.
  use Mlx.Lower.Family

  compose :window_sum, out, [t, dims, opts] do
    window_reduce(:add, out, t, dims, opts, const(0, wide(out.type)))
  end

  compose :window_product, out, [t, dims, opts] do
    window_reduce(:multiply, out, t, dims, opts, const(1, wide(out.type)))
  end

  compose :window_max, out, [t, dims, opts] do
    window_reduce(:maximum, out, t, dims, opts, extreme(&Nx.Type.min_binary/1, out.type))
  end

  compose :window_min, out, [t, dims, opts] do
    window_reduce(:minimum, out, t, dims, opts, extreme(&Nx.Type.max_binary/1, out.type))
  end

  compose :window_scatter_max, out, [t, source, init, dims, opts] do
    scatter(true, out, t, source, init, dims, opts)
  end

  compose :window_scatter_min, out, [t, source, init, dims, opts] do
    scatter(false, out, t, source, init, dims, opts)
  end

  defp window_reduce(op, out, t, dims, opts, identity) do
    type = if op in [:add, :multiply], do: wide(out.type), else: out.type
    config = for {low, high} <- opts[:padding], do: {low, high, 0}
    padded = pad(cast(t, type), t.shape, config, identity)

    {reduced, _shape} =
      [Tuple.to_list(dims), opts[:strides], opts[:window_dilations]]
      |> Enum.zip()
      |> Enum.with_index()
      |> Enum.reduce(padded, fn {window, axis}, x -> reduce_axis(op, x, axis, window) end)

    cast(reduced, type, out.type)
  end

  # Windows of `size` elements, `dilation` apart, every `stride` elements.
  defp reduce_axis(op, {_tree, shape} = x, axis, {size, stride, dilation}) do
    places = window_places(elem(shape, axis), size, stride, dilation)
    powers = powers(size)
    levels = levels(x, op, axis, dilation, Enum.max(powers))

    {pieces, _size} =
      Enum.map_reduce(powers, 0, fn power, first ->
        piece = part(Enum.at(levels, power), axis, first * dilation, places, stride)
        {piece, first + 2 ** power}
      end)

    {Enum.reduce(pieces, &{op, [&2, &1]}), put_elem(shape, axis, places)}
  end

  # The powers of two that make up `size`. The greatest is taken as two halves, for the strides
  # leave less to combine.
  defp powers(1), do: [0]
  defp powers(size), do: powers(size, 0)
  defp powers(1, power), do: [power - 1, power - 1]

  defp powers(size, power) do
    rest = powers(div(size, 2), power + 1)
    if rem(size, 2) == 1, do: [power | rest], else: rest
  end

  # What begins at every element, of 2^0, 2^1, ... up to 2^last elements.
  defp levels(x, op, axis, dilation, last) do
    Enum.scan([x | Enum.to_list(0..(last - 1)//1)], fn power, {_tree, shape} = x ->
      reach = 2 ** power * dilation
      count = elem(shape, axis) - reach
      halves = for start <- [0, reach], do: part(x, axis, start, count, 1)
      {{op, halves}, put_elem(shape, axis, count)}
    end)
  end

  # `count` elements along `axis` from `start` on, `stride` apart.
  defp part({tree, shape}, axis, start, count, stride) do
    rank = tuple_size(shape)
    starts = List.replace_at(List.duplicate(0, rank), axis, start)
    stop = start + (count - 1) * stride + 1
    stops = List.replace_at(Tuple.to_list(shape), axis, stop)
    slice(tree, shape, starts, stops, List.replace_at(List.duplicate(1, rank), axis, stride))
  end

  # Every window picks the place of its extreme, the last one among equals, and adds its source
  # there. What falls on the padding is cut off.
  defp scatter(max?, out, t, source, init, dims, opts) do
    config = for {low, high} <- opts[:padding], do: {low, high, 0}
    {x, padded} = pad(t, t.shape, config, cast(init, init.type, t.type))
    type = wide(out.type)
    op = {:window_scatter, Tuple.to_list(dims), opts[:strides], max?}
    sums = cast({op, [x, cast(source, type), cast(init, type)]}, type, out.type)

    {starts, stops} =
      opts[:padding]
      |> Enum.zip_with(Tuple.to_list(t.shape), fn {low, _}, dim -> {low, low + dim} end)
      |> Enum.unzip()

    slice(sums, padded, starts, stops)
  end

  defp extreme(binary, type), do: const_binary(binary.(type), type)
end
