defmodule Mlx.Compiler.Cache do
  @moduledoc false
  # Compiled functions by `{function, worker, argument types}`, so that a function is traced once.
  #
  # A process owns the table and hands out the right to build an entry, which is what makes
  # concurrent misses build once. Hits never reach the process: they are one ETS lookup and one
  # write to the entry's own atomic, whose time stamp decides what is dropped when the table is
  # full. The build itself runs in the caller, whose process dictionary Nx reads while tracing;
  # should the caller raise or die, its waiters are told to try again and one of them builds.
  # Without the process (the application is not started) functions are compiled, only not kept.
  #
  # Events are emitted by the callers, whose processes a slow handler may keep. A hit is on the path
  # of every call and has none of its own: the event of the run says that there was one.

  use GenServer

  @table __MODULE__
  @default_limit 512

  @type info :: %{
          entries: non_neg_integer,
          limit: non_neg_integer,
          hits: non_neg_integer,
          misses: non_neg_integer,
          evictions: non_neg_integer
        }

  @doc false
  def start_link(opts \\ []) do
    GenServer.start_link(__MODULE__, opts, name: __MODULE__)
  end

  @doc "The entry under `key`, or nil. Counts as a use, at the time `now`."
  @spec lookup(term, integer) :: term | nil
  def lookup(key, now \\ System.monotonic_time()) do
    {value, used, hits} = :ets.lookup_element(@table, key, 2)
    :atomics.put(used, 1, now)
    :counters.add(hits, 1, 1)
    value
  catch
    :error, :badarg -> nil
  end

  @doc """
  The entry under `key`, built by `build` unless another process does so first. `metadata` is that
  of the events.
  """
  @spec fetch(term, map, (-> value)) :: value when value: term
  def fetch(key, metadata \\ %{}, build) do
    case call({:lock, key}) do
      :ready ->
        lookup(key) || fetch(key, metadata, build)

      :retry ->
        fetch(key, metadata, build)

      {:build, sizes} ->
        :telemetry.execute([:mlx, :cache, :miss], sizes, metadata)
        build_locked(key, metadata, build)

      # Either this process is already building `key`, further up its stack, or there is no cache.
      :uncached ->
        build.()
    end
  end

  defp build_locked(key, metadata, build) do
    value = build.()

    case call({:put, key, value}) do
      %{count: count} = sizes when count > 0 ->
        :telemetry.execute([:mlx, :cache, :eviction], sizes, metadata)

      _ ->
        :ok
    end

    value
  catch
    kind, reason ->
      call({:release, key})
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  @doc "Drops every entry. Builds that are running still add theirs."
  @spec clear() :: :ok
  def clear do
    with %{} = sizes <- call(:clear), do: :telemetry.execute([:mlx, :cache, :clear], sizes, %{})
    :ok
  end

  @doc "What the cache holds and has seen."
  @spec info() :: info
  def info do
    with :uncached <- call(:info),
         do: %{entries: 0, limit: 0, hits: 0, misses: 0, evictions: 0}
  end

  defp call(message) do
    GenServer.call(__MODULE__, message, :infinity)
  catch
    :exit, _no_cache -> :uncached
  end

  ## The owner

  @impl true
  def init(opts) do
    limit = opts[:size] || Application.get_env(:mlx, :compiler_cache_size, @default_limit)

    unless is_integer(limit) and limit >= 0 do
      raise ArgumentError,
            "config :mlx, :compiler_cache_size must be a non-negative integer, got: " <>
              inspect(limit)
    end

    :ets.new(@table, [:named_table, :protected, read_concurrency: true])

    {:ok,
     %{
       limit: limit,
       locks: %{},
       monitors: %{},
       next: 0,
       misses: 0,
       evictions: 0,
       hits: :counters.new(1, [:write_concurrency])
     }}
  end

  @impl true
  def handle_call({:lock, key}, {pid, _tag} = from, state) do
    case state.locks do
      %{^key => {^pid, _monitor, _waiters}} ->
        {:reply, :uncached, state}

      %{^key => {builder, monitor, waiters}} ->
        {:noreply, put_in(state.locks[key], {builder, monitor, [from | waiters]})}

      %{} ->
        if :ets.member(@table, key), do: {:reply, :ready, state}, else: lock(key, pid, state)
    end
  end

  def handle_call({:put, key, value}, _from, state) do
    used = :atomics.new(1, signed: true)
    :atomics.put(used, 1, System.monotonic_time())
    :ets.insert(@table, {key, {value, used, state.hits}, state.next, used})
    before = state.evictions
    state = evict(%{state | next: state.next + 1})
    sizes = Map.put(sizes(state), :count, state.evictions - before)
    {:reply, sizes, unlock(key, :ready, state)}
  end

  def handle_call({:release, key}, _from, state), do: {:reply, :ok, unlock(key, :retry, state)}

  def handle_call(:clear, _from, state) do
    count = :ets.info(@table, :size)
    :ets.delete_all_objects(@table)
    {:reply, Map.put(sizes(state), :count, count), state}
  end

  def handle_call(:info, _from, state) do
    info = %{
      hits: :counters.get(state.hits, 1),
      misses: state.misses,
      evictions: state.evictions
    }

    {:reply, Map.merge(sizes(state), info), state}
  end

  defp sizes(state), do: %{entries: :ets.info(@table, :size), limit: state.limit}

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, state) do
    case state.monitors do
      %{^monitor => key} -> {:noreply, unlock(key, :retry, state)}
      %{} -> {:noreply, state}
    end
  end

  def handle_info(_message, state), do: {:noreply, state}

  defp lock(key, pid, state) do
    monitor = Process.monitor(pid)

    state = %{
      state
      | locks: Map.put(state.locks, key, {pid, monitor, []}),
        monitors: Map.put(state.monitors, monitor, key),
        misses: state.misses + 1
    }

    {:reply, {:build, sizes(state)}, state}
  end

  defp unlock(key, answer, state) do
    case Map.pop(state.locks, key) do
      {nil, _locks} ->
        state

      {{_pid, monitor, waiters}, locks} ->
        Process.demonitor(monitor, [:flush])
        Enum.each(waiters, &GenServer.reply(&1, answer))
        %{state | locks: locks, monitors: Map.delete(state.monitors, monitor)}
    end
  end

  # The scan reads stamps only, never keys, which may hold large closures. It costs microseconds
  # per hundred entries and runs once per compilation at most.
  defp evict(state) do
    excess = :ets.info(@table, :size) - state.limit
    if excess > 0, do: evict(state, excess), else: state
  end

  defp evict(state, excess) do
    @table
    |> :ets.select([{{:_, :_, :"$1", :"$2"}, [], [{{:"$1", :"$2"}}]}])
    |> Enum.sort_by(fn {_id, used} -> :atomics.get(used, 1) end)
    |> Enum.take(excess)
    |> Enum.each(fn {id, _used} ->
      :ets.select_delete(@table, [{{:_, :_, id, :_}, [], [true]}])
    end)

    %{state | evictions: state.evictions + excess}
  end
end
