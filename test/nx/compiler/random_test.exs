defmodule Mlx.Compiler.RandomTest do
  @moduledoc """
  Random functions: a plan of operations on what was computed before, with loops, branches, blocks,
  gradients and effects that hold plans. Oracle: `Nx.Defn.Evaluator` on `Mlx.Backend`, bit for bit.
  A failure names its seed, and the shortest beginning of its plan that fails. MLX_RANDOM sets how
  many are run.
  """
  use Mlx.NxCase, async: true

  defmodule Build do
    @moduledoc false
    # A plan as an expression. Every value has a shape of {2, 3}, {3} or {}, so that any two meet.
    import Nx.Defn

    defn branch(p, x, f, g), do: if(p, do: f.(x), else: g.(x))

    defn choose(p, q, x, f, g) do
      cond do
        p -> f.(x)
        q -> g.(x)
        true -> x
      end
    end

    defn counted(x, f, opts \\ []) do
      {_, x} =
        while {i = 0, x}, i < opts[:times] do
          {i + 1, f.(x)}
        end

      x
    end

    defn dynamic(x, f) do
      {_, x} =
        while {i = 0, x}, i < 4 and Nx.sum(x) < 20 do
          {i + 1, f.(x)}
        end

      x
    end

    @doc "The values of a plan, latest first."
    def values(plan, values), do: Enum.reduce(plan, values, &[step(&1, &2) | &2])

    defp last(plan, values), do: plan |> values(values) |> hd()
    defp full(x), do: x |> Nx.as_type(:f32) |> Nx.broadcast({2, 3})

    # What a plan makes of `x` and of what is around it, or of `x` alone.
    defp inner(plan, around), do: fn x -> full(last(plan, [x | around])) end
    defp closed(plan), do: inner(plan, [])

    defp at(values, i), do: Enum.at(values, rem(i, length(values)))
    defp true?(x), do: Nx.greater(Nx.sum(x), 0)

    defp step({:unary, op, i}, vs), do: apply(Nx, op, [at(vs, i)])
    defp step({:binary, op, i, j}, vs), do: apply(Nx, op, [at(vs, i), at(vs, j)])
    defp step({:number, op, i, number}, vs), do: apply(Nx, op, [at(vs, i), number])
    defp step({:cast, type, i}, vs), do: Nx.as_type(at(vs, i), type)
    defp step({:full, i}, vs), do: full(at(vs, i))
    defp step({:rows, op, i}, vs), do: apply(Nx, op, [full(at(vs, i)), [axes: [0]]])
    defp step({:sorted, i}, vs), do: Nx.sort(full(at(vs, i)), axis: 1, direction: :desc)
    defp step({:turned, i}, vs), do: vs |> at(i) |> full() |> Nx.transpose() |> Nx.reshape({2, 3})
    defp step({:sums, i}, vs), do: Nx.cumulative_sum(full(at(vs, i)), axis: 1)

    defp step({:row, i, j}, vs),
      do: full(at(vs, i))[Nx.as_type(Nx.argmax(at(vs, j)), :s32) |> Nx.remainder(2)]

    defp step({:product, i, j}, vs), do: Nx.dot(full(at(vs, i))[0], full(at(vs, j))[1])
    defp step({:select, i, j, k}, vs), do: Nx.select(full(at(vs, i)), at(vs, j), at(vs, k))

    defp step({:fold, i}, vs) do
      Nx.reduce(full(at(vs, i)), 0.5, [axes: [0]], fn x, acc ->
        Nx.add(Nx.multiply(acc, 0.5), x)
      end)
    end

    defp step({:branch, i, j, one, other}, vs),
      do: branch(true?(at(vs, i)), full(at(vs, j)), inner(one, vs), inner(other, vs))

    defp step({:choose, i, j, one, other}, vs) do
      {p, q} = {true?(at(vs, i)), Nx.greater(Nx.sum(at(vs, j)), 1)}
      choose(p, q, full(at(vs, j)), inner(one, vs), inner(other, vs))
    end

    defp step({:counted, times, i, body}, vs),
      do: counted(full(at(vs, i)), closed(body), times: times)

    defp step({:dynamic, i, body}, vs), do: dynamic(full(at(vs, i)), closed(body))

    defp step({:block, i, body}, vs) do
      x = full(at(vs, i))
      opts = [compiler: Nx.Defn.Evaluator, on_conflict: :reuse]
      inside = fn _struct, x -> Nx.Defn.jit_apply(closed(body), [x], opts) end
      Nx.block(%Mlx.Containers.Pair{}, [x], x, inside)
    end

    defp step({:gradient, i, body}, vs),
      do: Nx.Defn.grad(full(at(vs, i)), &Nx.sum(last(body, [&1])))

    defp step({:stopped, i}, vs), do: Nx.Defn.Kernel.stop_grad(at(vs, i))

    defp step({:hook, tag, i}, vs), do: Nx.Defn.Kernel.hook(at(vs, i), &tell(tag, &1))

    defp step({:call, tag, i}, vs) do
      x = at(vs, i)
      Nx.runtime_call(x, x, fn x, _ -> Nx.add(tell(tag, x), Nx.as_type(1, x.type)) end)
    end

    defp tell(tag, t) do
      send(self(), {:told, tag, Mlx.NxCase.bytes(t)})
      t
    end
  end

  @unary [:negate, :sin, :exp, :tanh, :abs, :sign, :sum, :floor, :reduce_max]
  @binary [:add, :subtract, :multiply, :min, :max, :less, :atan2, :logical_and, :divide]

  defp plan(sizes, depth), do: for(_ <- 1..int(sizes), do: step(depth))

  # Deeper plans have no effects: where the evaluator runs those twice is not worth knowing.
  defp step(depth) do
    i = int(0..7)
    j = int(0..7)
    inner = fn -> plan(1..3, depth - 1) end

    simple = [
      {:unary, pick(@unary), i},
      {:unary, pick(@unary), i},
      {:binary, pick(@binary), i, j},
      {:binary, pick(@binary), i, j},
      {:number, pick([:add, :multiply, :subtract]), i, pick([0.5, 2, -1, 1.5])},
      {:cast, pick([:f32, :s32, :f16, :u8, :f64]), i},
      {:full, i},
      {:rows, pick([:sum, :reduce_max, :all, :product]), i},
      {:sorted, i},
      {:turned, i},
      {:sums, i},
      {:row, i, j},
      {:product, i, j},
      {:select, i, j, int(0..7)},
      {:fold, i},
      {:stopped, i}
    ]

    if depth > 0 and int(1..2) == 1 do
      case int(1..9) do
        1 -> {:branch, i, j, inner.(), inner.()}
        2 -> {:choose, i, j, inner.(), inner.()}
        3 -> {:counted, int(0..4), i, inner.()}
        4 -> {:counted, pick([300 | List.duplicate(5, 9)]), i, plan(1..1, 0)}
        5 -> {:dynamic, i, inner.()}
        6 -> {:block, i, inner.()}
        7 -> {:gradient, i, inner.()}
        8 -> {:hook, System.unique_integer(), i}
        9 -> {:call, System.unique_integer(), i}
      end
    else
      pick(simple)
    end
  end

  defp run(plan, args, compiler) do
    fun = fn x, y -> plan |> Build.values([x, y]) |> Enum.take(3) |> List.to_tuple() end
    result = Nx.Defn.jit_apply(fun, args, compiler: compiler)
    bits = for t <- Tuple.to_list(result), do: {t.type, t.shape, Mlx.NxCase.bytes(t)}
    {:ok, bits, told()}
  rescue
    # What Nx refuses for any compiler.
    error in [ArgumentError, RuntimeError] -> {:refused, Exception.message(error), told()}
  end

  # A set: Nx 0.13.1's evaluator runs an effect again that branches and others share.
  defp told do
    receive do
      {:told, _tag, _bits} = message -> MapSet.put(told(), message)
    after
      0 -> MapSet.new()
    end
  end

  # An effect that several conds share is run ahead of them, also when none takes a branch with it;
  # the evaluator waits for one.
  defp same?(plan, args) do
    {outcome, value, told} = run(plan, args, Mlx.Compiler)
    {expected, right, to_tell} = run(plan, args, Nx.Defn.Evaluator)
    broken?(right) or ({outcome, value} == {expected, right} and MapSet.subset?(to_tell, told))
  end

  # Nx 0.13.1's gradient of a loop may compute in a wider type than it says, and the evaluator hands
  # that out.
  defp broken?(values) when is_list(values) do
    Enum.any?(values, fn {{_, size}, shape, bits} ->
      bit_size(bits) != size * Tuple.product(shape)
    end)
  end

  defp broken?(_message), do: false

  @count String.to_integer(System.get_env("MLX_RANDOM", "200"))

  @tag timeout: :infinity
  test "random functions" do
    for run <- 1..@count do
      seed(run, __MODULE__)
      plan = plan(3..9, 2)
      args = [mlx(tensor({:f, 32}, {2, 3}, :finite)), mlx(tensor({:s, 32}, {3}, -3..3))]

      unless same?(plan, args) do
        length = Enum.find(1..length(plan), &(not same?(Enum.take(plan, &1), args)))
        plan = Enum.take(plan, length)

        flunk("""
        seed #{run}, --seed #{ExUnit.configuration()[:seed]}: the plan
        #{inspect(plan, pretty: true, limit: :infinity)}
        of #{inspect(args)} makes
        #{inspect(run(plan, args, Mlx.Compiler))}
        instead of
        #{inspect(run(plan, args, Nx.Defn.Evaluator))}
        """)
      end
    end
  end
end
