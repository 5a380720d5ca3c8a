defmodule Mlx.Cases.CallersTest do
  # Faults of other bindings that callers of compiled functions met, as cases: callers that die,
  # callers with much to read, and callers whose functions look alike. They look at the whole VM,
  # so nothing runs beside them.
  use Mlx.NxCase, async: false

  import Mlx.CompilerCase, only: [jit: 2, jit: 3]

  defmodule Calls do
    @moduledoc false
    import Nx.Defn

    defn ask(t, opts), do: Nx.runtime_call(t * 2, t * 2, [fun: opts[:fun]], &answer/2) + 1
    def answer(t, opts), do: opts[:fun].(t)

    defn endless(p, x) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          x =
            if Nx.sum(x) > 1000 do
              while x, Nx.sum(x) > 0 do
                x + 0
              end
            else
              x + 1
            end

          {i + 1, x}
        end

      if p do
        while x, Nx.sum(x) > -1 do
          x * Nx.dot(x, x) + 1
        end
      else
        x
      end
    end

    defn counted_predicate(x) do
      if hook(Nx.sum(x) > 0, :predicate),
        do: hook(Nx.dot(x, x), :taken),
        else: hook(Nx.sum(x), :not)
    end
  end

  # Bytes in use once everything dropped has been freed.
  defp settled do
    :erlang.garbage_collect()
    Mlx.Native.sync(Mlx.Device.worker(device()))
    Mlx.Memory.info().active
  end

  test "row 4: callers that are killed inside of a runtime_call leave nothing behind" do
    parent = self()

    stay = fn _t ->
      send(parent, {:inside, self()})
      Process.sleep(:infinity)
    end

    t = Nx.broadcast(1.0, {100_000})
    Nx.to_binary(t, limit: 1)
    before = settled()

    for _ <- 1..100 do
      {pid, monitor} =
        spawn_monitor(fn ->
          Nx.default_backend(backend())
          jit(&Calls.ask/2, [t, [fun: stay]])
        end)

      assert_receive {:inside, ^pid}, 5_000
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, _, _, :killed}, 5_000
    end

    assert Nx.to_number(jit(&Calls.ask/2, [Nx.tensor(1), [fun: &Nx.add(&1, 3)]])) == 6
    # 40 MB went into those calls.
    assert settled() - before < 4_000_000
  end

  test "a mailbox of 100,000 messages costs next to nothing" do
    t = Nx.iota({4}, type: :f32)
    exp = Nx.Defn.jit(&Nx.exp/1, compiler: Mlx.Compiler)

    reads = [
      fn -> Nx.to_binary(Nx.add(t, 1)) end,
      fn -> Nx.to_binary(exp.(t)) end,
      fn -> Nx.to_binary(jit(&Calls.ask/2, [t, [fun: &Function.identity/1]])) end
    ]

    time = fn read ->
      for(_ <- 1..30, do: elem(:timer.tc(read), 0)) |> Enum.sort() |> Enum.at(10)
    end

    empty = for read <- reads, do: read.() && time.(read)
    for i <- 1..100_000, do: send(self(), {:noise, i})
    full = for read <- reads, do: time.(read)
    # A scan of the mailbox takes milliseconds.
    for {e, f} <- Enum.zip(empty, full), do: assert(f < 3 * e + 1_000, "#{e} us became #{f} us")
  end

  test "row 27: a loop that never ends in a branch that is not taken is not begun" do
    task =
      Task.async(fn ->
        Nx.to_flat_list(jit(&Calls.endless/2, [0, Nx.tensor([1.0, 2.0], backend: backend())]))
      end)

    assert Task.await(task, 10_000) == [4.0, 5.0]
  end

  test "functions that differ in what they capture share nothing" do
    adding = fn captured ->
      fn x -> Nx.add(x, Nx.multiply(captured, Nx.tensor(1.0))) end
    end

    for number <- [1, 2, 1.5, 2.5, -1, 255] do
      assert Nx.to_number(jit(adding.(number), [Nx.tensor(1.0)])) == 1.0 + number
    end

    kept = fn number -> fn x -> Nx.divide(x, Nx.tensor(number, type: :f32)) end end
    assert Nx.to_number(jit(kept.(0.0), [Nx.tensor(1.0)])) == :infinity
    assert Nx.to_number(jit(kept.(-0.0), [Nx.tensor(1.0)])) == :neg_infinity

    typed = fn type -> fn x -> Nx.as_type(x, type) end end

    for type <- [:u8, :s16, :f32],
        do: assert(jit(typed.(type), [Nx.tensor(7)]).type == Nx.Type.normalize!(type))

    applied = fn op -> fn x -> op.(x) end end
    assert Nx.to_number(jit(applied.(&Nx.negate/1), [Nx.tensor(7)])) == -7
    assert Nx.to_number(jit(applied.(&Nx.abs/1), [Nx.tensor(-7)])) == 7
    assert Nx.to_number(jit(applied.(applied.(&Nx.abs/1)), [Nx.tensor(-8)])) == 8

    # What a runtime_call captures may be of this backend.
    for value <- [10, 20] do
      captured = Nx.tensor(value)
      fun = fn x -> Nx.runtime_call(x, x, fn x, _ -> Nx.add(x, captured) end) end
      assert Nx.to_number(jit(fun, [Nx.tensor(1)])) == 1 + value
    end
  end

  test "A1-09: thousands of shapes do not make the cache grow beyond its limit" do
    increment = Nx.Defn.jit(&Nx.add(&1, 1), compiler: Mlx.Compiler)
    limit = Mlx.Compiler.cache_info().limit
    call = fn n -> increment.(Nx.broadcast(0, {n})) |> Nx.to_binary(limit: 1) end
    for n <- 1..(limit + 200), do: call.(n)
    assert Mlx.Compiler.cache_info().entries == limit
    before = settled()
    for n <- (limit + 201)..(limit + 1_000), do: call.(n)
    assert %{entries: ^limit} = Mlx.Compiler.cache_info()
    assert settled() - before < 1_000_000
  end

  test "A1-49: the predicate's hook is called once, and that of the branch not taken never" do
    parent = self()
    hooks = Map.new([:predicate, :taken, :not], &{&1, fn _ -> send(parent, &1) end})
    fun = &Calls.counted_predicate/1
    jit(fun, [Nx.tensor([1.0, 2.0])], hooks: hooks)
    assert_received :predicate
    assert_received :taken
    refute_received _
    jit(fun, [Nx.tensor([-1.0, -2.0])], hooks: hooks)
    assert_received :predicate
    assert_received :not
    refute_received _
  end

  test "A1-72: calls at the thousandth position take no longer than at the first" do
    step =
      Nx.Defn.jit(
        fn cache, position -> Nx.put_slice(cache, [position, 0], Nx.broadcast(1.0, {1, 8})) end,
        compiler: Mlx.Compiler
      )

    cache = Nx.broadcast(0.0, {1000, 8})

    times =
      for position <- 0..999 do
        elem(:timer.tc(fn -> Nx.to_binary(step.(cache, Nx.tensor(position)), limit: 1) end), 0)
      end

    middle = &(&1 |> Enum.sort() |> Enum.at(div(length(&1), 2)))

    [first, last] =
      for times <- [Enum.slice(times, 100, 200), Enum.slice(times, 800, 200)], do: middle.(times)

    assert last < 3 * first + 500
  end
end
