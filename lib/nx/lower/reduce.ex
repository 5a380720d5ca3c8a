defmodule Mlx.Lower.Reduce do
  @moduledoc false
  # Reductions over axes. Sums and products are made in the template's type, for MLX would choose
  # another; half precision is summed in f32.
  use Mlx.Lower.Family

  lower :sum, out, [t, opts] do
    type = wide(out.type)
    sum = reduce(:sum_axes, cast(t, type), axes(opts[:axes], t.shape), opts[:keep_axes])
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
end
