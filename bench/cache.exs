# One function called with thousands of shapes: what a miss takes, and whether memory stays flat:
# mix run bench/cache.exs [SHAPES]
Code.require_file("support.exs", __DIR__)

shapes = String.to_integer(List.first(System.argv()) || "10000")
Nx.default_backend(Mlx.Backend)
increment = Nx.Defn.jit(&Nx.sum(Nx.add(&1, 1)), compiler: Mlx.Compiler)

resident = fn ->
  case File.read("/proc/self/statm") do
    {:ok, text} -> text |> String.split() |> Enum.at(1) |> String.to_integer() |> Kernel.*(4096)
    {:error, _} -> 0
  end
end

look = fn ->
  :erlang.garbage_collect()
  Mlx.Device.sync(Mlx.Device.default())
  {resident.(), Mlx.Memory.info().active, :erlang.memory(:total)}
end

megabytes = fn bytes -> :io_lib.format("~8.1f MB", [bytes / 1.0e6]) end
parts = Enum.chunk_every(1..shapes, div(shapes, 10))

seen =
  for part <- parts do
    times =
      for n <- part do
        t = Nx.broadcast(0, {n})
        {time, sum} = :timer.tc(fn -> Nx.to_number(increment.(t)) end, :nanosecond)
        ^n = sum
        time / 1000
      end

    {rss, active, beam} = look.()
    %{entries: entries} = Mlx.Compiler.cache_info()
    median = times |> Enum.sort() |> Enum.at(div(length(times), 2))
    text = "to #{List.last(part)}: a miss and its result"
    Bench.report(text, median, "us", Enum.min(times), Enum.max(times))

    IO.puts(
      "    #{entries} entries, resident #{megabytes.(rss)}, MLX #{megabytes.(active)}, BEAM #{megabytes.(beam)}"
    )

    {rss, active, beam}
  end

[half, last] = for i <- [div(length(seen), 2) - 1, -1], do: Enum.at(seen, i)

for {name, i} <- [{"resident", 0}, {"MLX", 1}, {"BEAM", 2}],
    do: IO.puts("#{name}, second half: #{megabytes.(elem(last, i) - elem(half, i))}")
