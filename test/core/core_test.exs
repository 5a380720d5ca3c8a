defmodule Mlx.CoreTest do
  # Oracle: the examples of the documentation, and values computed by hand.
  use ExUnit.Case, async: true

  doctest Mlx
  doctest Mlx.Array
  doctest Mlx.Device
end

defmodule Mlx.MemoryTest do
  # Memory is the whole VM's, so these run alone.
  use ExUnit.Case, async: false
  doctest Mlx.Memory

  alias Mlx.Native

  test "deallocation gives the memory back" do
    worker = Mlx.Device.worker(:cpu)
    size = 4_000_000
    slack = 1_000_000
    before = settled(worker, nil)
    x = Native.from_binary(worker, {:f, 32}, {size}, :binary.copy(<<0::32>>, size))
    Native.eval([x])
    assert Mlx.Memory.info().active >= before + 4 * size - slack
    Native.deallocate(x)
    Native.sync(worker)
    assert Mlx.Memory.info().active < before + 4 * size - slack
  end

  # What other tests have left is freed first: until nothing changes for a while.
  defp settled(worker, last) do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
    Native.sync(worker)
    Process.sleep(50)

    case Mlx.Memory.info().active do
      ^last -> last
      active -> settled(worker, active)
    end
  end

  test "a lower limit refuses what exceeds it, and only that" do
    before = Mlx.Memory.set_limit(1_000_000)
    on_exit(fn -> Mlx.Memory.set_limit(before) end)

    error =
      assert_raise Mlx.Error, fn ->
        Mlx.Array.from_binary(:binary.copy(<<0>>, 2_000_000), {:u, 8}, {2_000_000})
      end

    assert error.kind == :out_of_memory
    assert Exception.message(error) =~ "limit of 1000000 bytes"
    assert Mlx.Array.to_binary(Mlx.Array.from_binary(<<7>>, {:u, 8}, {1})) == <<7>>
  end
end

defmodule Mlx.DeviceTest do
  # Stops the default worker, so it runs alone.
  use ExUnit.Case, async: false

  alias Mlx.{Array, Device}

  test "a stopped device starts anew at its next use, and old arrays say what happened" do
    old = Array.from_binary(<<1>>, {:u, 8}, {1}, device: :cpu)
    assert Array.to_binary(old) == <<1>>
    assert Device.stop(:cpu) == :ok
    assert_raise Mlx.Error, ~r/stopped/, fn -> Array.to_binary(old) end
    new = Array.from_binary(<<2>>, {:u, 8}, {1}, device: :cpu)
    assert Array.to_binary(new) == <<2>>
  end

  test "arrays outlive a crash of the process that publishes the worker" do
    array = Array.from_binary(<<1>>, {:u, 8}, {1}, device: :cpu)
    pid = Process.whereis(Device.Worker.name(:cpu))
    ref = Process.monitor(pid)
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^ref, _, _, _}
    assert Array.to_binary(array) == <<1>>
    assert Array.to_binary(Array.from_binary(<<2>>, {:u, 8}, {1}, device: :cpu)) == <<2>>
  end

  test "a device is stopped also while its process is being restarted" do
    for _ <- 1..3 do
      array = Array.from_binary(<<1>>, {:u, 8}, {1}, device: :cpu)
      assert Array.to_binary(array) == <<1>>
      Process.exit(Process.whereis(Device.Worker.name(:cpu)), :kill)
      assert Device.stop(:cpu) == :ok
      assert_raise Mlx.Error, ~r/stopped/, fn -> Array.to_binary(array) end
    end
  end

  test "a device that is not there is refused by name" do
    assert_raise Mlx.Error, ~r/{:gpu, 999} is not there/, fn ->
      Array.from_binary(<<1>>, {:u, 8}, {1}, device: {:gpu, 999})
    end

    assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, fn ->
      Array.from_binary(<<1>>, {:u, 8}, {1}, devise: :cpu)
    end
  end
end
