defmodule Mlx.Compiler.Progress do
  @moduledoc false
  # Says by Logger that a compilation is taking its time, from its first second on, and how far it
  # is. The function under compilation may be what is slow, so that somebody else has to watch: a
  # process per compilation, which costs microseconds and ends with it, however it ends.

  require Logger

  alias Mlx.Source

  @phases {"tracing", "lowering", "building the program"}
  @trace 1
  @lower 2
  @build 3

  # Slots of the counters.
  @phase 1
  @operations 2
  @announced 3

  # Milliseconds. Each wait doubles the time so far, up to a minute.
  @first 1_000
  @longest 60_000

  @enforce_keys [:counters, :watcher, :start]
  defstruct [:counters, :watcher, :start]

  @type t :: %__MODULE__{
          counters: :counters.counters_ref(),
          watcher: pid | nil,
          start: integer
        }

  @doc """
  Calls `compile` with what `phase/3` takes, and watches it.
  """
  @spec watch(Source.t() | nil, (t -> result)) :: result when result: var
  def watch(source, compile) do
    counters = :counters.new(3, [])
    start = now()
    watcher = if enabled?(), do: start_watcher(source, counters, start)
    progress = %__MODULE__{counters: counters, watcher: watcher, start: start}

    try do
      compile.(progress)
    catch
      kind, reason ->
        ended(progress, "gave up on", source)
        :erlang.raise(kind, reason, __STACKTRACE__)
    else
      result ->
        ended(progress, "compiled", source)
        result
    end
  end

  @doc "Does the part of a compilation, and answers how long it took, in native units."
  @spec phase(t, :trace | :lower | :build, (-> result)) :: {result, integer} when result: var
  def phase(%{counters: counters}, name, fun) do
    :counters.put(counters, @phase, number(name))
    start = now()
    result = fun.()
    {result, now() - start}
  end

  defp number(:trace), do: @trace
  defp number(:lower), do: @lower
  defp number(:build), do: @build

  @doc "Counts an operation that is lowered."
  @spec tick(:counters.counters_ref() | nil) :: :ok
  def tick(nil), do: :ok
  def tick(counters), do: :counters.add(counters, @operations, 1)

  @doc "How many operations were lowered."
  @spec operations(t) :: non_neg_integer
  def operations(%{counters: counters}), do: :counters.get(counters, @operations)

  defp enabled? do
    case Application.get_env(:mlx, :compile_log, true) do
      enabled? when is_boolean(enabled?) ->
        enabled?

      other ->
        raise ArgumentError,
              "config :mlx, compile_log: must be true or false, got: #{inspect(other)}"
    end
  end

  # The total is said by whoever compiles, so that it is there when the call returns.
  defp ended(%{watcher: nil}, _outcome, _source), do: :ok

  defp ended(%{watcher: watcher} = progress, outcome, source) do
    send(watcher, :ended)

    if :counters.get(progress.counters, @announced) == 1 do
      Logger.info(
        "Mlx.Compiler #{outcome} #{name(source)} after #{seconds(progress.start)}, " <>
          lowered(progress.counters)
      )
    end

    :ok
  end

  ## The watcher

  # It must not hold what the function captures, so it gets the name alone.
  defp start_watcher(source, counters, start) do
    {compiler, metadata} = {self(), Logger.metadata()}
    state = %{compiler: compiler, source: source, counters: counters, start: start}

    spawn(fn ->
      Process.monitor(compiler)
      Logger.metadata(metadata)
      wait(state, @first)
    end)
  end

  defp wait(state, delay) do
    receive do
      :ended -> :ok
      {:DOWN, _monitor, :process, _pid, _reason} -> :ok
    after
      delay ->
        :counters.put(state.counters, @announced, 1)

        Logger.info(
          "Mlx.Compiler is compiling #{name(state.source)}, for #{seconds(state.start)} so far: " <>
            so_far(state)
        )

        elapsed = System.convert_time_unit(now() - state.start, :native, :millisecond)
        wait(state, min(max(elapsed, @first), @longest))
    end
  end

  defp so_far(%{counters: counters, compiler: compiler}) do
    phase = :counters.get(counters, @phase)
    text = elem(@phases, max(phase, @trace) - 1)
    if phase <= @trace, do: text <> where(compiler), else: "#{text}, #{lowered(counters)}"
  end

  defp lowered(counters), do: "#{:counters.get(counters, @operations)} operations lowered"

  # The innermost function of the user's on the stack, as far as the stack is told.
  defp where(compiler) do
    with {:current_stacktrace, stack} <- Process.info(compiler, :current_stacktrace),
         {module, name, arity, location} <- Enum.find(stack, &users?/1) do
      place = Keyword.take(location, [:file, :line])
      ", now in #{Source.format(Source.outer({module, name, arity, place}))}"
    else
      _ -> ""
    end
  end

  # What is neither of Nx nor of what carries it.
  defp users?({module, _name, _arity, location}) do
    location[:line] not in [nil, 0] and
      Application.get_application(module) not in [:nx, :mlx, :elixir, :stdlib, :telemetry]
  end

  defp name(nil), do: "a function"
  defp name(source), do: Source.format(source)

  defp seconds(start) do
    milliseconds = System.convert_time_unit(now() - start, :native, :millisecond)
    :io_lib.format("~.1f s", [milliseconds / 1000])
  end

  defp now, do: System.monotonic_time()
end
