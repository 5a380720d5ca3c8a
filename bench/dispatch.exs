# What an operation and a compiled call cost when there is next to nothing to compute:
# mix run bench/dispatch.exs
Code.require_file("support.exs", __DIR__)

Nx.default_backend(Mlx.Backend)
a = Nx.tensor([1.0, 2.0, 3.0, 4.0])
b = Nx.tensor([4.0, 3.0, 2.0, 1.0])

Bench.median("Nx.add, not read", fn -> Nx.add(a, b) end)
Bench.median("Nx.add, read", fn -> Nx.to_binary(Nx.add(a, b)) end, count: 500)

fun = fn x -> Nx.exp(Nx.add(Nx.multiply(Nx.sin(x), 2), 1)) end
jitted = Nx.Defn.jit(fun, compiler: Mlx.Compiler)
Bench.median("jit exp(sin(x)*2+1), not read", fn -> jitted.(a) end)
Bench.median("jit exp(sin(x)*2+1), read", fn -> Nx.to_binary(jitted.(a)) end, count: 500)
Bench.median("eager exp(sin(x)*2+1), not read", fn -> fun.(a) end)
Bench.median("eager exp(sin(x)*2+1), read", fn -> Nx.to_binary(fun.(a)) end, count: 500)

# The parts of an addition that is not read.
{ra, rb} = {a.data.ref, b.data.ref}
Bench.median("  native part", fn -> Mlx.Native.run([{:add, [0, 1]}], [2], [ra, rb]) end)
binary = Nx.to_binary(a)
{ba, bb} = {Nx.backend_copy(a, Nx.BinaryBackend), Nx.backend_copy(b, Nx.BinaryBackend)}
Bench.median("  Nx.add on Nx.BinaryBackend", fn -> Nx.add(ba, bb) end)
Bench.median("  Nx.from_binary", fn -> Nx.from_binary(binary, :f32) end)

# What flags cost that are on. Off they are part of the numbers above.
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
