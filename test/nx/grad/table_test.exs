defmodule Mlx.Grad.TableTest do
  @moduledoc """
  The gradient of every operation and block, compiled. Oracle: central finite differences of the
  compiled function, in f64; in f32, and so less closely, where complex numbers are in between, for
  MLX has no c128.

  An operation is either here, or has a slope of zero, or is one that Nx refuses.
  """
  use Mlx.NxCase, async: true

  import Mlx.CompilerCase, only: [differences: 3]

  # Steps from the points where they jump, these have a slope of zero.
  @flat [:all, :any, :argmax, :argmin, :argsort, :floor, :round, :ceil, :sign, :is_nan] ++
          [:is_infinity, :equal, :not_equal, :greater, :greater_equal, :less, :less_equal] ++
          [:logical_and, :logical_or, :logical_xor]

  # Of integers, of bits or of nothing: there is nothing to move.
  @discrete [:bitwise_and, :bitwise_or, :bitwise_xor, :bitwise_not, :left_shift, :right_shift] ++
              [:count_leading_zeros, :population_count, :bitcast, :constant, :iota, :eye] ++
              [Nx.Block.AllClose, Nx.Block.LogicalNot]

  # Nx 0.13.1 raises.
  @refused [:quotient, :reduce, :window_reduce, :window_product]

  # Its default function iterates until nothing moves, and Nx says nothing of its gradient.
  @iterative [Nx.Block.LinAlg.Eigh]

  # Of complex numbers to real ones, where Nx's gradient is no slope: see the last test.
  @complex [:imag, Nx.Block.Phase]

  defp f64(values), do: Nx.tensor(values, type: :f64)

  defp wave(shape, phase \\ 0.3),
    do: shape |> Nx.iota(type: :f64) |> Nx.multiply(0.7) |> Nx.add(phase) |> Nx.sin()

  defp unary(op, x), do: {op, [{&apply(Nx, op, [&1]), x}]}

  defp pair(op, x, y) do
    {op,
     [{&apply(Nx, op, [&1, y]), x}, {&apply(Nx, op, [y, &1]), x}, {&apply(Nx, op, [&1, y[0]]), x}]}
  end

  # Numbers between -1 and 1, none of them 0, 1 or equal to another.
  defp inside, do: f64([[-0.8, 0.35, 0.1], [0.62, -0.27, 0.9]])

  defp elementwise do
    above = Nx.add(inside(), 2)
    other = f64([[1.5, 0.4, -1.2], [0.3, 2.1, 0.7]])

    for(
      op <- [:exp, :expm1, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh, :acos, :asin, :atan],
      do: unary(op, inside())
    ) ++
      for(
        op <- [:asinh, :atanh, :erf, :erfc, :erf_inv, :cbrt, :negate, :abs],
        do: unary(op, inside())
      ) ++
      for(op <- [:log, :log1p, :sqrt, :rsqrt, :acosh], do: unary(op, above)) ++
      for(op <- [:add, :subtract, :multiply, :max, :min, :atan2], do: pair(op, inside(), other)) ++
      [
        {:divide, [{&Nx.divide(&1, other), inside()}, {&Nx.divide(other, &1), above}]},
        {:remainder, [{&Nx.remainder(&1, 0.75), above}]},
        {:pow,
         [{&Nx.pow(&1, 3), inside()}, {&Nx.pow(&1, other), above}, {&Nx.pow(2.5, &1), inside()}]},
        {:select, [{&Nx.select(Nx.greater(&1, 0), Nx.exp(&1), Nx.multiply(&1, 3)), inside()}]},
        {:clip, [{&Nx.clip(&1, -0.5, 0.5), inside()}]},
        {:as_type, [{&Nx.as_type(Nx.multiply(&1, 2), :f64), Nx.as_type(inside(), :f32)}]}
      ]
  end

  defp shapes do
    x = wave({2, 3})

    [
      reshape: [{&Nx.reshape(&1, {3, 2}), x}],
      squeeze: [{&Nx.squeeze(Nx.reshape(&1, {2, 1, 3})), x}],
      broadcast: [
        {&Nx.broadcast(&1, {4, 2, 3}), x},
        {&Nx.broadcast(&1, {2, 3, 2}, axes: [0, 1]), x}
      ],
      transpose: [{&Nx.transpose(&1), x}],
      pad: [
        {&Nx.pad(&1, 0.5, [{1, 1, 0}, {0, -1, 2}]), x},
        {&Nx.pad(x, Nx.sum(&1), [{1, 0, 0}, {0, 0, 1}]), x}
      ],
      reverse: [{&Nx.reverse(&1, axes: [1]), x}],
      concatenate: [{&Nx.concatenate([&1, Nx.sin(&1), x], axis: 1), x}],
      stack: [{&Nx.stack([&1, Nx.sin(&1), x], axis: 1), x}],
      slice: [
        {&Nx.slice(&1, [0, 1], [2, 2], strides: [2, 1]), x},
        {&Nx.slice(&1, [Nx.tensor(1), 0], [1, 2]), x}
      ],
      put_slice: [
        {&Nx.put_slice(&1, [0, 1], Nx.multiply(x[[.., 0..1]], 2)), x},
        {&Nx.put_slice(wave({3, 4}), [1, 1], &1), x}
      ],
      gather: [
        {&Nx.gather(&1, Nx.tensor([[0, 1], [1, 2], [0, 1]])), x},
        {&Nx.gather(&1, Nx.tensor([[2], [0]]), axes: [1]), x}
      ],
      indexed_add: [
        {&Nx.indexed_add(&1, Nx.tensor([[0, 1], [0, 1]]), f64([2.0, 3.0])), x},
        {&Nx.indexed_add(x, Nx.tensor([[0, 1], [0, 1]]), Nx.slice(&1, [0, 0], [1, 2])[0]), x}
      ],
      indexed_put: [
        {&Nx.indexed_put(&1, Nx.tensor([[0, 1], [1, 1]]), f64([2.0, 3.0])), x},
        {&Nx.indexed_put(x, Nx.tensor([[0, 1], [1, 1]]), Nx.slice(&1, [0, 0], [1, 2])[0]), x}
      ]
    ]
  end

  defp reductions do
    x = wave({2, 4, 3})
    window = [padding: [{1, 0}, {0, 1}], strides: [1, 2]]
    # Nx takes padding for zeros when it looks for what won.
    inner = [strides: [1, 2]]
    grid = wave({3, 5}, 0.1)

    scatter = fn op ->
      opts = [strides: [2, 2], padding: :valid]
      run = fn x, y -> apply(Nx, op, [x, y, 0.5, {2, 2}, opts]) end
      own = fn x -> run.(x, Nx.multiply(x[[0..1, 0..1]], 2)) end
      {op, [{own, wave({4, 4})}, {&run.(wave({4, 4}), &1), wave({2, 2})}]}
    end

    [
      sum: [{&Nx.sum(&1, axes: [1]), x}, {&Nx.sum(&1, axes: [0, 2], keep_axes: true), x}],
      product: [{&Nx.product(&1, axes: [1]), x}, {&Nx.product/1, wave({4})}],
      reduce_max: [{&Nx.reduce_max(&1, axes: [1]), x}, {&Nx.reduce_max/1, x}],
      reduce_min: [{&Nx.reduce_min(&1, axes: [0, 2], keep_axes: true), x}],
      window_sum: [
        {&Nx.window_sum(&1, {2, 2}, window), grid},
        {&Nx.window_sum(&1, {1, 2}, window_dilations: [1, 2]), grid}
      ],
      window_max: [{&Nx.window_max(&1, {2, 2}, inner), grid}],
      window_min: [{&Nx.window_min(&1, {2, 2}, inner), grid}],
      sort: [{&Nx.sort(&1, axis: 1), x}, {&Nx.sort(&1, axis: 1, direction: :desc), x}]
    ] ++ [scatter.(:window_scatter_max), scatter.(:window_scatter_min)]
  end

  defp products do
    matrix = f64([[2.0, 0.3, 0.1], [0.4, 1.5, 0.2], [0.1, 0.6, 1.8]])
    image = wave({2, 4, 4, 3})
    kernel = wave({4, 2, 2, 2}, 1.0)

    convs = [
      {&Nx.conv(&1, wave({2, 4, 2, 2}), []), image},
      {&Nx.conv(wave({2, 2, 4, 5}), &1, strides: [2, 1], padding: :same), wave({3, 2, 2, 2})},
      {&Nx.conv(&1, wave({3, 2, 2, 2}), strides: [2, 1], padding: [{1, 0}, {0, 2}]),
       wave({1, 2, 4, 5})},
      {&Nx.conv(&1, wave({2, 4, 2, 2}), kernel_dilation: [2, 1], input_dilation: [1, 2]), image},
      {&Nx.conv(&1, kernel, feature_group_size: 2), image},
      {&Nx.conv(image, &1, feature_group_size: 2), kernel},
      {&Nx.conv(&1, wave({4, 4, 2, 2}), batch_group_size: 2), image}
    ]

    solves =
      for opts <- [[lower: true], [lower: false], [lower: true, transform_a: :transpose]],
          triangle = if(opts[:lower], do: &Nx.tril/1, else: &Nx.triu/1),
          fun <- [
            &Nx.LinAlg.triangular_solve(triangle.(&1), wave({3, 2}), opts),
            &Nx.LinAlg.triangular_solve(triangle.(Nx.multiply(matrix, 2)), &1, opts)
          ],
          do: {fun, matrix}

    [
      dot: [
        {&Nx.dot(&1, wave({3, 4})), wave({2, 3})},
        {&Nx.dot(wave({4, 2}), &1), wave({2, 3})},
        {&Nx.dot(&1, [2], [0], wave({2, 3, 2}), [1], [0]), wave({2, 2, 3})},
        {&Nx.dot(&1, Nx.transpose(&1)), wave({2, 3})}
      ],
      conv: convs,
      triangular_solve: solves
    ]
  end

  defp blocks do
    x = wave({2, 4})
    matrix = f64([[2.0, 0.3, 0.1], [0.4, 1.5, 0.2], [0.1, 0.6, 1.8]])
    symmetric = &Nx.add(&1, Nx.transpose(&1))
    tall = wave({3, 2}, 0.8)

    qr = fn x ->
      {q, r} = Nx.LinAlg.qr(x)
      {Nx.pow(q, 2), Nx.pow(r, 2)}
    end

    # All factors must be used, or Nx fails to make a gradient.
    svd = fn x ->
      {u, s, vt} = Nx.LinAlg.svd(x, full_matrices?: false)
      {s, Nx.exp(u), Nx.exp(vt)}
    end

    cumulative =
      for {block, fun} <- [
            {Nx.Block.CumulativeSum, &Nx.cumulative_sum/2},
            {Nx.Block.CumulativeProduct, &Nx.cumulative_product/2},
            {Nx.Block.CumulativeMax, &Nx.cumulative_max/2},
            {Nx.Block.CumulativeMin, &Nx.cumulative_min/2}
          ],
          do: {block, [{&fun.(&1, axis: 1), x}, {&fun.(&1, axis: 0, reverse: true), x}]}

    cumulative ++
      [
        {Nx.Block.Take, [{&Nx.take(&1, Nx.tensor([[2, 0], [2, 1]]), axis: 1), x}]},
        {Nx.Block.TakeAlongAxis,
         [{&Nx.take_along_axis(&1, Nx.tensor([[2, 0], [2, 2]]), axis: 1), x}]},
        {Nx.Block.TopK, [{&(&1 |> Nx.top_k(k: 2) |> elem(0)), x}]},
        {Nx.Block.LinAlg.Cholesky, [{&Nx.LinAlg.cholesky(symmetric.(&1)), matrix}]},
        {Nx.Block.LinAlg.Determinant,
         [
           {&Nx.LinAlg.determinant/1, matrix},
           {&Nx.LinAlg.determinant(Nx.slice(&1, [0, 0], [2, 2])), matrix}
         ]},
        {Nx.Block.LinAlg.Solve,
         [
           {&Nx.LinAlg.solve(&1, wave({3, 2})), matrix},
           {&Nx.LinAlg.solve(Nx.multiply(matrix, 2), &1), wave({3})}
         ]},
        {Nx.Block.LinAlg.QR, [{qr, matrix}, {qr, tall}]},
        {Nx.Block.LinAlg.LU, [{&(&1 |> Nx.LinAlg.lu() |> Tuple.delete_at(0)), matrix}]},
        {Nx.Block.LinAlg.SVD, [{svd, matrix}, {svd, tall}]}
      ]
  end

  # In f32, with complex numbers in between, of which Nx's gradient is complex: its real part is the
  # slope of the real part.
  defp complex do
    x = Nx.as_type(wave({2, 4}), :f32)
    z = &Nx.complex(&1, Nx.multiply(&1, 0.5))
    real = fn fun -> [{&Nx.real(fun.(&1)), x}] end

    [
      real: real.(&Nx.multiply(z.(&1), z.(&1))),
      conjugate: real.(&Nx.multiply(Nx.conjugate(z.(&1)), z.(x))),
      fft: real.(&Nx.fft/1) ++ real.(&Nx.fft(z.(&1))),
      ifft: real.(&Nx.ifft/1) ++ real.(&Nx.ifft(z.(&1)))
    ] ++
      [
        {Nx.Block.FFT2, real.(&Nx.fft2/1)},
        {Nx.Block.IFFT2, real.(&Nx.ifft2/1)},
        {Nx.Block.RFFT, real.(&Nx.rfft/1)},
        {Nx.Block.IRFFT, [{&Nx.irfft/1, x}]}
      ]
  end

  # What a function captures is on Nx.BinaryBackend, as Nx wants it.
  defp table do
    Nx.with_default_backend(Nx.BinaryBackend, fn ->
      elementwise() ++ shapes() ++ reductions() ++ products() ++ blocks() ++ complex()
    end)
  end

  ## Differences

  defp loss(fun) do
    fn x ->
      [fun.(x)]
      |> Nx.Defn.Composite.flatten_list()
      |> Enum.map(&weighted/1)
      |> Enum.reduce(&Nx.add/2)
    end
  end

  # Weights tell elements apart.
  defp weighted(t) do
    weights = t.shape |> Nx.iota(type: :f32) |> Nx.add(1) |> Nx.sin()
    Nx.sum(Nx.multiply(t, weights))
  end

  defp jit(fun), do: Nx.Defn.jit(fun, compiler: Mlx.Compiler)

  defp assert_gradient(name, fun, x) do
    x = mlx(x)
    loss = loss(fun)
    # Nothing is gained by steps so small that f32 rounds the difference away.
    {h, tolerance} = if x.type == {:f, 64}, do: {1.0e-5, 1.0e-6}, else: {1.0e-2, 2.0e-3}
    expected = differences(loss, x, h)
    found = Nx.to_flat_list(jit(&Nx.real(Nx.Defn.grad(&1, loss))).(x))

    for {a, e} <- Enum.zip(found, expected) do
      assert is_number(a) and abs(a - e) <= tolerance * max(1, abs(e)),
             "the gradient of #{inspect(name)} at #{inspect(x)} is #{inspect(found)}, and differences are #{inspect(expected)}"
    end

    assert Enum.any?(expected, &(abs(&1) > 1.0e-3)) or name in @flat
  end

  test "every operation and block is checked, or said to have no gradient" do
    checked = Keyword.keys(table())
    names = for {name, _samples} <- Mlx.Zoo.table(), do: name

    assert Enum.sort(names) ==
             Enum.sort(checked ++ @flat ++ @discrete ++ @refused ++ @iterative ++ @complex)
  end

  test "the gradient of every operation and block" do
    for {name, samples} <- table(), {fun, x} <- samples do
      assert name in Mlx.Zoo.ops(Nx.Defn.debug_expr(fun).(x)),
             "#{inspect(name)} is not computed"

      assert_gradient(name, fun, x)
    end
  end

  test "what jumps has a slope of zero, and lets that of others through" do
    x = wave({2, 3})

    for name <- @flat do
      jumps =
        case name do
          name
          when name in [
                 :all,
                 :any,
                 :argmax,
                 :argmin,
                 :argsort,
                 :floor,
                 :round,
                 :ceil,
                 :sign,
                 :is_nan,
                 :is_infinity
               ] ->
            &apply(Nx, name, [&1])

          name ->
            &apply(Nx, name, [&1, 0.25])
        end

      assert name in Mlx.Zoo.ops(Nx.Defn.debug_expr(jumps).(x))
      assert_gradient(name, &Nx.multiply(jumps.(&1), Nx.exp(&1)), x)
    end
  end

  test "what Nx refuses is refused" do
    x = wave({2, 3})
    fold = fn x, acc -> Nx.add(x, acc) end

    for fun <- [
          &Nx.sum(Nx.quotient(Nx.as_type(&1, :s32), 2)),
          &Nx.reduce(&1, 0, fold),
          &Nx.sum(Nx.window_reduce(&1, 0, {1, 2}, fold)),
          &Nx.sum(Nx.window_product(&1, {1, 2}))
        ],
        do: assert_raise(ArgumentError, ~r/gradient/, fn -> jit(&Nx.Defn.grad(&1, fun)).(x) end)
  end

  test "what is no slope of complex numbers is what Nx has" do
    for fun <- [&Nx.imag(Nx.multiply(&1, &1)), &Nx.phase/1] do
      gradient = fn x -> Nx.Defn.grad(x, &Nx.sum(fun.(Nx.complex(&1, Nx.add(&1, 2))))) end
      x = Nx.tensor([0.3, -0.8, 0.6], backend: Nx.BinaryBackend)
      expected = Nx.Defn.jit_apply(gradient, [x], compiler: Nx.Defn.Evaluator)
      assert_equal(jit(gradient).(mlx(x)), expected, tolerance: 8)
    end
  end
end
