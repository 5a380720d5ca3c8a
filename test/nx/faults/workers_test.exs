defmodule Mlx.Faults.WorkersTest do
  # Workers that are stopped, panic, and are posted more than they do; processes of the application
  # that are killed, and the application stopped. Oracle: what others get, and what is left behind.
  use ExUnit.Case, async: false

  import Mlx.Faults

  alias Mlx.{Device, Native, NIF}

  @moduletag timeout: :infinity
  @moduletag capture_log: true

  defp tensor(values), do: Nx.tensor(values, type: :f32, backend: {Mlx.Backend, device: :cpu})

  defp work(number) do
    x = tensor([number, -number])
    eager = x |> Nx.multiply(x) |> Nx.add(1)
    compiled = Nx.Defn.jit_apply(&Nx.subtract(&1, &2), [eager, x], compiler: Mlx.Compiler)
    square = number * number + 1.0
    {Nx.to_flat_list(compiled), [square - number, square + number]}
  end

  defp works?(number) do
    {got, wanted} = work(number)
    got == wanted
  rescue
    error in Mlx.Error -> error.kind != :stopped && reraise(error, __STACKTRACE__)
  end

  defp device_process, do: Process.whereis(Device.Worker.name(:cpu))

  # Keeps a worker busy for a while.
  # The worker computes for some tenths of a second, and the task waits for it.
  defp occupy(worker) do
    x = Native.from_binary(worker, {:f, 32}, {256, 256}, :binary.copy(<<0::32>>, 256 * 256))
    [slow] = Native.run(for(slot <- 0..399, do: {:matmul, [slot, slot]}), [400], [x])
    task = Task.async(fn -> Native.eval([slow]) end)
    Process.sleep(20)
    task
  end

  setup do
    {got, wanted} = work(1)
    assert got == wanted
    :ok
  end

  test "a device is stopped while others compute on it" do
    leaves_nothing([threads: 8], fn ->
      with_survivors([kinds: [:stopped]], &work/1, fn ->
        for _ <- 1..rounds(100) do
          inject(:device_stopped)
          Device.stop(:cpu)
          Process.sleep(:rand.uniform(5))
        end
      end)
    end)

    {got, wanted} = work(7)
    assert got == wanted
  end

  test "jobs panic while others compute" do
    leaves_nothing(fn ->
      with_survivors(&work/1, fn ->
        for _ <- 1..rounds(20) do
          inject(:job_panicked)
          assert %Mlx.Error{kind: :panic} = catch_error(Native.panic(Device.worker(:cpu)))
        end
      end)
    end)
  end

  test "every process of the application is killed while others compute" do
    leaves_nothing([threads: 8], fn ->
      with_survivors([kinds: [:stopped]], &work/1, fn ->
        for round <- 1..rounds(1) do
          # Their supervisor gives up after three restarts in five seconds, of which it counts whole ones.
          if round > 1, do: Process.sleep(6_500)

          for {id, pid, _, _} <- Supervisor.which_children(Mlx.Supervisor) do
            inject(:child_killed)
            Process.exit(pid, :kill)
            alive? = fn -> Process.whereis(id) not in [nil, pid] end
            assert eventually(alive?), "#{inspect(id)} is not there again"
          end

          # The process that the killed supervisor left may only now be about to end.
          assert eventually(fn -> works?(round) and device_process() != nil end)
          inject(:child_killed)
          Process.exit(device_process(), :kill)
        end
      end)
    end)
  end

  test "the application is stopped and started while others compute" do
    leaves_nothing([threads: 8], fn ->
      with_survivors([kinds: [:stopped]], &work/1, fn ->
        for _ <- 1..rounds(20) do
          inject(:application_stopped)
          :ok = Application.stop(:mlx)
          Process.sleep(:rand.uniform(5))
          :ok = Application.start(:mlx)
          Process.sleep(:rand.uniform(20))
        end
      end)
    end)
  end

  test "a queue is full, of one process and of many" do
    leaves_nothing([threads: 2], fn ->
      %{worker: worker} = Mlx.Stream.new(:cpu)
      x = Native.from_binary(worker, {:f, 32}, {1}, <<1.0::float-32-native>>)
      chain = for slot <- 0..999, do: {:negative, [slot]}

      for _ <- 1..rounds(5) do
        slow = occupy(worker)
        # Nothing is begun before that is done.
        posted = Stream.repeatedly(fn -> NIF.run(worker, chain, [1000], [x]) end)
        assert :busy in Enum.take(posted, 100)
        inject(:queue_full)

        tasks =
          for _ <- 1..8 do
            Task.async(fn ->
              last =
                Enum.reduce(1..5_000, x, fn _, x ->
                  hd(Native.run([{:negative, [0]}], [1], [x]))
                end)

              Native.to_binary(last)
            end)
          end

        assert Enum.uniq(Task.await_many(tasks, :infinity)) == [<<1.0::float-32-native>>]
        assert Task.await(slow) == :ok
      end
    end)
  end
end
