if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Args do
    @moduledoc false
    # Arguments of each function, right ones as a rule: `Mlx.Fuzz.Wrong` makes others of them.

    import Mlx.Fuzz.Gen, only: [any: 0, of: 1, of: 2, shaped: 2, shaped: 3, beside: 2]
    import Mlx.Fuzz.Values, only: [pick: 1, int: 1, chance: 1]

    alias Mlx.Fuzz.{Gen, Values}

    @ints Values.ints()
    @floats Values.floats()
    @reals Values.reals()

    @of_ints ~w(bitwise_not count_leading_zeros population_count)a
    @of_reals ~w(ceil floor round sign cbrt erf erfc erf_inv)a
    @unary ~w(abs conjugate imag is_infinity is_nan logical_not negate real sqrt acos acosh asin asinh atan atanh cos cosh exp expm1 log1p log2 log10 phase rsqrt sigmoid sin sinh tan tanh to_tensor backend_copy axes bit_size byte_size flat_size names rank shape size type to_binary to_flat_list to_list to_number to_template serialized freed text block runtime_call branches)a
    @casts ~w(bf16 c64 c128 f16 f32 f64 f8 s16 s2 s32 s4 s64 s8 u16 u2 u32 u4 u64 u8)a
    @binary ~w(add subtract multiply divide pow equal not_equal logical_and logical_or logical_xor
               compatible? outer)a
    @binary_reals ~w(min max remainder atan2 greater less greater_equal less_equal)a
    @binary_ints ~w(bitwise_and bitwise_or bitwise_xor quotient)a
    @axes_opts ~w(all any sum product mean variance standard_deviation)a

    @doc "Arguments of the function `name`."
    def args(name) when name in @of_ints, do: [of(@ints)]
    def args(name) when name in @of_reals, do: [of(@reals)]
    def args(name) when name in @unary, do: [any()]

    # Of numbers, and of tensors only where the type is theirs.
    def args(name) when name in @casts do
      if chance(70),
        do: [pick([0, 1, -1, 2.5, [1, 2], [[1.5], [300]], :infinity, :nan])],
        else: [of([Nx.Type.normalize!(name)])]
    end

    def args(name) when name in @binary, do: two(nil)
    def args(name) when name in @binary_reals, do: two(@reals)
    def args(name) when name in @binary_ints, do: two(@ints)
    def args(name) when name in @axes_opts, do: reduced(any(), name)
    def args(name) when name in [:reduce_max, :reduce_min], do: reduced(of(@reals), name)
    def args(:logsumexp), do: reduced(any(), :logsumexp)

    def args(name) when name in [:left_shift, :right_shift] do
      t = of(@ints)
      [t, if(chance(30), do: int(0..9), else: shaped(@ints, Values.beside(t.shape)))]
    end

    def args(name) when name in [:argmax, :argmin] do
      t = of(@reals)

      [
        t,
        opts(
          axis: axis(t),
          keep_axis: flag(),
          tie_break: pick([:low, :high]),
          type: pick([:u8, :s64])
        )
      ]
    end

    def args(name) when name in [:sort, :argsort] do
      t = of(@reals, 1)
      [t, opts(axis: axis(t), direction: pick([:asc, :desc]), stable: flag())]
    end

    def args(:top_k) do
      t = of(@reals, 1)
      [t, opts(k: int(1..elem(t.shape, tuple_size(t.shape) - 1)))]
    end

    def args(name) when name in [:median, :mode] do
      t = of(@reals)
      [t, opts(axis: axis(t), keep_axis: flag())]
    end

    def args(:log), do: if(chance(60), do: [any()], else: [any(), pick([2, 10, 2.5, 1, -1])])
    def args(:as_type), do: [any(), Values.type()]

    def args(:bitcast) do
      t = of(@reals)
      {_, size} = t.type
      [t, pick(for({_, ^size} = type <- @reals, do: type) ++ [Values.type()])]
    end

    def args(:complex) do
      t = of(@floats)
      [t, beside(t, @floats)]
    end

    def args(:all_close) do
      t = of(@reals)

      [
        t,
        beside(t, @reals),
        opts(equal_nan: flag(), atol: pick([1.0e-8, 0.5]), rtol: pick([1.0e-5, 0]))
      ]
    end

    ## Shapes

    def args(:broadcast) do
      t = any()
      shape = Tuple.to_list(t.shape)

      case :rand.uniform(3) do
        1 -> [t, List.to_tuple(front() ++ Enum.map(shape, &if(&1 == 1, do: int(1..3), else: &1)))]
        2 -> [t, List.to_tuple(shape ++ [2]), [axes: Enum.to_list(0..(length(shape) - 1)//1)]]
        3 -> [t, any()]
      end
    end

    def args(:reshape) do
      t = any()
      size = Tuple.product(t.shape)
      shapes = [{size}, {1, size}, {size, 1, 1}, {:auto}, {:auto, 1}, List.to_tuple(halves(size))]
      [t, pick([t.shape | shapes])]
    end

    def args(:squeeze) do
      t = any()
      ones = for {1, axis} <- t.shape |> Tuple.to_list() |> Enum.with_index(), do: axis
      [t, opts(axes: Enum.take_random(ones, 2))]
    end

    def args(:transpose) do
      t = any()
      [t, opts(axes: Enum.shuffle(all_axes(t)))]
    end

    def args(name) when name in [:reverse, :flatten] do
      t = any()
      [t, opts(axes: some_axes(t))]
    end

    def args(:new_axis) do
      t = any()
      [t, int(-3..3)]
    end

    def args(:pad) do
      t = any()
      config = for _ <- all_axes(t), do: {int(-1..2), int(-1..2), pick([0, 0, 1, 2])}
      value = if chance(50), do: shaped([t.type], {}), else: pick([0, 1, 0.5, -1])
      [t, value, config]
    end

    def args(:pad_outer),
      do:
        (
          t = of(nil, 1)
          [t, pick([0, 1, -1]), Enum.map(all_axes(t), fn _ -> {int(-1..2), int(0..2)} end)]
        )

    def args(:reflect) do
      t = of(nil, 1)

      [
        t,
        opts(
          padding_config:
            for(dim <- Tuple.to_list(t.shape), do: {int(0..max(dim - 1, 0)), int(0..1)})
        )
      ]
    end

    def args(:tile) do
      t = any()
      [t, for(_ <- 1..max(tuple_size(t.shape) + int(-1..1), 1), do: int(1..2))]
    end

    def args(:split) do
      t = of(nil, 1)
      axis = axis(t)
      dim = if axis in all_axes(t), do: elem(t.shape, axis), else: 2
      [t, if(chance(50), do: int(1..max(dim - 1, 1)), else: 0.5), [axis: axis]]
    end

    def args(name) when name in [:concatenate, :stack] do
      t = of(nil, 1)
      others = for _ <- 1..int(1..3), do: shaped(pick([nil, [t.type]]), t.shape)
      [Enum.shuffle([t | others]), opts(axis: axis(t))]
    end

    def args(:rename) do
      t = any()
      [t, for(axis <- all_axes(t), do: pick([nil, Enum.at(~w(a b c d e f)a, axis)]))]
    end

    def args(:vectorize), do: [of(nil, 1), pick([:v, :w, [:v], [v: 2]])]
    def args(:devectorize), do: [vectorized(), opts(keep_names: flag())]
    def args(:revectorize), do: [vectorized(), pick([[v: :auto], [w: :auto], [a: 1, b: :auto]])]

    def args(name) when name in [:reshape_vectors, :broadcast_vectors],
      do: [[vectorized(), any()]]

    def args(:select) do
      pred = any()
      t = if chance(70), do: shaped(nil, pred.shape), else: any()
      [pred, t, beside(t, nil)]
    end

    def args(:clip) do
      t = of(@reals)

      if chance(70),
        do: [t, pick([-1, 0, 0.5]), pick([1, 2, 1.5])],
        else: [t, shaped(@reals, {}, :tame), shaped(@reals, {}, :tame)]
    end

    def args(:diff) do
      t = of(nil, 1)
      [t, opts(order: int(1..2), axis: axis(t))]
    end

    ## Places

    def args(:slice) do
      t = any()
      [^t, starts, lengths, strides] = Gen.slice(t.shape, t)

      starts =
        Enum.map(
          starts,
          &if(chance(25), do: shaped(@ints, {}), else: &1 + pick([0, 0, 0, 3, -2]))
        )

      if chance(60), do: [t, starts, lengths], else: [t, starts, lengths, strides]
    end

    def args(:slice_along_axis) do
      t = of(nil, 1)
      start = if chance(50), do: int(-1..3), else: shaped(@ints, {})
      [t, start, int(1..2), opts(axis: axis(t), strides: pick([1, 2]))]
    end

    def args(:put_slice) do
      t = any()
      dims = for dim <- Tuple.to_list(t.shape), do: int(1..dim)
      starts = for _ <- dims, do: if(chance(50), do: shaped(@ints, {}), else: int(-1..3))
      [t, starts, shaped(pick([nil, [t.type]]), List.to_tuple(dims))]
    end

    def args(:take) do
      t = of(nil, 1)
      axis = axis(t)
      [t, places(dim(t, axis), Values.shape()), opts(axis: axis)]
    end

    def args(:take_along_axis) do
      t = of(nil, 1)
      axis = if chance(50), do: 0, else: axis(t)
      shape = if axis in all_axes(t), do: put_elem(t.shape, axis, int(1..3)), else: t.shape
      [t, places(dim(t, axis), shape), [axis: axis]]
    end

    def args(:gather) do
      t = of(nil, 1)
      {axes, shape} = indexed(t)
      [t, rows(t, axes, shape), [axes: axes]]
    end

    def args(name) when name in [:indexed_add, :indexed_put] do
      t = of(nil, 1)
      {axes, _shape} = indexed(t)
      count = int(1..4)
      rest = for axis <- all_axes(t), axis not in axes, do: elem(t.shape, axis)
      updates = shaped(pick([nil, [t.type]]), List.to_tuple([count | rest]))
      [t, rows(t, axes, [count]), updates, [axes: axes]]
    end

    def args(name) when name in [:take_diagonal, :make_diagonal] do
      [
        if(name == :make_diagonal, do: shaped(nil, {int(1..4)}), else: of(nil, 2)),
        opts(offset: int(-1..2))
      ]
    end

    def args(:put_diagonal) do
      {n, m} = {int(1..4), int(1..4)}
      t = shaped(nil, {n, m})
      [t, shaped(pick([nil, [t.type]]), {min(n, m)}), opts(offset: pick([0, 0, 1]))]
    end

    def args(:tri), do: [int(1..4), int(1..4), opts(k: int(-2..2))]
    def args(name) when name in [:tril, :triu], do: [of(nil, 2), opts(k: int(-2..2))]
    def args(:eye), do: [pick([int(1..4), {2, 3}, {2, 2, 2}, {3, 1}]), opts(type: Values.type())]
    def args(:iota), do: [Values.shape(), opts(type: Values.type(), axis: pick([0, 0, 1, -1]))]
    def args(:template), do: [Values.shape(), Values.type()]

    def args(:fill),
      do: [
        any(),
        if(chance(50), do: pick([0, 1, 2.5]), else: shaped(nil, {})),
        opts(type: Values.type())
      ]

    def args(:tensor),
      do: [
        pick([
          1,
          2.5,
          [1, 2],
          [[1.0, -2.0]],
          [:nan, 1.0],
          [Complex.new(1, 2)],
          :infinity,
          [300, -1]
        ]),
        opts(type: Values.type())
      ]

    def args(:linspace),
      do: [
        pick([0, -1, 0.5]),
        pick([1, 10, 2.5]),
        opts(n: int(1..6), type: pick(@reals), endpoint: flag())
      ]

    ## Reductions and windows

    def args(name) when name in [:cumulative_max, :cumulative_min], do: scanned(of(@reals, 1))
    def args(name) when name in [:cumulative_sum, :cumulative_product], do: scanned(of(nil, 1))

    def args(:weighted_mean) do
      t = any()
      [t, shaped(@reals, t.shape, [1, 2, 3]), opts(axes: some_axes(t), keep_axes: flag())]
    end

    def args(:covariance), do: [shaped(nil, {int(2..4), int(1..3)}), opts(ddof: int(0..1))]

    def args(:reduce) do
      t = any()
      [t, pick([0, 1, shaped([t.type], {})]), opts(axes: some_axes(t), keep_axes: flag()), fold()]
    end

    def args(:window_reduce) do
      # Nx.BinaryBackend takes seconds for windows of many axes.
      t = of(@reals, 1)
      t = if tuple_size(t.shape) > 4, do: shaped([t.type], {2, 3}), else: t
      {dims, opts} = window(t)
      [t, 0, dims, opts, fold()]
    end

    def args(name)
        when name in [:window_max, :window_min, :window_sum, :window_product, :window_mean] do
      t = of(if(name in [:window_max, :window_min], do: @reals), 1)
      {dims, opts} = window(t)
      [t, dims, opts]
    end

    def args(name) when name in [:window_scatter_max, :window_scatter_min] do
      n = int(1..3)
      t = shaped(@reals, {2 * n, 4})
      [t, shaped(pick([@reals, [t.type]]), {n, 2}), 0, {2, 2}, [strides: [2, 2], padding: :valid]]
    end

    ## Products

    def args(:dot) do
      {i, j, k, b} = {int(1..4), int(1..4), int(1..4), int(1..3)}

      case :rand.uniform(5) do
        1 -> [shaped(nil, {i, j}), shaped(nil, {j, k})]
        2 -> [shaped(nil, {j}), shaped(nil, {j})]
        3 -> [shaped(nil, {b, i, j}), [2], [0], shaped(nil, {b, j, k}), [1], [0]]
        4 -> [shaped(nil, {i, j, k}), [1, 2], shaped(nil, {k, j}), [1, 0]]
        5 -> two(nil)
      end
    end

    def args(:conv) do
      {groups, spatial} = {pick([1, 1, 1, 2]), int(0..2)}
      {c, o} = {groups * int(1..2), groups * int(1..2)}
      t = shaped(nil, List.to_tuple([int(1..2), c | for(_ <- 1..spatial//1, do: int(2..4))]))
      k = shaped(nil, List.to_tuple([o, div(c, groups) | for(_ <- 1..spatial//1, do: int(1..2))]))

      [
        t,
        k,
        [feature_group_size: groups] ++
          opts(
            padding: pick([:same, :valid]),
            strides: int(1..2),
            input_dilation: int(1..2),
            kernel_dilation: int(1..2)
          )
      ]
    end

    def args(name) when name in [:fft, :ifft, :rfft, :irfft] do
      t = of(if(name == :rfft, do: @reals), 1)
      [t, opts(length: int(1..5), axis: axis(t))]
    end

    def args(name) when name in [:fft2, :ifft2] do
      t = of(nil, 2)
      [t, opts(lengths: [int(1..4), int(1..4)])]
    end

    ## Matrices

    def args(:norm) do
      t = of(nil, 1)

      [
        t,
        opts(
          ord: pick([nil, 1, 2, :inf, :neg_inf, :frobenius, :nuclear, -1, 0]),
          keep_axes: flag()
        )
      ]
    end

    def args(:adjoint), do: [of(nil, 1)]
    def args(:matrix_power), do: [matrix(), int(-1..4)]

    def args(name) when name in [:determinant, :invert, :lu, :cholesky, :eigh], do: [matrix()]

    def args(name) when name in [:svd, :pinv, :qr, :matrix_rank] do
      t =
        shaped(
          Enum.reject(Values.types(), &(&1 == {:c, 128})),
          pick([{3, 2}, {2, 3}, {2, 2}, {1, 3}, {2, 3, 2}]),
          :tame
        )

      options = [
        svd: [full_matrices?: flag()],
        qr: [mode: pick([:reduced, :complete])],
        pinv: [eps: 1.0e-7],
        matrix_rank: []
      ]

      [t, opts(options[name])]
    end

    def args(:least_squares), do: [shaped(@reals, {3, 2}, :tame), shaped(@reals, {3}, :tame)]

    def args(name) when name in [:solve, :triangular_solve] do
      n = int(1..3)

      a =
        shaped([{:f, 32}, {:f, 32}, {:f, 64}, {:s, 32}, {:c, 64}, {:bf, 16}, {:u, 8}], {n, n}, [
          1,
          2,
          3,
          5,
          7,
          -4
        ])

      b = shaped(pick([nil, [a.type]]), pick([{n}, {n, 2}]))
      more = opts(lower: flag(), left_side: flag(), transform_a: pick([:none, :transpose]))
      if name == :solve, do: [a, b], else: [a, b, more]
    end

    ## Mlx.Fuzz.Control

    def args(:repeat), do: [any(), shaped(@ints, {}, [0, 1, 2, 3]), [op: keeping()]]
    def args(:steps), do: [any(), [op: keeping(), times: int(0..6)]]

    def args(:pair) do
      t = of(@reals)
      [t, shaped([t.type], t.shape)]
    end

    def args(:choose) do
      t = any()
      [shaped(@reals, {}), t, shaped(nil, t.shape)]
    end

    def args(:slope),
      do: [
        pick([:exp, :sin, :tanh, :sum, :cumulative_sum, :abs, :sigmoid, :window_max])
        |> differentiable(),
        of(@floats -- [{:f, 8}, {:f8_e4m3fn, 8}])
      ]

    def args(:batches), do: [of(nil, 1), int(1..2), opts(leftover: pick([:repeat, :discard]))]
    def args(:bits), do: [any(), pick([:u8, :s32, :f32])]

    def args(:pointer) do
      t = any()
      [t, pick([t.shape, t.shape, {3}])]
    end

    def args(:heatmap), do: [of(@reals, 1), []]

    def args(name) when name in [:axis_index, :axis_size] do
      t = of(nil, 1)
      [t, axis(t)]
    end

    def args(:backend_transfer),
      do: [Values.leaf(Values.type(), Values.shape()), Nx.BinaryBackend]

    defp differentiable(:window_max), do: :sum
    defp differentiable(name), do: name

    ## Parts

    defp two(types) do
      t = of(types)
      pair = [t, beside(t, types)]
      if chance(70), do: pair, else: Enum.reverse(pair)
    end

    defp reduced(t, :logsumexp), do: [t, opts(axes: some_axes(t), keep_axes: flag())]

    defp reduced(t, name) do
      more = if name in [:variance, :standard_deviation], do: [ddof: int(0..1)], else: []
      [t, opts([axes: some_axes(t), keep_axes: flag()] ++ more)]
    end

    defp scanned(t), do: [t, opts(axis: axis(t), reverse: flag())]

    defp window(t) do
      dims = for dim <- Tuple.to_list(t.shape), do: int(1..min(dim, 2))
      rank = length(dims)
      padding = pick([:same, :valid, List.duplicate({1, 0}, rank)])
      strides = for _ <- dims, do: int(1..2)

      {List.to_tuple(dims),
       opts(padding: padding, strides: strides, window_dilations: List.duplicate(int(1..2), rank))}
    end

    defp matrix do
      n = int(1..3)

      types = [
        {:f, 32},
        {:f, 32},
        {:f, 64},
        {:s, 32},
        {:bf, 16},
        {:f, 16},
        {:c, 64},
        {:u, 8},
        {:f, 8}
      ]

      shaped(types, pick([{n, n}, {n, n}, {2, n, n}]), pick([nil, :tame, [2, 3, 5, 7, -1]]))
    end

    defp vectorized, do: Gen.add(Nx, :vectorize, [of(nil, 1), :v]) || any()
    defp fold, do: %Gen.Fun{name: pick(Map.keys(Mlx.Fuzz.Control.functions()))}

    defp keeping,
      do: pick(~w(negate abs sin exp sqrt reverse sort cumulative_sum sigmoid round transpose)a)

    defp places(dim, shape),
      do: shaped(@ints, shape, if(chance(8), do: nil, else: Enum.to_list(0..(dim - 1))))

    defp indexed(t) do
      axes = some_axes(t) |> Enum.sort()
      {axes, for(_ <- 1..int(0..2)//1, do: int(1..3))}
    end

    defp rows(t, axes, shape) do
      least = axes |> Enum.map(&elem(t.shape, &1)) |> Enum.min()
      places(least, List.to_tuple(shape ++ [length(axes)]))
    end

    defp dim(t, axis), do: if(axis in all_axes(t), do: elem(t.shape, axis), else: 2)
    defp all_axes(t), do: Enum.to_list(0..(tuple_size(t.shape) - 1)//1)

    defp some_axes(t) do
      case all_axes(t) do
        [] -> []
        axes -> Enum.take_random(axes, int(1..length(axes)))
      end
    end

    # Negative, and now and then out of range.
    defp axis(t) do
      rank = tuple_size(t.shape)
      if rank == 0 or chance(4), do: int(-2..7), else: int(-rank..(rank - 1))
    end

    defp front, do: pick([[], [], [2], [1, 3]])
    defp halves(size), do: if(rem(size, 2) == 0, do: [2, div(size, 2)], else: [size, 1])
    defp flag, do: pick([true, false])
    defp opts(pairs), do: Enum.filter(pairs, fn _ -> chance(40) end)
  end
end
