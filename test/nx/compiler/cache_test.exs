defmodule Mlx.Compiler.CacheTest do
  @moduledoc """
  Oracle: how often the function under compilation is called.
  """
  use ExUnit.Case, async: false

  alias Mlx.Compiler.Cache

  setup do
    Nx.default_backend(Mlx.Backend)
    {:ok, counter: :counters.new(1, [])}
  end

  # The counter is what makes the functions of two tests different.
  defp counted(counter) do
    fn t ->
      :counters.add(counter, 1, 1)
      Nx.add(t, 1)
    end
  end

  defp jit(fun, t), do: Nx.Defn.jit_apply(fun, [t], compiler: Mlx.Compiler)
  defp count(counter), do: :counters.get(counter, 1)

  describe "a function is traced" do
    test "once per type, shape, names and vectorized axes", %{counter: counter} do
      fun = counted(counter)

      variants = [
        Nx.iota({2}),
        Nx.iota({3}),
        Nx.iota({2}, type: :f32),
        Nx.iota({2}, names: [:x]),
        Nx.vectorize(Nx.iota({2}), :x),
        Nx.vectorize(Nx.iota({2}), :y),
        Nx.vectorize(Nx.iota({3}), :y),
        Nx.vectorize(Nx.iota({2, 2}), :x)
      ]

      for _ <- 1..3, t <- variants, do: jit(fun, t)
      assert count(counter) == length(variants)
    end

    test "once per container structure and kept field", %{counter: counter} do
      fun = fn %{} = map ->
        :counters.add(counter, 1, 1)
        map |> Map.values() |> Enum.reduce(&Nx.add/2)
      end

      for _ <- 1..2, map <- [%{a: 1, b: 2}, %{a: 1, c: 2}, %{a: 1}, %{a: 1.0}], do: jit(fun, map)

      assert count(counter) == 4
    end

    test "anew for every value that it captures, not for every closure", %{counter: counter} do
      fun = fn number ->
        fn t ->
          :counters.add(counter, 1, 1)
          Nx.add(t, number)
        end
      end

      for _ <- 1..3, number <- 1..2, do: jit(fun.(number), Nx.tensor([1, 2]))
      assert count(counter) == 2
    end

    test "once although options come in a list", %{counter: counter} do
      fun = fn t, opts ->
        :counters.add(counter, 1, 1)
        Nx.sum(t, opts)
      end

      for _ <- 1..3, axes <- [[0], [1]] do
        Nx.Defn.jit_apply(fun, [Nx.iota({2, 2}), [axes: axes]], compiler: Mlx.Compiler)
      end

      assert count(counter) == 2
    end

    test "again after clear_cache/0", %{counter: counter} do
      fun = counted(counter)
      jit(fun, Nx.tensor(1))
      assert Mlx.Compiler.clear_cache() == :ok
      assert Mlx.Compiler.cache_info().entries == 0
      jit(fun, Nx.tensor(1))
      assert count(counter) == 2
    end

    test "once by sixteen processes that miss together", %{counter: counter} do
      fun = fn t ->
        :counters.add(counter, 1, 1)
        Process.sleep(50)
        Nx.multiply(t, 3)
      end

      results =
        1..16
        |> Enum.map(fn i ->
          Task.async(fn ->
            Nx.default_backend(Mlx.Backend)
            Nx.to_number(jit(fun, Nx.tensor(i)))
          end)
        end)
        |> Task.await_many()

      assert results == Enum.map(1..16, &(&1 * 3))
      assert count(counter) == 1
    end
  end

  describe "a build that ends badly" do
    test "leaves nothing behind", %{counter: counter} do
      fun = fn t ->
        :counters.add(counter, 1, 1)
        if count(counter) == 1, do: raise("not yet")
        Nx.add(t, 1)
      end

      assert_raise RuntimeError, "not yet", fn -> jit(fun, Nx.tensor(1)) end
      assert Nx.to_number(jit(fun, Nx.tensor(1))) == 2
      assert Nx.to_number(jit(fun, Nx.tensor(2))) == 3
      assert count(counter) == 2
    end

    test "lets the waiters build", %{counter: counter} do
      test = self()

      fun = fn t ->
        :counters.add(counter, 1, 1)

        if count(counter) == 1 do
          send(test, :building)
          Process.sleep(:infinity)
        end

        Nx.add(t, 1)
      end

      run = fn ->
        Nx.default_backend(Mlx.Backend)
        Nx.to_number(jit(fun, Nx.tensor(1)))
      end

      builder = spawn(run)
      assert_receive :building
      waiters = for _ <- 1..4, do: Task.async(run)
      Process.sleep(20)
      Process.exit(builder, :kill)

      assert Task.await_many(waiters) == [2, 2, 2, 2]
      assert count(counter) == 2
    end
  end

  test "a worker that was restarted gets programs and constants of its own", %{counter: counter} do
    table = Nx.tensor([1, 2], backend: Nx.BinaryBackend)

    fun = fn t ->
      :counters.add(counter, 1, 1)
      Nx.add(t, table)
    end

    compiled = Nx.Defn.compile(fun, [table], compiler: Mlx.Compiler, device: :cpu)
    jitted = Nx.Defn.jit(fun, compiler: Mlx.Compiler, device: :cpu)

    for _ <- 1..2 do
      assert Nx.to_flat_list(compiled.(table)) == [2, 4]
      assert Nx.to_flat_list(jitted.(table)) == [2, 4]
      :ok = Mlx.Device.stop(:cpu)
    end

    assert count(counter) == 2
  end

  test "a module that is compiled again is traced again, also where it is captured by name" do
    t = Nx.tensor([1.0])
    Code.compiler_options(ignore_module_conflict: true)
    on_exit(fn -> Code.compiler_options(ignore_module_conflict: false) end)

    for factor <- [2, 3] do
      Code.compile_string("""
      defmodule Mlx.Compiler.CacheTest.Redefined do
        import Nx.Defn
        defn by_defn(t), do: t * #{factor}
        def by_name(t), do: Nx.multiply(t, #{factor})
      end
      """)

      module = Mlx.Compiler.CacheTest.Redefined
      assert Nx.to_flat_list(jit(Function.capture(module, :by_name, 1), t)) == [factor / 1]
      assert Nx.to_flat_list(jit(Function.capture(module, :by_defn, 1), t)) == [factor / 1]
      Nx.Defn.default_options(compiler: Mlx.Compiler)
      assert Nx.to_flat_list(apply(module, :by_defn, [t])) == [factor / 1]
    end
  after
    Nx.Defn.default_options([])
  end

  test "a function that compiles itself does not wait for itself" do
    key = make_ref()

    assert Cache.fetch(key, fn -> {:outer, Cache.fetch(key, fn -> :inner end)} end) ==
             {:outer, :inner}

    assert Cache.lookup(key) == {:outer, :inner}
  end

  test "hits and misses are counted", %{counter: counter} do
    fun = counted(counter)
    before = Mlx.Compiler.cache_info()
    for _ <- 1..5, do: jit(fun, Nx.tensor(1))
    info = Mlx.Compiler.cache_info()
    assert info.hits - before.hits >= 4
    assert info.misses - before.misses >= 1
  end

  test "telemetry reports compilations only", %{counter: counter} do
    fun = counted(counter)
    id = {__MODULE__, counter}

    :telemetry.attach_many(
      id,
      [[:mlx, :compile, :start], [:mlx, :compile, :stop], [:mlx, :compile, :exception]],
      &__MODULE__.forward/4,
      self()
    )

    for _ <- 1..3, do: jit(fun, Nx.iota({3}))
    assert_received {:start, %{}, %{key: ^fun, device: _}}
    assert_received {:stop, %{duration: _}, %{key: ^fun, instructions: _, inputs: 1, outputs: 1}}
    refute_received {:start, _, %{key: ^fun}}

    fails = fn _ -> raise "no" end
    assert_raise RuntimeError, fn -> jit(fails, Nx.tensor(1)) end
    assert_received {:exception, _, %{key: ^fails, kind: :error}}
  after
    :telemetry.detach({__MODULE__, counter})
  end

  def forward(event, measurements, metadata, test),
    do: send(test, {List.last(event), measurements, metadata})

  describe "the table" do
    # A cache of its own takes the place of the application's.
    setup do
      supervisor =
        Enum.find_value(Supervisor.which_children(Mlx.Supervisor), fn {id, pid, _, _} ->
          if id == Cache and is_pid(pid), do: Mlx.Supervisor
        end)

      :ok = Supervisor.terminate_child(supervisor, Cache)
      on_exit(fn -> {:ok, _} = Supervisor.restart_child(supervisor, Cache) end)
    end

    test "is bounded and drops what was used least recently" do
      start_supervised!({Cache, size: 3})
      for key <- [:a, :b, :c], do: Cache.fetch(key, fn -> {:built, key} end)
      assert Cache.lookup(:a) == {:built, :a}
      Cache.fetch(:d, fn -> {:built, :d} end)

      assert Cache.lookup(:b) == nil
      for key <- [:a, :c, :d], do: assert(Cache.lookup(key) == {:built, key})
      assert %{entries: 3, limit: 3, evictions: 1} = Cache.info()
    end

    test "may be of size zero" do
      start_supervised!({Cache, size: 0})
      assert Cache.fetch(:a, fn -> 1 end) == 1
      assert Cache.lookup(:a) == nil
      tasks = for _ <- 1..4, do: Task.async(fn -> Cache.fetch(:a, fn -> 2 end) end)
      assert Task.await_many(tasks) == [2, 2, 2, 2]
    end

    test "is checked for its size" do
      Process.flag(:trap_exit, true)
      assert {:error, {%ArgumentError{message: message}, _}} = Cache.start_link(size: :many)
      assert message =~ "compiler_cache_size"
    end

    test "is missed without harm", %{counter: counter} do
      fun = counted(counter)
      for _ <- 1..2, do: assert(Nx.to_number(jit(fun, Nx.tensor(1))) == 2)
      assert count(counter) == 2
      assert Mlx.Compiler.cache_info().entries == 0
      assert Mlx.Compiler.clear_cache() == :ok
    end

    test "may lose its process while a function is compiled", %{counter: counter} do
      {:ok, cache} = start_supervised({Cache, size: 3})

      fun = fn t ->
        :counters.add(counter, 1, 1)
        if count(counter) == 1, do: Process.exit(cache, :kill)
        Nx.add(t, 1)
      end

      assert Nx.to_number(jit(fun, Nx.tensor(1))) == 2
    end
  end
end
