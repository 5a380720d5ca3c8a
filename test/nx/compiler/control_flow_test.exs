defmodule Mlx.Compiler.ControlFlowTest do
  @moduledoc """
  Loops written out and branches selected. Oracle: `Nx.Defn.Evaluator` on `Mlx.Backend`, which
  runs the loops and takes the branches, bit for bit.
  """
  use Mlx.CompilerCase, async: true

  defmodule Flow do
    import Nx.Defn

    defn count_up(x) do
      {_, x} =
        while {i = 0, x}, i < 4 do
          {i + 1, x * 1.5 + i}
        end

      x
    end

    defn count_down(x) do
      {i, x} =
        while {i = Nx.u8(5), x}, i != 250 do
          {i - 5, x + i}
        end

      {i, x}
    end

    defn never(x) do
      while x, i <- 5..1//1 do
        x + i
      end
    end

    defn range(x) do
      while x, i <- 6..2//-2, unroll: 2 do
        x * i
      end
    end

    defn rows(x, t) do
      while x, row <- t do
        Nx.sin(x) + row
      end
    end

    defn nested(x) do
      {_, x} =
        while {i = 0, x}, i < 5 do
          {_, _, x} =
            while {j = 0, i, x}, j <= i do
              {j + 1, i, x + j * i}
            end

          {i + 1, x}
        end

      x
    end

    defn swap(a, b) do
      {_, a, b} =
        while {i = 0, a, b}, i < 3 do
          {i + 1, b, a}
        end

      {a, b}
    end

    defn indexed(t) do
      {_, total, _} =
        while {i = 0, total = 0.0, t}, i < 3 do
          {i + 1, total + t[i] * Nx.sum(Nx.slice(t, [i], [2])), t}
        end

      total
    end

    defn stepwise(x) do
      {_, x} =
        while {i = 0, x}, i < 4 do
          x =
            cond do
              i == 0 -> x + 10
              i == 2 -> x * 2
              true -> x - 1
            end

          {i + 1, x}
        end

      x
    end

    defn by_constant_only(_t) do
      while i = 0, i < 7 do
        i + 2
      end
    end

    defn until_large(x) do
      while x, Nx.all(x < 100) do
        x * 2
      end
    end

    defn too_long(x) do
      {_, x} =
        while {i = 0, x}, i < 1000 do
          {i + 1, x + 1}
        end

      x
    end

    defn counted_apart(x) do
      while {i = 0, x, j = 10}, i < 400 do
        {i + 1, x * 0.99 + 1, j - 2}
      end
    end

    defn counted_within(x) do
      while {i = 0, x}, i < 300 do
        {i + 1, x + i}
      end
    end

    defn said(x) do
      {_, x} =
        while {i = 0, x}, i < 300 do
          {i + 1, hook(x + 1, :tick)}
        end

      x
    end

    defn forever(x) do
      {_, x} =
        while {i = 0, x}, i < 10 do
          {i, x + 1}
        end

      x
    end

    defn abs_if(x) do
      if Nx.sum(x) > 0, do: x, else: -x
    end

    defn pick(n, x, y) do
      cond do
        n == 0 -> {x, y}
        n == 1 -> {y, x + 1}
        n == 2 -> {x * 0 / 0, y}
        true -> {x, x}
      end
    end

    defn nested_if(a, b) do
      if a > 0 do
        if b > 0, do: a + b, else: {a, 0} |> elem(0)
      else
        if b > 0, do: b - a, else: 7
      end
    end

    defn wider(p, x) do
      if p, do: 1, else: x
    end

    defn loop_in_branch(p, x) do
      if p do
        {_, x} =
          while {i = 0, x}, i < 3 do
            {i + 1, x * x}
          end

        x
      else
        x
      end
    end

    defn product_if(p, x) do
      if p, do: Nx.dot(x, x), else: x
    end

    defn endless_if(p, x) do
      if p do
        while x, x > 0 do
          x + 0
        end
      else
        x
      end
    end

    defn shared(p, x) do
      y = Nx.exp(x)
      if(p, do: y + 1, else: y * 2) + y
    end

    defn solve_if(p, a, b) do
      cond do
        p == 1 -> Nx.LinAlg.triangular_solve(a, b)
        p == 2 -> if a[0][0] == 0, do: -b, else: Nx.LinAlg.triangular_solve(a, b) + 1
        true -> b
      end
    end

    defn solve_shared(p, a, b) do
      x = Nx.LinAlg.triangular_solve(a, b)

      cond do
        p == 1 -> x * 2
        p == 2 -> x + b
        true -> b
      end
    end

    defn solve_around(p, a, b) do
      x = Nx.LinAlg.triangular_solve(a, b)
      if(p == 1, do: if(b[0] > 0, do: x * 2, else: x), else: b - x) + Nx.exp(x)
    end

    defn vectorized_if(x) do
      if x > 1, do: x * 2, else: x - 1
    end
  end

  defp bits(container) do
    Nx.Defn.Composite.traverse(container, fn t ->
      {t.type, t.shape, t.names, t.vectorized_axes, Nx.to_binary(t)}
    end)
  end

  defp assert_same(fun, args) do
    result = jit(fun, args)
    assert bits(result) == bits(Nx.Defn.jit_apply(fun, args, compiler: Nx.Defn.Evaluator))
    result
  end

  describe "while" do
    test "counts up and down, and wraps as its type does" do
      assert_same(&Flow.count_up/1, [Nx.tensor([1.0, 2.0])])
      assert_same(&Flow.count_down/1, [Nx.tensor(1)])
    end

    test "over ranges, also empty and partly unrolled ones" do
      t = Nx.tensor([1.0, -2.0])
      assert bits(assert_same(&Flow.never/1, [t])) == bits(t)
      assert_same(&Flow.range/1, [t])
    end

    test "over the rows of a tensor" do
      assert_same(&Flow.rows/2, [Nx.tensor([0.5, 0.25]), Nx.iota({4, 2}, type: :f32)])
    end

    test "nested, with a trip count that depends on the outer loop" do
      assert_same(&Flow.nested/1, [Nx.tensor([1, 2])])
    end

    test "exchanges its variables" do
      assert_same(&Flow.swap/2, [Nx.tensor([1.0, 2.0]), Nx.tensor([3.0, 4.0])])
    end

    test "indexes by its counter, and branches on it" do
      assert_same(&Flow.indexed/1, [Nx.tensor([0.5, 1.5, 2.5, 3.5])])
      assert_same(&Flow.stepwise/1, [Nx.tensor(3)])
    end

    test "that computes nothing but a number" do
      assert Nx.to_number(assert_same(&Flow.by_constant_only/1, [Nx.tensor(1)])) == 8
    end

    test "in a gradient" do
      assert_same(fn x -> Nx.Defn.grad(x, &Nx.sum(Flow.count_up(&1))) end, [Nx.tensor([1.0, 2.0])])
    end

    test "that depends on data, or is long" do
      assert_same(&Flow.until_large/1, [Nx.tensor([1.0, 2.0])])
      assert_same(&Flow.too_long/1, [Nx.tensor([1.0, 2.0])])
    end

    test "with counters that nothing else needs, and with those that something does" do
      assert_same(&Flow.counted_apart/1, [Nx.tensor([1.0, 2.0])])
      assert_same(&Flow.counted_within/1, [Nx.tensor([1, 2])])
    end

    test "with a hook in each of many iterations" do
      parent = self()
      opts = [compiler: Mlx.Compiler, hooks: %{tick: &send(parent, {:tick, Nx.to_number(&1)})}]
      assert Nx.to_number(Nx.Defn.jit_apply(&Flow.said/1, [0], opts)) == 300
      for i <- 1..300, do: assert_received({:tick, ^i})
      refute_received {:tick, _}
    end

    test "that never ends is given up with its results" do
      parent = self()

      pid =
        spawn(fn ->
          result = jit(&Flow.forever/1, [Nx.tensor([1.0, 2.0])])
          send(parent, :posted)
          Process.sleep(:infinity)
          result
        end)

      assert_receive :posted, 5_000
      Process.exit(pid, :kill)
      assert Nx.to_number(Nx.add(1, 2)) == 3
    end
  end

  describe "cond" do
    test "takes either branch" do
      for x <- [[1.0, 2.0], [-1.0, 0.5]], do: assert_same(&Flow.abs_if/1, [Nx.tensor(x)])
    end

    test "takes the first clause that holds, and NaN elsewhere does not matter" do
      for n <- 0..3 do
        assert_same(&Flow.pick/3, [n, Nx.tensor([1.0, 2.0]), Nx.tensor([3.0, 4.0])])
      end
    end

    test "nested" do
      for a <- [-2, 3], b <- [-5, 4], do: assert_same(&Flow.nested_if/2, [a, b])
    end

    test "casts and broadcasts its branches, whatever the predicate's type" do
      x = Nx.tensor([1.5, 2.5])

      for p <- [Nx.tensor(0), Nx.tensor(3), Nx.tensor(0.5), Nx.tensor(-0.0), Nx.tensor(:nan)],
          do: assert_same(&Flow.wider/2, [p, x])
    end

    test "takes a branch that is not cheap by a predicate of any type" do
      x = Nx.tensor([[1.0, 2.0], [3.0, 4.0]])

      for p <- [
            0,
            3,
            -1,
            0.5,
            0.0,
            -0.0,
            :nan,
            Nx.u8(0),
            Nx.u64(2 ** 40),
            Nx.tensor(0, type: :f8)
          ],
          do: assert_same(&Flow.product_if/2, [Nx.tensor(p), x])
    end

    test "does not enter a loop in a branch that is not taken" do
      assert Nx.to_number(jit(&Flow.endless_if/2, [0, 7])) == 7
    end

    test "shares what both sides and the rest use" do
      for p <- 0..1, do: assert_same(&Flow.shared/2, [p, Nx.tensor([0.1, 0.2])])
    end

    test "holds loops" do
      for p <- 0..1, do: assert_same(&Flow.loop_in_branch/2, [p, Nx.tensor([0.5, 2.0])])
    end

    test "on a vectorized predicate" do
      assert_same(&Flow.vectorized_if/1, [Nx.vectorize(Nx.tensor([0, 1, 2, 3]), :x)])
    end

    test "in a gradient" do
      for x <- [1.5, -1.5] do
        assert_same(fn x -> Nx.Defn.grad(x, &Nx.sum(Flow.abs_if(Nx.sin(&1)))) end, [
          Nx.tensor([x])
        ])
      end
    end

    test "keeps what may fail from values that its branch is not meant for" do
      regular = Nx.tensor([[2.0, 0.0], [1.0, 1.0]])
      singular = Nx.tensor([[0.0, 0.0], [1.0, 1.0]])
      b = Nx.tensor([1.0, 2.0])

      for {p, a} <- [{0, singular}, {0, regular}, {1, regular}, {2, regular}, {2, singular}] do
        assert_same(&Flow.solve_if/3, [p, a, b])
      end
    end

    test "shares what may fail between branches, and with the rest, without mixing them up" do
      regular = Nx.tensor([[2.0, 0.0], [1.0, 1.0]])
      b = Nx.tensor([1.0, 2.0])
      for p <- 0..2, do: assert_same(&Flow.solve_shared/3, [p, regular, b])
      for p <- 0..2, do: assert_same(&Flow.solve_around/3, [p, regular, b])
    end

    test "inverts matrices, singular ones to NaN" do
      for m <- [[[2.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]] do
        assert_same(&Nx.LinAlg.invert/1, [Nx.tensor(m)])
        assert_same(&Nx.LinAlg.pinv/1, [Nx.tensor(m)])
      end
    end
  end

  describe "Nx.Random" do
    test "draws what the evaluator draws" do
      key = Nx.Random.key(42)

      assert_same(
        fn key ->
          {a, key} = Nx.Random.uniform(key, shape: {3, 2})
          {b, key} = Nx.Random.normal(key, 0, 1, shape: {5})
          {c, key} = Nx.Random.randint(key, 0, 100, shape: {4})
          {d, key} = Nx.Random.shuffle(key, Nx.iota({6}))
          {a, b, c, d, Nx.Random.split(key)}
        end,
        [key]
      )
    end

    test "makes the published key" do
      assert Nx.to_flat_list(jit(fn -> Nx.Random.key(42) end, [])) == [0, 42]
    end

    test "over a vector of keys" do
      keys = Nx.vectorize(Nx.Random.split(Nx.Random.key(1), parts: 3), :k)
      assert_same(fn k -> Nx.Random.uniform_split(k, 0.0, 1.0, shape: {2}) end, [keys])
    end
  end
end
