# Where the time of an operation goes that has next to nothing to compute, and what flags cost:
# mix run bench/dispatch.exs
Code.require_file("support.exs", __DIR__)

defmodule Bench.Nothing do
  # A backend that answers at once: what Nx itself takes.
  defstruct []
  def init(opts), do: opts
  def add(out, _a, _b), do: out
end

Nx.default_backend(Mlx.Backend)
a = Nx.tensor([1.0, 2.0, 3.0, 4.0])
b = Nx.tensor([4.0, 3.0, 2.0, 1.0])
out = Nx.add(a, b)
{ra, rb} = {a.data.ref, b.data.ref}
worker = Mlx.Device.worker(Mlx.Device.default())
# As the backend keeps it once an operation was met.
program = Mlx.Native.build(2, [{:add, [0, 1]}], [2])

IO.puts("Nx.add, not read: Nx, the backend, the posting")
nothing = %{a | data: struct(Bench.Nothing)}
nx = Bench.median("  Nx.add on a backend that does nothing", fn -> Nx.add(nothing, nothing) end)
all = Bench.median("  Nx.add", fn -> Nx.add(a, b) end)
backend = Bench.median("  Mlx.Backend.add", fn -> Mlx.Backend.add(out, a, b) end)

native =
  Bench.median("  Mlx.Native.run_program", fn -> Mlx.Native.run_program(program, [ra, rb]) end)

nif =
  Bench.median("  Mlx.NIF.program_run", fn -> Mlx.NIF.program_run(worker, program, [ra, rb]) end)

IO.puts("its reading: the queue, the worker, the reply")
sync = Bench.median("  nothing, waited for", fn -> Mlx.Native.sync(worker) end, count: 500)

computed =
  Bench.median("  Nx.to_binary of what is computed", fn -> Nx.to_binary(a) end, count: 500)

read = Bench.median("  Nx.add and Nx.to_binary", fn -> Nx.to_binary(Nx.add(a, b)) end, count: 500)

# Posted without waiting, the worker's part of each shows in what all of them take.
many = fn ->
  for(_ <- 1..1000, do: Mlx.Native.run_program(program, [ra, rb]))
  Mlx.Native.sync(worker)
end

worked = Bench.median("  1000 additions, until they are computed", many, count: 1) / 1000

asleep = fn ->
  times =
    for _ <- 1..21 do
      Process.sleep(20)
      {time, _} = :timer.tc(fn -> Mlx.Native.sync(worker) end, :nanosecond)
      time / 1000
    end

  Bench.report(
    "  nothing, of a worker that is asleep",
    times |> Enum.sort() |> Enum.at(10),
    "us",
    Enum.min(times),
    Enum.max(times)
  )
end

asleep.()

IO.puts("in microseconds")

for {part, time} <- [
      {"Nx: types, shapes, names", nx},
      {"the backend: keys and looks up the program", backend - native},
      {"NIF call: promise, posting", nif},
      {"around the NIF: stream, flags, memory", native - nif},
      {"queue and reply: a job that does nothing", sync},
      {"worker: one addition of many", worked},
      {"all of it, not read", all},
      {"all of it, read", read},
      {"reading alone", computed}
    ],
    do: :io.format("  ~-44ts ~8.2f~n", [part, time / 1])

# What flags cost that are on. Off they are part of the numbers above.
fun = fn x -> Nx.exp(Nx.add(Nx.multiply(Nx.sin(x), 2), 1)) end

for flags <- [
      [dispatch: :sync],
      [bounds_check: true],
      [detect_non_finite: true],
      [check_results: true]
    ] do
  [{name, value}] = flags
  checked = Nx.Defn.jit(fun, [compiler: Mlx.Compiler] ++ flags)

  Mlx.with_flags(flags, fn ->
    Bench.median("#{name}: #{value}, Nx.add", fn -> Nx.add(a, b) end, count: 200)
  end)

  Bench.median("#{name}: #{value}, jit", fn -> checked.(a) end, count: 200)
end
