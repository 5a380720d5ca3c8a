defmodule Mlx.Compiler.DepthTest do
  @moduledoc """
  Large functions, and deep ones. Oracle: values computed by hand; that compiling takes time in
  proportion; and that the VM is there afterwards.
  """
  use Mlx.CompilerCase, async: true

  defmodule Deep do
    @moduledoc false
    import Nx.Defn

    defn branch(x, f), do: if(Nx.sum(x) > 0, do: f.(x + 1), else: x - 1)

    defn counted(x, f, opts \\ []) do
      {_, x} =
        while {i = 0, x}, i < opts[:times] do
          {i + 1, f.(x)}
        end

      x
    end

    defn dynamic(x, f) do
      {_, x} =
        while {i = 0, x}, i < 2 and Nx.sum(x) < 1.0e9 do
          {i + 1, f.(x)}
        end

      x
    end
  end

  defp number(t), do: Nx.to_number(t)

  defp nest(0, _form, x), do: Nx.add(x, 1)
  defp nest(n, form, x), do: form.(x, &nest(n - 1, form, &1))

  defp cases(count) do
    fn x ->
      clauses = for i <- 1..count, do: {Nx.equal(Nx.sum(x), i), Nx.multiply(Nx.sum(x), i)}
      Nx.Defn.Expr.cond(clauses, Nx.negate(Nx.sum(x)))
    end
  end

  test "a chain of 20,000 operations, as many results as 5,000, as many arguments" do
    chain = fn x -> Enum.reduce(1..20_000, x, fn _, x -> Nx.add(x, 1) end) end
    assert number(jit(chain, [Nx.tensor(0)])) == 20_000

    args = Map.new(1..5_000, &{&1, Nx.tensor(&1)})

    assert number(jit(fn args -> args |> Map.values() |> Enum.reduce(&Nx.add/2) end, [args])) ==
             12_502_500

    assert map_size(jit(fn args -> Map.new(args, fn {k, t} -> {k, Nx.add(t, 1)} end) end, [args])) ==
             5_000

    captured = for i <- 1..2_000, do: Nx.tensor([i], backend: Nx.BinaryBackend)

    assert number(jit(fn x -> Enum.reduce(captured, x, &Nx.add/2) end, [Nx.tensor(0)])[0]) ==
             2_001_000
  end

  test "a tuple in a tuple, 3,000 deep" do
    nested = Enum.reduce(1..3_000, {Nx.tensor(0)}, fn i, t -> {t, Nx.tensor(i)} end)
    increment = fn t -> Nx.Defn.Composite.traverse(t, &Nx.add(&1, 1)) end
    result = jit(increment, [nested])
    assert number(elem(result, 1)) == 3_001
    inner = Enum.reduce(1..3_000, result, fn _, t -> elem(t, 0) end)
    assert number(elem(inner, 0)) == 1
  end

  test "time grows with the number of operations" do
    compile = fn size ->
      chain = fn x -> Enum.reduce(1..size, x, fn _, x -> Nx.sin(x) end) end

      times =
        for _ <- 1..3,
            do:
              elem(
                :timer.tc(fn ->
                  Nx.Defn.compile(chain, [Nx.template({2}, :f32)], compiler: Mlx.Compiler)
                end),
                0
              )

      Mlx.Compiler.clear_cache()
      Enum.min(times)
    end

    compile.(1_000)
    # Eight times the work; quadratic would be 64.
    assert compile.(16_000) / compile.(2_000) < 32
  end

  test "200 branches in each other" do
    fun = &nest(200, fn x, f -> Deep.branch(x, f) end, &1)
    assert number(jit(fun, [Nx.tensor(1)])) == 202
    assert number(jit(fun, [Nx.tensor(-250)])) == -251
    assert number(jit(fun, [Nx.tensor(-1)])) == -2
  end

  test "a cond of 500 clauses" do
    fun = Nx.Defn.jit(cases(500), compiler: Mlx.Compiler)
    for x <- [1, 2, 250, 500], do: assert(number(fun.(Nx.tensor([x]))) == x * x)
    assert number(fun.(Nx.tensor([501]))) == -501
  end

  test "loops in each other, ten deep" do
    deep = fn depth, form -> &nest(depth, form, &1) end
    counted = fn times -> fn x, f -> Deep.counted(x, f, times: times) end end
    assert number(jit(deep.(10, counted.(2)), [Nx.tensor(0)])) == 2 ** 10
    assert number(jit(deep.(8, counted.(3)), [Nx.tensor(0)])) == 3 ** 8
    assert number(jit(deep.(8, fn x, f -> Deep.dynamic(x, f) end), [Nx.tensor(0)])) == 2 ** 8

    # Twenty of them are compiled as they are, without trying each over and over.
    {time, _} =
      :timer.tc(fn ->
        Nx.Defn.compile(deep.(20, counted.(300)), [Nx.template({}, :s32)], compiler: Mlx.Compiler)
      end)

    assert time < 5_000_000
  end

  test "a short loop around a long one counts it once" do
    fun = fn outer, inner ->
      fn x ->
        Deep.counted(x, &Deep.counted(&1, fn x -> Nx.add(x, 1) end, times: inner), times: outer)
      end
    end

    {time, _} =
      :timer.tc(fn ->
        Nx.Defn.compile(fun.(100, 20_000), [Nx.template({}, :s32)], compiler: Mlx.Compiler)
      end)

    assert time < 5_000_000
    assert number(jit(fun.(3, 1_000), [Nx.tensor(0)])) == 3_000
  end

  test "programs nested a thousand deep are run, and dropped, and deeper ones refused with a way out" do
    inputs = [{{:s, 32}, {}}]

    nested = fn depth ->
      inner = {1, [{:add, [0, 0]}], [1]}
      Enum.reduce(1..depth, inner, fn _, body -> {1, [{{:repeat, 1, body}, [0]}], [1]} end)
    end

    {1, instructions, outputs} = nested.(1_000)
    program = Mlx.Program.new(inputs, instructions, outputs)
    x = Mlx.Array.from_binary(<<21::32-native>>, {:s, 32}, {})
    assert [y] = Mlx.Program.run(program, [x])
    assert Mlx.Array.to_binary(y) == <<42::32-native>>

    # On the stack of a scheduler.
    build = fn -> Mlx.Program.new(inputs, instructions, outputs) && :ok end
    for _ <- 1..5, do: Task.await(Task.async(build), 60_000)
    :erlang.garbage_collect()

    {1, instructions, outputs} = nested.(100_000)

    assert_raise Mlx.Error, ~r/nested more than 1024 deep; split the function/, fn ->
      Mlx.Program.new(inputs, instructions, outputs)
    end
  end
end
