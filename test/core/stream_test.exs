defmodule Mlx.StreamTest do
  # Streams: where things are made and computed, and what crosses from one to another. Oracle:
  # values computed by hand, the worker that an array belongs to, and what a caller can observe.
  # Memory and threads are the whole VM's, so these run alone.
  use ExUnit.Case, async: false

  alias Mlx.{Array, Device, Error, Native, NIF, Stream}

  doctest Mlx.Stream

  defp floats(values), do: for(value <- values, into: <<>>, do: <<value::float-32-native>>)

  defp made(values, shape \\ nil),
    do: Array.from_binary(floats(values), {:f, 32}, shape || {length(values)}, device: :cpu).ref

  defp on(stream, fun), do: Stream.with_default(stream, fun)
  defp new, do: Stream.new(:cpu)
  defp read(ref), do: for(<<value::float-32-native <- Native.to_binary(ref)>>, do: value)
  defp negate(ref), do: hd(Native.run([{:negative, [0]}], [1], [ref]))
  defp add(a, b), do: hd(Native.run([{:add, [0, 1]}], [2], [a, b]))
  defp at?(ref, stream), do: NIF.worker_owns(stream.worker, ref)

  # Keeps the stream's worker busy for about a tenth of a second, on one core.
  defp occupy(stream) do
    on(stream, fn ->
      x = made(List.duplicate(0.5, 1_000_000))
      hd(Native.run(for(slot <- 0..19, do: {:sin, [slot]}), [20], [x]))
    end)
  end

  defp threads, do: length(File.ls!("/proc/self/task"))

  describe "a process's stream" do
    test "is where it makes arrays and computes" do
      stream = new()

      on(stream, fn ->
        x = made([1.0, 2.0])
        assert at?(x, stream) and at?(negate(x), stream)
        assert read(negate(x)) == [-1.0, -2.0]
      end)

      x = made([1.0])
      refute at?(x, stream)
      assert NIF.worker_owns(Device.worker(:cpu), negate(x))
    end

    test "is that process's alone, and nests" do
      {outer, inner} = {new(), new()}

      on(outer, fn ->
        assert Task.await(Task.async(&Stream.default/0)) == nil
        assert_raise RuntimeError, fn -> on(inner, fn -> raise "out" end) end
        assert Stream.default() == outer
      end)

      assert Stream.default() == nil
    end

    test "computes what was made elsewhere" do
      stream = new()
      x = made([1.0])
      assert at?(on(stream, fn -> negate(x) end), stream)
    end

    test "must be a stream" do
      assert_raise FunctionClauseError, fn -> apply(Stream, :put_default, [:cpu]) end
      assert_raise ArgumentError, ~r/a device is/, fn -> Stream.new(:tpu) end
      assert %Error{kind: :invalid_argument} = catch_error(Stream.new({:gpu, 999}))
    end
  end

  describe "an array of another stream" do
    test "is used where it is computed, without a copy" do
      {a, b} = {new(), new()}
      x = on(a, fn -> made(List.duplicate(1.0, 1_000_000)) end)
      Native.eval([x])
      before = Mlx.Memory.info().active
      sum = on(b, fn -> hd(Native.run([{{:sum_axes, [0], false}, [0]}], [1], [x])) end)
      assert read(sum) == [1.0e6]
      assert Mlx.Memory.info().active - before < 1_000_000
    end

    test "is used where it is not, which waits for it" do
      {a, b} = {new(), new()}
      slow = occupy(a)
      x = on(a, fn -> negate(made([1.0])) end)
      assert read(on(b, fn -> add(x, made([3.0])) end)) == [2.0]
      # What came before it on its own stream had to be done.
      assert {:f, 32} == elem(Native.describe(slow), 0)
    end

    test "decides where, if the process has no stream" do
      {a, b} = {new(), new()}
      {x, y} = {on(a, fn -> made([1.0]) end), on(b, fn -> made([2.0]) end)}
      assert at?(add(x, y), a) and at?(add(y, x), b)
      assert read(add(x, y)) == [3.0] and read(add(y, x)) == [3.0]
    end

    test "gives its error to those who use it" do
      {a, b} = {new(), new()}
      bad = on(a, fn -> add(made([1.0, 2.0]), made([1.0, 2.0, 3.0])) end)
      error = catch_error(read(on(b, fn -> negate(bad) end)))
      assert %Error{kind: :native, op: "add"} = error
      assert read(on(b, fn -> negate(made([1.0])) end)) == [-1.0]
    end

    test "stays what it is there when its owner frees it" do
      {a, b} = {new(), new()}
      x = on(a, fn -> made([1.0, 2.0]) end)
      Native.eval([x])
      slow = occupy(b)
      y = on(b, fn -> negate(x) end)
      assert Native.deallocate(x) == :ok
      assert_raise Error, ~r/deallocated/, fn -> on(b, fn -> negate(x) end) end
      assert read(y) == [-1.0, -2.0]
      Native.eval([slow])
    end

    test "can be evaluated together with others" do
      arrays = for _ <- 1..3, do: on(new(), fn -> negate(made([1.0])) end)
      assert Native.eval(arrays ++ arrays) == :ok
      assert Enum.map(arrays, &read/1) == [[-1.0], [-1.0], [-1.0]]
    end

    test "is not used across devices, but for scalars" do
      # Without a second device the refusal cannot be seen; with one, it names both.
      if {:gpu, 0} in Device.list() do
        here = made([1.0, 2.0])
        there = Array.from_binary(floats([1.0, 2.0]), {:f, 32}, {2}, device: :gpu).ref
        assert_raise Error, ~r/different devices.*transfer/, fn -> add(here, there) end
        assert read(on(new(), fn -> add(there, made([1.0], {})) end)) == [2.0, 3.0]
      end
    end
  end

  test "streams do not wait for each other" do
    {a, b} = {new(), new()}
    slow = occupy(a)
    answer = Task.async(fn -> on(b, fn -> read(negate(made([1.0]))) end) end)
    waiting = Task.async(fn -> Native.eval([slow]) end)
    assert Task.await(answer) == [-1.0]
    # The answer was there first: the other's products take much longer than an operation.
    assert Task.yield(waiting, 0) == nil
    Task.await(waiting, :infinity)
  end

  test "sixteen processes with streams share weights and get their own results" do
    weights = made(Enum.map(1..100, &(&1 / 1)))

    results =
      1..16
      |> Task.async_stream(
        fn i ->
          Stream.put_default(new())
          x = made([i / 1], {})
          for _ <- 1..200, do: read(hd(Native.run([{:multiply, [0, 1]}], [2], [weights, x])))
        end,
        max_concurrency: 16,
        timeout: :infinity
      )
      |> Enum.map(fn {:ok, results} -> Enum.uniq(results) end)

    assert results == for(i <- 1..16, do: [for(j <- 1..100, do: i * j / 1)])
  end

  describe "a stream that ends" do
    test "loses nothing: arrays on it, computed or not, stay" do
      results =
        for i <- 1..50 do
          Task.await(
            Task.async(fn ->
              Stream.put_default(new())
              x = made([i / 1])
              {x, negate(x)}
            end)
          )
        end

      :erlang.garbage_collect()

      for {{x, y}, i} <- Enum.with_index(results, 1),
          do: assert({read(x), read(y)} == {[i / 1], [-i / 1]})
    end

    test "loses nothing when its process is killed while it computes" do
      parent = self()

      {pid, monitor} =
        spawn_monitor(fn ->
          stream = new()
          Stream.put_default(stream)
          occupy(stream)
          send(parent, {:made, negate(made([1.0]))})
          Process.sleep(:infinity)
        end)

      assert_receive {:made, y}, 5000
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, _, _, _}
      assert read(y) == [-1.0]
    end

    test "leaves its thread to the next one" do
      # Two for each if there are none to be had. On a busy machine many are still at their end when
      # the next one begins, but they do not get ever more.
      assert settles(fn ->
               before = threads()
               for _ <- 1..20, do: use_and_end()
               threads() - before <= 5
             end)
    end

    test "gives its memory back" do
      use_and_end(4_000_000)
      before = Mlx.Memory.info().active
      for _ <- 1..10, do: use_and_end(4_000_000)
      assert settles(fn -> Mlx.Memory.info().active - before < 8_000_000 end)
    end

    defp use_and_end(count \\ 1) do
      Task.await(
        Task.async(fn ->
          Stream.put_default(new())
          read(negate(made([1.0]))) == [-1.0] || raise "wrong"
          x = Array.from_binary(<<0::size(count)-unit(32)>>, {:f, 32}, {count}, device: :cpu)
          Native.eval([negate(x.ref)])
        end),
        :infinity
      )

      :erlang.garbage_collect()
    end
  end

  test "there is a bound, and what is garbage does not count" do
    # The device's worker counts as well.
    assert read(negate(made([1.0]))) == [-1.0]
    for _ <- 1..600, do: new()
    {streams, error} = fill([])
    assert length(streams) in 300..512
    assert %Error{kind: :invalid_argument, op: "stream"} = error
    assert Exception.message(error) =~ "512 streams are in use"
    assert read(negate(made([1.0]))) == [-1.0]
    # Referred to until here.
    assert Enum.all?(streams, &(Stream.sync(&1) == :ok))
  end

  defp fill(streams) do
    fill([new() | streams])
  rescue
    error in Error -> {streams, error}
  end

  test "inspects as its device" do
    assert inspect(new()) =~ ~r/^#Mlx.Stream<:cpu, [\d.]+>$/
  end

  defp settles(condition, tries \\ 100) do
    cond do
      condition.() -> true
      tries == 0 -> false
      true -> Process.sleep(20) && settles(condition, tries - 1)
    end
  end
end
