defmodule Bench.Rounds do
  @moduledoc """
  Measures a workload: all peers compute it, and what they computed is compared; then they take
  turns, round by round, so that whatever else the machine does meets all of them.
  """
  alias Bench.{Compare, Inputs, Peer}

  @typedoc """
  What became of a peer in a row: figures by their names, one of each round; or why there are none.
  """
  @type outcome ::
          {:measured, %{String.t() => [float]}} | {:absent | :failed | :differs, String.t()}

  @typedoc """
  How long: rounds, batches in a round, milliseconds per batch, milliseconds before each turn, and
  how long a peer may take for an answer.
  """
  @type pace :: %{
          rounds: pos_integer,
          batches: pos_integer,
          batch_ms: number,
          pause_ms: non_neg_integer,
          timeout: timeout
        }

  @spec pace(:full | :smoke) :: pace
  def pace(:full), do: %{rounds: 7, batches: 3, batch_ms: 20, pause_ms: 100, timeout: 120_000}
  def pace(:smoke), do: %{rounds: 1, batches: 1, batch_ms: 0, pause_ms: 0, timeout: 120_000}

  @doc """
  Measures a row with these peers, the first of which is what the others are compared with. Where one
  of them differs, nobody is timed.
  """
  @spec measure(Bench.Workloads.row(), [Peer.t()], Path.t(), pace) ::
          {[{String.t(), outcome}], [Peer.t()]}
  def measure(row, peers, folder, pace) do
    File.mkdir_p!(folder)
    description = Inputs.write!(row, folder)
    checked = Enum.map(peers, &checked(&1, row, description, folder, pace))
    {outcomes, peers} = Enum.unzip(checked)
    outcomes = compared(outcomes, row)

    {outcomes, peers} =
      if Enum.any?(outcomes, &match?({:differs, _}, &1)),
        do: {Enum.map(outcomes, &untimed/1), peers},
        else: timed(outcomes, peers, row, pace)

    {Enum.zip(Enum.map(peers, & &1.name), outcomes), peers}
  after
    File.rm_rf!(folder)
  end

  # {:results, results} of those that can do it.
  defp checked(peer, row, description, folder, pace) do
    path = Path.join(folder, "result-#{peer.name}")

    with {["ok"], peer} <- Peer.ask(peer, "load #{description}", pace.timeout),
         {["ok" | types], peer} <- results(row, peer, path, pace) do
      results =
        for {type, i} <- Enum.with_index(types) do
          numbers = File.read!("#{path}.#{i}")
          File.rm!("#{path}.#{i}")
          {type, numbers}
        end

      {{:results, results}, peer}
    else
      {["none" | words], peer} -> {{:absent, Enum.join(words, " ")}, peer}
      {["failed" | words], peer} -> {failure(words), peer}
    end
  end

  defp results(%{mode: :gauge}, peer, _path, _pace), do: {["ok"], peer}
  defp results(_row, peer, path, pace), do: Peer.ask(peer, "check #{path}", pace.timeout)

  # Python's peers may notice only while they compute that they cannot.
  defp failure(words), do: {:failed, Enum.join(words, " ")}

  defp compared([{:results, expected} | others], row) do
    others =
      for outcome <- others do
        with {:results, results} <- outcome do
          case Compare.check(results, expected, row.check, row.tolerance) do
            :ok -> outcome
            differs -> differs
          end
        end
      end

    [{:results, expected} | others]
  end

  defp compared(outcomes, _row), do: outcomes

  defp untimed({:results, _}), do: {:differs, "not timed, since another differs"}
  defp untimed(outcome), do: outcome

  defp timed(outcomes, peers, row, pace) do
    runners =
      for {{:results, _}, i} <- Enum.with_index(outcomes),
          do: {i, count(Enum.at(peers, i), row, pace)}

    peers = :array.from_list(peers)
    start = {Map.new(runners, fn {i, _} -> {i, []} end), peers}

    {figures, peers} =
      for round <- 1..pace.rounds, {i, count} <- in_turn(runners, round), reduce: start do
        {figures, peers} ->
          # Threads of the one before wait for more work in a loop for a while.
          Process.sleep(pace.pause_ms)
          {answer, peer} = turn(:array.get(i, peers), row, count, pace)
          {Map.update!(figures, i, &[answer | &1]), :array.set(i, peer, peers)}
      end

    outcomes =
      for {outcome, i} <- Enum.with_index(outcomes),
          do: if(figures[i], do: figures(Enum.reverse(figures[i]), row), else: outcome)

    {outcomes, :array.to_list(peers)}
  end

  # Another one begins each round, and every other round goes the other way, so that none always
  # follows the same one.
  defp in_turn(runners, round) do
    {first, last} = Enum.split(runners, rem(round, max(length(runners), 1)))
    if rem(round, 2) == 0, do: last ++ first, else: Enum.reverse(last ++ first)
  end

  # How many calls fill a batch. A call of half a second is a batch, and alone in its round.
  defp count(_peer, %{mode: mode}, _pace) when mode in [:gauge, :memory], do: {1, 1}

  defp count(peer, _row, pace), do: fill(peer, 1, pace)

  defp fill(peer, count, pace) do
    wanted = pace.batch_ms * 1.0e6

    case Peer.ask(peer, "time #{count} 1", pace.timeout) do
      {["ok", time], _} ->
        time = max(number(time), 1.0)

        cond do
          time >= 0.5e9 -> {1, 1}
          count * time >= wanted / 2 -> {max(1, round(wanted / time)), pace.batches}
          true -> fill(peer, min(count * 10, ceil(wanted / time) |> max(count + 1)), pace)
        end

      _failed ->
        {1, 1}
    end
  end

  defp turn(peer, %{mode: mode}, _count, pace) when mode in [:gauge, :memory],
    do: Peer.ask(peer, "gauge", pace.timeout)

  defp turn(peer, _row, {count, batches}, pace),
    do: Peer.ask(peer, "time #{count} #{batches}", pace.timeout)

  defp figures(answers, row) do
    case Enum.find(answers, &match?(["failed" | _], &1)) do
      ["failed" | words] ->
        failure(words)

      nil ->
        numbers = for ["ok" | words] <- answers, do: Enum.map(words, &number/1)
        names = if row.gauges == [], do: ["time"], else: Enum.map(row.gauges, &elem(&1, 0))

        {:measured,
         for {name, i} <- Enum.with_index(names), into: %{} do
           {name, Enum.map(numbers, &(Enum.at(&1, i) / row.per))}
         end}
    end
  end

  defp number(text), do: text |> Float.parse() |> elem(0)
end
