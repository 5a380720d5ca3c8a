defmodule Mlx.Lower.Tree do
  @moduledoc false
  # The vocabulary in which lowerings are written. A tree is a leaf (a tensor whose data is its
  # slot, or a tree), a node `{op, [tree]}`, or `{:elem, node, k}`. Nodes carry no type or shape:
  # whoever builds one knows both, and says so where a cast needs them. Operands of one MLX operation
  # must have equal types, for MLX's own promotion differs from Nx's.

  alias Nx.Tensor, as: T

  # Every integer of 8 bits is a number of half precision.
  @beyond_half [u: 16, u: 32, u: 64, s: 16, s: 32, s: 64]

  @type leaf :: %{:data => non_neg_integer | tree, optional(any) => any}
  @type tree :: leaf | {op :: atom | tuple, [tree]} | {:elem, tree, non_neg_integer}

  @doc "The leaf `t` as `type`. Widening only: `convert/3` has Nx's rules for float to integer."
  def cast(%T{type: type} = t, type), do: t
  def cast(%T{type: from} = t, to), do: cast(t, from, to)

  @doc "A tree of type `from` as `to`. Complex numbers lose their imaginary part."
  def cast(tree, type, type), do: tree

  def cast(tree, {:c, _}, {kind, _} = to) when kind != :c,
    do: cast({:real, [tree]}, {:f, 32}, to)

  def cast(tree, _from, to), do: {{:astype, Mlx.Type.held!(to)}, [tree]}

  @doc "A tree of any type as `type`."
  def astype(tree, type), do: {{:astype, Mlx.Type.held!(type)}, [tree]}

  @doc "The type in which many elements of `type` are put together: half precision is too narrow."
  def wide(type) when type in [f: 16, bf: 16], do: {:f, 32}
  def wide(type), do: type

  @doc """
  The type in which an operation of `type` takes two operands: single precision where half
  precision does not hold an operand's integers, such as the size that a mean divides by, or the two
  kinds of half precision meet, of which each has numbers that the other lacks.
  """
  def operand_type(type, {left, 16}, {right, 16})
      when {left, right} in [{:f, :bf}, {:bf, :f}],
      do: wide(type)

  def operand_type(type, left, right) do
    if (left in @beyond_half or right in @beyond_half) and wide(type) != type,
      do: wide(type),
      else: type
  end

  @doc "MLX's bool as Nx's."
  def from_bool(tree), do: {{:astype, {:u, 8}}, [tree]}

  @doc "A leaf as MLX's bool: everything but zero, NaN included, is true."
  def truthy(%T{type: {kind, _}} = t) when kind in [:u, :s], do: {{:astype, :bool}, [t]}
  def truthy(%T{type: type} = t), do: {:not_equal, [t, const(0, type)]}

  @doc "A scalar."
  def const(number, type),
    do: {{:constant, Mlx.Type.held!(type), Mlx.Type.scalar(number, type)}, []}

  @doc "A scalar from the bytes of its type."
  def const_binary(binary, type), do: {{:constant, type, binary}, []}

  def where(condition, on_true, on_false), do: {:where, [condition, on_true, on_false]}

  def reshape(%T{shape: shape} = t, shape), do: t
  def reshape(tree, shape), do: {{:reshape, shape}, [tree]}

  @doc "A tree of shape `from` as `to`."
  def reshape(tree, shape, shape), do: tree
  def reshape(tree, _from, to), do: {{:reshape, to}, [tree]}

  def transpose(tree, axes) do
    if axes == Enum.to_list(0..(length(axes) - 1)//1),
      do: tree,
      else: {{:transpose_axes, axes}, [tree]}
  end

  @doc "All elements, in order."
  def flatten(%T{shape: shape} = t), do: reshape(t, {Tuple.product(shape)})

  @doc "Axes given as `nil` mean every axis."
  def axes(nil, shape), do: Enum.to_list(0..(tuple_size(shape) - 1)//1)
  def axes(axes, _shape), do: axes

  @doc "The part of `tree` from `starts` up to `stops`; nothing when that is all of `shape`."
  def slice(tree, shape, starts, stops, strides \\ nil) do
    strides = strides || List.duplicate(1, tuple_size(shape))

    if Enum.all?(starts, &(&1 == 0)) and Enum.all?(strides, &(&1 == 1)) and
         List.to_tuple(stops) == shape,
       do: tree,
       else: {{:slice, starts, stops, strides}, [tree]}
  end

  @doc "`tree` without axes before `starts` and with its part along `axis` only."
  def slice_axis(tree, shape, axis, start, stop) do
    rank = tuple_size(shape)
    starts = List.replace_at(List.duplicate(0, rank), axis, start)
    stops = List.replace_at(Tuple.to_list(shape), axis, stop)
    slice(tree, shape, starts, stops)
  end

  @doc """
  Pads by `[{low, high, interior}]`, each of `low` and `high` possibly negative, with the scalar
  tree `value`. Returns the tree and its shape.

  Interior elements come from a unit axis that is padded beside every padded axis and merged with
  it; that leaves a run of them at the end, which counts as high padding.
  """
  def pad(tree, shape, config, value) do
    {tree, shape, config} = pad_interior(tree, shape, config, value)
    lows = for {low, _} <- config, do: max(low, 0)
    highs = for {_, high} <- config, do: max(high, 0)
    padded = padded_shape(shape, lows, highs)

    tree =
      case for {{l, h}, axis} <- Enum.with_index(Enum.zip(lows, highs)), l + h > 0, do: axis do
        [] -> tree
        axes -> {{:pad, axes, at(lows, axes), at(highs, axes)}, [tree, value]}
      end

    starts = for {low, _} <- config, do: max(-low, 0)
    stops = for {{_, high}, dim} <- Enum.zip(config, padded), do: dim - max(-high, 0)
    shape = for {start, stop} <- Enum.zip(starts, stops), do: stop - start
    if Enum.any?(shape, &(&1 < 1)), do: raise_nothing_left(shape)
    {slice(tree, List.to_tuple(padded), starts, stops), List.to_tuple(shape)}
  end

  # Nx announces shapes that no tensor has.
  defp raise_nothing_left(shape) do
    raise ArgumentError,
          "negative padding cuts off all of an axis: the sizes left are #{inspect(shape)}, and every " <>
            "axis of a tensor has an element at least"
  end

  defp pad_interior(tree, shape, config, value) do
    interiors = for {_, _, interior} <- config, do: interior

    if Enum.all?(interiors, &(&1 == 0)) do
      {tree, shape, for({low, high, _} <- config, do: {low, high})}
    else
      dims = Tuple.to_list(shape)
      rank = length(dims)
      split = for dim <- dims, d <- [dim, 1], do: d
      odd = for axis <- 0..(rank - 1), do: 2 * axis + 1
      merged = for {dim, interior} <- Enum.zip(dims, interiors), do: dim * (interior + 1)

      spread =
        {{:pad, odd, List.duplicate(0, rank), interiors},
         [reshape(tree, List.to_tuple(split)), value]}

      {reshape(spread, List.to_tuple(merged)), List.to_tuple(merged),
       for({low, high, interior} <- config, do: {low, high - interior})}
    end
  end

  defp padded_shape(shape, lows, highs),
    do: Enum.zip_with([Tuple.to_list(shape), lows, highs], fn [dim, l, h] -> dim + l + h end)

  defp at(list, axes), do: Enum.map(axes, &Enum.at(list, &1))

  @doc "The c64 of two f32 trees of one shape."
  def complex(real, imaginary) do
    last = fn tree -> {{:expand_dims_axes, [-1]}, [tree]} end
    pairs = {{:concatenate_axis, -1}, [last.(real), last.(imaginary)]}
    {{:squeeze_axes, [-1]}, [{{:view, {:c, 64}}, [pairs]}]}
  end

  @doc """
  All windows of a tree of `shape`, as a view: their places, then the elements within. Everything
  but the tree is a list with an entry per axis. Returns the view and the places.
  """
  def windows(tree, shape, dims, strides, dilations) do
    places =
      Enum.zip_with([Tuple.to_list(shape), dims, strides, dilations], fn
        [size, dim, stride, dilation] -> window_places(size, dim, stride, dilation)
      end)

    steps = strides(shape)
    between = Enum.zip_with(steps, strides, &*/2) ++ Enum.zip_with(steps, dilations, &*/2)
    view = {:as_strided, List.to_tuple(places ++ dims), between, 0}
    {{view, [{:contiguous, [tree]}]}, places}
  end

  @doc """
  How many windows of `dim` elements, `dilation` apart, begin every `stride` elements of `size`. Nx
  announces one where none fits.
  """
  def window_places(_size, _dim, stride, dilation) when stride < 1 or dilation < 1 do
    raise ArgumentError,
          "strides and dilations of windows are 1 or more, got: #{stride} and #{dilation}"
  end

  def window_places(size, dim, stride, dilation) do
    case size - (dim - 1) * dilation - 1 do
      rest when rest >= 0 ->
        div(rest, stride) + 1

      _none ->
        raise ArgumentError,
              "a window of #{dim} elements, #{dilation} apart, does not fit into the #{size} elements " <>
                "of its axis: pad the tensor, or take a smaller window or dilation"
    end
  end

  @doc "Row-major strides, in elements."
  def strides(shape) do
    shape |> Tuple.to_list() |> Enum.reverse() |> Enum.reduce({[], 1}, &stride/2) |> elem(0)
  end

  defp stride(dim, {strides, step}), do: {[step | strides], step * dim}
end
