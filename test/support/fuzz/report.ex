if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Report do
    @moduledoc false
    # What a run of the fuzzer has seen so far, and its words.

    alias Mlx.Fuzz.{Calls, Code}
    alias Mlx.Fuzz.Run.Finding

    defstruct [
      :seed,
      calls: 0,
      cases: 0,
      counts: %{},
      notes: %{},
      findings: %{},
      sample: [],
      rounds: 0,
      active: 0,
      seconds: 0
    ]

    def new(seed), do: %__MODULE__{seed: seed}

    @doc "Counts the calls of a case, `{module, name, raised?}`."
    def calls(report, calls) do
      counts =
        for {module, name, raised?} <- calls, reduce: report.counts do
          counts -> Map.update(counts, {module, name}, one(raised?), &add(&1, one(raised?)))
        end

      %{report | counts: counts, calls: report.calls + length(calls), cases: report.cases + 1}
    end

    defp one(raised?), do: {1, if(raised?, do: 1, else: 0)}
    defp add({a, b}, {c, d}), do: {a + c, b + d}

    @doc "Counts differences that are meant."
    def notes(report, notes) do
      %{
        report
        | notes: Enum.reduce(notes, report.notes, &Map.update(&2, &1, 1, fn n -> n + 1 end))
      }
    end

    def ended(report, active), do: %{report | rounds: report.rounds + 1, active: active}

    def known?(report, finding), do: is_map_key(report.findings, key(finding))

    defp key(%Finding{kind: kind, module: module, name: name}), do: {kind, module, name}

    @doc "Adds a finding, with its line if it is the first of its kind."
    def found(report, index, finding, line) do
      first = {1, finding, index, line}

      findings =
        Map.update(report.findings, key(finding), first, fn {n, f, i, l} -> {n + 1, f, i, l} end)

      %{report | findings: findings}
    end

    @doc "A case whose process ended or hangs."
    def lost(report, kind, index, steps, text) do
      step = List.last(steps) || %{module: Nx, name: :unknown}
      finding = %Finding{kind: kind, step: 0, module: step.module, name: step.name, text: text}
      found(report, index, finding, Code.line(steps))
    end

    @doc "The line of progress."
    def progress(report, seconds) do
      "#{round(seconds)} s, #{report.calls} calls in #{report.cases} chains, " <>
        "#{round(report.calls / max(seconds, 0.1))} calls/s, #{map_size(report.findings)} kinds of findings"
    end

    @doc "A finding's text."
    def text(%Finding{} = finding, seed, index, line) do
      """

      #{finding.kind}: #{inspect(finding.module)}.#{finding.name}, case #{index} of seed #{seed}
        #{String.slice(finding.text, 0, 600)}
        #{line}
      """
    end

    @doc "All that is to be said at the end."
    def summary(report) do
      [
        progress(report, report.seconds),
        "seed #{report.seed}, #{report.rounds} rounds, #{report.active} bytes active at the end",
        coverage(report),
        "differences that are meant:",
        for(
          {note, n} <- Enum.sort_by(report.notes, &elem(&1, 1), :desc),
          do: "  #{n} times: #{note}"
        ),
        "findings: #{map_size(report.findings)} kinds, #{report.findings |> Map.values() |> Enum.sum_by(&elem(&1, 0))} cases",
        for(
          {{kind, module, name}, {n, _, index, _}} <- report.findings,
          do: "  #{n} times #{kind}: #{inspect(module)}.#{name}, first case #{index}"
        )
      ]
      |> List.flatten()
      |> Enum.join("\n")
    end

    @doc "What was found, with the line of each kind."
    def findings(report) do
      Enum.map_join(report.findings, fn {_, {_n, finding, index, line}} ->
        text(finding, report.seed, index, line)
      end)
    end

    @doc "Calls per function, and the functions that were never called or always raised."
    def coverage(report) do
      rows =
        for {module, name, _} <- Calls.table(),
            do: {name, Map.get(report.counts, {module, name}, {0, 0})}

      never = for {name, {0, _}} <- rows, do: name
      raising = for {name, {n, n}} <- rows, n > 0, do: name

      words =
        Enum.map_join(Enum.sort(rows), " ", fn {name, {n, raised}} -> "#{name} #{n}/#{raised}" end)

      "#{length(rows)} functions (calls/raised): #{words}\n" <>
        "never called: #{names(never)}; always raised: #{names(raising)}"
    end

    defp names([]), do: "none"
    defp names(names), do: Enum.join(names, " ")
  end
end
