defmodule Mlx.NativeTest do
  # Oracle: values computed by hand, and what a calling process can observe.
  use ExUnit.Case, async: true

  alias Mlx.{Error, Native, NIF}

  defp worker, do: Native.start_worker(:cpu)

  defp floats(worker, values, shape \\ nil) do
    binary = for value <- values, into: <<>>, do: <<value::float-32-native>>
    Native.from_binary(worker, {:f, 32}, shape || {length(values)}, binary)
  end

  defp read(ref), do: for(<<value::float-32-native <- Native.to_binary(ref)>>, do: value)

  defp negate(ref), do: hd(Native.run([{:negative, [0]}], [1], [ref]))

  # Keeps a worker busy for a while without holding it by anything but work.
  defp occupy(worker) do
    size = 256
    x = Native.from_binary(worker, {:f, 32}, {size, size}, :binary.copy(<<0::32>>, size * size))
    instructions = for slot <- 0..39, do: {:matmul, [slot, slot]}
    [y] = Native.run(instructions, [40], [x])
    y
  end

  describe "results" do
    test "are computed in the order of posting, several instructions at once" do
      x = floats(worker(), [1.0, 2.0])
      assert [sum, x2] = Native.run([{:add, [0, 0]}, {:multiply, [1, 0]}], [2, 1], [x])
      assert read(sum) == [2.0, 8.0]
      assert read(x2) == [2.0, 4.0]
    end

    test "of a program that hands on its input are arrays of their own" do
      x = floats(worker(), [1.0])
      [copy] = Native.run([], [0], [x])
      assert Native.deallocate(x) == :ok
      assert read(copy) == [1.0]
    end

    test "are read as far as asked, also from views" do
      x = floats(worker(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], {2, 3})
      [t] = Native.run([{{:transpose_axes, [1, 0]}, [0]}], [1], [x])
      assert read(t) == [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
      assert Native.to_binary(t, 2) == <<1.0::float-32-native, 4.0::float-32-native>>
      assert Native.to_binary(t, 0) == ""
      assert Native.describe(t) == {{:f, 32}, {3, 2}}
    end

    test "of one operation that failed fail whatever depends on them, with its name" do
      worker = worker()

      [bad] =
        Native.run([{:add, [0, 1]}], [2], [
          floats(worker, [1.0, 2.0]),
          floats(worker, [1.0, 2.0, 3.0])
        ])

      later = negate(negate(bad))
      error = assert_raise Error, fn -> Native.to_binary(later) end
      assert %{kind: :native, op: "add", operands: "f32[2], f32[3]"} = error
      assert Exception.message(error) =~ "(2)"
      assert Exception.message(error) =~ "Operands: f32[2], f32[3]"
      assert read(negate(floats(worker, [1.0]))) == [-1.0]
    end

    test "raise at the operation with dispatch: :sync" do
      x = floats(worker(), [1.0, 2.0])
      assert Mlx.put_dispatch(:sync) == :async

      assert_raise Error, ~r/reshape/, fn ->
        Native.run([{{:reshape, {3}}, [0]}], [1], [x])
      end

      assert Mlx.put_dispatch(:async) == :sync
    end

    test "survive as binaries when the array is gone" do
      values = Enum.map(1..1000, &(&1 / 1))
      binary = Native.to_binary(negate(floats(worker(), values)))
      :erlang.garbage_collect()
      assert binary == for(value <- values, into: <<>>, do: <<-value::float-32-native>>)
    end
  end

  describe "bad input is an error" do
    test "for a binary of the wrong size" do
      error = assert_raise Error, fn -> Native.from_binary(worker(), {:f, 32}, {3}, <<0::64>>) end
      assert error.kind == :invalid_argument
      assert Exception.message(error) =~ "takes 12 bytes, and the binary has 8"
    end

    test "for a rank, an axis or a size beyond bounds" do
      worker = worker()

      for {shape, message} <- [
            {List.to_tuple(List.duplicate(1, 40)), "rank 40 exceeds the 32 axes"},
            {{-1}, "out of range"},
            {{4_294_967_296}, "out of range"},
            {{2_000_000_000, 2_000_000_000, 2_000_000_000}, "out of range"},
            {{1.5}, "is not a shape"}
          ] do
        assert_raise Error, ~r/#{message}/, fn ->
          Native.from_binary(worker, {:u, 8}, shape, <<0>>)
        end
      end
    end

    test "for a result larger than the memory limit, before it is allocated" do
      x = floats(worker(), [1.0])
      [huge] = Native.run([{{:broadcast_to, {1_000_000, 1_000_000}}, [0]}], [1], [x])
      error = assert_raise Error, fn -> Native.eval([huge]) end
      assert %{kind: :out_of_memory, op: "broadcast_to"} = error
    end

    test "for instructions that are none" do
      x = floats(worker(), [1.0])

      for bad <- [
            [{:no_such_operation, [0]}],
            [{{:sum_axes, [0]}, [0]}],
            [{{:sum_axes, :all, false}, [0]}],
            [{:add, [0, 9]}],
            [{:add, :operands}],
            [:add],
            :add,
            [{{:reshape, List.to_tuple(List.duplicate(1, 40))}, [0]}],
            [{{:astype, {:f, 8}}, [0]}]
          ] do
        error = assert_raise Error, fn -> Native.run(bad, [0], [x]) end
        assert error.kind == :invalid_argument
      end

      assert_raise Error, ~r/returns slot 5/, fn -> Native.run([], [5], [x]) end
      assert_raise ArgumentError, fn -> Native.run([], [0], [make_ref()]) end
    end
  end

  test "operands of different workers come together where the first one is" do
    {x, y} = {floats(worker(), [1.0]), floats(worker(), [2.0])}
    assert Native.eval([x, y]) == :ok

    for {first, second} <- [{x, y}, {y, x}] do
      [sum] = Native.run([{:add, [0, 1]}], [2], [first, second])
      assert read(sum) == [3.0]
      assert NIF.worker_owns(NIF.worker_of(first), sum)
    end
  end

  describe "deallocation" do
    test "frees, says so a second time, and makes later use an error" do
      worker = worker()
      x = floats(worker, [1.0, 2.0])
      pending = negate(x)
      assert Native.deallocate(x) == :ok
      assert Native.deallocate(x) == :already_deallocated
      # What was posted before still has its operand.
      assert read(pending) == [-1.0, -2.0]
      assert_raise Error, ~r/deallocated/, fn -> Native.to_binary(x) end
      assert_raise Error, ~r/deallocated/, fn -> negate(x) end
    end
  end

  describe "a worker" do
    test "that is stopped answers what is queued, and its arrays say so" do
      worker = worker()
      x = floats(worker, [1.0])
      assert read(x) == [1.0]
      occupy(worker)
      tasks = for _ <- 1..20, do: Task.async(fn -> catch_error(Native.to_binary(negate(x))) end)
      NIF.worker_stop(worker)
      assert NIF.worker_stopped(worker)

      for task <- tasks do
        assert %Error{kind: :stopped} = Task.await(task, :infinity)
      end

      assert_raise Error, ~r/stopped/, fn -> Native.to_binary(x) end
      assert_raise Error, ~r/stopped/, fn -> Native.to_binary(negate(x)) end
      assert_raise Error, ~r/stopped/, fn -> Native.sync(worker) end
    end

    test "survives a panic inside a job" do
      worker = worker()
      error = assert_raise Error, fn -> Native.panic(worker) end
      assert %{kind: :panic} = error
      assert Exception.message(error) =~ "provoked"
      assert read(negate(floats(worker, [1.0]))) == [-1.0]
    end

    test "does nothing for callers that were killed while they waited" do
      worker = worker()
      started = System.monotonic_time()
      Native.eval([occupy(worker)])
      once = System.monotonic_time() - started
      # Each waits for as much work as was just timed, behind the first one's.
      pids = for _ <- 1..400, do: spawn(fn -> Native.eval([occupy(worker)]) end)
      Process.sleep(20)
      for pid <- pids, do: Process.exit(pid, :kill)
      started = System.monotonic_time()
      assert read(negate(floats(worker, [1.0]))) == [-1.0]
      assert System.monotonic_time() - started < 100 * once
    end

    test "gives up what never ends once whoever waits for it is killed" do
      worker = worker()
      x = floats(worker, [1.0])
      # While x == x, x is -x.
      forever =
        {{:while, {1, [{:equal, [0, 0]}], [1]}, {1, [{:negative, [0]}], [1]}}, [0]}

      for wait <- [&Native.to_binary/1, &Native.eval([&1]), &Native.describe/1] do
        pid = spawn(fn -> [forever] |> Native.run([1], [x], worker) |> hd() |> wait.() end)
        Process.sleep(50)
        Process.exit(pid, :kill)
        assert read(negate(x)) == [-1.0]
      end
    end

    test "keeps up with ten thousand results that nobody reads" do
      worker = worker()
      x = floats(worker, List.duplicate(1.0, 1000))
      unread = for _ <- 1..10_000, do: negate(x)
      assert read(List.last(unread)) == List.duplicate(-1.0, 1000)
    end

    test "bounds what a chain of results that nobody reads holds" do
      worker = worker()
      size = 250_000

      x =
        Native.from_binary(worker, {:f, 32}, {size}, :binary.copy(<<1.0::float-32-native>>, size))

      Native.eval([x])
      Mlx.Memory.reset_peak()
      before = Mlx.Memory.info().active
      last = Enum.reduce(1..5000, x, fn _, x -> negate(x) end)
      assert <<1.0::float-32-native, _::binary>> = Native.to_binary(last)
      assert Mlx.Memory.info().peak - before < 2_000_000_000
    end

    test "leaves no message behind" do
      x = floats(worker(), [1.0])
      read(negate(x))
      Native.eval([x])
      refute_received _
    end
  end

  test "waiting does not slow down with a full mailbox" do
    x = floats(worker(), [1.0])
    Native.eval([x])
    time = fn -> elem(:timer.tc(fn -> for(_ <- 1..200, do: Native.eval([x])) end), 0) end
    time.()
    empty = time.()
    for i <- 1..200_000, do: send(self(), i)
    full = time.()
    # Scanning the mailbox at each of the 200 calls would take 100 times longer and more.
    assert full < 20 * empty + 100_000
  end
end
