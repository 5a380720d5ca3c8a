defmodule Mlx.Faults do
  @moduledoc false
  # Faults done on purpose: how many, and what must be as it was before once they are over.

  import ExUnit.Assertions

  @doc "How many faults a test does: a few, and MLX_FAULTS times as many where that is set."
  def rounds(few), do: few * String.to_integer(System.get_env("MLX_FAULTS", "1"))

  @doc "Counts faults of a kind."
  def inject(kind, count \\ 1), do: :ets.update_counter(__MODULE__, kind, count, {kind, 0})

  @doc "Has the faults counted, and their numbers printed after the suite."
  def count do
    :ets.new(__MODULE__, [:named_table, :public])

    ExUnit.after_suite(fn _ ->
      case Enum.sort(:ets.tab2list(__MODULE__)) do
        [] ->
          :ok

        counts ->
          all = counts |> Enum.map(&elem(&1, 1)) |> Enum.sum()
          each = Enum.map_join(counts, ", ", fn {kind, count} -> "#{kind} #{count}" end)
          IO.puts("faults: #{all} (#{each})")
      end
    end)
  end

  @doc "Waits until `fun` answers true, for ten seconds."
  def eventually(fun, left \\ 1000) do
    cond do
      fun.() -> true
      left == 0 -> false
      true -> Process.sleep(10) && eventually(fun, left - 1)
    end
  end

  @doc """
  Calls `fun`, and asserts that nothing is left of it: bytes in use, processes, ports, ETS tables, and
  messages in this mailbox. `:threads` may stay, which wait for the next streams.
  """
  def leaves_nothing(opts \\ [], fun) do
    start_cores()
    settle()
    before = snapshot()
    {:message_queue_len, messages} = Process.info(self(), :message_queue_len)
    result = fun.()
    assert {:message_queue_len, messages} == Process.info(self(), :message_queue_len)
    allowed = Keyword.validate!(opts, threads: 0, bytes: 1_000_000)
    left? = fn -> settle() && difference(before, snapshot(), allowed) == [] end
    unless eventually(left?), do: flunk(inspect(difference(before, snapshot(), allowed)))
    result
  end

  # The threads of the other cores are there from the first loop on that is worth sharing.
  defp start_cores,
    do:
      Nx.iota({1_000_000}, backend: {Mlx.Backend, device: :cpu}) |> Nx.negate() |> Nx.to_binary()

  @doc "Has what was dropped freed."
  def settle do
    :erlang.garbage_collect()
    # The BEAM destroys some time after that what it found.
    Process.sleep(1)
    Mlx.Device.sync(:cpu)
    true
  end

  defp snapshot do
    threads =
      case File.ls("/proc/self/task") do
        {:ok, threads} -> length(threads)
        _ -> 0
      end

    %{
      active: Mlx.Memory.info().active,
      processes: Enum.map(Process.list(), &named/1),
      ports: Port.list(),
      tables: Enum.map(:ets.all(), &:ets.info(&1, :name)),
      threads: threads
    }
  end

  # One that was started again has its name again.
  defp named(pid) do
    case Process.info(pid, :registered_name) do
      {:registered_name, name} -> name
      _ -> pid
    end
  end

  defp difference(before, later, allowed) do
    List.flatten([
      for key <- [:processes, :ports, :tables],
          what <- Map.get(later, key) -- Map.get(before, key) do
        {key, if(is_pid(what), do: Process.info(what), else: what)}
      end,
      if(later.active > before.active + allowed[:bytes],
        do: [active: later.active - before.active],
        else: []
      ),
      if(later.threads > before.threads + allowed[:threads],
        do: [threads: later.threads - before.threads],
        else: []
      )
    ])
  end

  @doc """
  Calls `fun` while processes compute, each its own numbers and over and over again: what they get is
  right, no message is left in their mailboxes, and every one of them got somewhere. They may be told
  of an error of one of these `:kinds`, and then try again.
  """
  def with_survivors(opts \\ [], work, fun) do
    opts = Keyword.validate!(opts, count: 4, kinds: [])
    stop = :atomics.new(1, [])

    tasks =
      for number <- 1..opts[:count],
          do: Task.async(fn -> survive(number, work, stop, opts[:kinds], {0, 0}) end)

    result =
      try do
        fun.()
      after
        :atomics.put(stop, 1, 1)
      end

    for {done, _failed} <- Task.await_many(tasks, 60_000), do: assert(done > 0)
    result
  end

  defp survive(number, work, stop, kinds, {done, failed}) do
    outcome =
      try do
        work.(number + rem(done, 100))
      rescue
        error in Mlx.Error ->
          if error.kind in kinds, do: :failed, else: reraise(error, __STACKTRACE__)
      end

    counts =
      case outcome do
        :failed -> {done, failed + 1}
        {got, wanted} -> assert(got == wanted) && {done + 1, failed}
      end

    if :atomics.get(stop, 1) == 0 or elem(counts, 0) == 0 do
      survive(number, work, stop, kinds, counts)
    else
      assert {:message_queue_len, 0} == Process.info(self(), :message_queue_len)
      counts
    end
  end

  @doc "Starts `fun` in a process, kills it at a random moment of the first milliseconds, and waits."
  def kill_in(milliseconds, fun) do
    {pid, monitor} = spawn_monitor(fun)
    # Sleeping takes whole milliseconds, and much happens within one.
    pause = :rand.uniform() * milliseconds
    if pause >= 2, do: Process.sleep(trunc(pause)), else: spin(trunc(pause * 1000))
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^monitor, :process, ^pid, reason}, 10_000
    reason
  end

  defp spin(microseconds) do
    until = System.monotonic_time(:microsecond) + microseconds
    spin_until(until)
  end

  defp spin_until(until) do
    :erlang.yield()
    if System.monotonic_time(:microsecond) < until, do: spin_until(until)
  end
end
