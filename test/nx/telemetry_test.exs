defmodule Mlx.TelemetryTest do
  @moduledoc """
  Oracle: what handlers of `:telemetry` are given.
  """
  use Mlx.CompilerCase, async: false
  doctest Mlx.Telemetry

  setup do
    Nx.default_backend(Mlx.Backend)
    # A cache that others have filled would tell of an eviction at each miss.
    Mlx.Compiler.clear_cache()
    id = {__MODULE__, make_ref()}
    :ok = :telemetry.attach_many(id, Mlx.Telemetry.events(), &__MODULE__.forward/4, self())
    on_exit(fn -> :telemetry.detach(id) end)
  end

  # Other tests may run meanwhile, and their events are theirs.
  def forward(event, measurements, metadata, test) do
    if self() == test or test in Process.get(:"$callers", []),
      do: send(test, {:event, event, measurements, metadata})
  end

  # Told apart from the functions of other tests by what it captures.
  defp fun(and_then \\ &Function.identity/1) do
    ref = make_ref()
    fn t -> if is_reference(ref), do: and_then.(Nx.add(t, 1)) end
  end

  defp events do
    receive do
      {:event, event, measurements, metadata} -> [{event, measurements, metadata} | events()]
    after
      0 -> []
    end
  end

  # Memory that grows is told whoever made it grow.
  defp names(events), do: for({[:mlx | name], _, _} <- events, name != [:memory], do: name)

  defp only(events, name) do
    [{_, measurements, metadata}] =
      Enum.filter(events, fn {event, _, _} -> event == [:mlx | name] end)

    {measurements, metadata}
  end

  test "the documentation and the list of events are the same" do
    {:docs_v1, _, _, _, %{"en" => doc}, _, _} = Code.fetch_docs(Mlx.Telemetry)
    documented = for [text] <- Regex.scan(~r/\[:mlx, :\w+(?:, :\w+)?\]/, doc), do: text

    assert Enum.sort(Enum.uniq(documented)) ==
             Enum.sort(Enum.map(Mlx.Telemetry.events(), &inspect/1))
  end

  describe "calls of compiled functions" do
    test "the first call misses and compiles, later ones hit" do
      fun = fun()
      jit(fun, [1])
      events = events()

      assert names(events) == [
               [:cache, :miss],
               [:compile, :start],
               [:compile, :stop],
               [:run, :stop]
             ]

      device = Mlx.Device.default()
      {%{duration: duration}, metadata} = only(events, [:run, :stop])
      assert is_integer(duration) and duration > 0
      assert metadata == %{key: fun, device: device, cached?: false, mode: :posted}
      assert {sizes, %{key: ^fun, device: ^device}} = only(events, [:cache, :miss])

      assert sizes == %{entries: 0, limit: Mlx.Compiler.cache_info().limit}

      jit(fun, [1])
      assert [{[:mlx, :run, :stop], _, %{key: ^fun, cached?: true}}] = events()
    end

    test "a call does not count the compilation that it waits for" do
      slow = fun(fn t -> Process.sleep(300) && t end)
      jit(slow, [1])
      events = events()
      {%{duration: compile, trace: trace}, _} = only(events, [:compile, :stop])
      {%{duration: run}, _} = only(events, [:run, :stop])
      least = System.convert_time_unit(300, :millisecond, :native)
      assert trace >= least and compile >= trace
      assert run < least
    end

    test "of a function compiled ahead, once per call" do
      fun = fun()
      compiled = Nx.Defn.compile(fun, [Nx.template({}, :s32)], compiler: Mlx.Compiler)
      assert names(events()) == [[:cache, :miss], [:compile, :start], [:compile, :stop]]
      for i <- 1..3, do: compiled.(Nx.tensor(i))
      events = events()
      assert names(events) == List.duplicate([:run, :stop], 3)
      for {_, _, metadata} <- events, do: assert(%{key: ^fun, cached?: true} = metadata)
    end

    test "that are attended last until their functions have run" do
      call = fn t -> Nx.runtime_call(t, t, [], fn t, _ -> Process.sleep(100) && t end) end
      jit(fun(call), [1])
      {%{duration: duration}, %{mode: :attended}} = only(events(), [:run, :stop])
      assert duration >= System.convert_time_unit(100, :millisecond, :native)
    end

    test "that are evaluated" do
      Application.put_env(:mlx, :fallback, :silent)
      wide = Nx.tensor(Complex.new(1, 2), type: :c128, backend: Nx.BinaryBackend)
      jit(fun(), [wide])
      assert {_, %{mode: :evaluated}} = only(events(), [:run, :stop])
    after
      Application.put_env(:mlx, :fallback, :raise)
    end

    test "that raise: hooks, calls, arguments" do
      hook = fn t -> Nx.Defn.Kernel.hook(t, fn _ -> raise "no hook" end) end
      call = fn t -> Nx.runtime_call(t, t, [], fn _, _ -> throw(:no_call) end) end

      for {body, args, mode, kind, reason} <- [
            {hook, [1], :posted, :error, %RuntimeError{message: "no hook"}},
            {call, [1], :attended, :throw, :no_call}
          ] do
        fun = fun(body)

        try do
          jit(fun, args)
        catch
          ^kind, ^reason -> :ok
        end

        events = events()
        {%{duration: _}, metadata} = only(events, [:run, :exception])
        assert %{key: ^fun, mode: ^mode, kind: ^kind, reason: ^reason, cached?: false} = metadata
        assert [{_, _, _, _} | _] = metadata.stacktrace
        refute [:run, :stop] in names(events)
      end

      fun = fun()
      catch_error(jit(fn t -> jit(fun, [t], on_conflict: :force) end, [1]))
      {_, metadata} = only(events(), [:run, :exception])
      assert %{key: ^fun, kind: :error, reason: %ArgumentError{}} = metadata
    end
  end

  describe "compilations" do
    test "are measured by phase, and counted" do
      fun = fun(&Nx.exp/1)
      jit(fun, [Nx.tensor([1, 2])])
      {measurements, metadata} = only(events(), [:compile, :stop])
      %{duration: duration, trace: trace, lower: lower, build: build} = measurements
      for time <- [trace, lower, build], do: assert(is_integer(time) and time >= 0)
      assert trace + lower + build <= duration

      assert %{key: ^fun, device: _, inputs: 1, outputs: 1, instructions: 4, operations: 2} =
               Map.take(metadata, [:key, :device, :inputs, :outputs, :instructions, :operations])
    end

    test "that raise" do
      fails = fun(fn _ -> raise "no" end)
      assert_raise RuntimeError, fn -> jit(fails, [1]) end
      events = events()
      assert names(events) == [[:cache, :miss], [:compile, :start], [:compile, :exception]]
      {_, metadata} = only(events, [:compile, :exception])
      assert %{key: ^fails, kind: :error, reason: %RuntimeError{}, stacktrace: [_ | _]} = metadata
    end
  end

  describe "the cache" do
    test "is cleared" do
      jit(fun(), [1])
      events()
      Mlx.Compiler.clear_cache()
      assert [{[:mlx, :cache, :clear], %{count: count, entries: 0, limit: limit}, %{}}] = events()
      assert count >= 1 and limit == Mlx.Compiler.cache_info().limit
      Mlx.Compiler.clear_cache()
      assert [{_, %{count: 0}, _}] = events()
    end

    test "drops what was used least recently" do
      :ok = Supervisor.terminate_child(Mlx.Supervisor, Mlx.Compiler.Cache)
      start_supervised!({Mlx.Compiler.Cache, size: 2})
      jit(fun(), [1])
      jit(fun(), [1])
      refute [:cache, :eviction] in names(events())
      fun = fun()
      jit(fun, [1])
      {sizes, %{key: ^fun, device: _}} = only(events(), [:cache, :eviction])
      assert sizes == %{count: 1, entries: 2, limit: 2}
    after
      stop_supervised(Mlx.Compiler.Cache)
      {:ok, _} = Supervisor.restart_child(Mlx.Supervisor, Mlx.Compiler.Cache)
    end
  end

  describe "memory" do
    test "is told when asked for" do
      held = Nx.iota({1000, 1000}, type: :f32)
      Nx.to_binary(Nx.sum(held))
      events()
      assert Mlx.Telemetry.memory() == :ok
      assert [{[:mlx, :memory], sizes, %{cause: :asked}}] = events()
      assert %{active: active, peak: peak, cache: _, limit: limit} = sizes
      assert active >= 4_000_000 and peak >= active and limit > 0
      Nx.backend_deallocate(held)
    end

    test "is told when it has grown" do
      held =
        Enum.reduce_while(1..64, [], fn i, held ->
          t = Nx.add(Nx.iota({4_000_000}, type: :f32), i)
          Nx.to_number(t[0])
          pressure = for {[:mlx, :memory], sizes, metadata} <- events(), do: {sizes, metadata}
          if pressure == [], do: {:cont, [t | held]}, else: {:halt, {pressure, [t | held]}}
        end)

      assert {[{%{active: active}, metadata}], kept} = held
      # What the first operations took meanwhile may be free again.
      assert active >= 32_000_000
      assert metadata == %{cause: :pressure, device: Mlx.Device.default()}
      Enum.each(kept, &Nx.backend_deallocate/1)
    end
  end

  test "a fallback names the operation" do
    wide = Nx.tensor(Complex.new(1, 2), type: :c128, backend: Nx.BinaryBackend)
    catch_error(Nx.add(wide, Nx.tensor(1)))
    assert {%{}, %{op: :add}} = only(events(), [:fallback])
  end
end
