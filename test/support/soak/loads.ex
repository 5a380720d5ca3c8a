defmodule Mlx.Soak.Loads do
  @moduledoc false
  # The kinds of work of a soak. Each is a process that does one round after the other, and a round
  # raises where its result is not what it should be.

  alias Mlx.Soak.Latency

  defmodule Funs do
    @moduledoc false
    import Nx.Defn

    defn affine(x), do: x * 2 + 1

    # A model's loop: that it ends here shows only from step to step.
    defn tokens(x) do
      {_, x} = while {i = 0, x}, i < 6 and Nx.all(x < 10_000), do: {i + 1, hook(x + i, :token)}
      x
    end

    defn step({w, b}, x, y) do
      {loss, {dw, db}} =
        value_and_grad({w, b}, fn {w, b} ->
          Nx.mean((Nx.tanh(Nx.dot(x, w) + b) - y) ** 2)
        end)

      {{w - 0.1 * dw, b - 0.1 * db}, loss}
    end

    # Ends for no number that is its own negative's.
    defn endless(x), do: while(x, Nx.all(x == x), do: -x)

    defn asked(x), do: Nx.runtime_call(x, x + 1, [], &asleep/2)

    defp asleep(x, _opts) do
      Process.sleep(:infinity)
      x
    end
  end

  @backend {Mlx.Backend, device: :cpu}
  @options [compiler: Mlx.Compiler, device: :cpu]
  @servings [serving: __MODULE__.Serving, streaming: __MODULE__.Streaming]

  # Their names and how many processes do each.
  @loads [
    matmul: 1,
    eager: 1,
    compiled: 1,
    training: 1,
    serving: 3,
    streaming: 2,
    streams: 1,
    killed: 1
  ]

  def names, do: Keyword.keys(@loads)

  @doc "Counts rounds."
  def counters, do: :counters.new(length(@loads), [])

  def rounds(counters) do
    for {name, index} <- Enum.with_index(names(), 1),
        into: %{},
        do: {name, :counters.get(counters, index)}
  end

  @doc "Starts work of these kinds, and answers its processes."
  def start(names, counters) do
    servings = for {kind, name} <- @servings, kind in names, do: serve(kind, name)

    # Who asks comes before who answers, and so ends before him.
    for(name <- names, _ <- 1..@loads[name], do: start_load(name, counters)) ++ servings
  end

  defp start_load(name, counters) do
    index = Enum.find_index(names(), &(&1 == name)) + 1

    spawn_link(fn ->
      settle()
      loop(name, counters, index, init(name))
    end)
  end

  @doc "Starts readers of sums, on the device's own worker and on a stream, that note how long it takes."
  def start_readers(latency) do
    for kind <- [:read, :read_on_stream] do
      spawn_link(fn ->
        settle()
        if kind == :read_on_stream, do: Mlx.Stream.put_default(Mlx.Stream.new(:cpu))
        read(latency, kind, Nx.tensor([1, 2]))
      end)
    end
  end

  @doc "Ends it; answers why it ended before, if it did."
  def stop(pid) do
    monitor = Process.monitor(pid)
    Process.unlink(pid)
    Process.exit(pid, :shutdown)

    receive do
      {:DOWN, ^monitor, _, _, reason} when reason in [:shutdown, :killed] -> []
      {:DOWN, ^monitor, _, _, _} -> ended(pid)
    end
  end

  defp ended(pid) do
    receive do
      {:EXIT, ^pid, reason} -> [Exception.format_exit(reason)]
    after
      0 -> ["a process ended"]
    end
  end

  # The checks of the test environment read each result, which work does not do outside of it.
  defp settle do
    Nx.default_backend(@backend)
    Mlx.put_flags(check_results: false)
  end

  defp loop(name, counters, index, state) do
    state = round(name, state)
    :counters.add(counters, index, 1)
    loop(name, counters, index, state)
  end

  defp read(latency, kind, t) do
    Process.sleep(5)
    {time, sum} = :timer.tc(fn -> Nx.to_flat_list(Nx.add(t, 1)) end)
    [2, 3] = sum
    Latency.note(latency, kind, time)
    read(latency, kind, t)
  end

  defp serve(kind, name) do
    fun = if kind == :serving, do: &Funs.affine/1, else: &Funs.tokens/1
    serving = Nx.Serving.new(&Nx.Defn.jit(fun, &1), @options)

    serving =
      if kind == :streaming, do: Nx.Serving.streaming(serving, hooks: [:token]), else: serving

    {:ok, pid} =
      Nx.Serving.start_link(name: name, serving: serving, batch_size: 8, batch_timeout: 5)

    pid
  end

  defp init(:matmul), do: Nx.broadcast(1.0, {700, 700})
  defp init(:training), do: nil
  defp init(:streams), do: Nx.iota({64, 64}, type: :f32)
  defp init(_), do: 1

  # What is known to come of it.

  defp round(:matmul, a) do
    700.0 = Nx.to_number(Nx.dot(a, a)[0][699])
    a
  end

  defp round(:eager, k) do
    t = Nx.multiply(Nx.iota({50, 50}, type: :f32), rem(k, 5))
    sum = 3_123_750.0 * rem(k, 5)
    ^sum = Nx.to_number(Nx.sum(Nx.transpose(t)))
    Process.sleep(1)
    k + 1
  end

  # Each is another function, by its shape or by what it captures, so that the cache turns over.
  defp round(:compiled, k) do
    size = rem(k * 7, 300) + 1
    add = fn t -> Nx.sum(Nx.add(Nx.multiply(t, 2), rem(k, 11))) end
    t = Nx.broadcast(1.0, {size})
    sum = 1.0 * size * (2 + rem(k, 11))
    ^sum = Nx.to_number(Nx.Defn.jit_apply(add, [t], @options))
    Process.sleep(1)
    k + 1
  end

  # From the same start to the same bits, whatever else goes on.
  defp round(:training, before) do
    x = Nx.divide(Nx.iota({64, 8}, type: :f32), 512)
    y = Nx.sin(Nx.iota({64, 4}, type: :f32))
    start = {Nx.divide(Nx.iota({8, 4}, type: :f32), 32), Nx.broadcast(0.0, {4})}
    step = Nx.Defn.jit(&Funs.step/3, @options)

    {_, losses} =
      Enum.reduce(1..20, {start, []}, fn _, {params, losses} ->
        {params, loss} = step.(params, x, y)
        {params, [loss | losses]}
      end)

    losses = Enum.map(losses, &Nx.to_number/1)
    true = hd(losses) < List.last(losses)
    ^losses = before || losses
  end

  defp round(:serving, k) do
    list = Enum.to_list(k..(k + rem(k, 4)))
    wanted = Enum.map(list, &(2 * &1 + 1))
    batch = Nx.Batch.concatenate([Nx.tensor(list)])
    ^wanted = Nx.to_flat_list(Nx.Serving.batched_run(@servings[:serving], batch))
    rem(k + 1, 1000)
  end

  defp round(:streaming, k) do
    batch = Nx.Batch.concatenate([Nx.tensor([k])])
    events = Enum.to_list(Nx.Serving.batched_run(@servings[:streaming], batch))
    wanted = Enum.map([0, 1, 3, 6, 10, 15, 15], &(&1 + k))
    ^wanted = for event <- events, do: hd(Nx.to_flat_list(elem(event, 1)))
    rem(k + 1, 1000)
  end

  # A process with a stream of its own, which reads what belongs to another.
  defp round(:streams, t) do
    fn ->
      settle()
      Mlx.Stream.put_default(Mlx.Stream.new(:cpu))
      Nx.to_number(Nx.sum(Nx.multiply(t, 2))) == 64 * 64 * (64 * 64 - 1.0)
    end
    |> Task.async()
    |> Task.await(:infinity)
    |> true!()

    Process.sleep(5)
    t
  end

  defp round(:killed, k) do
    victim =
      spawn(fn ->
        settle()
        if rem(k, 2) == 0, do: Mlx.Stream.put_default(Mlx.Stream.new(:cpu))
        work_until_killed(rem(k, 4))
      end)

    monitor = Process.monitor(victim)
    Process.sleep(:rand.uniform(20))
    Process.exit(victim, :kill)
    receive do: ({:DOWN, ^monitor, _, _, _} -> :ok)
    Process.sleep(20)
    k + 1
  end

  defp work_until_killed(0), do: Nx.Defn.jit_apply(&Funs.endless/1, [Nx.tensor([1, 2])], @options)
  defp work_until_killed(1), do: Nx.Defn.jit_apply(&Funs.asked/1, [Nx.tensor([1, 2])], @options)

  defp work_until_killed(2) do
    a = Nx.iota({200, 200}, type: :f32)
    Enum.reduce(1..50, a, fn _, b -> Nx.dot(a, Nx.divide(b, 1.0e6)) end)
  end

  defp work_until_killed(3) do
    read = fn read ->
      Nx.to_binary(Nx.exp(Nx.iota({10_000}, type: :f32)))
      read.(read)
    end

    read.(read)
  end

  defp true!(true), do: :ok
end
