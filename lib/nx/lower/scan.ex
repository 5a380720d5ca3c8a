defmodule Mlx.Lower.Scan do
  @moduledoc false
  # Cumulative operations. MLX makes them one element after the other, which for sums of floats
  # loses more digits the longer the axis is: a long one is summed in blocks, to each of which the
  # sum of those before it is added.
  import Mlx.Lower.Tree

  @long 256
  @block 64

  @doc "The scan `op` of the tensor `t` along an axis; backwards if `reverse`."
  def scan(op, %{axis: axis, reverse: reverse}, out, t) do
    type = wide(out.type)
    tree = cast(t, type)

    scanned =
      if op == :cumsum and not integer?(type),
        do: sums({tree, t.shape}, axis, reverse, type),
        else: plain(op, tree, axis, reverse)

    cast(scanned, type, out.type)
  end

  defp plain(op, tree, axis, reverse), do: {{op, axis, reverse, true}, [tree]}

  defp sums({tree, shape}, axis, reverse, _type) when elem(shape, axis) <= @long,
    do: plain(:cumsum, tree, axis, reverse)

  defp sums({tree, shape}, axis, reverse, type) do
    size = elem(shape, axis)
    blocks = div(size + @block - 1, @block)
    zero = const(0, type)
    {padded, padded_shape} = pad_axis({tree, shape}, axis, {0, blocks * @block - size}, zero)

    split = padded_shape |> put_elem(axis, @block) |> Tuple.insert_at(axis, blocks)
    within = plain(:cumsum, reshape(padded, split), axis + 1, reverse)

    # What a block adds up to stands at its end, in the direction of the scan.
    last = if reverse, do: 0, else: @block - 1
    totals_shape = put_elem(shape, axis, blocks)
    totals = within |> slice_axis(split, axis + 1, last, last + 1) |> reshape(totals_shape)

    # Every block takes the sums up to its neighbour.
    {from, widths} = if reverse, do: {1, {0, 1}}, else: {0, {1, 0}}
    up_to = sums({totals, totals_shape}, axis, reverse, type)
    moved = slice_axis(up_to, totals_shape, axis, from, from + blocks - 1)
    neighbours = put_elem(shape, axis, blocks - 1)
    {before, _shape} = pad_axis({moved, neighbours}, axis, widths, zero)

    {:add, [within, reshape(before, put_elem(split, axis + 1, 1))]}
    |> reshape(padded_shape)
    |> slice_axis(padded_shape, axis, 0, size)
  end

  defp pad_axis({tree, shape}, axis, {low, high}, value) do
    config = List.replace_at(List.duplicate({0, 0, 0}, tuple_size(shape)), axis, {low, high, 0})
    pad(tree, shape, config, value)
  end

  defp integer?({kind, _}), do: kind in [:u, :s]
end
