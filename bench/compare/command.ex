defmodule Bench.Command do
  @moduledoc """
  `bin/bench` behind its set-up: chooses peers and workloads, measures, and writes the report.
  """
  alias Bench.{Chart, Engine, Peer, Report, Rounds, Workloads}

  @root Path.expand("../..", __DIR__)
  @python ["mlx", "jax", "torch", "numpy"]

  @doc "Runs with the arguments of the command line. Whether everybody computed the same."
  @spec run([String.t()]) :: boolean
  def run(args) do
    options = options!(args)
    size = if options[:smoke], do: :smoke, else: :full
    groups = for {:group, group} <- options, do: group
    rows = for row <- Workloads.all(size), groups == [] or row.group in groups, do: row
    folder = Path.join(System.tmp_dir!(), "mlx-bench-#{System.pid()}")
    File.mkdir_p!(folder)

    try do
      peers = started(peers(size))
      about = facts(peers, size)
      for {name, text} <- about, do: IO.puts("#{name}: #{text}")
      IO.puts("\n" <> Report.head(Enum.map(peers, & &1.name)))
      results = measured(rows, peers, size, folder)
      written(results, about, groups, options)
      good?(results)
    after
      File.rm_rf!(folder)
    end
  end

  defp options!(args) do
    switches = [smoke: :boolean, group: :keep, out: :string]

    case OptionParser.parse(args, strict: switches) do
      {options, [], []} ->
        for {:group, group} <- options, group not in Workloads.groups() do
          usage("there is no group #{group}; there are #{Enum.join(Workloads.groups(), ", ")}")
        end

        options

      {_, [word | _], []} ->
        usage("#{word} is no option")

      {_, _, [{option, _} | _]} ->
        usage("#{option} is no option, or lacks its value")
    end
  end

  defp usage(fault) do
    IO.puts(:stderr, "mlx: #{fault}\nusage: bin/bench [--smoke] [--group NAME]... [--out DIR]")
    exit({:shutdown, 2})
  end

  ## Peers

  defp peers(size) do
    ours = ["mix", "run", "--no-compile", "--no-deps-check", Path.join(@root, "bench/serve.exs")]
    own = for name <- ["mlx", "binary"], do: {name, ours ++ [name]}
    others = if size == :smoke, do: python(), else: python() ++ installed()

    [first, binary] = for {name, command} <- own, do: {name, command}

    for {name, command} <- [first | others] ++ [binary],
        do: Peer.new(name, command, log!(name))
  end

  # Kept after the run, for who wants to know why a peer failed.
  defp log!(name) do
    path = Path.join(@root, "target/bench/logs/#{name}.log")
    File.mkdir_p!(Path.dirname(path))
    File.write!(path, "")
    path
  end

  # bin/bench names the Python that has the peers, unless it is to be quick.
  defp python do
    case System.get_env("MLX_BENCH_PYTHON", "") do
      "" ->
        []

      python ->
        serve = Path.join(@root, "bench/peers/serve.py")

        for name <- @python do
          {if(name == "mlx", do: "mlx-python", else: name), [python, serve, "with_#{name}"]}
        end
    end
  end

  defp installed do
    folder = System.get_env("MLX_DEPS_PATH") || Path.join(System.user_home() || "/", ".mlx/deps")

    for name <- Engine.names() -- ["mlx", "binary"], File.dir?(Path.join(folder, name)) do
      {name,
       ["env", "MLX_DEPS_PATH=#{folder}", "elixir", Path.join(@root, "bench/serve.exs"), name]}
    end
  end

  # A peer that does not start is left out; without Mlx there is nothing to compare.
  defp started(peers) do
    Enum.flat_map(peers, fn peer ->
      case Peer.start(peer, 1_800_000) do
        {:ok, peer} ->
          [peer]

        {:error, why} ->
          IO.puts("mlx: without #{peer.name}: #{why}#{last_words(peer)}")
          if peer.name == "mlx", do: exit({:shutdown, 1})
          []
      end
    end)
  end

  defp last_words(peer) do
    with {:ok, log} <- File.read(peer.log),
         [_ | _] = lines <- String.split(log, "\n", trim: true),
         # Elixir says why before it says where, and Python after it.
         do: ": #{Enum.find(lines, List.last(lines), &String.starts_with?(&1, "** ("))}",
         else: (_ -> "")
  end

  ## Measuring

  defp measured(rows, peers, size, folder) do
    pace = Rounds.pace(size)

    {results, {_, peers}} =
      Enum.map_reduce(rows, {nil, peers}, fn row, {group, peers} ->
        fresh? = row.mode == :memory or row.group != group
        peers = Enum.map(peers, &ready(&1, fresh?))

        {takes_part, waits} =
          Enum.split_with(peers, &(&1.name != "binary" or size == :smoke or row.binary))

        {outcomes, after_it} = Rounds.measure(row, takes_part, Path.join(folder, "row"), pace)
        outcomes = outcomes ++ for(peer <- waits, do: {peer.name, {:absent, "takes too long"}})
        result = {row, in_order(outcomes, peers)}
        result |> Report.lines() |> Enum.each(&IO.puts(Report.text(&1)))
        {result, {row.group, after_it ++ waits}}
      end)

    Enum.each(peers, &Peer.stop/1)
    results
  end

  defp in_order(outcomes, peers),
    do: for(%{name: name} <- peers, do: List.keyfind!(outcomes, name, 0))

  # Each group begins with new processes, and so does what follows on one that ended.
  defp ready(peer, fresh?) do
    if fresh? or not Peer.running?(peer) do
      case Peer.start(peer, 120_000) do
        {:ok, peer} -> peer
        {:error, _} -> Peer.stop(peer)
      end
    else
      peer
    end
  end

  defp good?(results) do
    faults =
      for {row, outcomes} <- results,
          {name, {kind, why}} <- outcomes,
          kind == :differs or (kind == :failed and name == "mlx"),
          do: "#{row.group}: #{row.name}: #{name} #{why}"

    if faults != [],
      do: IO.puts("\nmlx: not the same, or not at all:\n" <> Enum.join(faults, "\n"))

    faults == []
  end

  ## The report

  defp written(results, about, groups, options) do
    out =
      options[:out] ||
        Path.join(@root, if(options[:smoke], do: "target/bench", else: "bench/results"))

    File.mkdir_p!(out)
    name = Enum.join(["report" | groups], "-")
    title = if options[:smoke], do: "Mlx and its peers, at tiny sizes", else: "Mlx and its peers"
    about = %{title: title, facts: about ++ [{"load at the end", load()}], chart: "#{name}.svg"}

    chart =
      Chart.svg(Enum.flat_map(results, &Report.lines/1), "#{title}: times of what Mlx takes")

    File.write!(Path.join(out, "#{name}.md"), Report.markdown(results, about))
    File.write!(Path.join(out, "#{name}.svg"), chart)
    IO.puts("\nwritten: #{Path.relative_to_cwd(Path.join(out, name))}.md and .svg")
  end

  defp facts(peers, size) do
    pace = Rounds.pace(size)
    elixir = "#{System.version()}, OTP #{System.otp_release()}"

    [
      {"date", DateTime.utc_now() |> DateTime.truncate(:second) |> DateTime.to_string()},
      {"commit", commit()},
      {"machine", machine()},
      {"Elixir", elixir},
      {"rounds", "#{pace.rounds} of #{pace.batches} batches of #{pace.batch_ms} ms or more"},
      {"load at the start", load()}
    ] ++ for(peer <- peers, do: {peer.name, peer.info})
  end

  defp commit do
    case System.cmd("git", ["describe", "--always", "--dirty"], cd: @root, stderr_to_stdout: true) do
      {text, 0} -> String.trim(text)
      _ -> "unknown"
    end
  rescue
    _ in ErlangError -> "unknown"
  end

  defp machine do
    cores = "#{System.schedulers_online()} cores"

    with {:ok, cpu} <- File.read("/proc/cpuinfo"),
         {:ok, memory} <- File.read("/proc/meminfo"),
         [_, model] <- Regex.run(~r/^model name\s*: (.*)$/m, cpu),
         [_, kilobytes] <- Regex.run(~r/^MemTotal:\s*(\d+) kB$/m, memory) do
      "#{model}, #{cores}, #{round(String.to_integer(kilobytes) / 1_048_576)} GiB"
    else
      _ -> "#{:erlang.system_info(:system_architecture)}, #{cores}"
    end
  end

  defp load do
    case File.read("/proc/loadavg") do
      {:ok, text} -> text |> String.split() |> Enum.take(3) |> Enum.join(" ")
      _ -> "unknown"
    end
  end
end
