if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Session do
    @moduledoc false
    # A run of the fuzzer: rounds, in which processes take the numbers of cases from a counter and run
    # them at the same time, on the shared worker and on streams of their own, with some tensors in
    # common. Between rounds nothing runs, so memory can be counted, and some cases are run again alone.

    alias Mlx.Fuzz.{Code, Gen, Report, Smallest, Values}
    alias Mlx.Fuzz.Run.Finding

    @defaults [seed: 1, calls: 10_000, minutes: nil, processes: 4, timeout: 30_000] ++
                [round: 4_000, log: nil, quiet: false, first: 0, only: nil]

    @doc """
    Runs until `:calls` calls were made or `:minutes` are over. Answers a report, see
    `Mlx.Fuzz.Report`, with what was found under `:findings`.
    """
    def run(opts) do
      opts = @defaults |> Keyword.merge(opts) |> Map.new()
      depth = :erlang.system_flag(:backtrace_depth, 60)
      table = :ets.new(:fuzz, [:public, write_concurrency: true])
      Nx.default_backend(Mlx.Backend)
      shared = Map.new(1..Gen.shared_count(), &{&1, shared(&1)})

      state = %{
        opts: opts,
        table: table,
        shared: shared,
        next: :atomics.new(1, []),
        report: Report.new(opts.seed),
        started: now(),
        told: now(),
        baseline: nil
      }

      :atomics.put(state.next, 1, opts.first)

      try do
        rounds(state)
      after
        :erlang.system_flag(:backtrace_depth, depth)
      end
    end

    defp shared(k), do: k |> Gen.shared() |> Values.tensor({Mlx.Backend, []})
    defp now, do: System.monotonic_time(:millisecond)

    defp rounds(state) do
      state = state |> one_round() |> memory()

      if over?(state),
        do: %{state.report | seconds: (now() - state.started) / 1000},
        else: rounds(state)
    end

    defp over?(%{opts: opts} = state) do
      late? = opts.minutes && now() - state.started > opts.minutes * 60_000
      late? || (opts.minutes == nil and state.report.calls >= opts.calls)
    end

    ## One round

    defp one_round(%{opts: opts} = state) do
      last = :atomics.get(state.next, 1) + min(opts.round, opts.calls)
      workers = for slot <- 1..opts.processes, into: %{}, do: {start(state, slot, last), slot}
      state = attend(state, workers, last)
      state |> alone()
    end

    defp start(state, slot, last) do
      {pid, _ref} =
        spawn_monitor(__MODULE__, :work, [self(), slot, last, Map.delete(state, :report)])

      pid
    end

    @doc false
    def work(session, slot, last, state) do
      Nx.default_backend(Mlx.Backend)
      # Every other process has a stream, which changes with the rounds.
      if rem(slot + div(last, 7), 2) == 0, do: Mlx.Stream.put_default(Mlx.Stream.new())
      # A raw file belongs to its process.
      log = state.opts.log && File.open!("#{state.opts.log}.#{slot}", [:write, :raw, :binary])
      cases(session, slot, last, Map.put(state, :log, log))
    end

    defp cases(session, slot, last, state) do
      index = :atomics.add_get(state.next, 1, 1)

      if index <= last do
        note(state, slot, index)
        {steps, outcome} = one(state, index)
        send(session, {:case, index, tally(steps, outcome), outcome(outcome)})
        cases(session, slot, last, state)
      end
    end

    # For whoever looks after a VM that died, and for the session to see who hangs.
    defp note(%{log: log, table: table, opts: opts}, slot, index) do
      :ets.insert(table, {slot, index, now()})

      if log, do: :file.pwrite(log, 0, String.pad_trailing("#{opts.seed} #{index}", 40))
    end

    @doc "The case number `index`: its steps, and what came of them."
    def one(%{opts: opts, shared: shared}, index) do
      steps = Gen.chain(opts.seed, index, opts.only)
      {steps, Smallest.check(steps, ways(index), shared)}
    end

    @doc "The ways in which the case number `index` is run."
    def ways(index) do
      if(rem(index, 2) == 0, do: [:compiled], else: []) ++
        if(rem(index, 5) == 0, do: [:again], else: [])
    end

    defp tally(steps, {:ok, results, _notes}) do
      raised = if is_atom(List.last(results)), do: length(results) - 1

      for {step, i} <- steps |> Enum.take(length(results)) |> Enum.with_index(),
          do: {step.module, step.name, i == raised}
    end

    defp tally(steps, finding),
      do: for(step <- Enum.take(steps, finding.step + 1), do: {step.module, step.name, false})

    defp outcome({:ok, results, notes}), do: {:ok, :erlang.phash2(results), notes}
    defp outcome(finding), do: finding

    defp attend(state, workers, _last) when workers == %{}, do: state

    defp attend(state, workers, last) do
      receive do
        {:case, index, calls, outcome} ->
          state |> told() |> count(index, calls, outcome) |> attend(workers, last)

        {:DOWN, _ref, :process, pid, reason} ->
          {slot, workers} = Map.pop(workers, pid)

          if reason == :normal,
            do: attend(state, workers, last),
            else: died(state, workers, slot, last, reason)
      after
        500 -> state |> told() |> hanging(workers) |> attend(workers, last)
      end
    end

    defp died(state, workers, slot, last, reason) do
      [{^slot, index, _}] = :ets.lookup(state.table, slot)
      kind = if reason == :killed, do: :hang, else: :died

      # What hangs may hang here as well.
      task = Task.async(fn -> Gen.chain(state.opts.seed, index, state.opts.only) end)

      steps =
        case Task.yield(task, 2_000) || Task.shutdown(task, :brutal_kill) do
          {:ok, steps} -> steps
          _ -> []
        end

      report =
        Report.lost(
          state.report,
          kind,
          index,
          steps,
          inspect(reason, limit: 12)
        )

      attend(%{state | report: report}, Map.put(workers, start(state, slot, last), slot), last)
    end

    defp hanging(state, workers) do
      for {pid, slot} <- workers,
          [{_, _, since}] <- [:ets.lookup(state.table, slot)],
          now() - since > state.opts.timeout,
          do: Process.exit(pid, :kill)

      state
    end

    defp count(state, index, calls, outcome) do
      report = Report.calls(state.report, calls)

      case outcome do
        {:ok, hash, notes} ->
          sample = if rem(index, 23) == 0, do: [{index, hash}], else: []
          %{state | report: %{Report.notes(report, notes) | sample: sample ++ report.sample}}

        %Finding{} = finding ->
          %{state | report: found(report, index, finding, state)}
      end
    end

    # The first of a kind is made small.
    defp found(report, index, finding, state) do
      if Report.known?(report, finding) do
        Report.found(report, index, finding, nil)
      else
        line = Smallest.line(Gen.chain(state.opts.seed, index, state.opts.only), finding)
        unless state.opts.quiet, do: IO.puts(Report.text(finding, state.opts.seed, index, line))
        Report.found(report, index, finding, line)
      end
    end

    ## Between rounds

    # What several processes computed at the same time has the bits that one gets alone.
    defp alone(state) do
      report =
        Enum.reduce(state.report.sample, %{state.report | sample: []}, fn {index, hash}, report ->
          # In a process whose mailbox nobody else writes to.
          task = Task.async(fn -> Nx.default_backend(Mlx.Backend) && one(state, index) end)
          {steps, outcome} = Task.await(task, :infinity)

          case outcome(outcome) do
            {:ok, ^hash, _} -> report
            {:ok, _, _} -> Report.found(report, index, changed(steps), Code.line(steps))
            %Finding{} = finding -> Report.found(report, index, finding, Code.line(steps))
          end
        end)

      %{state | report: report}
    end

    defp changed(steps) do
      step = List.last(steps)

      %Finding{
        kind: :not_repeated_alone,
        step: 0,
        module: step.module,
        name: step.name,
        text: "other bits than with other processes"
      }
    end

    # Everything that a round made is collected. What stays, such as constants of the backend's
    # programs, has been made in the first rounds.
    defp memory(state) do
      Mlx.Compiler.clear_cache()
      active = settled(30)

      cond do
        state.report.rounds < 2 ->
          %{state | baseline: active, report: Report.ended(state.report, active)}

        active <= state.baseline + 65_536 ->
          %{state | report: Report.ended(state.report, active)}

        true ->
          leak(state, active)
      end
    end

    defp leak(state, active) do
      finding = %Finding{
        kind: :leak,
        step: 0,
        module: Nx,
        name: :any,
        text: "#{active} bytes are active after a round, and #{state.baseline} were"
      }

      unless state.opts.quiet, do: IO.puts(finding.text)

      report =
        state.report
        |> Report.ended(active)
        |> Report.found(:atomics.get(state.next, 1), finding, "a round")

      %{state | baseline: active, report: report}
    end

    defp settled(tries) do
      Enum.each(Process.list(), &:erlang.garbage_collect/1)

      Mlx.Stream.sync(%Mlx.Stream{
        worker: Mlx.Device.worker(Mlx.Device.default()),
        device: Mlx.Device.default()
      })

      before = Mlx.Memory.info().active
      Process.sleep(20)
      if tries > 0 and Mlx.Memory.info().active != before, do: settled(tries - 1), else: before
    end

    defp told(%{opts: %{quiet: true}} = state), do: state

    defp told(state) do
      if now() - state.told < 5_000 do
        state
      else
        IO.puts(Report.progress(state.report, (now() - state.started) / 1000))
        %{state | told: now()}
      end
    end
  end
end
