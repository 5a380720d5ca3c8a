defmodule Mlx.Lower.Fold do
  @moduledoc false
  # Reductions by a function, which comes as a program of two scalars: `Mlx.Lower.Body`. It runs
  # once per element that goes into one result, element first, in row-major order: what Nx defines.
  # The functions that have a reduction of their own become that one.
  use Mlx.Lower.Family

  alias Mlx.Lower.{Body, Reduce}

  @known %{add: :sum, multiply: :product, maximum: :reduce_max, minimum: :reduce_min}

  compose :reduce, out, [t, acc, opts, body] do
    # The order is that of the tensor, whatever that of the axes.
    axes = opts[:axes] |> axes(t.shape) |> Enum.sort()

    case known(body, [out.type, t.type, acc.type]) do
      {op, reduction} ->
        reduced = apply(Reduce, function(reduction), [out, [t, opts]])
        {op, [reduced, acc]}

      nil ->
        rest = axes(nil, t.shape) -- axes
        sizes = &for(axis <- &1, do: elem(t.shape, axis))
        moved = transpose(convert(t, body.element), axes ++ rest)
        from = List.to_tuple(sizes.(axes ++ rest))
        fold(moved, from, Enum.product(sizes.(axes)), sizes.(rest), acc, body, out)
    end
  end

  compose :window_reduce, out, [t, acc, dims, opts, body] do
    dims = Tuple.to_list(dims)
    rank = length(dims)
    config = for {low, high} <- opts[:padding], do: {low, high, 0}
    {padded, shape} = pad(t, t.shape, config, convert(acc, t.type))
    {view, places} = windows(padded, shape, dims, opts[:strides], opts[:window_dilations])

    shape = List.to_tuple(dims ++ places)
    order = Enum.to_list(rank..(2 * rank - 1)//1) ++ Enum.to_list(0..(rank - 1)//1)
    elements = convert(%{t | data: transpose(view, order), shape: shape}, body.element)
    fold(elements, shape, Enum.product(dims), places, acc, body, out)
  end

  # A tree of shape `from`, the elements' axes first and then those of the results, `rest`.
  defp fold(tree, from, count, rest, acc, %Body{} = body, out) do
    results = List.to_tuple(rest)
    elements = reshape(tree, from, List.to_tuple([count | rest]))
    start = {{:broadcast_to, results}, [convert(acc, body.acc)]}
    program = {2, body.instructions, [body.output]}
    folded = %{out | type: body.acc, shape: results, data: {{:fold, program}, [elements, start]}}
    reshape(convert(folded, out.type), results, out.shape)
  end

  # Types of all kinds come here, those that MLX lacks included.
  defp convert(t, type), do: Mlx.Lower.lower(:as_type, %{t | type: type}, [t])

  # The operation that `body` is nothing but, where all types are one.
  defp known(%Body{instructions: [{op, slots}], output: 2} = body, types)
       when is_map_key(@known, op) and slots in [[0, 1], [1, 0]] do
    if [body.element, body.acc | types] |> Enum.uniq() |> length() == 1, do: {op, @known[op]}
  end

  defp known(_body, _types), do: nil
end
