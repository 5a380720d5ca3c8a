defmodule Mlx.Lower.Reduce do
  @moduledoc false
  # Reductions over axes. Sums and products are made in the template's type, for MLX would choose
  # another; half precision is summed in f32.
  use Mlx.Lower.Family

  # MLX adds floats one after the other along an axis, and the rounding error grows with the
  # length. An axis beyond @long is summed in blocks, and these are summed in turn.
  @long 256
  @block 64

  compose :sum, out, [t, opts] do
    type = wide(out.type)
    axes = axes(opts[:axes], t.shape)
    x = cast(t, type)

    sum =
      if exact?(type),
        do: reduce(:sum_axes, x, axes, opts[:keep_axes]),
        else: blocked_sum(x, t.shape, axes, opts[:keep_axes], out.shape)

    back(sum, type, out.type)
  end

  lower :product, out, [t, opts] do
    type = wide(out.type)
    product = reduce(:prod_axes, cast(t, type), axes(opts[:axes], t.shape), opts[:keep_axes])
    back(product, type, out.type)
  end

  lower :all, _out, [t, opts] do
    from_bool(reduce(:all_axes, truthy(t), axes(opts[:axes], t.shape), opts[:keep_axes]))
  end

  lower :any, _out, [t, opts] do
    from_bool(reduce(:any_axes, truthy(t), axes(opts[:axes], t.shape), opts[:keep_axes]))
  end

  lower :reduce_max, out, [t, opts] do
    reduce(:max_axes, cast(t, out.type), axes(opts[:axes], t.shape), opts[:keep_axes])
  end

  lower :reduce_min, out, [t, opts] do
    reduce(:min_axes, cast(t, out.type), axes(opts[:axes], t.shape), opts[:keep_axes])
  end

  compose :argmax, out, [t, opts] do
    arg(:argmax_axis, out, t, opts)
  end

  compose :argmin, out, [t, opts] do
    arg(:argmin_axis, out, t, opts)
  end

  defp reduce(_op, tree, [], _keep), do: tree
  defp reduce(op, tree, axes, keep), do: {{op, axes, !!keep}, [tree]}

  defp blocked_sum(x, shape, axes, keep, out_shape) do
    count = axes |> Enum.map(&elem(shape, &1)) |> Enum.product()

    cond do
      count <= @long ->
        reduce(:sum_axes, x, axes, keep)

      length(axes) == tuple_size(shape) ->
        {sum, []} = axis_sum(0, {reshape(x, shape, {count}), [count]})
        reshape(sum, {}, out_shape)

      true ->
        {sum, left} =
          axes |> Enum.sort(:desc) |> Enum.reduce({x, Tuple.to_list(shape)}, &axis_sum/2)

        reshape(sum, List.to_tuple(left), out_shape)
    end
  end

  # One sum per block, then the sum of what the blocks and the rest gave.
  defp axis_sum(axis, {x, dims}) do
    n = Enum.at(dims, axis)
    left = List.delete_at(dims, axis)

    if n <= @long do
      {{{:sum_axes, [axis], false}, [x]}, left}
    else
      {blocks, rest} = {div(n, @block), rem(n, @block)}
      shape = List.to_tuple(dims)
      main = slice_axis(x, shape, axis, 0, blocks * @block)
      split = dims |> List.replace_at(axis, @block) |> List.insert_at(axis, blocks)
      sums = {{:sum_axes, [axis + 1], false}, [reshape(main, List.to_tuple(split))]}
      {total, _} = axis_sum(axis, {sums, List.replace_at(dims, axis, blocks)})

      if rest == 0 do
        {total, left}
      else
        tail = slice_axis(x, shape, axis, blocks * @block, n)
        {{:add, [total, {{:sum_axes, [axis], false}, [tail]}]}, left}
      end
    end
  end

  # MLX takes the first of equals and passes over NaN. Where there is NaN, Nx's result points to one:
  # to the last, as Nx.BinaryBackend's does.
  defp arg(op, out, t, opts) do
    {x, shape, axis} =
      case opts[:axis] do
        nil -> {flatten(t), {Tuple.product(t.shape)}, 0}
        axis -> {t, t.shape, axis}
      end

    last = opts[:tie_break] == :high
    x = if last, do: {{:flip, [axis]}, [x]}, else: x
    found = {{op, axis, false}, [x]}

    found =
      if elem(t.type, 0) in [:f, :bf] do
        nan = {:isnan, [x]}
        where({{:any_axes, [axis], false}, [nan]}, last_nan(nan, shape, axis, last), found)
      else
        found
      end

    found =
      if last,
        do: {:subtract, [const(elem(shape, axis) - 1, {:u, 32}), found]},
        else: found

    found |> cast({:u, 32}, out.type) |> reshape(Tuple.delete_at(shape, axis), out.shape)
  end

  # MLX sums short integers in 32 bits.
  defp back(tree, {kind, size}, to) when kind in [:u, :s] and size < 32, do: astype(tree, to)
  defp back(tree, type, to), do: cast(tree, type, to)

  # The position in `x`, which is reversed if the last of equals is wanted.
  defp last_nan(nan, _shape, axis, true), do: {{:argmax_axis, axis, false}, [from_bool(nan)]}

  defp last_nan(nan, shape, axis, false) do
    reversed = {{:flip, [axis]}, [from_bool(nan)]}

    {:subtract,
     [const(elem(shape, axis) - 1, {:u, 32}), {{:argmax_axis, axis, false}, [reversed]}]}
  end

  defp exact?({kind, _}), do: kind in [:u, :s]
end
