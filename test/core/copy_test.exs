defmodule Mlx.CopyTest do
  # Copies from one worker to another. Oracle: values computed by hand, memory counters, and that
  # everything ends.
  # Memory is the whole VM's, so these run alone.
  use ExUnit.Case, async: false

  alias Mlx.{Array, Error, Memory, Native, NIF}

  defp worker, do: Native.start_worker(:cpu)

  defp floats(worker, values, shape \\ nil) do
    binary = for value <- values, into: <<>>, do: <<value::float-32-native>>
    Native.from_binary(worker, {:f, 32}, shape || {length(values)}, binary)
  end

  defp read(ref), do: for(<<value::float-32-native <- Native.to_binary(ref)>>, do: value)

  defp run(op, refs) do
    count = length(refs)
    hd(Native.run([{op, Enum.to_list(0..(count - 1))}], [count], refs))
  end

  # Keeps a worker busy for a while.
  defp occupy(worker) do
    size = 256
    x = Native.from_binary(worker, {:f, 32}, {size, size}, :binary.copy(<<0::32>>, size * size))
    hd(Native.run(for(slot <- 0..39, do: {:matmul, [slot, slot]}), [40], [x]))
  end

  test "has the values of what was still to be computed, and belongs to the other worker" do
    {a, b} = {worker(), worker()}
    x = floats(a, [1.0, 2.0, 3.0, 4.0], {2, 2})
    copy = {:transpose_axes, [1, 0]} |> run([run(:negative, [x])]) |> Native.copy_to(b)
    assert NIF.worker_owns(b, copy)
    assert read(copy) == [-1.0, -3.0, -2.0, -4.0]
    assert Native.describe(copy) == {{:f, 32}, {2, 2}}
    assert read(run(:add, [copy, floats(b, [1.0])])) == [0.0, -2.0, -1.0, -3.0]
  end

  test "is independent of its source, on another worker and on the same" do
    {a, b} = {worker(), worker()}

    for target <- [a, b] do
      x = floats(a, [1.0, 2.0])
      copy = Native.copy_to(x, target)
      assert Native.deallocate(x) == :ok
      assert read(copy) == [1.0, 2.0]
      assert_raise Error, ~r/deallocated/, fn -> read(x) end
      assert_raise Error, ~r/deallocated/, fn -> Native.copy_to(x, target) end

      x = floats(a, [1.0, 2.0])
      assert x |> Native.copy_to(target) |> Native.deallocate() == :ok
      assert read(x) == [1.0, 2.0]
    end
  end

  test "of what failed raises the first error" do
    {a, b} = {worker(), worker()}
    bad = run(:add, [floats(a, [1.0, 2.0]), floats(a, [1.0, 2.0, 3.0])])
    error = assert_raise Error, fn -> Native.copy_to(run(:negative, [bad]), b) end
    assert %{kind: :native, op: "add", operands: "f32[2], f32[3]"} = error
    assert read(floats(b, [1.0])) == [1.0]
  end

  test "of a stopped worker's array says so, and so does a copy on a stopped worker" do
    {a, b} = {worker(), worker()}
    x = floats(a, [1.0])
    NIF.worker_stop(b)
    copy = Native.copy_to(x, b)
    assert_raise Error, ~r/stopped/, fn -> read(copy) end
    assert read(x) == [1.0]
    earlier = Native.copy_to(run(:negative, [x]), worker())
    NIF.worker_stop(a)
    assert %Error{kind: :stopped} = catch_error(Native.copy_to(x, worker()))
    # What was copied before is the other worker's.
    assert read(run(:negative, [earlier])) == [1.0]
  end

  test "takes no memory on a CPU, and both must go to free it" do
    {a, b} = {worker(), worker()}
    size = 8_000_000
    x = Native.from_binary(a, {:u, 8}, {size}, :binary.copy(<<7>>, size))
    Native.eval([x])
    :erlang.garbage_collect()
    before = Memory.info().active
    copy = Native.copy_to(x, b)
    Native.eval([copy])
    # What other tests have left may still be freed meanwhile, but nothing is made.
    assert Memory.info().active < before + div(size, 2)
    settled = Memory.info().active
    Native.deallocate(x)
    Native.sync(a)
    assert Memory.info().active > settled - div(size, 2)
    assert Native.to_binary(copy, 3) == <<7, 7, 7>>
    Native.deallocate(copy)
    Native.sync(b)
    assert Memory.info().active < settled - div(size, 2)
  end

  test "of killed callers is freed, and the workers go on" do
    {a, b} = {worker(), worker()}
    size = 1_000_000
    sync = fn -> Enum.each([a, b], &Native.sync/1) end
    sync.()
    before = Memory.info().active

    for _ <- 1..25 do
      pid =
        spawn(fn ->
          Native.eval([occupy(a)])
          x = Native.from_binary(a, {:u, 8}, {size}, :binary.copy(<<7>>, size))
          copies = for _ <- 1..100, do: x |> Native.copy_to(b) |> Native.copy_to(a)
          Native.eval(copies)
        end)

      Process.sleep(Enum.random(0..4))
      Process.exit(pid, :kill)
    end

    assert read(Native.copy_to(floats(a, [1.0]), b)) == [1.0]

    assert eventually(fn ->
             sync.()
             Memory.info().active < before + size
           end)
  end

  test "goes back and forth between busy workers from many processes at once" do
    workers = {worker(), worker()}
    for worker <- Tuple.to_list(workers), _ <- 1..5, do: occupy(worker)

    tasks =
      for i <- 1..16 do
        Task.async(fn ->
          {from, to} = if rem(i, 2) == 0, do: workers, else: {elem(workers, 1), elem(workers, 0)}

          Enum.reduce(1..50, {floats(from, List.duplicate(0.0, 100)), from, to}, fn
            round, {x, from, to} ->
              # Both go on with it at once, and it is given up here while it is used there.
              there = Native.copy_to(run(:add, [x, floats(from, [1.0])]), to)
              here = run(:add, [x, x])
              if rem(round, 3) == 0, do: Native.deallocate(x)
              assert hd(read(here)) == 2.0 * (round - 1)
              {there, to, from}
          end)
          |> elem(0)
          |> read()
        end)
      end

    for task <- tasks, do: assert(Task.await(task, 60_000) == List.duplicate(50.0, 100))
    refute_received _
  end

  describe "Mlx.Array.copy" do
    test "refuses a device that is not there, and options that it does not know" do
      array = Array.from_binary(<<1>>, {:u, 8}, {1}, device: :cpu)

      assert_raise Error, ~r/{:gpu, 999} is not there/, fn ->
        Array.copy(array, device: {:gpu, 999})
      end

      assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, fn ->
        Array.copy(array, devise: :cpu)
      end
    end

    test "brings arrays of other workers to the device's" do
      array = %Array{ref: floats(worker(), [1.0, 2.0])}
      copy = Array.copy(array, device: :cpu)
      assert NIF.worker_owns(Mlx.Device.worker(:cpu), copy.ref)
      assert Array.to_binary(copy) == Array.to_binary(array)
    end
  end

  defp eventually(condition, tries \\ 200) do
    condition.() or (tries > 0 and Process.sleep(20) == :ok and eventually(condition, tries - 1))
  end
end
