defmodule Mlx.Soak.Latency do
  @moduledoc false
  # How long schedulers, and readers of results, keep others waiting.
  #
  # Each scheduler has a probe that takes precedence over other processes, so that a message to it
  # waits for what the scheduler was at without giving way, and for the operating system to give the
  # scheduler a core. Times are counted in classes, in constant memory: what measures must not grow.

  # Microseconds below 1, and then 8 classes from each power of two to the next.
  @classes 240
  @kinds [:probe, :read, :read_on_stream]

  @type times :: %{count: non_neg_integer, p50: float, p99: float, max: float}
  @type t :: %{
          probe: times,
          read: times,
          read_on_stream: times,
          long_schedules: non_neg_integer,
          long_in_nif: non_neg_integer,
          longest: [{mfa :: tuple | :undefined, non_neg_integer}],
          waited_for_core: float | nil
        }

  @doc "Starts probes, and counts what runs for a millisecond and longer without giving way."
  def start do
    handle = %{
      counts: Map.new(@kinds, &{&1, :counters.new(@classes, [])}),
      most: Map.new(@kinds, &{&1, :atomics.new(1, [])}),
      waited: :atomics.new(1, [])
    }

    probes = for scheduler <- 1..System.schedulers_online(), do: start_probe(handle, scheduler)
    watcher = spawn_link(fn -> watch(%{}) end)
    before = :erlang.system_monitor(watcher, [{:long_schedule, 1}])
    Map.merge(handle, %{watcher: watcher, pids: [watcher | probes], before: before})
  end

  def stop(handle) do
    :erlang.system_monitor(handle.before)

    for pid <- handle.pids do
      Process.unlink(pid)
      Process.exit(pid, :kill)
    end

    :ok
  end

  @doc "Takes note of a time in microseconds. A longest one may be lost to another at the same moment."
  def note(handle, kind, time) do
    :counters.add(handle.counts[kind], class(time), 1)
    most = handle.most[kind]
    if time > :atomics.get(most, 1), do: :atomics.put(most, 1, time)
    :ok
  end

  def reset(handle) do
    for kind <- @kinds do
      for class <- 1..@classes, do: :counters.put(handle.counts[kind], class, 0)
      :atomics.put(handle.most[kind], 1, 0)
    end

    send(handle.watcher, :reset)
    :atomics.put(handle.waited, 1, waited() || 0)
    :ok
  end

  @spec read(map) :: t
  def read(handle) do
    ref = make_ref()
    send(handle.watcher, {:read, self(), ref})
    long = receive do: ({^ref, long} -> long)
    count = fn where -> Enum.sum(for {at, count} <- long, where.(at), do: count) end

    @kinds
    |> Map.new(&{&1, times(handle.counts[&1], handle.most[&1])})
    |> Map.merge(%{
      long_schedules: count.(fn _ -> true end),
      long_in_nif: count.(&nif?/1),
      longest: long |> Enum.sort_by(&(-elem(&1, 1))) |> Enum.take(3),
      waited_for_core: (now = waited()) && (now - :atomics.get(handle.waited, 1)) / 1.0e9
    })
  end

  # The one that asks sleeps, and says when it asked; the other is bound to the scheduler.
  defp start_probe(handle, scheduler) do
    :erlang.spawn_opt(
      fn ->
        probe =
          :erlang.spawn_opt(fn -> probe(handle) end, [
            :link,
            priority: :high,
            scheduler: scheduler
          ])

        ask(probe)
      end,
      [:link, priority: :high]
    )
  end

  defp ask(probe) do
    Process.sleep(2)
    send(probe, System.monotonic_time())
    ask(probe)
  end

  defp probe(handle) do
    receive do
      asked ->
        now = System.monotonic_time()
        note(handle, :probe, System.convert_time_unit(now - asked, :native, :microsecond))
    end

    probe(handle)
  end

  # Where a process gave way at last.
  defp watch(long) do
    receive do
      {:monitor, _pid, :long_schedule, info} ->
        watch(Map.update(long, info[:out] || :undefined, 1, &(&1 + 1)))

      :reset ->
        watch(%{})

      {:read, from, ref} ->
        send(from, {ref, long})
        watch(long)

      _ ->
        watch(long)
    end
  end

  defp nif?({Mlx.NIF, _, _}), do: true
  defp nif?(_), do: false

  # Nanoseconds for which all schedulers together had something to do and no core.
  defp waited do
    times =
      for path <- Path.wildcard("/proc/self/task/*"),
          {:ok, "erts_sched" <> _} <- [File.read(Path.join(path, "comm"))],
          {:ok, stat} <- [File.read(Path.join(path, "schedstat"))],
          [_, waited, _] <- [String.split(stat)],
          do: String.to_integer(waited)

    if times != [], do: Enum.sum(times)
  end

  defp class(time) when time < 1, do: 1
  defp class(time), do: min(2 + trunc(8 * :math.log2(time)), @classes)

  # The upper end of a class.
  defp time(1), do: 1.0
  defp time(class), do: 2 ** ((class - 1) / 8)

  defp times(counts, most) do
    all = for class <- 1..@classes, do: {class, :counters.get(counts, class)}
    count = Enum.sum(for {_, count} <- all, do: count)
    most = :atomics.get(most, 1) / 1
    quantile = fn share -> min(quantile(all, share * count), most) end
    %{count: count, p50: quantile.(0.5), p99: quantile.(0.99), max: most}
  end

  defp quantile(all, wanted) do
    Enum.reduce_while(all, 0, fn {class, count}, before ->
      if before + count >= wanted, do: {:halt, time(class)}, else: {:cont, before + count}
    end)
  end
end
