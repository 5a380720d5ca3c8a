defmodule Mlx.Lower.Dot do
  @moduledoc false
  # Contractions become batched matrix products. MLX multiplies matrices of floats only; integers
  # must be exact and wrap, so they are multiplied as limbs of 16 bits in f64, whose products add
  # up without rounding, and put together again with shifts.
  use Mlx.Lower.Family

  @f64 {:f, 64}
  @s64 {:s, 64}
  # Below so many products, integers are multiplied and summed directly.
  @small 4096
  # A limb's products are below 2^32, and so many of them add up below 2^53.
  @longest 2_097_152

  compose :dot, out, [l, contract_l, batch_l, r, contract_r, batch_r] do
    free_l = free(l, contract_l ++ batch_l)
    free_r = free(r, contract_r ++ batch_r)
    b = product(l, batch_l)
    m = product(l, free_l)
    k = product(l, contract_l)
    n = product(r, free_r)

    left = arrange(cast(l, out.type), l.shape, batch_l ++ free_l ++ contract_l, shape(b, m, k))
    right = arrange(cast(r, out.type), r.shape, batch_r ++ contract_r ++ free_r, shape(b, k, n))

    out.type
    |> product(left, right, {b, m, k, n})
    |> reshape(shape(b, m, n), out.shape)
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

  defp product({kind, size} = type, left, right, {b, m, k, n}) when kind in [:u, :s] do
    if b * m * k * n <= @small or k > @longest,
      do: multiply_and_sum(type, left, right, shape(b, m, k), shape(b, k, n)),
      else: limbs(type, left, right, max(div(size, 16), 1))
  end

  defp product(_type, left, right, _sizes), do: {:matmul, [left, right]}

  defp multiply_and_sum(type, left, right, left_shape, right_shape) do
    rank = tuple_size(left_shape)
    left = reshape(left, Tuple.insert_at(left_shape, rank, 1))
    right = reshape(right, Tuple.insert_at(right_shape, rank - 2, 1))
    sum = {{:sum_axes, [rank - 1], false}, [{:multiply, [left, right]}]}

    # MLX sums short integers in 32 bits.
    if elem(type, 1) < 32, do: astype(sum, type), else: sum
  end

  defp limbs(type, left, right, 1), do: astype(astype(matmul_f64(left, right), @s64), type)

  defp limbs(type, left, right, count) do
    lefts = split(left, type, count)
    rights = split(right, type, count)

    0..(count - 1)
    |> Enum.map(&shifted_sum(&1, lefts, rights))
    |> Enum.reduce(&{:add, [&2, &1]})
    |> astype(type)
  end

  # What lands at limb `place`: the sum of the products of limbs i and place - i.
  defp shifted_sum(place, lefts, rights) do
    sum =
      0..place
      |> Enum.map(&astype(matmul_f64(Enum.at(lefts, &1), Enum.at(rights, place - &1)), @s64))
      |> Enum.reduce(&{:add, [&2, &1]})

    if place == 0, do: sum, else: {:left_shift, [sum, const(16 * place, @s64)]}
  end

  defp split(tree, {_, size} = type, count) do
    bits = if match?({:u, _}, type), do: tree, else: {{:view, {:u, size}}, [tree]}

    for limb <- 0..(count - 1) do
      shifted =
        if limb == 0, do: bits, else: {:right_shift, [bits, const(16 * limb, {:u, size})]}

      {:bitwise_and, [shifted, const(0xFFFF, {:u, size})]}
    end
  end

  defp matmul_f64(left, right), do: {:matmul, [astype(left, @f64), astype(right, @f64)]}
end
