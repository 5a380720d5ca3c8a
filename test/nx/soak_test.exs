defmodule Mlx.SoakTest do
  # A short soak, whose work knows its results, and what judges a long one. Oracle: curves made up here.
  use ExUnit.Case, async: false

  alias Mlx.Soak.{Chart, Judge, Samples}

  @moduletag capture_log: true

  test "work of all kinds, beside each other" do
    report = Mlx.Soak.run(8, interval: 250)
    assert report.failures == []
    for {load, rounds} <- report.rounds, do: assert(rounds > 0, "nothing was done of #{load}")

    # Too short a time to say what grows, but not that something is lost.
    settled = for name <- [:ports, :tables, :processes], do: verdict(report.verdicts, name)
    assert Enum.all?(settled, & &1.flat?), inspect(settled)

    assert length(report.samples) >= 16

    assert %{mixed: %{probe: probe, read: read, read_on_stream: %{count: count}}} =
             Map.new(report.latency)

    assert probe.count > 0 and read.count > 0 and count > 0
    assert probe.p50 <= probe.p99 and probe.p99 <= probe.max

    [names | lines] =
      report.samples |> Samples.csv() |> IO.iodata_to_binary() |> String.split("\n", trim: true)

    assert "at,resident" <> _ = names
    assert length(lines) == length(report.samples)

    svg = report.samples |> Chart.svg() |> IO.iodata_to_binary()
    assert length(String.split(svg, "<polyline")) == length(String.split(names, ","))
  end

  test "a wrong result, and a process that ends, is a failure" do
    latency = Mlx.Soak.Latency.start()
    Process.flag(:trap_exit, true)
    [reader, other] = Mlx.Soak.Loads.start_readers(latency)
    Process.exit(reader, :wrong)
    assert_receive {:EXIT, ^reader, :wrong}
    send(self(), {:EXIT, reader, :wrong})
    assert [text] = Mlx.Soak.Loads.stop(reader)
    assert text =~ "wrong"
    assert Mlx.Soak.Loads.stop(other) == []
    Mlx.Soak.Latency.stop(latency)
  end

  describe "a curve" do
    test "that rises is told from one that does not" do
      count = 200
      noise = fn i -> rem(i * 7919, 21) - 10 end

      flat = [
        fn _ -> 100 end,
        fn i -> 100 + noise.(i) end,
        # What fills up before it is looked at.
        fn i -> 100 + min(i, 40) * 5 end,
        # Saw teeth.
        fn i -> 100 + rem(i, 50) end,
        # Much for a moment, at the end.
        fn i -> if i > 195, do: 1000, else: 100 end,
        fn i -> 300 - i end
      ]

      rising = [
        fn i -> 100 + i end,
        fn i -> 100 + i + 3 * noise.(i) end,
        fn i -> 100 * 1.01 ** i end,
        # A step that stays.
        fn i -> if i > 120, do: 250, else: 100 end
      ]

      for {curves, flat?} <- [{flat, true}, {rising, false}],
          {curve, index} <- Enum.with_index(curves) do
        samples = for i <- 1..count, do: %{at: i / 1, active: curve.(i)}
        assert [%{name: :active, flat?: ^flat?}] = Judge.verdicts(samples), "curve #{index}"
      end
    end

    test "of what leaks is found in samples of this VM" do
      Process.put(:kept, [])

      samples =
        for i <- 1..40 do
          t = Nx.iota({1_000_000}, type: :f32, backend: Mlx.Backend)
          Nx.to_binary(t, limit: 1)
          Process.put(:kept, [t | Process.get(:kept)])
          Samples.take(i / 1)
        end

      refute verdict(Judge.verdicts(samples), :active).flat?
    end
  end

  defp verdict(verdicts, name), do: Enum.find(verdicts, &(&1.name == name))
end
