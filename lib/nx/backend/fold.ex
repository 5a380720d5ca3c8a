defmodule Mlx.Backend.Fold do
  @moduledoc false
  # Reductions by a function of the caller's. The function runs once per element of the reduced
  # part, on vectorized scalars that stand for all results at once, element first and accumulator
  # second, in row-major order: what Nx defines, in as many steps as one result needs. The
  # functions that have a reduction of their own (sum, product, extremes) become that one.

  alias Mlx.Backend, as: B
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @known %{
    add: {:sum, :add},
    multiply: {:product, :multiply},
    max: {:reduce_max, :max},
    min: {:reduce_min, :min}
  }

  @doc "The callback `reduce`."
  def reduce(out, t, acc, opts, fun) do
    [t, acc] = Enum.map([t, acc], &taken(&1, [t, acc]))
    axes = opts[:axes] || Nx.axes(t)

    case known(out, t, acc, fun) do
      {reduction, combine} ->
        reduced = apply(B, reduction, [out, t, [axes: axes, keep_axes: opts[:keep_axes]]])
        apply(B, combine, [out, reduced, acc])

      nil ->
        rest = Nx.axes(t) -- axes

        t
        |> bare()
        |> Nx.transpose(axes: rest ++ axes)
        |> fold(length(rest), acc, fun)
        |> finish(out, t)
    end
  end

  @doc "The callback `window_reduce`."
  def window_reduce(out, t, acc, dims, opts, fun) do
    [t, acc] = Enum.map([t, acc], &taken(&1, [t, acc]))

    t
    |> bare()
    |> windows(acc, dims, opts)
    |> fold(tuple_size(dims), acc, fun)
    |> finish(out, t)
  end

  # The first `kept` axes of `t` are those of the result.
  defp fold(t, kept, acc, fun) do
    shape = t.shape |> Tuple.to_list() |> Enum.take(kept) |> List.to_tuple()
    results = Tuple.product(shape)
    count = div(Nx.size(t), results)
    elements = t |> Nx.reshape({results, count}) |> Nx.transpose()

    0..(count - 1)
    |> Enum.reduce(acc, fn i, acc -> fun.(Nx.vectorize(elements[i], :results), acc) end)
    |> Nx.to_tensor()
    |> then(&Nx.broadcast_vectors([&1, Nx.vectorize(elements[0], :results)]))
    |> hd()
    |> Nx.devectorize(keep_names: false)
    |> Nx.reshape(shape)
  end

  # A function may return what is not from its arguments, and then elsewhere.
  defp finish(result, out, t) do
    result = result |> Nx.as_type(out.type) |> Nx.reshape(out.shape)
    %{out | data: taken(result, [t]).data}
  end

  # The reduction of the same meaning, if `fun` is nothing but one operation of its arguments.
  defp known(out, t, acc, fun) do
    with true <- out.type == t.type and out.type == acc.type,
         %T{data: %Expr{op: op, args: [%T{data: a}, %T{data: b}]}} <- traced(out.type, fun),
         %Expr{op: :parameter, args: [i]} when i in [0, 1] <- a,
         %Expr{op: :parameter, args: [j]} when i + j == 1 <- b do
      Map.get(@known, op)
    else
      _ -> nil
    end
  end

  # A function that reads values cannot be traced, and says so by raising.
  defp traced(type, fun) do
    parameter = &Expr.parameter(Nx.template({}, type), :reduce, &1)
    Nx.with_default_backend(Expr, fn -> fun.(parameter.(0), parameter.(1)) end)
  rescue
    _ -> nil
  end

  defp windows(t, acc, dims, opts) do
    padding = for {low, high} <- opts[:padding], do: {low, high, 0}
    padded = Nx.pad(t, Nx.as_type(acc, t.type), padding)
    {tree, places} = view(%{padded | data: 0}, dims, opts)

    out = %{
      padded
      | shape: List.to_tuple(places ++ Tuple.to_list(dims)),
        names: names(places, dims)
    }

    Mlx.Backend.Operands.run(tree, out, [padded.data.ref])
  end

  defp view(leaf, dims, opts) do
    dims = Tuple.to_list(dims)
    Mlx.Lower.Tree.windows(leaf, leaf.shape, dims, opts[:strides], opts[:window_dilations])
  end

  defp names(places, dims), do: List.duplicate(nil, length(places) + tuple_size(dims))

  defp bare(t), do: Nx.rename(t, List.duplicate(nil, Nx.rank(t)))

  defp taken(%T{data: %B{}} = t, _operands), do: t

  defp taken(t, operands) do
    device =
      Enum.find_value(operands, fn
        %T{data: %B{ref: ref}} -> Mlx.Native.device(ref)
        _ -> nil
      end)

    Nx.backend_copy(t, {B, device: device})
  end
end
