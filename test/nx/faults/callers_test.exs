defmodule Mlx.Faults.CallersTest do
  # Callers killed at random moments. Oracle: what the others get, and what is left behind, which is
  # the whole VM's, so nothing runs beside them.
  use ExUnit.Case, async: false

  import Mlx.Faults

  alias Mlx.{Array, Native, NIF}

  defmodule Calls do
    @moduledoc false
    import Nx.Defn

    defn asked(x), do: Nx.runtime_call(x, x * 2, [], &twice/2) + 1
    defp twice(x, _opts), do: Nx.multiply(x, 2)

    defn hooked(x) do
      {_, x} = while {i = 0, x}, i < 50 and Nx.all(x < 1.0e9), do: {i + 1, hook(x + 1, :step)}
      x
    end

    # Ends for no number that is its own negative's.
    defn endless(x), do: while(x, Nx.all(x == x), do: -x)
  end

  defp binary(values), do: for(value <- values, into: <<>>, do: <<value::float-32-native>>)

  defp made(size, value, stream \\ nil) do
    worker = if stream, do: stream.worker, else: Mlx.Device.worker(:cpu)
    Native.from_binary(worker, {:f, 32}, {size}, :binary.copy(binary([value]), size))
  end

  defp negate(ref), do: hd(Native.run([{:negative, [0]}], [1], [ref]))

  defp jit(fun, args, opts \\ []),
    do: Nx.Defn.jit_apply(fun, args, [compiler: Mlx.Compiler, device: :cpu] ++ opts)

  # What a survivor computes: eagerly, compiled, and with what waits for the caller.
  defp work(number) do
    x = Nx.tensor([number, -number], type: :f32, backend: {Mlx.Backend, device: :cpu})
    eager = x |> Nx.multiply(x) |> Nx.add(1) |> Nx.to_flat_list()
    asked = jit(&Calls.asked/1, [x]) |> Nx.to_flat_list()
    squared = number * number + 1.0
    {{eager, asked}, {[squared, squared], [4.0 * number + 1, -4.0 * number + 1]}}
  end

  setup do
    Nx.default_backend({Mlx.Backend, device: :cpu})
    # What is kept from the first use on is there before anything is compared.
    for fun <- [&Calls.asked/1, &Calls.hooked/1, &Calls.endless/1],
        do: Nx.Defn.compile(fun, [Nx.template({2}, :f32)], compiler: Mlx.Compiler, device: :cpu)

    {got, wanted} = work(1)
    assert got == wanted
    :ok
  end

  @victims [
    posted: &__MODULE__.posted/0,
    reading: &__MODULE__.reading/0,
    hooked: &__MODULE__.hooked/0,
    called: &__MODULE__.called/0,
    compiling: &__MODULE__.compiling/0,
    streaming: &__MODULE__.streaming/0,
    endless: &__MODULE__.endless/0
  ]

  def posted do
    Enum.reduce(1..2_000, made(1_000, 1.0), fn _, x -> negate(x) end)
    Process.sleep(:infinity)
  end

  def reading do
    x = made(200_000, 0.5)
    Native.to_binary(hd(Native.run(for(slot <- 0..9, do: {:sin, [slot]}), [10], [x])))
    reading()
  end

  def hooked do
    x = Nx.broadcast(Nx.tensor(1.0, backend: {Mlx.Backend, device: :cpu}), {2})
    jit(&Calls.hooked/1, [x], hooks: %{step: &Nx.to_flat_list/1})
    hooked()
  end

  def called do
    x = Nx.broadcast(Nx.tensor(1.0, backend: {Mlx.Backend, device: :cpu}), {2})
    jit(&Calls.asked/1, [x])
    called()
  end

  def compiling do
    x = Nx.tensor([1.0, 2.0], backend: {Mlx.Backend, device: :cpu})
    by = :rand.uniform()
    jit(fn x -> Nx.add(Nx.multiply(x, by), Nx.divide(x, by)) end, [x], cache: false)
    compiling()
  end

  def streaming do
    stream = Mlx.Stream.new(:cpu)
    Mlx.Stream.put_default(stream)
    for _ <- 1..50, do: Native.to_binary(negate(made(1_000, 1.0, stream)))
    streaming()
  end

  # What never ends, something queued that uses it, and somebody who waits for that.
  def endless do
    x = Nx.tensor([1.0, 2.0], backend: {Mlx.Backend, device: :cpu})
    y = jit(&Calls.endless/1, [x])
    Enum.reduce(1..20, y, fn _, y -> Nx.add(y, y) end) |> Nx.to_binary()
  end

  for {name, victim} <- @victims do
    @tag timeout: :infinity
    test "killed while #{name}" do
      {few, milliseconds} = if unquote(name) == :endless, do: {20, 20}, else: {100, 5}

      # A stream's thread is free for the next one once what was posted is done.
      leaves_nothing([threads: if(unquote(name) == :streaming, do: 64, else: 8)], fn ->
        with_survivors(&work/1, fn ->
          for _ <- 1..rounds(few) do
            inject(:"killed_#{unquote(name)}")
            kill_in(milliseconds, unquote(Macro.escape(victim)))
          end
        end)
      end)
    end
  end

  @tag timeout: :infinity
  test "killed by the hundred at once" do
    leaves_nothing([threads: 8], fn ->
      with_survivors(&work/1, fn ->
        for _ <- 1..rounds(3) do
          victims = Keyword.values(@victims) |> List.delete(&__MODULE__.streaming/0)
          pids = for _ <- 1..100, do: spawn(Enum.random(victims))
          Process.sleep(:rand.uniform(30))
          inject(:killed_at_once, length(pids))
          for pid <- pids, do: Process.exit(pid, :kill)
        end
      end)
    end)
  end

  test "a process that was killed keeps no endless run, whoever is queued behind it" do
    stream = Mlx.Stream.new(:cpu)
    x = made(1, 1.0, stream)

    forever =
      {{:while, {1, [{:equal, [0, 0]}], [1]}, {1, [{:negative, [0]}], [1]}}, [0]}

    # What is posted and nobody waits for, and what somebody waits for that is dead as well.
    queued = fn y -> Enum.reduce(1..30, y, fn _, y -> negate(negate(y)) end) end
    ends = [& &1, &Native.to_binary/1, &Native.eval([&1])]

    for finish <- ends do
      pid =
        spawn(fn ->
          [y] = Native.run([forever], [1], [x])
          finish.(queued.(y))
          Process.sleep(:infinity)
        end)

      Process.sleep(50)
      inject(:killed_endless)
      Process.exit(pid, :kill)
      task = Task.async(fn -> Native.to_binary(negate(x)) end)
      assert Task.await(task, 10_000) == binary([-1.0])
    end

    assert NIF.worker_owns(stream.worker, x)
    assert Array.type(%Array{ref: x}) == {:f, 32}
  end
end
