# bin/soak: soaks, and writes what was seen to a folder.
{opts, rest, wrong} =
  OptionParser.parse(System.argv(), strict: [minutes: :float, seconds: :integer, out: :string])

seconds = opts[:seconds] || round((opts[:minutes] || 10.0) * 60)

if rest != [] or wrong != [] or seconds < 5 do
  IO.puts(:stderr, "usage: bin/soak [--minutes M] [--out FOLDER], at least 5 seconds")
  System.halt(2)
end

out = opts[:out] || "tmp/soak"
File.mkdir_p!(out)
alias Mlx.Soak.{Chart, Samples}

IO.puts("soaking for #{seconds} s; samples and curves go to #{out}")

tell = fn sample ->
  if rem(round(sample.at), 15) == 0 do
    words =
      for {name, _, _, _, _} <- Samples.series(), value = sample[name], do: "#{name} #{value}"

    IO.puts("#{round(sample.at)} s: " <> Enum.join(words, ", "))
  end
end

report = Mlx.Soak.run(seconds, tell: tell)
File.write!(Path.join(out, "soak.csv"), Samples.csv(report.samples))
File.write!(Path.join(out, "soak.svg"), Chart.svg(report.samples))

time = fn us -> if us < 1000, do: "#{round(us)} us", else: "#{Float.round(us / 1000, 1)} ms" end

IO.puts("\nrounds of work, all with the right results unless told below:")

for {name, count} <- report.rounds,
    do: IO.puts("  #{String.pad_trailing(to_string(name), 12)} #{count}")

IO.puts("\nlatencies (p50, p99, most):")

for {phase, latency} <- report.latency do
  IO.puts("  #{phase}")

  for {kind, words} <- [
        probe: "message to a scheduler's probe",
        read: "add and read",
        read_on_stream: "add and read on a stream"
      ],
      %{count: count} = times when count > 0 <- [latency[kind]] do
    figures = Enum.map_join([:p50, :p99, :max], ", ", &time.(times[&1]))
    IO.puts("    #{String.pad_trailing(words, 34)} #{figures} (#{count})")
  end

  IO.puts(
    "    of 1 ms and longer on a scheduler  #{latency.long_schedules}, " <>
      "#{latency.long_in_nif} of them ending in the native library; most at " <>
      Enum.map_join(latency.longest, ", ", fn
        {{module, name, arity}, count} -> "#{Exception.format_mfa(module, name, arity)} #{count}"
        {other, count} -> "#{other} #{count}"
      end)
  )

  if waited = latency.waited_for_core,
    do: IO.puts("    schedulers waited for a core       #{Float.round(waited, 1)} s")
end

IO.puts("\nafter the warm-up, from its beginning to its end:")

for %{name: name, rise: rise, bound: bound, flat?: flat?} <- report.verdicts do
  word = if flat?, do: "flat", else: "RISES"
  words = "#{String.pad_trailing(to_string(name), 12)} #{word}, #{rise} more"
  IO.puts("  #{words}; bound #{Float.round(bound, 1)}")
end

for failure <- report.failures, do: IO.puts("\nFAILED: " <> failure)
if Mlx.Soak.good?(report), do: IO.puts("\nsoak passed"), else: System.halt(1)
