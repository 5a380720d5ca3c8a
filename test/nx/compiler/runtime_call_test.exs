defmodule Mlx.Compiler.RuntimeCallTest do
  @moduledoc """
  Elixir in the middle of programs. Oracle: `Nx.Defn.Evaluator`, and values computed by hand.
  """
  use Mlx.CompilerCase, async: true

  defmodule Calls do
    import Nx.Defn

    def call(t, opts), do: opts[:fun].(t, Keyword.delete(opts, :fun))

    defn around(t, opts) do
      t = t * 2
      t = Nx.runtime_call(t, t, [fun: opts[:fun]], &call/2)
      t + 1
    end

    defn loop(t, opts) do
      {_, t} =
        while {i = 0, t}, Nx.sum(t) < 100 and i < 50 do
          t = Nx.runtime_call(t, t, [fun: opts[:fun]], &call/2)
          {i + 1, t}
        end

      t
    end

    defn choose(p, t, opts) do
      if p do
        Nx.runtime_call(t, t, [fun: opts[:fun]], &call/2)
      else
        t
      end
    end

    defn ordered(t) do
      a = hook(t + 1, :a)

      {_, b} =
        while {i = 0, a}, Nx.all(a < 10) and i < 5 do
          {i + 1, hook(a * 2, :b)}
        end

      hook(b - 1, :c)
    end
  end

  defp list(t), do: Nx.to_flat_list(t)

  test "the function gets tensors and options, and its result goes on" do
    parent = self()

    fun = fn t, opts ->
      send(parent, {:called, list(t), opts})
      Nx.add(t, 10)
    end

    assert list(jit(&Calls.around/2, [Nx.tensor([1, 2]), [fun: fun]])) == [13, 15]
    assert_received {:called, [2, 4], []}
  end

  test "containers go in and out, with options" do
    template = {Nx.template({2}, :s32), Nx.template({}, :f32)}

    fun = fn t ->
      {a, b} =
        Nx.runtime_call(template, %{x: t, y: Nx.sum(t)}, [by: 3], fn %{x: x, y: y}, opts ->
          {Nx.multiply(x, opts[:by]), Nx.divide(y, 2)}
        end)

      {Nx.add(a, 1), b}
    end

    {a, b} = jit(fun, [Nx.tensor([1, 2])])
    assert {list(a), Nx.to_number(b)} == {[4, 7], 1.5}
  end

  test "the function may compute with Mlx itself, and return tensors of another backend" do
    fun = fn t, _ -> Nx.backend_copy(Nx.sort(Nx.sin(t)), Nx.BinaryBackend) end
    t = Nx.tensor([1.0, 2.0, 3.0])
    found = jit(&Calls.around/2, [t, [fun: fun]])
    wanted = Nx.add(Nx.sort(Nx.sin(Nx.multiply(t, 2))), 1)
    assert list(found) == list(wanted)

    nested = fn t, _ -> jit(&Calls.around/2, [t, [fun: fn t, _ -> Nx.negate(t) end]]) end
    assert list(jit(&Calls.around/2, [Nx.tensor([1.0]), [fun: nested]])) == [-2.0]
  end

  test "inside loops and branches" do
    assert list(jit(&Calls.loop/2, [Nx.tensor([1, 2]), [fun: fn t, _ -> Nx.multiply(t, 3) end]])) ==
             [81, 162]

    fun = fn t, _ ->
      send(self(), :called)
      Nx.negate(t)
    end

    assert list(jit(&Calls.choose/3, [0, Nx.tensor([1]), [fun: fun]])) == [1]
    refute_received :called
    assert list(jit(&Calls.choose/3, [1, Nx.tensor([1]), [fun: fun]])) == [-1]
    assert_received :called
  end

  test "hooks are called in the order of the program, across loops" do
    parent = self()
    say = fn t -> send(parent, {:said, list(t)}) end
    opts = [compiler: Mlx.Compiler, hooks: %{a: say, b: say, c: say}]
    assert list(Nx.Defn.jit_apply(&Calls.ordered/1, [Nx.tensor([1, 2])], opts)) == [7, 11]
    for values <- [[2, 3], [4, 6], [8, 12], [7, 11]], do: assert_receive({:said, ^values})
    refute_received {:said, _}
  end

  test "what the function raises is raised by the call, and ends that run alone" do
    fun = fn _t, _ -> raise ArgumentError, "no" end

    assert_raise ArgumentError, "no", fn ->
      jit(&Calls.around/2, [Nx.tensor([1]), [fun: fun]])
    end

    assert catch_throw(jit(&Calls.loop/2, [Nx.tensor([1]), [fun: fn _, _ -> throw(:ball) end]])) ==
             :ball

    assert list(Nx.add(Nx.tensor([1]), 1)) == [2]
    refute_received _
  end

  test "a result of another shape or type is refused" do
    for fun <- [fn t, _ -> Nx.stack([t, t]) end, fn t, _ -> Nx.as_type(t, :f32) end] do
      assert_raise RuntimeError, ~r/match the given output template/, fn ->
        jit(&Calls.around/2, [Nx.tensor([1]), [fun: fun]])
      end
    end
  end

  test "others are served while a function runs, and a caller that dies takes its run along" do
    parent = self()

    fun = fn t, _ ->
      send(parent, {:inside, self()})

      receive do
        :go -> t
      end
    end

    pids =
      for _ <- 1..20 do
        spawn(fn ->
          Nx.default_backend(Mlx.Backend)
          result = jit(&Calls.around/2, [Nx.tensor([1]), [fun: fun]])
          send(parent, {:done, self(), list(result)})
        end)
      end

    for pid <- pids, do: assert_receive({:inside, ^pid}, 5_000)
    assert list(Nx.add(Nx.tensor([1]), 1)) == [2]

    {killed, rest} = Enum.split(pids, 10)
    Enum.each(killed, &Process.exit(&1, :kill))
    assert list(Nx.add(Nx.tensor([2]), 1)) == [3]
    for pid <- Enum.reverse(rest), do: send(pid, :go)
    for pid <- rest, do: assert_receive({:done, ^pid, [3]}, 5_000)
  end
end
