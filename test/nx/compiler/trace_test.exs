defmodule Mlx.Compiler.TraceTest do
  @moduledoc """
  What a function compiles to. Oracle: instruction lists written by hand; no native code runs.
  """
  use ExUnit.Case, async: true

  alias Mlx.Compiler.Trace

  # Hands out the trace of a function instead of its results.
  defmodule Tracer do
    @behaviour Nx.Defn.Compiler

    @impl true
    def __jit__(_key, vars, fun, [_args], opts) do
      [Trace.run(fun.(vars), vars, Keyword.take(opts, [:keep]))]
    end

    @impl true
    def __compile__(_key, _vars, _fun, _opts), do: raise("unused")
    @impl true
    def __partitions_options__(opts), do: [opts]
    @impl true
    def __to_backend__(_opts), do: {Nx.BinaryBackend, []}
  end

  defmodule Unknown do
    defstruct []
  end

  defmodule Loops do
    import Nx.Defn

    defn twice(x) do
      {_, x} =
        while {i = 0, x}, i < 2 do
          {i + 1, Nx.exp(x)}
        end

      x
    end

    defn rows(t) do
      {_, sum, _} =
        while {i = 0, sum = Nx.exp(t[0]), t}, i < 2 do
          {i + 1, sum + t[i + 1], t}
        end

      sum
    end

    defn alternate(x) do
      {_, x} =
        while {i = 3, x}, i < 6 do
          odd = Nx.remainder(i, 2) == Nx.quotient(i, 3)
          {i + 1, if(odd, do: Nx.exp(x), else: Nx.sort(x))}
        end

      x
    end

    defn choose(p, x), do: if(p, do: Nx.exp(x), else: x)
    defn parity(x), do: if(Nx.equal(1, 1), do: Nx.exp(x), else: x)
  end

  defp trace(fun, args, opts \\ []),
    do: Nx.Defn.jit_apply(fun, args, [compiler: Tracer] ++ opts)

  defp f32(shape \\ {2}), do: Nx.template(shape, :f32)
  defp const(number), do: {{:constant, {:f, 32}, <<number::float-32-native>>}, []}

  test "parameters are numbered first, then results" do
    assert %Trace{
             instructions: [{:sin, [0]}, {:add, [2, 1]}],
             outputs: [3],
             parameters: [0, 1],
             captured: [],
             effects: []
           } = trace(&Nx.add(Nx.sin(&1), &2), [f32(), f32()])
  end

  test "unused parameters are left out, unless they are to be kept" do
    fun = fn _a, b, _c, d -> Nx.subtract(d, b) end
    args = List.duplicate(f32(), 4)

    assert %{instructions: [{:subtract, [1, 0]}], parameters: [1, 3], outputs: [2]} =
             trace(fun, args)

    assert %{instructions: [{:subtract, [3, 1]}], parameters: [0, 1, 2, 3], outputs: [4]} =
             trace(fun, args, keep: 4)
  end

  test "captured tensors follow the parameters" do
    table = Nx.tensor([1.0, 2.0], backend: Nx.BinaryBackend)
    trace = trace(&Nx.add(Nx.add(table, &1), &1), [f32()])
    assert trace.instructions == [{:add, [1, 0]}, {:add, [2, 0]}]
    assert trace.captured == [table]
  end

  test "a shared expression is computed once" do
    trace = trace(fn x -> (y = Nx.exp(x)) && {Nx.multiply(y, y), y} end, [f32()])
    assert %{instructions: [{:exp, [0]}, {:multiply, [1, 1]}], outputs: [2, 1]} = trace
  end

  test "equal constants are one instruction, zeros of either sign are two" do
    two = Nx.tensor(2.0, backend: Nx.BinaryBackend)

    trace = trace(fn x -> Nx.multiply(Nx.add(x, two), Nx.subtract(two, x)) end, [f32()])
    assert Enum.count(trace.instructions, &(&1 == const(2.0))) == 1

    trace = trace(fn x -> Nx.add(Nx.pow(x, 0.0), Nx.pow(x, -0.0)) end, [f32()])
    assert const(0.0) in trace.instructions
    assert const(-0.0) in trace.instructions
  end

  test "arguments and constants may be results" do
    assert %{instructions: [], outputs: [1, 0, 1]} = trace(&{&2, &1, &2}, [f32(), f32()])
    assert %{instructions: [_], outputs: [0], parameters: []} = trace(fn _ -> 1.0 end, [f32()])
    assert %{instructions: [], outputs: []} = trace(fn _ -> {} end, [f32()])
  end

  test "metadata leaves no trace" do
    fun = fn x -> Nx.exp(Nx.Defn.Kernel.stop_grad(x)) end
    assert %{instructions: [{:exp, [0]}]} = trace(fun, [f32()])
  end

  test "a block is lowered as a whole, or as its default function in a scope of its own" do
    assert %{instructions: [{{:cumsum, 0, false, true}, [0]}]} =
             trace(&Nx.cumulative_sum/1, [f32()])

    body = fn _struct, a, b -> Nx.subtract(a, b) end
    block = fn a, b -> Nx.block(%Unknown{}, [b, a], a, body) end

    # Parameter 0 of the body is what is given first: b.
    assert %{instructions: [{:exp, [1]}, {:subtract, [2, 0]}], parameters: [0, 1], outputs: [3]} =
             trace(fn a, b -> block.(a, Nx.exp(b)) end, [f32(), f32()])
  end

  test "a loop with a fixed trip count is written out" do
    assert %{instructions: [{:exp, [0]}, {:exp, [1]}], outputs: [2]} =
             trace(&Loops.twice/1, [f32()])
  end

  test "an index that a loop fixes is static" do
    %{instructions: instructions} = trace(&Loops.rows/1, [f32({3, 2})])
    slices = for {{:slice, starts, stops, _strides}, [0]} <- instructions, do: {starts, stops}
    assert slices == for(i <- 0..2, do: {[i, 0], [i + 1, 2]})
    refute Enum.any?(instructions, &match?({{:slice_dynamic, _, _}, _}, &1))
  end

  test "put_slice has integer starts where the function has" do
    fun = fn t -> Nx.put_slice(t, [1], Nx.tensor([1.0], backend: Nx.BinaryBackend)) end
    assert %{instructions: [{{:slice_update, [1], [2], [1]}, [0, 1]}]} = trace(fun, [f32({3})])
  end

  test "a branch is selected, unless its predicate is known" do
    assert %{instructions: instructions} = trace(&Loops.choose/2, [Nx.template({}, :u8), f32()])
    assert {:exp, [1]} in instructions
    assert {:where, [_, _, _]} = List.last(instructions) |> then(&{elem(&1, 0), elem(&1, 1)})

    assert %{instructions: [{:exp, [0]}]} = trace(&Loops.parity/1, [f32()])

    assert %{instructions: [{:exp, [0]}, {{:sort_axis, 0}, [1]}, {:exp, [2]}]} =
             trace(&Loops.alternate/1, [f32()])
  end

  test "vectorized tensors have all of their axes" do
    x = Nx.vectorize(Nx.iota({2, 3}, type: :f32, backend: Nx.BinaryBackend), :x)
    assert %{instructions: [{{:sum_axes, [1], false}, [0]}]} = trace(&Nx.sum/1, [x])
  end
end
