defmodule Mlx.Grad.CompositionTest do
  @moduledoc """
  Gradients of what models are made of, through control flow, and of gradients. Oracle: central
  differences of the compiled function in f64.
  """
  use Mlx.CompilerCase, async: true

  defmodule Flow do
    @moduledoc false
    import Nx.Defn

    defn counted(x) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {i + 1, Nx.sin(x) * (i + 1) + 0.5 * x}
        end

      Nx.sum(x)
    end

    defn long(x) do
      {_, x} =
        while {i = 0, x}, i < 300 do
          {i + 1, Nx.sin(x) * 0.1 + 0.9 * x}
        end

      Nx.sum(x)
    end

    defn until(x) do
      {_, x} =
        while {i = 0, x}, i < 10 and Nx.sum(x) < 20 do
          {i + 1, x * 1.5 + x ** 2 * 0.1}
        end

      Nx.sum(x)
    end

    defn nested(x) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {_, x} =
            while {j = 0, x}, j < 2 do
              {j + 1, Nx.tanh(x) + x * 0.3}
            end

          {i + 1, x}
        end

      Nx.sum(x)
    end

    defn branches(x) do
      cond do
        Nx.sum(x) > 100 -> Nx.sum(x)
        Nx.sum(x) > 0 -> Nx.sum(Nx.exp(x) * Nx.dot(x, x))
        true -> Nx.sum(x ** 3)
      end
    end

    defn branch_in_loop(x) do
      {_, x} =
        while {i = 0, x}, i < 4 do
          x = if Nx.sum(x) > 1, do: Nx.sin(x), else: x * 2
          {i + 1, x}
        end

      Nx.sum(x)
    end
  end

  defp wave(shape, phase \\ 0.3),
    do: shape |> Nx.iota(type: :f64) |> Nx.multiply(0.7) |> Nx.add(phase) |> Nx.sin()

  defp jit(fun), do: Nx.Defn.jit(fun, compiler: Mlx.Compiler)

  defp assert_gradient(fun, x, tolerance \\ 1.0e-6, h \\ 1.0e-5) do
    expected = differences(fun, x, h)
    found = Nx.to_flat_list(jit(&Nx.Defn.grad(&1, fun)).(x))
    assert Enum.any?(expected, &(abs(&1) > 1.0e-3))

    for {a, e} <- Enum.zip(found, expected) do
      assert abs(a - e) <= tolerance * max(1, abs(e)),
             "#{inspect(found)} instead of #{inspect(expected)}"
    end
  end

  defp normalized(x) do
    mean = Nx.mean(x, axes: [-1], keep_axes: true)
    centred = Nx.subtract(x, mean)
    variance = Nx.mean(Nx.multiply(centred, centred), axes: [-1], keep_axes: true)
    Nx.multiply(centred, Nx.rsqrt(Nx.add(variance, 1.0e-5)))
  end

  defp softmax(x) do
    shifted = Nx.subtract(x, Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e = Nx.exp(shifted)
    Nx.divide(e, Nx.sum(e, axes: [-1], keep_axes: true))
  end

  defp weighted(t), do: Nx.sum(Nx.multiply(t, wave(t.shape, 1.1)))

  test "of the cross entropy of a softmax" do
    targets = fn -> Nx.tensor([[0, 1, 0], [1, 0, 0]]) end

    loss = fn x ->
      Nx.negate(Nx.mean(Nx.sum(Nx.multiply(Nx.log(softmax(x)), targets.()), axes: [1])))
    end

    assert_gradient(loss, wave({2, 3}))
  end

  test "of layer normalization and of attention" do
    assert_gradient(&weighted(normalized(&1)), wave({3, 4}))

    attention = fn x ->
      {q, k, v} = {Nx.sin(x), Nx.multiply(x, 2), Nx.exp(x)}
      scores = Nx.divide(Nx.dot(q, [2], [0], k, [2], [0]), 2)
      weighted(Nx.dot(softmax(scores), [2], [0], v, [1], [0]))
    end

    assert_gradient(attention, wave({2, 3, 2}))
  end

  test "of a convolution, a nonlinearity and a pooling" do
    net = fn kernel ->
      wave({1, 2, 6, 6}, 0.9)
      |> Nx.conv(kernel, strides: 2, padding: :same)
      |> Nx.tanh()
      |> Nx.window_max({1, 1, 2, 2})
      |> weighted()
    end

    assert_gradient(net, wave({2, 2, 3, 3}))
    mean = &weighted(Nx.window_mean(&1, {2, 2}, strides: [1, 2]))
    assert_gradient(mean, wave({4, 4}))
  end

  test "of indices, orders and sums along axes" do
    assert_gradient(&weighted(Nx.cumulative_sum(Nx.sort(&1, axis: 1), axis: 0)), wave({3, 4}))
    order = &weighted(Nx.take_along_axis(&1, Nx.argsort(&1, axis: 1), axis: 1))
    assert_gradient(order, wave({3, 4}))

    scatter = fn x ->
      updates = Nx.multiply(Nx.gather(x, Nx.tensor([[0, 1], [2, 2]])), 3)
      weighted(Nx.exp(Nx.indexed_add(x, Nx.tensor([[1, 1], [1, 1]]), updates)))
    end

    assert_gradient(scatter, wave({3, 4}))
  end

  test "of matrices" do
    matrix = Nx.tensor([[2.0, 0.3, 0.1], [0.4, 1.5, 0.2], [0.1, 0.6, 1.8]], type: :f64)
    assert_gradient(&weighted(Nx.LinAlg.invert(&1)), matrix)
    assert_gradient(&Nx.log(Nx.abs(Nx.LinAlg.determinant(&1))), matrix)
    assert_gradient(&Nx.LinAlg.norm/1, matrix)
    assert_gradient(&weighted(Nx.LinAlg.matrix_power(&1, 3)), matrix)

    gaussian = fn x ->
      covariance = Nx.add(Nx.dot(x, Nx.transpose(x)), Nx.eye(3))
      l = Nx.LinAlg.cholesky(covariance)
      z = Nx.LinAlg.triangular_solve(l, Nx.iota({3}, type: :f64))
      Nx.add(Nx.sum(Nx.log(Nx.take_diagonal(l))), Nx.dot(z, z))
    end

    assert_gradient(gaussian, matrix)

    # The signs of its factors have to be those that the gradient takes them to have.
    assert_gradient(
      fn x ->
        {q, r} = Nx.LinAlg.qr(x)
        Nx.add(weighted(Nx.pow(q, 2)), weighted(Nx.exp(r)))
      end,
      matrix
    )
  end

  for name <- [:counted, :long, :until, :nested, :branches, :branch_in_loop] do
    test "through #{name}" do
      fun = Function.capture(Flow, unquote(name), 1)

      # Nx's gradient of a loop is f32.
      for x <- [[0.3, 0.9, -0.4], [-0.6, 0.2, -0.9]],
          do: assert_gradient(fun, Nx.tensor(x, type: :f64), 1.0e-5)
    end
  end

  test "of gradients" do
    x = wave({4})

    for fun <- [
          &weighted(Nx.multiply(Nx.sin(&1), Nx.exp(&1))),
          &Nx.sum(Nx.pow(Nx.dot(&1, &1), 2)),
          &weighted(softmax(&1)),
          &weighted(Nx.cumulative_product(&1)),
          &Nx.log(Nx.sum(Nx.exp(&1)))
        ] do
      slope = fn x -> weighted(Nx.Defn.grad(x, fun)) end
      assert_gradient(slope, x, 1.0e-5)
    end

    slope = fn x -> weighted(Nx.Defn.grad(x, &Flow.counted/1)) end
    assert_gradient(slope, x, 2.0e-3, 2.0e-3)
  end

  test "by several arguments and by a function's second one" do
    fun = fn x, y -> Nx.sum(Nx.multiply(Nx.sin(x), Nx.pow(y, 2))) end
    {x, y} = {wave({3}), wave({3}, 1.0)}
    {by_x, by_y} = jit(fn x, y -> Nx.Defn.grad({x, y}, fn {x, y} -> fun.(x, y) end) end).(x, y)
    cosine = Nx.multiply(Nx.cos(x), Nx.pow(y, 2))
    assert Nx.to_number(Nx.all_close(by_x, cosine, rtol: 1.0e-12)) == 1

    assert Nx.to_number(
             Nx.all_close(by_y, Nx.multiply(Nx.sin(x), Nx.multiply(y, 2)), rtol: 1.0e-12)
           ) == 1
  end
end
