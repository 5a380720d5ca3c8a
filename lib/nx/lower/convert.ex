defmodule Mlx.Lower.Convert do
  @moduledoc false
  # Conversions asked for by the user. From float to integer Nx truncates and then wraps, NaN
  # becomes 0 and infinities the extremes; C, and so MLX, defines none of that out of range.
  use Mlx.Lower.Family

  @limit 9_223_372_036_854_775_808.0

  compose :as_type, out, [t] do
    convert(t, t.type, out.type)
  end

  lower :bitcast, out, [t] do
    {{:view, Mlx.Type.held!(out.type)}, [t]}
  end

  defp convert(t, type, type), do: t
  defp convert(t, {:c, _} = from, {:c, _} = to), do: cast(t, from, to)
  defp convert(t, {:c, _}, to), do: convert({:real, [t]}, {:f, 32}, to)

  defp convert(t, {kind, _} = from, {to_kind, _} = to)
       when kind in [:f, :bf] and to_kind in [:u, :s],
       do: truncate(t, from, to)

  defp convert(t, from, to), do: cast(t, from, to)

  # Whatever a 64-bit integer holds goes through it, which wraps on the way to fewer bits. A float
  # beyond it has no bits below 2^32, unless it is f64 or goes to 64 bits; f16 has none.
  defp truncate(t, {:f, 16} = from, to),
    do: where(finite?(t, from), within(t, to), special(t, from, to))

  defp truncate(t, from, {_, size} = to) do
    held = {:less, [{:abs, [t]}, const(@limit, from)]}

    if from == {:f, 64} or size == 64,
      do: where(held, within(t, to), beyond(t, from, to)),
      else: where(held, within(t, to), special(t, from, to))
  end

  defp within(t, to), do: {{:astype, to}, [{{:astype, {:s, 64}}, [t]}]}

  defp beyond(t, from, to) do
    period = const(2 * @limit, from)
    rest = {:remainder, [t, period]}
    upper = {:greater_equal, [rest, const(@limit, from)]}
    wrapped = where(upper, {:subtract, [rest, period]}, rest)
    where(finite?(t, from), within(wrapped, to), special(t, from, to))
  end

  # The values of NaN and of what is infinite, or wraps to nothing.
  defp special(t, from, to) do
    highest = const_binary(Nx.Type.max_finite_binary(to), to)
    lowest = const_binary(Nx.Type.min_finite_binary(to), to)
    below = where({:equal, [t, const(:neg_infinity, from)]}, lowest, const(0, to))
    where({:equal, [t, infinity(from)]}, highest, below)
  end

  defp finite?(t, type), do: {:less, [{:abs, [t]}, infinity(type)]}
  defp infinity(type), do: const(:infinity, type)
end
