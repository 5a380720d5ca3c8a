defmodule Mlx.Lower.Create do
  @moduledoc false
  # Tensors out of nothing. Shapes beyond what the operation needs come from broadcasting, which
  # copies nothing.
  use Mlx.Lower.Family

  # `arange` counts in its own type; these count right up to any length that fits in memory.
  @counting [s: 32, s: 64, u: 32, u: 64, f: 64]

  lower :constant, out, [number] do
    broadcast(const(number, out.type), {}, out.shape)
  end

  lower :iota, out, [axis] do
    iota(out.type, out.shape, axis)
  end

  lower :eye, out, [] do
    rank = tuple_size(out.shape)
    {rows, columns} = {elem(out.shape, rank - 2), elem(out.shape, rank - 1)}
    eye = {{:eye, rows, columns, 0, Mlx.Type.held!(out.type)}, []}
    broadcast(eye, {rows, columns}, out.shape)
  end

  defp iota(type, {}, _axis), do: const(0, type)

  defp iota(type, shape, nil) do
    n = Tuple.product(shape)
    reshape(arange(n, type), {n}, shape)
  end

  defp iota(type, shape, axis) do
    n = elem(shape, axis)
    unit = put_elem(Tuple.duplicate(1, tuple_size(shape)), axis, n)
    n |> arange(type) |> reshape({n}, unit) |> broadcast(unit, shape)
  end

  @doc "0 to n - 1 as `type`; integers wrap."
  def arange(n, type) when type in @counting, do: {{:arange, n, type}, []}
  def arange(n, type), do: astype({{:arange, n, counter(n)}, []}, type)

  defp counter(n) when n < 2_147_483_648, do: {:s, 32}
  defp counter(_n), do: {:s, 64}

  defp broadcast(tree, shape, shape), do: tree
  defp broadcast(tree, _from, shape), do: {{:broadcast_to, shape}, [tree]}
end
