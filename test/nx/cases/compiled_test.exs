defmodule Mlx.Cases.CompiledTest do
  # Public bug reports about compiled functions and gradients, as cases.
  use Mlx.NxCase, async: false

  import Mlx.CompilerCase, only: [jit: 2]

  defmodule Functions do
    import Nx.Defn

    defn count_up(i, j) do
      cond do
        i < 5 ->
          while {i, j}, i < 5 do
            {i + 1, j + 1}
          end

        true ->
          {i, j}
      end
    end

    defn captured_in_loop(x, y) do
      {_, last, _} =
        while {x, _p = Nx.tensor(0.0), c = 0}, c < 1 do
          {x, y, c + 1}
        end

      last
    end

    # A perceptron with two hidden layers' worth of units, for the exclusive or of bytes.
    defn xor_loss({w1, b1, w2, b2}, x, y) do
      hidden = Nx.tanh(Nx.dot(x, w1) + b1)
      p = Nx.clip(Nx.sigmoid(Nx.dot(hidden, w2) + b2), 1.0e-7, 1 - 1.0e-7)
      -Nx.mean(y * Nx.log(p) + (1 - y) * Nx.log(1 - p))
    end

    defn xor_step(params, x, y) do
      {loss, grads} = value_and_grad(params, &xor_loss(&1, x, y))
      {w1, b1, w2, b2} = params
      {g1, h1, g2, h2} = grads
      {{w1 - 0.5 * g1, b1 - 0.5 * h1, w2 - 0.5 * g2, b2 - 0.5 * h2}, loss}
    end
  end

  test "A1-05: a chain of 2,000 operations compiles in seconds" do
    chain = fn x -> Enum.reduce(1..2000, x, fn _, a -> Nx.add(a, 1) end) end
    {time, sum} = :timer.tc(fn -> Nx.to_number(jit(chain, [Nx.tensor(0)])) end)
    assert sum == 2000
    assert time < 5_000_000
  end

  test "A1-08: a function is traced once per type and shape" do
    parent = self()

    fun =
      Nx.Defn.jit(
        fn x ->
          send(parent, :traced)
          Nx.add(x, 1)
        end,
        compiler: Mlx.Compiler
      )

    for _ <- 1..3, do: assert_equal(fun.(Nx.tensor([1])), [2])
    assert_received :traced
    refute_received :traced
    fun.(Nx.tensor([1, 2]))
    fun.(Nx.tensor([1.0]))
    assert_received :traced
    assert_received :traced
    refute_received :traced
  end

  test "A1-14: an empty map of hooks is no option to refuse" do
    fun =
      Nx.Defn.compile(&Nx.add(&1, 1), [Nx.template({2}, :f32)],
        compiler: Mlx.Compiler,
        hooks: %{}
      )

    assert_equal(fun.(Nx.tensor([1.0, 2.0])), [2.0, 3.0])
  end

  test "A1-24: a compiled function is not reused for another shape" do
    fun = Nx.Defn.jit(&Nx.sum(Nx.take(&1, &2)), compiler: Mlx.Compiler)
    base = Nx.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
    assert_equal(fun.(base, Nx.tensor([0])), 10.0)
    assert_equal(fun.(base, Nx.tensor([0, 1, 2])), 60.0)
  end

  # Nx 0.13 asks the first tensor alone where to compute a put_slice.
  @asked if function_exported?(Nx, :donatable, 1), do: [:put_slice], else: []

  test "A1-26: a captured tensor and a traced one, in either place" do
    t = Nx.tensor([1.0, 2.0, 3.0, 4.0, 5.0], backend: Nx.BinaryBackend)
    p = Nx.tensor([10.0, 20.0])

    for {name, fun, right} <- [
          {:concatenate, &Nx.concatenate([t, &1]), [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]},
          {:dot, &Nx.dot(Nx.slice(t, [0], [2]), &1), 50.0},
          {:later, &Nx.put_slice(Nx.add(&1[0], 0) |> Nx.broadcast({5}), [1], t[0..1]),
           [10.0, 1.0, 2.0, 10.0, 10.0]},
          {:put_slice, &Nx.put_slice(t, [1], &1), [1.0, 10.0, 20.0, 4.0, 5.0]}
        ],
        name != :put_slice or name in @asked do
      assert_equal(jit(fun, [p]), right)
    end
  end

  test "A1-27: the gradient through a descending sort" do
    fun = fn t ->
      Nx.Defn.grad(t, fn t ->
        t |> Nx.sort(direction: :desc) |> Nx.slice_along_axis(2, 3, axis: 0) |> Nx.sum()
      end)
    end

    assert_equal(both([Nx.tensor([1.0, 5.0, 3.0, 2.0, 4.0])], fun), [1.0, 0.0, 1.0, 1.0, 0.0])
  end

  test "A1-28: the gradient of a kernel against an image" do
    image =
      Nx.indexed_put(Nx.broadcast(0.0, {1, 1, 3, 3}), Nx.tensor([[0, 0, 1, 1]]), Nx.tensor([1.0]))

    fun = fn image, k -> Nx.Defn.grad(k, &Nx.sum(Nx.conv(image, &1))) end
    gradient = jit(fun, [image, Nx.broadcast(1.0, {1, 1, 3, 3})])
    assert Nx.to_flat_list(gradient) == Nx.to_flat_list(image)
  end

  test "A1-29: a tensor of another scope in a loop is refused, never zero" do
    assert_raise RuntimeError, ~r/different contexts/, fn ->
      jit(&Functions.captured_in_loop/2, [Nx.tensor(1.0), Nx.tensor(42.0)])
    end
  end

  test "A1-44: a loop in a branch" do
    args = [Nx.tensor(0), Nx.tensor(0)]
    {i, j} = Nx.Defn.jit_apply(&Functions.count_up/2, args, compiler: Nx.Defn.Evaluator)
    assert {Nx.to_number(i), Nx.to_number(j)} == {5, 5}
  end

  test "A1-47: arguments of the binary backend" do
    binary = Nx.tensor([2.0], backend: Nx.BinaryBackend)
    assert_equal(jit(&Nx.add/2, [Nx.tensor([1.0]), binary]), [3.0])
  end

  test "A1-50: the exclusive or of bytes is learned, without NaN" do
    x = Nx.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], type: :u8)
    y = Nx.tensor([[0], [1], [1], [0]], type: :u8)
    {w1, key} = Nx.Random.normal(Nx.Random.key(3), shape: {2, 8})
    {w2, _key} = Nx.Random.normal(key, shape: {8, 1})
    params = {w1, Nx.broadcast(0.0, {8}), w2, Nx.broadcast(0.0, {1})}
    step = Nx.Defn.jit(&Functions.xor_step/3, compiler: Mlx.Compiler)

    {_params, losses} =
      Enum.reduce(1..1000, {params, []}, fn _, {params, losses} ->
        {params, loss} = step.(params, x, y)
        {params, [loss | losses]}
      end)

    losses = Enum.map(losses, &Nx.to_number/1)
    assert Enum.all?(losses, &is_number/1)
    assert hd(losses) < 0.1
  end

  test "A1-62: a trace that raises leaves nothing behind" do
    fun =
      Nx.Defn.jit(
        fn x -> if Process.get(:boom), do: raise("boom"), else: Nx.add(x, 1) end,
        compiler: Mlx.Compiler
      )

    Process.put(:boom, true)
    assert_raise RuntimeError, "boom", fn -> fun.(Nx.tensor([1])) end
    Process.put(:boom, false)
    assert_equal(fun.(Nx.tensor([1])), [2])
  end

  test "A1-72: a position that changes each step is one program" do
    parent = self()

    step =
      Nx.Defn.jit(
        fn cache, position ->
          send(parent, :traced)
          Nx.put_slice(cache, [position, 0], Nx.broadcast(1.0, {1, 8}))
        end,
        compiler: Mlx.Compiler
      )

    cache = Nx.broadcast(0.0, {1000, 8})

    cache =
      Enum.reduce(0..999, cache, fn position, cache -> step.(cache, Nx.tensor(position)) end)

    assert_equal(Nx.sum(cache), 8000.0)
    assert_received :traced
    refute_received :traced
  end

  test "A1-74: compiled functions need no compiler on the path" do
    path = System.get_env("PATH")
    on_exit(fn -> System.put_env("PATH", path) end)
    System.put_env("PATH", "")
    assert_equal(jit(&Nx.exp(Nx.add(Nx.multiply(&1, 0), 0)), [Nx.tensor([1.0, 2.0])]), [1.0, 1.0])
  end

  test "A1-78: gradients of hundreds of parameters, half of them stopped" do
    params = for i <- 1..500, do: Nx.tensor([i * 1.0])

    loss = fn params ->
      params
      |> Tuple.to_list()
      |> Enum.with_index()
      |> Enum.map(fn {p, i} -> if rem(i, 2) == 0, do: p, else: Nx.Defn.Kernel.stop_grad(p) end)
      |> Enum.reduce(&Nx.add(&2, Nx.multiply(&1, 2)))
      |> Nx.sum()
    end

    gradients = jit(&Nx.Defn.grad(&1, loss), [List.to_tuple(params)])
    assert tuple_size(gradients) == 500
    assert_equal(elem(gradients, 0), [1.0])
    assert_equal(elem(gradients, 2), [2.0])
    assert_equal(elem(gradients, 499), [0.0])
  end
end
