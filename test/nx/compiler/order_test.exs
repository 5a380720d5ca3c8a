defmodule Mlx.Compiler.OrderTest do
  @moduledoc """
  Hooks and calls run in the order in which the source has them. The results use them the other way
  around, so that the order of the operands is another one. Oracle: the source.
  """
  use Mlx.CompilerCase, async: true

  defmodule Sourced do
    import Nx.Defn

    deftransform note(t, tag),
      do: Nx.Defn.Kernel.hook(t, &send(self(), {tag, &1 |> Nx.sum() |> Nx.to_number()}))

    deftransform call(t, tag) do
      Nx.runtime_call(t, t, [], fn t, _opts ->
        send(self(), {tag, t |> Nx.sum() |> Nx.to_number()})
        t
      end)
    end

    defn flat(a, b, c) do
      a = note(a, :a)
      b = note(b, :b)
      c = note(c, :c)
      a + c + b
    end

    defn container(x) do
      {a, b} = note_both({x + 1, x + 2}, :both)
      c = note(x * 3, :c)
      c * b + a
    end

    deftransformp note_both(pair, tag) do
      Nx.Defn.Kernel.hook(pair, fn {a, b} ->
        send(self(), {tag, Nx.to_number(a) + Nx.to_number(b)})
      end)
    end

    defn calls(x) do
      a = call(x, :a)
      b = note(x + 1, :b)
      c = call(x + 2, :c)
      d = note(x + 3, :d)
      d - c - b - a
    end

    defn loops(x) do
      a = note(x, :before)

      {_, y} =
        while {i = 0, y = x}, i < 2 do
          p = note(y + 1, :p)
          q = note(y + 2, :q)
          {i + 1, q * p}
        end

      b = note(x * 2, :between)

      z =
        while z = x, Nx.sum(z) < 60 do
          p = note(z + 1, :r)
          q = note(z + 2, :s)
          q * p
        end

      c = note(x * 3, :after)
      c + z + b + y + a
    end

    defn branches(x) do
      a = note(x + 10, :a)

      y =
        cond do
          second_first(x) > 100 ->
            x

          second_first(x + 1) > 0 ->
            p = note(x + 1, :p)
            q = note(x + 2, :q)
            Nx.sum(Nx.dot(q, p)) + q

          true ->
            note(x, :not_taken)
        end

      shared = note(x * 5, :shared)
      z = if x > 0, do: Nx.sin(shared) * Nx.sum(y), else: Nx.cos(y)
      b = note(x * 2, :b)
      b + z + shared + y + a
    end

    defnp second_first(x) do
      a = note(x, :first)
      b = note(x + 1, :second)
      b - a
    end

    defn block(x) do
      a = note(x, :a)
      y = Nx.cumulative_sum(Nx.reshape(x, {1}))
      z = own_block(x)
      b = note(x + 1, :b)
      b + z + y + a
    end

    deftransformp own_block(x) do
      Nx.block(%Mlx.Containers.Pair{}, [x], x, fn _struct, x ->
        p = note(Nx.add(x, 1), :p)
        q = note(Nx.add(x, 2), :q)
        Nx.subtract(q, p)
      end)
    end
  end

  defp tags(fun, args) do
    result = Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler)
    {result |> Nx.sum() |> Nx.to_number(), messages()}
  end

  test "without a value that leads from one to the next" do
    assert tags(&Sourced.flat/3, [1, 2, 3]) == {6, [a: 1, b: 2, c: 3]}
    assert tags(&Sourced.container/1, [1]) == {3 * 3 + 2, [both: 5, c: 3]}
  end

  test "calls of functions among hooks" do
    assert {-2, [a: 1, b: 2, c: 3, d: 4]} = tags(&Sourced.calls/1, [1])
  end

  test "inside loops, written out or not, and around them" do
    expected =
      [before: 1, p: 2, q: 3, p: 7, q: 8, between: 2] ++
        [r: 2, s: 3, r: 7, s: 8] ++ [r: 57, s: 58, after: 3]

    assert {3368, ^expected} = tags(&Sourced.loops/1, [1])
  end

  test "inside branches and their predicates, and of what they share" do
    assert {_, tags} = tags(&Sourced.branches/1, [1])

    assert tags == [a: 11, first: 1, second: 2, first: 2, second: 3, p: 2, q: 3, shared: 5, b: 2]
  end

  test "inside blocks" do
    assert {5, [a: 1, p: 2, q: 3, b: 2]} = tags(&Sourced.block/1, [1])
  end

  # A process that moved to another scheduler would go on with references of that one.
  test "because a process stays on its scheduler while it traces, and no longer" do
    fun = fn x ->
      scheduler = :erlang.system_info(:scheduler_id)
      bound_to = :erlang.process_flag(:scheduler, scheduler)
      :erlang.process_flag(:scheduler, bound_to)
      send(self(), {:bound_to, bound_to, scheduler})
      Nx.negate(x)
    end

    assert {-1, [{:bound_to, scheduler, scheduler}]} = tags(fun, [1])
    assert :erlang.process_flag(:scheduler, 0) == 0

    assert_raise RuntimeError, "no", fn -> tags(fn _ -> raise "no" end, [1]) end
    assert :erlang.process_flag(:scheduler, 0) == 0
  end
end
