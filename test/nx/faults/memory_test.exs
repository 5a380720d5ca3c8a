defmodule Mlx.Faults.MemoryTest do
  # Memory that runs out, and memory that must not grow. The counters and the limit are the whole
  # VM's, so nothing runs beside them. Oracle: the counters of MLX, and values computed by hand.
  use ExUnit.Case, async: false

  import Mlx.Faults

  alias Mlx.Memory

  @moduletag timeout: :infinity

  # 16 MB.
  @size 4_000_000

  defp backend, do: {Mlx.Backend, device: :cpu}

  defp full(value, size),
    do: Nx.broadcast(Nx.tensor(value * 1.0, type: :f32, backend: backend()), {size})

  # 16 MB of ones.
  defp held do
    x = Nx.from_binary(:binary.copy(<<1.0::float-32-native>>, @size), :f32, backend: backend())
    Mlx.Native.eval([x.data.ref])
    x
  end

  # Some megabytes, half of them in between.
  defp work(number) do
    x = full(number, 250_000)
    y = x |> Nx.multiply(2) |> Nx.sort() |> Nx.add(x) |> Nx.reduce_max() |> Nx.to_number()
    {y, number * 3.0}
  end

  setup do
    Nx.default_backend(backend())
    {got, wanted} = work(1)
    assert got == wanted
    before = Memory.limit()
    on_exit(fn -> Memory.set_limit(before) end)
    %{limit: before}
  end

  test "the limit is lowered while others compute", %{limit: limit} do
    refused = :counters.new(1, [])

    counted = fn number ->
      try do
        work(number)
      rescue
        error in Mlx.Error ->
          :counters.add(refused, 1, 1)
          reraise error, __STACKTRACE__
      end
    end

    leaves_nothing([threads: 8], fn ->
      with_survivors([count: 6, kinds: [:out_of_memory]], counted, fn ->
        for _ <- 1..rounds(100) do
          inject(:memory_limited)
          # From less than there is to enough for one of them.
          Memory.set_limit(1 + div(Memory.info().active, 2) + :rand.uniform(4_000_000))
          Process.sleep(:rand.uniform(5))
          Memory.set_limit(limit)
          Process.sleep(:rand.uniform(3))
        end
      end)
    end)

    assert :counters.get(refused, 1) > 0
    inject(:allocation_refused, :counters.get(refused, 1))
  end

  test "what is refused is had once there is room", %{limit: limit} do
    x = held()
    settle()
    Memory.set_limit(Memory.info().active + 10_000_000)
    y = Nx.sort(x)
    error = catch_error(Nx.to_binary(y, limit: 1))
    assert %Mlx.Error{kind: :out_of_memory} = error
    assert Exception.message(error) =~ "bytes are in use, and the memory limit is"
    Memory.set_limit(limit)
    # Were x not used after it, sorting would take its memory.
    for t <- [y, x], do: assert(Nx.to_binary(t, limit: 1) == <<1.0::float-32-native>>)
  end

  test "garbage of one's own is collected before anything is refused" do
    x = held()
    settle()
    Memory.set_limit(Memory.info().active + 150_000_000)
    for i <- 1..100, do: assert(Nx.to_number(Nx.reduce_max(Nx.add(Nx.add(x, i), 1))) == 2.0 + i)
  end

  describe "temporaries do not pile up" do
    for {name, processes} <- [{"in one process", 1}, {"in eight processes", 8}],
        way <- [:eager, :compiled, :binary] do
      test "#{name}, #{way}" do
        x = held()
        binary = Nx.to_binary(x)
        step = step(unquote(way), x, binary)
        step.(0)
        count = min(2_000, rounds(200))
        Memory.reset_peak()
        before = Memory.info().active

        1..unquote(processes)
        |> Enum.map(fn _ ->
          Task.async(fn ->
            Nx.default_backend(backend())
            Enum.reduce(1..div(count, unquote(processes)), nil, fn i, _ -> step.(i) end)
          end)
        end)
        |> Task.await_many(:infinity)

        Mlx.Device.sync(:cpu)
        grown = Memory.info().peak - before
        inject(:temporaries, count)

        if System.get_env("MLX_FAULTS"),
          do: IO.puts("#{unquote(name)}, #{unquote(way)}: #{div(grown, 1_000_000)} MB")

        assert grown < 1_200_000_000, "#{grown} bytes at most, of #{count * 16_000_000}"
      end
    end
  end

  defp step(:eager, x, _binary), do: &Nx.add(x, &1)
  defp step(:binary, _x, binary), do: fn _ -> Nx.from_binary(binary, :f32) end

  defp step(:compiled, x, _binary) do
    add = Nx.Defn.jit(&Nx.add/2, compiler: Mlx.Compiler, device: :cpu)
    &add.(x, &1)
  end
end
