defmodule Mlx.Lower.Sort do
  @moduledoc false
  # MLX sorts upwards, stably, NaN last. Nx's descending order is as stable and puts NaN first:
  # both come from sorting the reversed axis and reversing the result.
  use Mlx.Lower.Family

  compose :sort, out, [t, opts] do
    axis = opts[:axis]
    x = cast(t, out.type)

    case opts[:direction] do
      :desc -> reverse({{:sort_axis, axis}, [reverse(x, axis)]}, axis)
      _asc -> {{:sort_axis, axis}, [x]}
    end
  end

  compose :argsort, out, [t, opts] do
    axis = opts[:axis]
    order = order(t, t.shape, axis, opts[:direction])
    cast(order, {:u, 32}, out.type)
  end

  @doc "The u32 positions that sort `tree` along `axis`."
  def order(tree, shape, axis, :desc) do
    order = reverse({{:argsort_axis, axis}, [reverse(tree, axis)]}, axis)
    {:subtract, [const(elem(shape, axis) - 1, {:u, 32}), order]}
  end

  def order(tree, _shape, axis, _asc), do: {{:argsort_axis, axis}, [tree]}

  defp reverse(tree, axis), do: {{:flip, [axis]}, [tree]}
end
