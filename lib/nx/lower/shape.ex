defmodule Mlx.Lower.Shape do
  @moduledoc false
  # Operations that move elements without computing. Most of them make views in MLX.
  use Mlx.Lower.Family

  lower :reshape, out, [t] do
    reshape(t, out.shape)
  end

  lower :squeeze, _out, [t, axes] do
    {{:squeeze_axes, axes}, [t]}
  end

  lower :transpose, _out, [t, axes] do
    transpose(t, axes)
  end

  lower :reverse, _out, [t, axes] do
    {{:flip, axes}, [t]}
  end

  # `axes` names the place of every axis of `t` in `shape`; MLX aligns axes at the right, so the
  # others become unit axes first.
  lower :broadcast, _out, [t, shape, axes] do
    {t, from, axes} = ascending(t, axes)
    rank = tuple_size(shape)

    t =
      if axes == Enum.to_list((rank - length(axes))..(rank - 1)//1),
        do: t,
        else: {{:reshape, unit_axes(from, axes, rank)}, [t]}

    {{:broadcast_to, shape}, [t]}
  end

  compose :pad, out, [t, value, config] do
    {tree, _shape} = pad(cast(t, out.type), t.shape, config, cast(value, out.type))
    tree
  end

  lower :concatenate, out, [tensors, axis] do
    {{:concatenate_axis, axis}, Enum.map(tensors, &cast(&1, out.type))}
  end

  lower :stack, out, [tensors, axis] do
    {{:stack_axis, axis}, Enum.map(tensors, &cast(&1, out.type))}
  end

  defp ascending(t, axes) do
    dims = Tuple.to_list(t.shape)

    if axes == Enum.sort(axes) do
      {t, dims, axes}
    else
      order = axes |> Enum.with_index() |> Enum.sort() |> Enum.map(&elem(&1, 1))
      {transpose(t, order), Enum.map(order, &Enum.at(dims, &1)), Enum.sort(axes)}
    end
  end

  defp unit_axes(dims, axes, rank) do
    Enum.zip_reduce(axes, dims, Tuple.duplicate(1, rank), &put_elem(&3, &1, &2))
  end
end
