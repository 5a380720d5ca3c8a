# What compiled functions cost by their size, and loops by their kind: mix run bench/compile.exs
Code.require_file("support.exs", __DIR__)

defmodule Bench.Loops do
  import Nx.Defn

  defn counted(x, opts \\ []) do
    {_, x} =
      while {i = 0, x}, i < opts[:times] do
        {i + 1, Nx.sin(x) + 1}
      end

    x
  end

  # The number of iterations comes with the call.
  defn dynamic(x, times) do
    {_, x, _} =
      while {i = 0, x, times}, i < times do
        {i + 1, Nx.sin(x) + 1, times}
      end

    x
  end
end

Nx.default_backend(Mlx.Backend)
x = Nx.tensor([1.0, 2.0, 3.0, 4.0])
template = Nx.template({4}, :f32)

for size <- [32, 128, 512, 1024] do
  chain = fn x ->
    Enum.reduce(1..div(size, 2), x, fn _, x -> Nx.sin(Nx.add(x, 1)) end)
  end

  jitted = Nx.Defn.jit(chain, compiler: Mlx.Compiler)
  count = div(20_000, size)
  Bench.median("#{size} ops, called, not read", fn -> jitted.(x) end, count: count)
  Bench.median("#{size} ops, called, read", fn -> Nx.to_binary(jitted.(x)) end, count: count)

  Bench.median(
    "#{size} ops, traced and compiled",
    fn ->
      Mlx.Compiler.clear_cache()
      Nx.Defn.compile(chain, [template], compiler: Mlx.Compiler)
    end,
    count: 5
  )
end

for times <- [100, 10_000] do
  counted = Nx.Defn.jit(&Bench.Loops.counted(&1, times: times), compiler: Mlx.Compiler)
  dynamic = Nx.Defn.jit(&Bench.Loops.dynamic/2, compiler: Mlx.Compiler)
  opts = [count: max(1, div(1_000, times)), rounds: 9]
  Bench.median("while, #{times} times, counted", fn -> Nx.to_binary(counted.(x)) end, opts)

  n = Nx.tensor(times)
  Bench.median("while, #{times} times, dynamic", fn -> Nx.to_binary(dynamic.(x, n)) end, opts)

  Bench.median(
    "while, #{times} times, counted, compiled",
    fn ->
      Mlx.Compiler.clear_cache()
      fun = &Bench.Loops.counted(&1, times: times)
      Nx.Defn.compile(fun, [template], compiler: Mlx.Compiler)
    end,
    count: 5
  )
end
