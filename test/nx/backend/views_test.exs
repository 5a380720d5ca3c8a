defmodule Mlx.Backend.ViewsTest do
  # Oracle: Nx.BinaryBackend, which knows no views. In MLX a transposition, a slice, a reversal or
  # a broadcast is one, of elements in another order than in memory, and kernels choose their way
  # by it.
  use Mlx.NxCase, async: true

  property [:sum, :product, :reduce_max, :reduce_min, :all, :argmax],
           "of views",
           [runs: 60],
           fn op ->
             {t, view} = viewed({:s, 32})

             opts =
               if op == :argmax,
                 do: [axis: pick([nil | Nx.axes(view.(t))])],
                 else: [axes: axes(Nx.shape(view.(t)))]

             assert_same([t], &apply(Nx, op, [view.(&1), opts]))
           end

  property [:add, :multiply, :less, :select], "of views", [runs: 60], fn op ->
    {t, view} = viewed(pick([{:f, 32}, {:u, 8}, {:s, 64}]))
    shape = Nx.shape(view.(t))
    other = tensor({:f, 32}, broadcastable(shape), :small)

    if op == :select,
      do: assert_same([t, other], &Nx.select(view.(&1), view.(&1), &2)),
      else: assert_same([t, other], &apply(Nx, op, [view.(&1), &2]))
  end

  property [:sort, :argsort, Nx.Block.CumulativeSum, Nx.Block.TopK, :window_max, :window_sum],
           "of views",
           [runs: 60],
           fn op ->
             {t, view} = viewed({:s, 32})
             shape = Nx.shape(view.(t))
             axis = if shape == {}, do: nil, else: pick(Nx.axes(view.(t)))
             window = List.to_tuple(for d <- Tuple.to_list(shape), do: int(1..min(d, 2)))

             fun =
               case op do
                 _ when shape == {} -> &Nx.window_sum(&1, {1}, [])
                 Nx.Block.CumulativeSum -> &Nx.cumulative_sum(&1, axis: axis)
                 Nx.Block.TopK -> &Nx.top_k(&1, k: 1)
                 op when op in [:window_max, :window_sum] -> &apply(Nx, op, [&1, window])
                 op -> &apply(Nx, op, [&1, [axis: axis]])
               end

             if shape != {}, do: assert_same([t], &fun.(view.(&1)))
           end

  property [
             :reshape,
             :concatenate,
             :pad,
             :gather,
             :dot,
             :as_type,
             :to_binary,
             :indexed_add,
             :put_slice,
             Nx.Block.Take
           ],
           "of views",
           [runs: 60],
           fn op ->
             {t, view} = viewed(pick([{:s, 32}, {:f, 32}, {:u, 8}]))
             shape = Nx.shape(view.(t))
             rank = tuple_size(shape)
             size = Tuple.product(shape)
             position = for(d <- Tuple.to_list(shape), do: int(0..(d - 1)))
             position = if position == [], do: [0], else: position

             fun =
               case op do
                 :reshape ->
                   &Nx.reshape(&1, {size})

                 :as_type ->
                   &Nx.as_type(&1, :s16)

                 :to_binary ->
                   & &1

                 :pad ->
                   &Nx.pad(&1, 1, List.duplicate({1, 0, 1}, rank))

                 _ when rank == 0 ->
                   &Nx.new_axis(&1, 0)

                 :concatenate ->
                   &Nx.concatenate([&1, &1], axis: rank - 1)

                 :gather ->
                   &Nx.gather(&1, Nx.tensor([position]))

                 :dot ->
                   &Nx.dot(&1, [0], &1, [0])

                 :indexed_add ->
                   &Nx.indexed_add(&1, Nx.tensor([position]), Nx.tensor([1]))

                 :put_slice ->
                   &Nx.put_slice(
                     &1,
                     position,
                     Nx.tensor(1) |> Nx.reshape(Tuple.duplicate(1, rank))
                   )

                 Nx.Block.Take ->
                   &Nx.take(&1, Nx.tensor([0, 0]), axis: rank - 1)
               end

             assert_same([t], &fun.(view.(&1)))
           end

  # A tensor, and a function that makes a view of it in one to four steps.
  defp viewed(type) do
    t = tensor(type, shape(1..4, 4), 0..3)

    {steps, _shape} =
      Enum.map_reduce(1..int(1..4), t, fn _, t ->
        step = step(t.shape)
        {step, step.(t)}
      end)

    {t, fn t -> Enum.reduce(steps, t, & &1.(&2)) end}
  end

  defp step({}), do: &Nx.broadcast(&1, {2, 3})

  defp step(shape) do
    axes = Enum.to_list(0..(tuple_size(shape) - 1))
    axis = Enum.random(axes)
    d = elem(shape, axis)

    order = Enum.shuffle(axes)

    case int(1..6) do
      1 -> &Nx.transpose(&1, axes: order)
      2 -> &Nx.reverse(&1, axes: [axis])
      3 -> slice(axis, int(0..(d - 1)), d)
      4 when tuple_size(shape) < 4 -> broadcast(shape, int(0..tuple_size(shape)))
      4 -> &Nx.reverse(&1)
      5 when d > 2 -> &Nx.slice_along_axis(&1, 0, d, axis: axis, strides: 2)
      _ -> &Nx.sum(&1, axes: [axis], keep_axes: true)
    end
  end

  defp slice(axis, start, d), do: &Nx.slice_along_axis(&1, start, d - start, axis: axis)

  defp broadcast(shape, at) do
    wide = Tuple.insert_at(shape, at, 3)
    axes = Enum.to_list(0..tuple_size(shape)) -- [at]
    &Nx.broadcast(&1, wide, axes: axes)
  end

  test "sums and extremes have the bits of the shape's order, however a view lies in memory" do
    x = Nx.tensor([[[0], [5], [4]], [[0], [1], [1]]], type: :f32)
    mean = Nx.tensor([[[1.8333334]]])
    signs = Nx.tensor([[[0.0], [-0.0], [0.0]], [[-0.0], [0.0], [-0.0]]])

    for order <- [[0, 1, 2], [1, 2, 0], [2, 1, 0]] do
      both([x, mean], fn x, mean ->
        squares = x |> Nx.transpose(axes: order) |> Nx.subtract(mean) |> Nx.pow(2)
        {Nx.sum(squares), Nx.product(Nx.add(squares, 0.1)), Nx.sum(squares, axes: [0, 1])}
      end)

      both([signs], fn signs ->
        t = signs |> Nx.transpose(axes: order) |> Nx.multiply(3.0)
        {Nx.reduce_max(t), Nx.reduce_min(t)}
      end)
    end
  end
end
