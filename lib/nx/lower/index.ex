defmodule Mlx.Lower.Index do
  @moduledoc false
  # Reading and writing at positions, most of them known only at run time. Starts of slices clamp
  # so that the slice fits, reads clamp to the nearest element, writes outside (negative positions
  # are outside) are dropped: the native side does so, for MLX checks nothing.
  use Mlx.Lower.Family

  lower :slice, _out, [t, starts, lengths, strides] do
    dims = Tuple.to_list(t.shape)
    limits = Enum.zip_with(dims, lengths, &-/2)

    if Enum.all?(starts, &is_integer/1) do
      starts = Enum.zip_with(starts, limits, &clamp/2)
      stops = Enum.zip_with(starts, lengths, &+/2)
      slice(t, t.shape, starts, stops, strides)
    else
      {axes, start} = dynamic_start(starts, limits)
      window = {{:slice_dynamic, axes, lengths}, [t, start]}
      zeros = List.duplicate(0, length(lengths))
      window |> slice(List.to_tuple(lengths), zeros, lengths, strides)
    end
  end

  lower :put_slice, out, [t, starts, slice] do
    {t_cast, update} = {cast(t, out.type), cast(slice, out.type)}
    lengths = Tuple.to_list(slice.shape)
    limits = Enum.zip_with(Tuple.to_list(t.shape), lengths, &-/2)

    if Enum.all?(starts, &is_integer/1) do
      starts = Enum.zip_with(starts, limits, &clamp/2)
      stops = Enum.zip_with(starts, lengths, &+/2)
      {{:slice_update, starts, stops, List.duplicate(1, length(lengths))}, [t_cast, update]}
    else
      {axes, start} = dynamic_start(starts, limits)
      {{:slice_update_dynamic, axes}, [t_cast, update, start]}
    end
  end

  lower :gather, out, [t, indices, opts] do
    axes = opts[:axes]
    columns = columns(indices, axes)
    sizes = unit_at(t.shape, axes)
    gathered = List.to_tuple(batch(indices) ++ sizes)
    reshape({{:gather, axes, sizes}, [t | columns]}, gathered, out.shape)
  end

  # Many rows may be added to one element, which half precision would not hold before the end.
  compose :indexed_add, out, [t, indices, updates, opts] do
    type = wide(out.type)
    cast(scatter(:scatter_add, type, t, indices, updates, opts[:axes]), type, out.type)
  end

  lower :indexed_put, out, [t, indices, updates, opts] do
    scatter(:scatter, out.type, t, indices, updates, opts[:axes])
  end

  defp scatter(op, type, t, indices, updates, axes) do
    columns = columns(indices, axes)
    # MLX wants the full rank of the target after the rows.
    dims = batch(indices) ++ update_dims(updates.shape, indices, t.shape, axes)
    updates = reshape(cast(updates, type), List.to_tuple(dims))
    {{op, axes}, [cast(t, type), updates | columns]}
  end

  # The starts of the axes that need one, in a type that holds all of them. The native side clamps
  # them.
  defp dynamic_start(starts, limits) do
    case for {start, axis} <- Enum.with_index(starts), start != 0, do: {axis, start} do
      [{axis, start}] ->
        {[axis], reshape(start, {1})}

      moved ->
        {axes, starts} = Enum.unzip(moved)
        {axes, {{:stack_axis, 0}, Enum.zip_with(starts, pick(limits, axes), &start_index/2)}}
    end
  end

  defp start_index(start, limit) when is_integer(start), do: const(clamp(start, limit), {:s, 64})

  defp start_index(%{type: {:u, 64} = type} = start, limit),
    do: cast({:minimum, [start, const(limit, type)]}, type, {:s, 64})

  defp start_index(start, _limit), do: cast(start, {:s, 64})

  defp clamp(start, limit), do: start |> max(0) |> min(limit)
  defp pick(list, positions), do: Enum.map(positions, &Enum.at(list, &1))

  # Indices hold one position per row, one column per axis.
  defp columns(indices, axes) do
    rank = tuple_size(indices.shape)
    batch = Tuple.delete_at(indices.shape, rank - 1)

    for k <- 0..(length(axes) - 1)//1,
        do: reshape(slice_axis(indices, indices.shape, rank - 1, k, k + 1), batch)
  end

  defp batch(indices), do: indices.shape |> Tuple.to_list() |> Enum.drop(-1)

  # The sizes of one update, along all axes of the target: 1 where indices point, and elsewhere those of
  # the updates, which Nx lets be smaller than the target's. Updates of vectorized tensors come flat.
  defp update_dims(update_shape, indices, shape, axes) do
    free = Enum.to_list(0..(tuple_size(shape) - 1)//1) -- axes
    whole = for axis <- free, do: elem(shape, axis)
    size = div(Tuple.product(update_shape), Enum.product(batch(indices)))
    given = update_shape |> Tuple.to_list() |> Enum.drop(1)

    sizes =
      cond do
        length(given) == length(free) -> given
        size == Enum.product(whole) -> whole
        length(free) == 1 -> [size]
        true -> raise_part_of_update(size, whole)
      end

    free
    |> Enum.zip(sizes)
    |> Enum.reduce(Tuple.duplicate(1, tuple_size(shape)), fn {axis, dim}, dims ->
      put_elem(dims, axis, dim)
    end)
    |> Tuple.to_list()
  end

  defp raise_part_of_update(size, whole) do
    raise ArgumentError,
          "updates of #{size} elements each do not say which part of #{inspect(whole)} they are for: " <>
            "of vectorized tensors, updates have to be as large as what the indices leave"
  end

  defp unit_at(shape, axes),
    do: axes |> Enum.reduce(shape, &put_elem(&2, &1, 1)) |> Tuple.to_list()
end
