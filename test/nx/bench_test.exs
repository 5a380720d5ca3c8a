files = ~w(inputs workloads functions engine custom server peer compare rounds report chart)
Enum.each(files, &Code.require_file(Path.expand("../../bench/compare/#{&1}.ex", __DIR__)))

defmodule Mlx.BenchTest do
  # Oracle: Nx.BinaryBackend for the workloads, by the comparison of bin/bench itself; what is printed
  # and drawn, by hand.
  use ExUnit.Case, async: false

  alias Bench.{Chart, Compare, Custom, Functions, Peer, Report, Rounds, Workloads}

  @peers Path.wildcard(Path.expand("../../bench/peers/with_*.py", __DIR__))
  @moduletag :tmp_dir

  setup do
    {backend, options} = {Nx.default_backend(), Nx.Defn.default_options([])}

    on_exit(fn ->
      Nx.default_backend(backend)
      Nx.Defn.default_options(options)
    end)
  end

  describe "workloads" do
    test "have functions, in Nx and in every peer's file or its list of what it lacks" do
      for name <- Workloads.functions() do
        assert Enum.any?([Functions, Custom], &defined?(&1, name)), "#{name} is not in Nx"
      end

      assert length(@peers) == 4

      for path <- @peers do
        source = File.read!(path)
        [absent] = Regex.run(~r/^ABSENT = (\{.*?\})$/ms, source, capture: :all_but_first)
        absent = for [_, name] <- Regex.scan(~r/"(\w+)":/, absent), do: name
        defined = for [_, name] <- Regex.scan(~r/^def (\w+)\(/m, source), do: name
        names = Enum.map(Workloads.functions(), &to_string/1)
        assert names -- (absent ++ defined) == [], "#{path} lacks some"
        assert absent -- names == [], "#{path} explains what nobody asks for"
        assert absent -- defined == absent, "#{path} lacks what it has"
      end
    end

    test "have their targets, by names that are theirs" do
      rows = Map.new(Workloads.all(:full), &{&1.name, &1.targets})
      for {name, targets} <- Workloads.targets(), do: assert(rows[name] == targets, name)
    end

    test "run, and agree with Nx.BinaryBackend", %{tmp_dir: folder} do
      {:ok, mlx} = Peer.start(Peer.here("mlx"), 0)
      {:ok, binary} = Peer.start(Peer.here("binary"), 0)

      for row <- Workloads.all(:smoke) do
        path = Path.join(folder, "row")
        {outcomes, _} = Rounds.measure(row, [mlx, binary], path, Rounds.pace(:smoke))
        assert {:measured, figures} = outcomes |> List.keyfind!("mlx", 0) |> elem(1)
        assert map_size(figures) == max(length(row.gauges), 1)

        case List.keyfind!(outcomes, "binary", 0) do
          {_, {:measured, _}} -> :ok
          {_, {:absent, "it has no streams of this kind"}} -> :ok
          {_, other} -> flunk("#{row.group}: #{row.name}: #{inspect(other)}")
        end
      end
    end

    test "are told apart by their names, and have targets that name peers" do
      rows = Workloads.all(:full)
      assert rows == Enum.uniq_by(rows, &{&1.group, &1.name})
      for row <- rows, {peer, most} <- row.targets, do: assert(is_binary(peer) and most > 0)
    end
  end

  describe "rounds" do
    # A peer that answers what it is told to, and logs what it was asked.
    defp scripted(folder, name, numbers, times) do
      log = Path.join(folder, "#{name}.asked")

      script = """
      while read -r command path rest; do
        echo "$command" >> #{log}
        case "$command" in
          info) echo noise; echo '@ ok scripted' ;;
          load) echo '@ ok' ;;
          check) printf '#{numbers}' > "$path.0"; echo '@ ok f32' ;;
          time) #{times} ;;
        esac
      done
      """

      peer = Peer.new(name, ["sh", "-c", script], Path.join(folder, "#{name}.log"))
      assert {:ok, peer} = Peer.start(peer, 5_000)
      on_exit(fn -> Peer.stop(peer) end)
      {peer, fn -> log |> File.read!() |> String.split() end}
    end

    @one ~S(\000\000\200\077)
    @two ~S(\000\000\000\100)
    @pace %{rounds: 3, batches: 1, batch_ms: 0, pause_ms: 0, timeout: 5_000}

    defp row(opts \\ []) do
      row = Enum.find(Workloads.all(:smoke), &(&1.function == :add))
      Map.merge(row, Map.new(opts))
    end

    test "give a figure per round, and ratios of rounds", %{tmp_dir: folder} do
      {first, _} = scripted(folder, "mlx", @one, "echo '@ ok 100.0'")
      {second, _} = scripted(folder, "slow", @one, "echo '@ ok 250'")
      {outcomes, peers} = Rounds.measure(row(), [first, second], Path.join(folder, "row"), @pace)
      assert {"slow", {:measured, %{"time" => [250.0, 250.0, 250.0]}}} = List.last(outcomes)
      assert [%{cells: cells}] = Report.lines({row(), outcomes})
      assert cells == [{"mlx", {100.0, 1.0}}, {"slow", {250.0, 2.5}}]
      Enum.each(peers, &Peer.stop/1)
    end

    test "time nobody where one differs", %{tmp_dir: folder} do
      {first, asked_first} = scripted(folder, "mlx", @one, "echo '@ ok 100.0'")
      {second, asked_second} = scripted(folder, "wrong", @two, "echo '@ ok 100.0'")
      {outcomes, peers} = Rounds.measure(row(), [first, second], Path.join(folder, "row"), @pace)
      assert {"mlx", {:differs, "not timed" <> _}} = hd(outcomes)
      assert {"wrong", {:differs, "result 0 is off by" <> _}} = List.last(outcomes)
      refute "time" in asked_first.()
      refute "time" in asked_second.()
      text = {row(), outcomes} |> Report.lines() |> hd() |> Report.text()
      assert text =~ "wrong differs, result 0"
      Enum.each(peers, &Peer.stop/1)
    end

    test "go on without a peer that ends", %{tmp_dir: folder} do
      {first, _} = scripted(folder, "mlx", @one, "echo '@ ok 100.0'")
      {second, _} = scripted(folder, "gone", @one, "exit 3")
      {outcomes, peers} = Rounds.measure(row(), [first, second], Path.join(folder, "row"), @pace)
      assert {"mlx", {:measured, _}} = hd(outcomes)
      assert {"gone", {:failed, why}} = List.last(outcomes)
      assert why =~ "ended"
      refute Peer.running?(List.last(peers))
      Enum.each(peers, &Peer.stop/1)
    end

    test "end a peer that does not answer", %{tmp_dir: folder} do
      {first, _} = scripted(folder, "mlx", @one, "echo '@ ok 100.0'")
      {second, _} = scripted(folder, "stuck", @one, "sleep 60")
      pace = %{@pace | timeout: 300}
      {outcomes, peers} = Rounds.measure(row(), [first, second], Path.join(folder, "row"), pace)
      assert {"stuck", {:failed, _}} = List.last(outcomes)
      Enum.each(peers, &Peer.stop/1)
    end
  end

  test "results are compared by value, magnitude and moments" do
    floats = fn numbers ->
      [{"f32", for(x <- numbers, into: <<>>, do: <<x::float-32-little>>)}]
    end

    assert Compare.check(floats.([1.0, -2.0]), floats.([1.0, 2.0]), :magnitudes, 0.0) == :ok
    assert {:differs, _} = Compare.check(floats.([1.0, -2.0]), floats.([1.0, 2.0]), :values, 0.1)
    assert Compare.check(floats.([1.0, 3.0]), floats.([3.0, 1.0]), :moments, 1.0e-6) == :ok
    assert {:differs, _} = Compare.check(floats.([1.0, 3.0]), floats.([1.0, 5.0]), :moments, 0.1)
    assert {:differs, _} = Compare.check(floats.([1.0]), floats.([1.0, 1.0]), :values, 1.0)
    assert {:differs, _} = Compare.check([], floats.([1.0]), :values, 1.0)
    nan = [{"f32", <<0, 0, 0xC0, 0x7F>>}]
    assert Compare.check(nan, nan, :values, 0.0) == :ok

    assert {:differs, "result 0 is nan instead of 1.0" <> _} =
             Compare.check(nan, floats.([1.0]), :values, 1.0)

    assert Compare.check([], floats.([1.0]), :nothing, 0.0) == :ok
  end

  test "quantities have three digits and a unit" do
    assert Report.quantity(1234.0, "ns") == "1.23 us"
    assert Report.quantity(999.6, "ns") == "1.00 us"
    assert Report.quantity(45.67, "ns") == "45.7 ns"
    assert Report.quantity(123_000_000_000.0, "ns") == "123 s"
    assert Report.quantity(25_000_000, "bytes") == "25.0 MB"
  end

  test "the report has tables, targets and what is missing, and the chart a dot per ratio" do
    row = Map.put(row(), :targets, [{"jax", 0.5}, {"torch", 2.0}])

    results = [
      {row,
       [
         {"mlx", {:measured, %{"time" => [2000.0, 1000.0, 1000.0]}}},
         {"jax", {:measured, %{"time" => [4000.0, 1100.0, 1000.0]}}},
         {"torch", {:measured, %{"time" => [900.0, 900.0, 900.0]}}},
         {"numpy", {:absent, "no such thing"}}
       ]}
    ]

    about = %{title: "A title", facts: [{"machine", "one"}], chart: "report.svg"}
    text = Report.markdown(results, about)
    assert text =~ "* machine: one\n"
    assert text =~ "| 1.00 us | 1.10 us (1.10x) | 900 ns (0.90x) | - |\n"
    assert text =~ "| jax | 0.50x | 0.91x | missed |"
    assert text =~ "| torch | 2.00x | 1.11x | met |"
    assert text =~ "* numpy, absent, no such thing: dispatch: add"
    svg = Chart.svg(Enum.flat_map(results, &Report.lines/1), "<A & B>")
    assert svg =~ "&lt;A &amp; B&gt;"
    assert length(Regex.scan(~r/<title>/, svg)) == 2
    # 1.1 times, on a scale whose middle is 1.
    assert svg =~ ~s(cx="574.8")
    tags = Regex.scan(~r/<(\/?)(\w+)[^>]*?(\/?)>/, svg, capture: :all_but_first)
    assert closed(tags, []) == []
  end

  # The tags that are left open.
  defp closed([["", _, "/"] | rest], open), do: closed(rest, open)
  defp closed([["", name, ""] | rest], open), do: closed(rest, [name | open])
  defp closed([["/", name, ""] | rest], [name | open]), do: closed(rest, open)
  defp closed([], open), do: open

  defp defined?(module, name),
    do: Enum.any?(module.__info__(:functions), fn {function, _} -> function == name end)
end
