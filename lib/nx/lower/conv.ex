defmodule Mlx.Lower.Conv do
  @moduledoc false
  # Nx's convolution is {batch, channels, ...} by {filters, channels, ...} after the permutations;
  # MLX puts channels last. What MLX's kernels lack is rewritten into what they have: groups of
  # batches into groups of features, groups they do not know into separate convolutions, complex
  # numbers into real ones, and more than three axes into a matrix product over windows.
  use Mlx.Lower.Family

  compose :conv, out, [t, kernel, opts] do
    rank = tuple_size(t.shape)
    {input, input_shape} = arrange(t, out.type, opts[:input_permutation])
    {weight, weight_shape} = arrange(kernel, out.type, opts[:kernel_permutation])

    # Padding that crops goes ahead of the convolution, and spreading with it.
    {input, input_shape, opts} = pad_before(input, input_shape, opts, out.type)
    input = last_channels(input, rank)
    weight = last_channels(weight, rank)
    input_shape = last_channels_shape(input_shape)
    weight_shape = last_channels_shape(weight_shape)

    {input, input_shape} = merge_batch_groups(input, input_shape, opts[:batch_group_size])
    groups = opts[:feature_group_size] * opts[:batch_group_size]

    out.type
    |> convolve({input, input_shape}, {weight, weight_shape}, groups, opts)
    |> transpose([0, rank - 1 | Enum.to_list(1..(rank - 2)//1)])
    |> transpose(inverse(opts[:output_permutation]))
  end

  defp arrange(t, type, permutation) do
    shape = permutation |> Enum.map(&elem(t.shape, &1)) |> List.to_tuple()
    {transpose(cast(t, type), permutation), shape}
  end

  defp pad_before(input, shape, opts, type) do
    plain? = Enum.all?(opts[:padding], fn {low, high} -> low >= 0 and high >= 0 end)

    if plain? and not unfolded?(tuple_size(shape) - 2) do
      {input, shape, opts}
    else
      config =
        Enum.zip_with(opts[:padding], opts[:input_dilation], fn {low, high}, dilation ->
          {low, high, dilation - 1}
        end)

      {input, shape} = pad(input, shape, [{0, 0, 0}, {0, 0, 0} | config], const(0, type))
      spatial = length(config)

      opts =
        Keyword.merge(opts,
          padding: List.duplicate({0, 0}, spatial),
          input_dilation: List.duplicate(1, spatial)
        )

      {input, shape, opts}
    end
  end

  defp last_channels(tree, rank), do: transpose(tree, [0 | Enum.to_list(2..(rank - 1)//1)] ++ [1])

  defp last_channels_shape(shape) do
    channels = elem(shape, 1)
    shape |> Tuple.delete_at(1) |> then(&Tuple.insert_at(&1, tuple_size(&1), channels))
  end

  # The batch splits into groups, each with its own filters: as if the groups were channels.
  defp merge_batch_groups(input, shape, 1), do: {input, shape}

  defp merge_batch_groups(input, shape, groups) do
    rank = tuple_size(shape)
    [batch | rest] = Tuple.to_list(shape)
    each = div(batch, groups)
    split = reshape(input, List.to_tuple([groups, each | rest]))

    # {groups, batch, spatial..., channels} to {batch, spatial..., groups, channels}
    order = Enum.to_list(1..(rank - 1)//1) ++ [0, rank]
    merged = put_elem(shape, 0, each) |> put_elem(rank - 1, groups * elem(shape, rank - 1))
    {reshape(transpose(split, order), merged), merged}
  end

  defp convolve({:c, _}, input, weight, groups, opts) do
    part = fn op, {tree, shape} -> {{op, [tree]}, shape} end
    conv = fn left, right -> convolve({:f, 32}, left, right, groups, opts) end
    {xr, xi} = {part.(:real, input), part.(:imag, input)}
    {wr, wi} = {part.(:real, weight), part.(:imag, weight)}

    complex(
      {:subtract, [conv.(xr, wr), conv.(xi, wi)]},
      {:add, [conv.(xr, wi), conv.(xi, wr)]}
    )
  end

  defp convolve(type, {input, input_shape}, {weight, weight_shape}, groups, opts) do
    spatial = tuple_size(input_shape) - 2

    cond do
      groups == 1 and unfolded?(spatial) ->
        unfold(input, input_shape, weight, weight_shape, opts)

      groups == 1 or spatial in 1..2 ->
        {op(opts, groups), [input, weight]}

      true ->
        channels = div(elem(input_shape, spatial + 1), groups)
        filters = div(elem(weight_shape, 0), groups)

        parts =
          for group <- 0..(groups - 1) do
            from = group * channels
            by = group * filters
            input = slice_axis(input, input_shape, spatial + 1, from, from + channels)
            weight = slice_axis(weight, weight_shape, 0, by, by + filters)
            input_shape = put_elem(input_shape, spatial + 1, channels)
            weight_shape = put_elem(weight_shape, 0, filters)
            convolve(type, {input, input_shape}, {weight, weight_shape}, 1, opts)
          end

        {{:concatenate_axis, spatial + 1}, parts}
    end
  end

  defp unfolded?(spatial), do: spatial not in 1..3

  # A row per place of the window, a column per element in it and channel.
  defp unfold(input, input_shape, weight, weight_shape, opts) do
    rank = tuple_size(input_shape)
    [filters | kernel] = Tuple.to_list(weight_shape)
    size = Enum.product(kernel)
    dims = [1 | Enum.drop(kernel, -1)] ++ [1]
    around = fn list -> [1 | list] ++ [1] end

    {view, places} =
      windows(input, input_shape, dims, around.(opts[:strides]), around.(opts[:kernel_dilation]))

    # {batch, places..., channels, 1, window..., 1}: channels go behind the window.
    order = Enum.to_list(0..(rank - 2)) ++ Enum.to_list(rank..(2 * rank - 1)) ++ [rank - 1]
    places = Enum.drop(places, -1)
    rows = reshape(transpose(view, order), {Enum.product(places), size})
    columns = {{:transpose_axes, [1, 0]}, [reshape(weight, {filters, size})]}
    reshape({:matmul, [rows, columns]}, List.to_tuple(places ++ [filters]))
  end

  defp op(opts, groups) do
    {lows, highs} = Enum.unzip(opts[:padding])

    {:conv_general, opts[:strides], lows, highs, opts[:kernel_dilation], opts[:input_dilation],
     groups, false}
  end

  defp inverse(permutation),
    do: permutation |> Enum.with_index() |> Enum.sort() |> Enum.map(&elem(&1, 1))
end
