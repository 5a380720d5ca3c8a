defmodule Mlx.Zoo do
  @moduledoc false
  # Every operation and every block of Nx with a few operands each, for tests that run all of them:
  # `{name, samples}`, where a sample is a function and its arguments, tensors on Nx.BinaryBackend.
  # The name is that of a callback of `Nx.Backend`, or the struct of a block.

  import Mlx.Generators, only: [tensor: 3]

  @ints ~w(u8 u16 u32 u64 s8 s16 s32 s64)a
  @floats ~w(f16 bf16 f32 f64)a
  @narrow ~w(u2 u4 s2 s4 f8 f8_e4m3fn)a
  @real @ints ++ @floats

  @elementary [:exp, :expm1, :log, :log1p, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh] ++
                [:acos, :asin, :atan, :acosh, :asinh, :atanh, :sqrt, :rsqrt]
  @special [:cbrt, :erf, :erfc, :erf_inv]
  @arithmetic [:add, :subtract, :multiply]
  @truths [:equal, :not_equal, :logical_and, :logical_or, :logical_xor]
  @orders [:greater, :less, :greater_equal, :less_equal]
  @bitwise [:bitwise_and, :bitwise_or, :bitwise_xor]

  @doc "All rows."
  def table, do: elementwise() ++ shapes() ++ reductions() ++ indices() ++ products() ++ blocks()

  @doc "The operation nodes of an expression, those inside of others among them."
  def ops(container), do: container |> walk(%{}) |> Map.values() |> Enum.uniq()

  defp walk(container, seen) do
    Nx.Defn.Composite.reduce(container, seen, fn
      %Nx.Tensor{data: %Nx.Defn.Expr{id: id, op: op, args: args}} = t, seen
      when not is_map_key(seen, id) ->
        name = if op == :block, do: hd(args).__struct__, else: op
        {_t, seen} = Nx.Defn.Tree.apply_args(t, Map.put(seen, id, name), &{&1, walk(&1, &2)})
        seen

      _t, seen ->
        seen
    end)
  end

  defp elementwise do
    unary(@elementary, @real ++ [:c64, :u4, :f8, :f8_e4m3fn]) ++
      unary(@special, @real) ++
      unary([:negate], @real ++ [:c64 | @narrow]) ++
      unary([:abs], ~w(s8 s16 s32 s64 s2 s4 c64 f8)a ++ @floats) ++
      unary([:sign], @real ++ @narrow) ++
      unary([:ceil, :floor, :round], @floats ++ [:f8, :f8_e4m3fn]) ++
      unary(
        [:bitwise_not, :count_leading_zeros, :population_count],
        @ints ++ [:u2, :u4, :s2, :s4]
      ) ++
      unary([:conjugate, :real, :imag], [:c64]) ++
      unary([:is_nan, :is_infinity], @floats ++ [:c64, :f8]) ++
      binary(@arithmetic, @real ++ [:c64 | @narrow]) ++
      binary([:divide, :pow], @floats ++ [:c64, :f8]) ++
      binary([:atan2, :min, :max, :remainder], @real ++ [:f8]) ++
      binary([:quotient], @ints ++ [:u4, :s4]) ++
      binary(@truths, @real ++ [:c64 | @narrow]) ++
      binary(@orders, @real ++ @narrow) ++
      binary(@bitwise, @ints ++ [:u2, :s4]) ++
      [
        {:left_shift, shifts(&Nx.left_shift/2)},
        {:right_shift, shifts(&Nx.right_shift/2)},
        {:as_type,
         for(
           from <- @real ++ [:c64 | @narrow],
           to <- @real ++ [:c64 | @narrow],
           from != to,
           do: {&Nx.as_type(&1, to), [values(from, {4})]}
         )},
        {:bitcast,
         for(
           {from, to} <- [f32: :s32, s32: :u32, f64: :u64, bf16: :u16, u8: :s8, f8: :u8],
           do: {&Nx.bitcast(&1, to), [values(from, {4})]}
         )},
        {:select,
         for(
           type <- @real ++ [:c64 | @narrow],
           do:
             {&Nx.select/3,
              [tensor({:u, 8}, {2, 3}, 0..1), values(type, {2, 3}), values(type, {3})]}
         )},
        {:clip, for(type <- @real, do: {&Nx.clip(&1, -1, 2), [values(type, {2, 3})]})},
        {:constant,
         for(
           {number, type} <- [
             {1.5, :f32},
             {-0.0, :f16},
             {255, :u8},
             {-1, :s4},
             {:nan, :f64},
             {:infinity, :bf16}
           ],
           do:
             {fn t -> {Nx.broadcast(Nx.tensor(number, type: type), {2}), t} end,
              [values(:f32, {2})]}
         )},
        {:iota,
         for(
           type <- @real ++ @narrow,
           do:
             {fn t -> {Nx.iota({3}, type: type), Nx.iota({2, 3}, axis: 0, type: type), t} end,
              [values(:f32, {})]}
         )},
        {:eye,
         for(
           type <- @real ++ [:c64 | @narrow],
           do:
             {fn t -> {Nx.eye(3, type: type), Nx.eye({2, 2, 3}, type: type), t} end,
              [values(:f32, {})]}
         )}
      ]
  end

  defp shapes do
    [
      reshape: each(&Nx.reshape(&1, {3, 4}), {2, 6}),
      squeeze: each(&Nx.squeeze/1, {2, 1, 3, 1}),
      broadcast:
        each(&{Nx.broadcast(&1, {2, 2, 3}), Nx.broadcast(&1, {2, 3, 4}, axes: [0, 1])}, {2, 3}),
      transpose: each(&{Nx.transpose(&1), Nx.transpose(&1, axes: [1, 0, 2])}, {2, 3, 2}),
      pad: each(&Nx.pad(&1, 1, [{1, 0, 2}, {-1, 2, 0}]), {2, 3}),
      reverse: each(&{Nx.reverse(&1), Nx.reverse(&1, axes: [1])}, {2, 3}),
      concatenate: each(&Nx.concatenate([&1, Nx.add(&1, 1)], axis: 1), {2, 3}),
      stack: each(&Nx.stack([&1, Nx.add(&1, 1)], axis: 1), {2, 3})
    ]
  end

  defp reductions do
    axes = [[], [axes: [1]], [axes: [0, 2], keep_axes: true]]

    folds =
      for op <- [:sum, :product, :all, :any, :reduce_max, :reduce_min] do
        types =
          if op in [:reduce_max, :reduce_min], do: @real ++ [:f8], else: @real ++ [:c64, :u4]

        {op,
         for(
           type <- types,
           opts <- axes,
           do: {&apply(Nx, op, [&1, opts]), [values(type, {2, 3, 2})]}
         )}
      end

    places =
      for op <- [:argmax, :argmin] do
        options = [[], [axis: 1, tie_break: :high], [axis: 0, keep_axis: true, type: :u8]]

        {op,
         for(
           type <- @real,
           opts <- options,
           do: {&apply(Nx, op, [&1, opts]), [values(type, {2, 3})]}
         )}
      end

    windows =
      for op <- [:window_sum, :window_product, :window_max, :window_min] do
        opts = [padding: :same, strides: [1, 2], window_dilations: [1, 2]]

        {op,
         for(
           type <- @real,
           opts <- [[], opts],
           do: {&apply(Nx, op, [&1, {2, 2}, opts]), [values(type, {3, 4})]}
         )}
      end

    folds ++
      places ++
      windows ++
      [
        reduce:
          for(
            type <- @real,
            opts <- [[], [axes: [1]]],
            do:
              {&Nx.reduce(&1, 1, opts, fn x, acc -> Nx.subtract(Nx.multiply(acc, 2), x) end),
               [values(type, {2, 3})]}
          ),
        window_reduce:
          for(
            type <- @real,
            do:
              {&Nx.window_reduce(&1, 0, {2, 2}, [padding: :same], fn x, acc ->
                 Nx.add(Nx.multiply(acc, 2), x)
               end), [values(type, {2, 3})]}
          ),
        window_scatter_max:
          scatters(&Nx.window_scatter_max(&1, &2, 0, {2, 2}, strides: [2, 2], padding: :valid)),
        window_scatter_min:
          scatters(&Nx.window_scatter_min(&1, &2, 0, {2, 2}, strides: [2, 2], padding: :valid)),
        sort:
          each(&{Nx.sort(&1, axis: 0), Nx.sort(&1, axis: 1, direction: :desc)}, {3, 4}, @real),
        argsort:
          each(
            &{Nx.argsort(&1), Nx.argsort(&1, axis: 1, direction: :desc, type: :u8)},
            {3, 4},
            @real
          )
      ]
  end

  defp indices do
    i = fn rows, limit -> tensor({:s, 64}, {rows, 2}, 0..limit) end
    number = tensor({:s, 32}, {}, -1..4)

    updates = fn op ->
      for type <- @real ++ [:c64],
          do: {&apply(Nx, op, [&1, &2, &3]), [values(type, {3, 4}), i.(5, 2), values(type, {5})]}
    end

    [
      slice:
        each(&Nx.slice(&1, [1, 0], [2, 3], strides: [1, 2]), {3, 4}) ++
          [{&Nx.slice(&1, [&2, 1], [2, 2]), [values(:f32, {3, 4}), number]}],
      put_slice:
        each(&Nx.put_slice(&1, [1, 0], Nx.add(Nx.slice(&1, [0, 0], [2, 2]), 1)), {3, 4}) ++
          [
            {&Nx.put_slice(&1, [&2, 1], Nx.slice(&1, [0, 0], [2, 2])),
             [values(:f32, {3, 4}), number]}
          ],
      gather:
        for(
          type <- @real ++ [:c64 | @narrow],
          do:
            {&{Nx.gather(&1, &2), Nx.gather(&1, &3, axes: [1])},
             [values(type, {3, 4}), i.(4, 2), tensor({:u, 8}, {2, 1}, 0..3)]}
        ),
      indexed_add: updates.(:indexed_add),
      indexed_put: updates.(:indexed_put)
    ]
  end

  defp products do
    matrices = fn type -> [values(type, {2, 3, 4}, :small), values(type, {2, 4, 3}, :small)] end
    lower = Nx.tensor([[2.0, 0.0], [1.0, 3.0]], backend: Nx.BinaryBackend)

    [
      dot:
        for(
          type <- @real ++ [:c64, :u4, :f8],
          do: {&{Nx.dot(&1, [2], [0], &2, [1], [0]), Nx.dot(&1, &2)}, matrices.(type)}
        ),
      conv:
        for(
          type <- @floats ++ [:u8, :c64],
          opts <- [
            [],
            [strides: [1, 2], padding: :same, kernel_dilation: [2, 1]],
            [padding: [{1, 0}, {0, 2}], input_dilation: 2]
          ],
          do:
            {&Nx.conv(&1, &2, opts),
             [values(type, {2, 2, 4, 5}, :small), values(type, {3, 2, 2, 2}, :small)]}
        ) ++
          [
            {&Nx.conv(&1, &2, feature_group_size: 2),
             [values(:f32, {2, 4, 3, 3}), values(:f32, {2, 2, 2, 2})]},
            {&Nx.conv(&1, &2, batch_group_size: 2),
             [values(:f32, {2, 4, 3, 3}), values(:f32, {2, 4, 2, 2})]}
          ],
      triangular_solve:
        for(
          type <- [:f32, :f64, :c64],
          opts <- [[lower: true], [lower: false, transform_a: :transpose], [left_side: false]],
          do:
            {&Nx.LinAlg.triangular_solve(&1, &2, opts),
             [Nx.as_type(lower, type), values(type, {2, 2}, :small)]}
        ),
      fft: each(&{Nx.fft(&1), Nx.fft(&1, axis: 0, length: 2)}, {3, 4}, [:f32, :c64, :s32, :u8]),
      ifft: each(&{Nx.ifft(&1), Nx.ifft(&1, axis: 0, length: 5)}, {3, 4}, [:f32, :c64, :s32, :u8])
    ]
  end

  defp blocks do
    symmetric =
      Nx.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]], backend: Nx.BinaryBackend)

    matrices = fn fun -> for type <- [:f32, :f64], do: {fun, [Nx.as_type(symmetric, type)]} end
    wide = &[values(&1, {2, 3, 4}, :small)]

    cumulative = fn fun, types ->
      for type <- types,
          opts <- [[axis: 1], [axis: 0, reverse: true]],
          do: {&fun.(&1, opts), wide.(type)}
    end

    [
      {Nx.Block.LogicalNot, each(&Nx.logical_not/1, {2, 3})},
      {Nx.Block.Phase, each(&Nx.phase/1, {2, 3}, @real ++ [:c64])},
      {Nx.Block.AllClose,
       for(
         type <- @real,
         do:
           {&{Nx.all_close(&1, &2), Nx.all_close(&1, &1, equal_nan: true)},
            [values(type, {3}), values(type, {3})]}
       )},
      {Nx.Block.CumulativeSum, cumulative.(&Nx.cumulative_sum/2, @real ++ [:c64, :u4])},
      {Nx.Block.CumulativeProduct, cumulative.(&Nx.cumulative_product/2, @real ++ [:c64, :u4])},
      {Nx.Block.CumulativeMax, cumulative.(&Nx.cumulative_max/2, @real)},
      {Nx.Block.CumulativeMin, cumulative.(&Nx.cumulative_min/2, @real)},
      {Nx.Block.Take,
       for(
         type <- @real ++ [:c64 | @narrow],
         do: {&Nx.take(&1, &2, axis: 1), [values(type, {2, 3}), tensor({:s, 32}, {2, 2}, 0..2)]}
       )},
      {Nx.Block.TakeAlongAxis,
       for(
         type <- @real ++ [:c64 | @narrow],
         do:
           {&Nx.take_along_axis(&1, &2, axis: 1),
            [values(type, {2, 3}), tensor({:s, 32}, {2, 2}, 0..2)]}
       )},
      {Nx.Block.TopK, for(type <- @real, do: {&Nx.top_k(&1, k: 2), [values(type, {2, 4})]})},
      {Nx.Block.FFT2, each(&Nx.fft2/1, {3, 4}, [:f32, :c64, :s32])},
      {Nx.Block.IFFT2, each(&Nx.ifft2(&1, lengths: [2, 4]), {3, 4}, [:f32, :c64, :s32])},
      {Nx.Block.RFFT, each(&Nx.rfft/1, {2, 4}, [:f32, :s32])},
      {Nx.Block.IRFFT, each(&Nx.irfft/1, {2, 4}, [:f32, :c64])},
      {Nx.Block.LinAlg.Cholesky, matrices.(&Nx.LinAlg.cholesky/1)},
      {Nx.Block.LinAlg.Determinant, matrices.(&Nx.LinAlg.determinant/1)},
      {Nx.Block.LinAlg.Eigh, matrices.(&Nx.LinAlg.eigh/1)},
      {Nx.Block.LinAlg.LU, matrices.(&Nx.LinAlg.lu/1)},
      {Nx.Block.LinAlg.QR,
       matrices.(&{Nx.LinAlg.qr(&1), Nx.LinAlg.qr(&1[[.., 0..1]], mode: :complete)})},
      {Nx.Block.LinAlg.SVD,
       matrices.(&{Nx.LinAlg.svd(&1), Nx.LinAlg.svd(&1[[.., 0..1]], full_matrices?: false)})},
      {Nx.Block.LinAlg.Solve, matrices.(&Nx.LinAlg.solve(&1, &1[0]))}
    ]
  end

  defp unary(ops, types), do: for(op <- ops, do: {op, each(&apply(Nx, op, [&1]), {2, 3}, types)})

  # Of one type with broadcasting, and of two.
  defp binary(ops, types) do
    for op <- ops do
      others = Enum.reverse(types)

      samples =
        for {type, other} <- Enum.zip(types ++ types, types ++ others),
            do: {&apply(Nx, op, [&1, &2]), [values(type, {2, 3}), values(other, {3})]}

      {op, samples}
    end
  end

  defp shifts(fun),
    do:
      for(
        type <- @ints ++ [:u4, :s4],
        do: {fun, [values(type, {2, 3}), tensor({:u, 8}, {3}, 0..9)]}
      )

  defp scatters(fun),
    do: for(type <- @real, do: {fun, [values(type, {4, 4}), values(type, {2, 2})]})

  defp each(fun, shape, types \\ @real ++ [:c64 | @narrow]),
    do: for(type <- types, do: {fun, [values(type, shape)]})

  defp values(type, shape, kind \\ nil)

  defp values(type, shape, kind) do
    kind = kind || if(type in @narrow, do: :small, else: :any)
    tensor(Nx.Type.normalize!(type), shape, kind)
  end
end
