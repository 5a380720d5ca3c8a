# Runs the fuzzer: bin/fuzz does that. Exits with 1 on a finding.

{opts, rest, wrong} =
  OptionParser.parse(System.argv(),
    strict:
      [calls: :integer, seed: :integer, processes: :integer, minutes: :float] ++
        [timeout: :integer, log: :string, first: :integer]
  )

if rest != [] or wrong != [] do
  IO.puts(:stderr, "mlx: unknown options: #{inspect(rest ++ wrong)}; see bin/fuzz --help")
  System.halt(2)
end

# Types that MLX lacks are computed as users have it.
Application.put_env(:mlx, :fallback, :silent)
opts = Keyword.put_new_lazy(opts, :seed, fn -> :rand.uniform(1_000_000) end)
IO.puts("seed #{opts[:seed]}")
# What Nx deprecates is called as well.
{:ok, device} = File.open("/dev/null", [:write])
Process.register(device, :fuzz_null)
Application.put_env(:elixir, :ansi_enabled, false)
report = Mlx.Fuzz.Session.run(opts)
IO.puts("\n" <> Mlx.Fuzz.Report.summary(report))
System.halt(if report.findings == %{}, do: 0, else: 1)
