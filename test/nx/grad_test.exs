defmodule Mlx.GradTest do
  @moduledoc """
  Oracle: central finite differences of the compiled function in f64.
  """
  use ExUnit.Case, async: true

  defmodule Net do
    import Nx.Defn

    defn forward({w1, b1, w2, b2}, x) do
      x
      |> Nx.dot(w1)
      |> Nx.add(b1)
      |> Nx.tanh()
      |> Nx.dot(w2)
      |> Nx.add(b2)
    end

    defn loss(params, x, y) do
      logits = forward(params, x)
      shifted = logits - Nx.reduce_max(logits, axes: [1], keep_axes: true)
      log_sum = Nx.log(Nx.sum(Nx.exp(shifted), axes: [1], keep_axes: true))
      -Nx.mean(Nx.sum((shifted - log_sum) * y, axes: [1]))
    end

    defn step(params, x, y) do
      {loss, grads} = value_and_grad(params, &loss(&1, x, y))
      {loss, grads}
    end
  end

  setup do
    Nx.default_backend(Mlx.Backend)
    Nx.Defn.default_options(compiler: Mlx.Compiler)
    :ok
  end

  defp wave(shape, phase \\ 0.3) do
    shape |> Nx.iota(type: :f64) |> Nx.multiply(0.7) |> Nx.add(phase) |> Nx.sin()
  end

  # d f / d x by moving one element of x at a time.
  defp differences(fun, x, h \\ 1.0e-5) do
    size = Nx.size(x)
    compiled = Nx.Defn.jit(fun)

    slopes =
      for i <- 0..(size - 1) do
        delta = {size} |> Nx.iota() |> Nx.equal(i) |> Nx.multiply(Nx.tensor(h, type: :f64))
        delta = Nx.reshape(delta, Nx.shape(x))
        up = Nx.to_number(compiled.(Nx.add(x, delta)))
        down = Nx.to_number(compiled.(Nx.subtract(x, delta)))
        (up - down) / (2 * h)
      end

    slopes |> Nx.tensor(type: :f64) |> Nx.reshape(Nx.shape(x))
  end

  defp assert_close(left, right, tolerance \\ 1.0e-6) do
    assert Nx.shape(left) == Nx.shape(right)
    error = Nx.subtract(left, right) |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()
    assert error < tolerance, "off by #{error}:\n#{inspect(left)}\n#{inspect(right)}"
  end

  defp assert_gradient(fun, x) do
    assert_close(Nx.Defn.grad(x, fun), differences(fun, x))
    explicit = Nx.Defn.jit(fn x -> Nx.Defn.grad(x, fun) end, compiler: Mlx.Compiler)
    assert_close(explicit.(x), differences(fun, x))
  end

  @smooth [:exp, :sin, :cos, :tanh, :sigmoid, :atan, :sinh, :expm1, :erf, :cbrt, :asinh]
  for op <- @smooth do
    test "of #{op}" do
      assert_gradient(&Nx.sum(apply(Nx, unquote(op), [&1])), wave({2, 3}, 0.5))
    end
  end

  @positive [:log, :log1p, :sqrt, :rsqrt]
  for op <- @positive do
    test "of #{op}" do
      assert_gradient(&Nx.sum(apply(Nx, unquote(op), [&1])), Nx.add(wave({5}), 1.5))
    end
  end

  test "of binary operations, through both operands and broadcasting" do
    y = fn -> Nx.tensor([1.5, 2.5, 0.5], type: :f64) end

    for op <- [:add, :subtract, :multiply, :divide, :pow, :atan2, :max] do
      assert_gradient(fn x -> Nx.sum(apply(Nx, op, [Nx.add(x, 2), y.()])) end, wave({2, 3}))
      assert_gradient(fn x -> Nx.sum(apply(Nx, op, [y.(), Nx.add(x, 2)])) end, wave({2, 3}))
    end
  end

  test "of products, reductions and shapes" do
    for fun <- [
          &Nx.sum(Nx.dot(&1, Nx.transpose(&1))),
          &Nx.sum(Nx.multiply(Nx.mean(&1, axes: [1], keep_axes: true), &1)),
          &Nx.product(&1),
          &Nx.variance/1,
          &Nx.sum(Nx.multiply(Nx.reduce_max(&1, axes: [0]), 3)),
          &Nx.sum(Nx.pow(Nx.reshape(&1, {6}), 3)),
          &Nx.sum(Nx.multiply(Nx.pad(&1, 0.5, [{1, 1, 0}, {0, 1, 1}]), 2)),
          &Nx.sum(Nx.multiply(Nx.concatenate([&1, Nx.sin(&1)], axis: 1), 2)),
          &Nx.sum(Nx.pow(Nx.slice(&1, [0, 1], [2, 2]), 2)),
          &Nx.sum(Nx.pow(Nx.take(&1, Nx.tensor([1, 0, 1])), 2)),
          &Nx.sum(Nx.select(Nx.greater(&1, 0), Nx.exp(&1), &1)),
          &Nx.sum(Nx.multiply(Nx.sort(&1, axis: 1), Nx.iota({2, 3}))),
          &Nx.sum(Nx.multiply(Nx.cumulative_sum(&1, axis: 1), Nx.iota({2, 3})))
        ] do
      assert_gradient(fun, wave({2, 3}))
    end
  end

  test "of a network, for every parameter, by value_and_grad" do
    params = {wave({4, 3}), wave({3}), wave({3, 2}), wave({2})}
    x = wave({5, 4}, 1.0)
    y = Nx.tensor([[1, 0], [0, 1], [1, 0], [1, 0], [0, 1]])
    {loss, grads} = Net.step(params, x, y)
    assert_close(loss, Net.loss(params, x, y))

    for i <- 0..3 do
      fun = fn p, params, x, y -> Net.loss(put_elem(params, i, p), x, y) end
      param = elem(params, i)
      size = Nx.size(param)

      slopes =
        for k <- 0..(size - 1) do
          delta = Nx.reshape(Nx.multiply(Nx.equal(Nx.iota({size}), k), 1.0e-5), Nx.shape(param))
          move = fn op -> Nx.to_number(Nx.Defn.jit(fun).(op.(param, delta), params, x, y)) end
          (move.(&Nx.add/2) - move.(&Nx.subtract/2)) / 2.0e-5
        end

      assert_close(
        elem(grads, i),
        Nx.reshape(Nx.tensor(slopes, type: :f64), Nx.shape(param)),
        1.0e-5
      )
    end
  end

  test "value_and_grad outside of defn, with a map of parameters" do
    params = %{a: Nx.tensor(2.0), b: Nx.tensor(3.0)}

    {value, grads} =
      Nx.Defn.value_and_grad(params, fn p -> Nx.multiply(p.a, Nx.multiply(p.b, p.b)) end)

    assert Nx.to_number(value) == 18.0
    assert %{a: a, b: b} = grads
    assert {Nx.to_number(a), Nx.to_number(b)} == {9.0, 12.0}
    assert %Mlx.Backend{} = a.data
  end

  test "of stopped and custom gradients" do
    stopped = fn x -> Nx.sum(Nx.multiply(x, Nx.Defn.Kernel.stop_grad(x))) end
    assert Nx.to_flat_list(Nx.Defn.grad(Nx.tensor([1.0, 2.0]), stopped)) == [1.0, 2.0]

    custom = fn x ->
      Nx.Defn.Kernel.custom_grad(Nx.cos(x), [x], fn g -> [Nx.multiply(g, 5)] end)
    end

    assert Nx.to_number(Nx.Defn.grad(Nx.tensor(1.0), custom)) == 5.0
  end

  test "of a gradient" do
    second = fn x -> Nx.Defn.grad(x, fn x -> Nx.Defn.grad(x, &Nx.pow(&1, 3)) end) end
    assert_close(second.(Nx.tensor(2.0, type: :f64)), Nx.tensor(12.0, type: :f64))
  end

  test "of vectorized inputs" do
    x = Nx.vectorize(Nx.tensor([1.0, 2.0, 3.0]), :x)
    grad = Nx.Defn.grad(x, &Nx.pow(&1, 2))
    assert grad.vectorized_axes == [x: 3]
    assert Nx.to_flat_list(Nx.devectorize(grad)) == [2.0, 4.0, 6.0]
  end
end
