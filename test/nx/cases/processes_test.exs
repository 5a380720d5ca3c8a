defmodule Mlx.Cases.ProcessesTest do
  # Public bug reports about memory, processes and servings, as cases. They look at the whole VM,
  # so nothing runs beside them.
  use Mlx.NxCase, async: false

  # Processes that work for a test start with the backend of the test.
  defp on_backend(fun), do: fn -> Nx.with_default_backend(backend(), fun) end

  defp doubling(name, opts \\ []) do
    serving =
      Nx.Serving.new(fn opts -> Nx.Defn.jit(&Nx.multiply(&1, 2), opts) end,
        compiler: Mlx.Compiler
      )

    opts = Keyword.merge([serving: serving, name: name, batch_size: 4, batch_timeout: 50], opts)
    start_supervised!({Nx.Serving, opts})
  end

  test "A1-06: batched runs of a serving return" do
    doubling(__MODULE__.Doubling)

    1..10
    |> Enum.map(fn k ->
      Task.async(
        on_backend(fn ->
          batch = Nx.Batch.stack([Nx.tensor([k])])
          __MODULE__.Doubling |> Nx.Serving.batched_run(batch) |> Nx.to_flat_list()
        end)
      )
    end)
    |> Task.await_many(5000)
    |> Enum.with_index(1)
    |> Enum.each(fn {result, k} -> assert result == [2 * k] end)
  end

  test "A1-43: a serving lives through callers that die and keys that differ" do
    doubling(__MODULE__.Keyed, batch_timeout: 10, batch_keys: [:a, :b])

    run = fn k ->
      key = if rem(k, 2) == 0, do: :a, else: :b
      batch = Nx.Batch.key(Nx.Batch.stack([Nx.tensor([k])]), key)
      __MODULE__.Keyed |> Nx.Serving.batched_run(batch) |> Nx.to_flat_list()
    end

    doomed = for k <- 1..40, do: spawn(on_backend(fn -> run.(k) end))
    tasks = for k <- 1..200, do: Task.async(on_backend(fn -> {k, run.(k)} end))
    for pid <- doomed, do: Process.exit(pid, :kill)
    for {k, result} <- Task.await_many(tasks, 20_000), do: assert(result == [2 * k])
    {time, :ok} = :timer.tc(fn -> stop_supervised(__MODULE__.Keyed) end)
    assert time < 5_000_000
  end

  test "A1-48: a serialized tensor is read where the backend is not" do
    bytes = Nx.serialize(Nx.tensor([1, 2], type: :u8))
    t = Nx.with_default_backend(Nx.BinaryBackend, fn -> Nx.deserialize(bytes) end)
    assert %Nx.BinaryBackend{} = t.data
    assert {Nx.to_flat_list(t), Nx.type(t)} == {[1, 2], {:u, 8}}
  end

  test "A1-67: a tensor is read from any process" do
    t = Nx.add(Nx.iota({8}, type: :f32), 1)
    right = for i <- 1..8, do: i * 1.0

    for _ <- 1..1000 do
      lazy = Nx.multiply(t, 1)
      assert Task.await(Task.async(fn -> Nx.to_flat_list(lazy) end)) == right
    end
  end

  test "A1-68: many processes compute at once" do
    1..64
    |> Task.async_stream(
      fn k ->
        on_backend(fn ->
          a = Nx.broadcast(k * 1.0, {64, 64})
          {k, Nx.dot(a, a) |> Nx.sum() |> Nx.to_number()}
        end).()
      end,
      max_concurrency: 64
    )
    |> Enum.each(fn {:ok, {k, sum}} -> assert_in_delta(sum / (262_144 * k * k), 1, 1.0e-5) end)
  end

  @tag skip: if(!File.dir?("/proc/self/task"), do: "counts threads in /proc")
  test "A1-69: processes leave no threads behind" do
    threads = fn -> length(File.ls!("/proc/self/task")) end
    work = on_backend(fn -> Nx.to_number(Nx.sum(Nx.dot(Nx.iota({8, 8}), Nx.iota({8, 8})))) end)
    Task.await(Task.async(work))
    before = threads.()
    for _ <- 1..1000, do: Task.await(Task.async(work))
    assert threads.() - before <= System.schedulers()
  end

  test "A1-15: what is dropped is given back" do
    work = fn ->
      a = Nx.iota({300, 300}, type: :f32)
      Nx.dot(a, a) |> Nx.sum() |> Nx.to_number()
    end

    for _ <- 1..20, do: work.()
    before = settled()
    for _ <- 1..100, do: work.()
    # 36 MB went through.
    assert settled() - before < 10_000_000
    assert %{active: _, peak: _, cache: _} = Mlx.Memory.info()
  end

  test "A1-79: a long chain is computed, and dropped, without a stack" do
    # Below Nx, whose results are each checked in tests.
    %{data: %{ref: one}} = Nx.tensor(1.0)
    add = fn _, x -> hd(Mlx.Native.run([{:add, [0, 1]}], [2], [x, one])) end
    chain = fn -> Enum.reduce(1..30_000, one, add) end
    assert Mlx.Native.to_binary(chain.()) == <<30_001.0::float-32-native>>
    chain.()
    :erlang.garbage_collect()
    assert Nx.to_number(Nx.add(1, 1)) == 2
  end

  test "A1-80: processes that exit give their memory back" do
    before = settled()

    1..40
    |> Enum.map(fn _ ->
      Task.async(on_backend(fn -> Nx.to_binary(Nx.iota({5_000_000}, type: :f32), limit: 1) end))
    end)
    |> Task.await_many(20_000)

    # 800 MB went through.
    assert settled() - before < 100_000_000
  end

  test "A1-75: a native failure is an exception with MLX's words, and what follows works" do
    error = catch_error(Nx.to_binary(Mlx.Backend.reshape(Nx.template({5}, :s32), Nx.iota({4}))))
    assert %Mlx.Error{op: "reshape"} = error
    assert Exception.message(error) =~ "reshape"
    assert_equal(Nx.iota({4}), [0, 1, 2, 3])
  end

  # Bytes in use once everything dropped has been freed.
  defp settled do
    :erlang.garbage_collect()
    Mlx.Native.sync(Mlx.Device.worker(device()))
    Mlx.Memory.info().active
  end
end
