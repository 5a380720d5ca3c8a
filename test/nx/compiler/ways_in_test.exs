defmodule Mlx.Compiler.WaysInTest do
  @moduledoc """
  What `Nx.Defn` offers around a compiler. Oracle: the documentation of Nx, `Nx.Defn.Evaluator` on
  Nx.BinaryBackend, and values computed by hand.
  """
  # The default options are global.
  use Mlx.CompilerCase, async: false

  alias Mlx.Containers.{Lazy, Pair}
  alias Nx.Defn.Graph

  defmodule Functions do
    import Nx.Defn

    defn square_sum(t), do: Nx.sum(t * t)
    defn slope(t), do: grad(t, &square_sum/1)
    defn both(t), do: value_and_grad(t, &square_sum/1)

    defn stages(a, b) do
      c = Nx.exp(a)
      d = if Nx.sum(c) > 1, do: c * b, else: c - b

      {_, e, _} =
        while {i = 0, d, b}, i < 3 do
          {i + 1, Nx.sin(d) + b, b}
        end

      %{product: Nx.dot(e, c), rest: {e, d}}
    end
  end

  defp list(t), do: Nx.to_flat_list(t)

  defp compilations(fun) do
    id = make_ref()
    test = self()
    :telemetry.attach(id, [:mlx, :compile, :stop], &__MODULE__.compiled/4, {test, id})
    result = fun.()
    :telemetry.detach(id)
    {result, drain(id, 0)}
  end

  def compiled(_event, _measurements, _metadata, {test, id}),
    do: if(self() == test, do: send(test, id))

  defp drain(id, count) do
    receive do
      ^id -> drain(id, count + 1)
    after
      0 -> count
    end
  end

  describe "Nx.Defn.Graph" do
    test "stages give what the whole gives, wherever they are cut" do
      args = [Nx.tensor([0.5, -1.0]), Nx.tensor([2.0, 3.0])]
      expr = apply(Nx.Defn.debug_expr(&Functions.stages/2), args)
      %{product: product, rest: {e, d}} = jit(&Functions.stages/2, args)

      for op <- [:exp, :cond, :while, :dot], mode <- [:before, :after, :both] do
        stages = Graph.split(expr, &if(&1.data.op == op, do: mode, else: :none))
        assert length(stages) > 1 or op in [:exp, :dot]
        assert %{product: p, rest: {f, g}} = Graph.run(stages, args, compiler: Mlx.Compiler)
        assert Enum.map([p, f, g], &list/1) == Enum.map([product, e, d], &list/1)
        assert %Mlx.Backend{} = p.data
      end
    end

    test "stages are compiled once" do
      args = [Nx.tensor([1.0]), Nx.tensor([2.0])]
      expr = apply(Nx.Defn.debug_expr(&Functions.stages/2), args)
      stages = Graph.split(expr, &if(&1.data.op == :while, do: :both, else: :none))
      run = fn -> Graph.run(stages, args, compiler: Mlx.Compiler).product |> list() end

      assert {first, count} = compilations(run)
      assert count == length(stages)
      assert {^first, 0} = compilations(run)
    end
  end

  # A term of 60 levels that share what is below them is worth more terms than there is memory.
  describe "an expression that shares its nodes" do
    defp doubled(t, 0), do: t

    defp doubled(t, depth) do
      half = Nx.multiply(t, 0.5)
      doubled(Nx.add(half, half), depth - 1)
    end

    @tag timeout: 20_000
    test "may be captured by a function" do
      expr = Nx.Defn.debug_expr(&doubled(&1, 60)).(Nx.tensor([3.0]))
      other = Nx.Defn.debug_expr(&doubled(&1, 59)).(Nx.tensor([3.0]))
      t = Nx.tensor([3.0])

      captured = fn expr -> fn -> list(jit(fn _ -> expr end, [t])) end end

      assert {[3.0], 1} = compilations(captured.(expr))
      assert {[3.0], 0} = compilations(captured.(expr))
      assert {[3.0], 1} = compilations(captured.(other))

      nested = fn inner -> fn _ -> inner.(%{expr: [expr], more: {1, expr}}) end end
      twice = nested.(fn %{expr: [a], more: {_, b}} -> Nx.add(a, b) end)
      assert {[6.0], 1} = compilations(fn -> list(jit(twice, [t])) end)
      assert {[6.0], 0} = compilations(fn -> list(jit(twice, [t])) end)
    end

    @tag timeout: 20_000
    test "may be of a type that is evaluated" do
      policy = Application.fetch_env!(:mlx, :fallback)
      Application.put_env(:mlx, :fallback, :silent)
      on_exit(fn -> Application.put_env(:mlx, :fallback, policy) end)

      t = Nx.tensor([1.0], type: :c128, backend: Nx.BinaryBackend)
      fun = fn t -> doubled(t, 60) end
      for _ <- 1..2, do: assert([%Complex{re: 1.0}] = list(jit(fun, [t])))
    end
  end

  describe "expressions" do
    test "are shown, whatever the default compiler is" do
      Nx.Defn.default_options(compiler: Mlx.Compiler)
      t = Nx.tensor([1.0, 2.0])
      assert %Nx.Tensor{data: %Nx.Defn.Expr{op: :exp}} = Nx.Defn.debug_expr(&Nx.exp/1).(t)
      expr = Nx.Defn.debug_expr_apply(&Functions.square_sum/1, [t])
      assert %Nx.Tensor{data: %Nx.Defn.Expr{op: :sum}} = expr
      assert Nx.to_number(jit(fn _ -> expr end, [t])) == 5.0
    after
      Process.delete({Nx.Defn, :default_compiler})
    end
  end

  describe ":on_conflict" do
    defp inside(opts) do
      inner = Nx.Defn.jit(&Nx.multiply(&1, 2), [compiler: Mlx.Compiler] ++ opts)
      fn t -> {Nx.add(inner.(t), 1), inner.(t).data.__struct__ == Nx.Defn.Expr && 1} end
    end

    test "raises unless told otherwise" do
      for opts <- [[], [on_conflict: :raise]] do
        assert_raise RuntimeError, ~r/JIT compilation happening/, fn -> jit(inside(opts), [1]) end
      end
    end

    test "reuses the compilation around it" do
      assert {[7], 1} =
               compilations(fn ->
                 {t, _} = jit(inside(on_conflict: :reuse), [Nx.tensor([3])])
                 list(t)
               end)
    end

    test "forces one of its own, of values" do
      parent = self()
      three = Nx.tensor(3)

      fun = fn t ->
        inner = Nx.Defn.jit(&Nx.multiply(&1, 2), compiler: Mlx.Compiler, on_conflict: :force)
        send(parent, {:inner, inner.(three)})
        Nx.add(t, 1)
      end

      assert {[2], 2} = compilations(fn -> list(jit(fun, [Nx.tensor([1])])) end)
      assert_received {:inner, %Nx.Tensor{data: %Mlx.Backend{}} = six}
      assert Nx.to_number(six) == 6
      assert Nx.Defn.Compiler.current() == nil
    end

    test "forced upon an expression raises as Nx does" do
      assert_raise ArgumentError, ~r/cannot pass a tensor expression as argument to defn/, fn ->
        jit(inside(on_conflict: :force), [Nx.tensor([3])])
      end
    end
  end

  describe "gradients" do
    test "inside of a function and around it" do
      t = Nx.tensor([1.0, -2.0])
      assert list(jit(&Functions.slope/1, [t])) == [2.0, -4.0]
      assert list(jit(Nx.Defn.grad(&Functions.square_sum/1), [t])) == [2.0, -4.0]
      assert list(jit(&Nx.Defn.grad(&1, fn t -> Functions.square_sum(t) end), [t])) == [2.0, -4.0]

      for fun <- [&Functions.both/1, Nx.Defn.value_and_grad(&Functions.square_sum/1)] do
        {value, slope} = jit(fun, [t])
        assert {Nx.to_number(value), list(slope)} == {5.0, [2.0, -4.0]}
      end
    end

    test "outside of any, by default options" do
      Nx.Defn.default_options(compiler: Mlx.Compiler)
      t = Nx.tensor([1.0, -2.0])

      assert {[2.0, -4.0], 1} =
               compilations(fn -> list(Nx.Defn.grad(t, &Functions.square_sum/1)) end)

      {value, slope} = Nx.Defn.value_and_grad(t, &Functions.square_sum/1)
      assert {Nx.to_number(value), list(slope)} == {5.0, [2.0, -4.0]}
    after
      Process.delete({Nx.Defn, :default_compiler})
    end

    test "of containers, with a value beside them" do
      pair = %Pair{left: Nx.tensor(2.0), right: {Nx.tensor([1.0, 3.0])}, label: :kept}
      loss = fn %Pair{left: l, right: {r}} -> {Nx.multiply(l, Nx.sum(r)), Nx.add(l, 1)} end
      fun = &Nx.Defn.value_and_grad(&1, loss, fn {value, _} -> value end)
      {{value, more}, %Pair{left: left, right: {right}, label: :kept}} = jit(fun, [pair])
      assert Enum.map([value, more, left], &Nx.to_number/1) == [8.0, 3.0, 4.0]
      assert list(right) == [2.0, 2.0]
    end
  end

  describe "default options" do
    test "of all processes, of one, and of a call" do
      before = Nx.Defn.global_default_options(compiler: Mlx.Compiler)
      t = Nx.tensor([3.0])
      fun = fn extra -> fn t -> Nx.add(Functions.square_sum(t), extra) end end
      run = fn extra, opts -> fn -> Nx.to_number(Nx.Defn.jit(fun.(extra), opts).(t)) end end

      assert {10.0, 1} = compilations(run.(1, []))
      assert {11.0, 0} = compilations(run.(2, compiler: Nx.Defn.Evaluator))

      # Functions that are defined call the compiler too.
      assert {_, 1} = compilations(fn -> Functions.slope(Nx.tensor([[3.0]])) end)

      Nx.Defn.default_options(compiler: Nx.Defn.Evaluator)
      assert {12.0, 0} = compilations(run.(3, []))
      assert {13.0, 1} = compilations(run.(4, compiler: Mlx.Compiler))
      Process.delete({Nx.Defn, :default_compiler})

      test = self()
      Task.await(Task.async(fn -> send(test, Nx.Defn.default_options()) end))
      assert_received compiler: Mlx.Compiler
      Nx.Defn.global_default_options(before)
      assert {14.0, 0} = compilations(run.(5, []))
    end
  end

  describe "templates" do
    test "of containers, named and vectorized tensors, and numbers" do
      {row, batch} = {Nx.template({2}, :f32, names: [:x]), Nx.template({3}, :s32)}
      batch = Nx.vectorize(batch, :b)

      fun = fn %Pair{left: row, right: {batch}}, number ->
        %{named: Nx.multiply(row, number), sums: {Nx.add(batch, number), 7}}
      end

      template = %Pair{left: row, right: {batch}, label: :given}
      compiled = Nx.Defn.compile(fun, [template, Nx.template({}, :s32)], compiler: Mlx.Compiler)

      given = %Pair{
        left: Nx.tensor([1.0, 2.0], names: [:x]),
        right: {Nx.vectorize(Nx.tensor([1, 2, 3]), :b)},
        label: :given
      }

      assert {%{named: named, sums: {sums, seven}}, 0} =
               compilations(fn -> compiled.(given, Nx.tensor(2)) end)

      assert {named.names, list(named)} == {[:x], [2.0, 4.0]}
      assert sums.vectorized_axes == [b: 3]
      assert list(Nx.devectorize(sums)) == [3, 4, 5]
      assert Nx.to_number(seven) == 7

      assert_raise ArgumentError, ~r/argument at position/, fn ->
        compiled.(given, Nx.tensor([2]))
      end
    end

    test "of lazy containers, which are asked for once what is used, and anew at each call" do
      values = %{a: Nx.tensor([1, 2]), b: Nx.tensor([3]), c: Nx.tensor(4)}
      lazy = %Lazy{test: self(), values: values}

      compiled =
        Nx.Defn.compile(&Nx.multiply(Nx.add(&1.a, &1.c), &1.a), [lazy], compiler: Mlx.Compiler)

      refute_received {:loaded, _}

      for _ <- 1..2 do
        assert list(compiled.(lazy)) == [5, 12]
        for key <- [:a, :c], do: assert_received({:loaded, ^key})
        refute_received {:loaded, _}
      end
    end
  end
end
