defmodule Mlx.Lower.Window do
  @moduledoc false
  # Windows are a view: of the padded tensor, strides repeated for the places of the window and
  # for the places in it. A reduction over the latter does the rest.
  use Mlx.Lower.Family

  @half [f: 16, bf: 16]

  compose :window_sum, out, [t, dims, opts] do
    window_reduce(:sum_axes, out, t, dims, opts, const(0, wide(out.type)))
  end

  compose :window_product, out, [t, dims, opts] do
    window_reduce(:prod_axes, out, t, dims, opts, const(1, wide(out.type)))
  end

  compose :window_max, out, [t, dims, opts] do
    window_reduce(:max_axes, out, t, dims, opts, extreme(&Nx.Type.min_binary/1, out.type))
  end

  compose :window_min, out, [t, dims, opts] do
    window_reduce(:min_axes, out, t, dims, opts, extreme(&Nx.Type.max_binary/1, out.type))
  end

  compose :window_scatter_max, out, [t, source, init, dims, opts] do
    scatter(:argmax_axis, out, t, source, init, dims, opts)
  end

  compose :window_scatter_min, out, [t, source, init, dims, opts] do
    scatter(:argmin_axis, out, t, source, init, dims, opts)
  end

  defp window_reduce(op, out, t, dims, opts, identity) do
    type = if op in [:sum_axes, :prod_axes], do: wide(out.type), else: out.type
    rank = tuple_size(dims)
    {windows, _shape} = padded_windows(cast(t, type), t.shape, dims, opts, identity)
    reduced = {{op, Enum.to_list(rank..(2 * rank - 1)//1), false}, [windows]}

    # MLX sums short integers in 32 bits.
    if short?(type), do: astype(reduced, out.type), else: cast(reduced, type, out.type)
  end

  # The view, of rank twice the tensor's, and the shape of the padded tensor.
  defp padded_windows(x, shape, dims, opts, padding) do
    dims = Tuple.to_list(dims)
    dilations = opts[:window_dilations] || List.duplicate(1, length(dims))
    config = for {low, high} <- opts[:padding], do: {low, high, 0}
    {padded, padded_shape} = pad(x, shape, config, padding)
    {view, _places} = windows(padded, padded_shape, dims, opts[:strides], dilations)
    {view, padded_shape}
  end

  # Every window picks the place of its extreme, the last one among equals, and adds its source
  # there. Places are counted in the padded tensor; what falls on the padding is cut off.
  defp scatter(op, out, t, source, init, dims, opts) do
    flat = {Tuple.product(source.shape), Tuple.product(dims)}
    value = cast(init, init.type, t.type)
    {windows, padded} = padded_windows(t, t.shape, dims, opts, value)
    size = Tuple.product(padded)

    order = reshape(Mlx.Lower.Create.arange(size, {:s, 32}), padded)
    unpadded = Keyword.put(opts, :padding, List.duplicate({0, 0}, tuple_size(padded)))
    {places, _} = padded_windows(order, padded, dims, unpadded, const(0, {:s, 32}))

    latest = fn view -> {{:flip, [1]}, [reshape(view, flat)]} end
    chosen = {{op, 1, true}, [latest.(windows)]}
    place = {{:take_along_axis, 1}, [latest.(places), chosen]}

    base = {{:broadcast_to, {size}}, [cast(init, out.type)]}
    updates = reshape(cast(source, out.type), {elem(flat, 0), 1})
    sums = {{:scatter_add, [0]}, [base, updates, reshape(place, {elem(flat, 0)})]}

    {starts, stops} =
      opts[:padding]
      |> Enum.zip_with(Tuple.to_list(t.shape), fn {low, _}, dim -> {low, low + dim} end)
      |> Enum.unzip()

    slice(reshape(sums, padded), padded, starts, stops)
  end

  defp extreme(binary, type), do: const_binary(binary.(type), type)

  defp short?({kind, size}), do: kind in [:u, :s] and size < 32

  defp wide(type) when type in @half, do: {:f, 32}
  defp wide(type), do: type
end
