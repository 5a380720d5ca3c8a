defmodule Mlx.Lower.Dot do
  @moduledoc false
  # Contractions become batched matrix products.
  use Mlx.Lower.Family

  compose :dot, out, [l, contract_l, batch_l, r, contract_r, batch_r] do
    free_l = free(l, contract_l ++ batch_l)
    free_r = free(r, contract_r ++ batch_r)
    b = product(l, batch_l)
    m = product(l, free_l)
    k = product(l, contract_l)
    n = product(r, free_r)

    left = arrange(cast(l, out.type), l.shape, batch_l ++ free_l ++ contract_l, shape(b, m, k))
    right = arrange(cast(r, out.type), r.shape, batch_r ++ contract_r ++ free_r, shape(b, k, n))

    reshape({:matmul, [left, right]}, shape(b, m, n), out.shape)
  end

  defp free(t, taken), do: Enum.to_list(0..(tuple_size(t.shape) - 1)//1) -- taken
  defp product(t, axes), do: Enum.reduce(axes, 1, &(elem(t.shape, &1) * &2))

  defp shape(1, rows, columns), do: {rows, columns}
  defp shape(batch, rows, columns), do: {batch, rows, columns}

  defp arrange(tree, shape, order, wanted) do
    arranged = order |> Enum.map(&elem(shape, &1)) |> List.to_tuple()
    tree = transpose(tree, order)
    reshape(tree, arranged, wanted)
  end
end
