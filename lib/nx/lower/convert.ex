defmodule Mlx.Lower.Convert do
  @moduledoc false
  # Conversions asked for by the user. From float to integer Nx truncates and then wraps, NaN
  # becomes 0 and infinities the extremes; C, and so MLX's own conversion, defines none of that
  # out of range.
  use Mlx.Lower.Family

  hosted :as_type, out, [t] do
    convert(t, t.type, out.type)
  end

  lower :bitcast, out, [t] do
    {{:view, Mlx.Type.held!(out.type)}, [t]}
  end

  defp convert(t, {:c, _}, {kind, _} = to) when kind != :c,
    do: convert({:real, [t]}, {:f, 32}, to)

  defp convert(t, {kind, _}, {to_kind, _} = to) when kind in [:f, :bf] and to_kind in [:u, :s],
    do: {{:convert, to}, [t]}

  # MLX goes from f64 to half precision by way of f32, which rounds twice.
  defp convert(t, {:f, 64}, {kind, 16} = to) when kind in [:f, :bf], do: {{:convert, to}, [t]}
  defp convert(t, from, to), do: cast(t, from, to)
end
