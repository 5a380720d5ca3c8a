# Runs the fuzzer: bin/fuzz does that. Exits with 1 on a finding.

{opts, rest, wrong} =
  OptionParser.parse(System.argv(),
    strict:
      [calls: :integer, seed: :integer, processes: :integer, minutes: :float] ++
        [timeout: :integer, log: :string, first: :integer, only: :string]
  )

if rest != [] or wrong != [] do
  IO.puts(:stderr, "mlx: unknown options: #{inspect(rest ++ wrong)}; see bin/fuzz --help")
  System.halt(2)
end

# Types that MLX lacks are computed as users have it.
Application.put_env(:mlx, :fallback, :silent)

opts =
  if only = opts[:only] do
    names = for {_, name, _} <- Mlx.Fuzz.Calls.table(), do: name
    wanted = String.split(only, ",")
    unknown = wanted -- Enum.map(names, &to_string/1)

    if unknown != [] do
      IO.puts(
        :stderr,
        "mlx: --only takes names of functions; unknown: #{Enum.join(unknown, ", ")}"
      )

      System.halt(2)
    end

    Keyword.put(opts, :only, Enum.map(wanted, &String.to_existing_atom/1))
  else
    opts
  end

opts = Keyword.put_new_lazy(opts, :seed, fn -> :rand.uniform(1_000_000) end)
IO.puts("seed #{opts[:seed]}")
report = Mlx.Fuzz.Session.run(opts)
IO.puts("\n" <> Mlx.Fuzz.Report.summary(report))
System.halt(if report.findings == %{}, do: 0, else: 1)
