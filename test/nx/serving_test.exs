defmodule Mlx.ServingTest do
  @moduledoc """
  `Nx.Serving` on `Mlx.Compiler`: batches, partitions, keys, streams, and what fails on the way.
  """
  # Devices are stopped, and gates are opened by whoever has this module's name.
  use Mlx.NxCase, async: false

  @moduletag capture_log: true

  defmodule Funs do
    import Nx.Defn

    defn double(x), do: x * 2

    defn scale(x, opts \\ []), do: x * opts[:by]

    defn gated(x), do: x + gate(x)

    # A model's loop: that it ends here shows only from step to step.
    defn tokens(x) do
      {_, x} =
        while {i = 0, x}, i < 5 and Nx.all(x < 10_000) do
          {i + 1, hook(x * 2 + i + gate(i), :token)}
        end

      x
    end

    defn counted(x) do
      {_, x} = while {i = 0, x}, i < 6, do: {i + 1, hook(x + i + gate(i), :token)}
      x
    end

    defn looped(x) do
      {_, x} = while {i = 0, x}, i < 60 and Nx.all(x < 1000), do: {i + 1, hook(x + 1, :token)}
      x
    end

    # Steps of some milliseconds.
    defn slow(x) do
      {_, x} =
        while {i = 0, x}, i < 30 and Nx.all(x < 1000) do
          {i + 1, hook(Nx.dot(x, x) * 0.001 + i, :token)}
        end

      x
    end

    # A zero that whoever has the name of the test may hold back, and so the run.
    deftransformp gate(x), do: Nx.multiply(Nx.runtime_call(x, x, [], &pass/2), 0)

    defp pass(x, _opts) do
      if pid = Process.whereis(Mlx.ServingTest) do
        send(pid, {:gate, self()})
        receive do: (:go -> :ok)
      end

      x
    end
  end

  defp options(opts \\ []), do: [compiler: Mlx.Compiler, device: device()] ++ opts
  defp serving(fun, opts \\ []), do: Nx.Serving.new(&Nx.Defn.jit(fun, &1), options(opts))
  defp tokens(fun), do: Nx.Serving.streaming(serving(fun), hooks: [:token])

  # Compiled when it is started.
  defp compiled(fun, size) do
    Nx.Serving.new(
      fn opts ->
        run = Nx.Defn.compile(fun, [Nx.template({size}, :s32)], opts)
        fn batch -> run.(Nx.Batch.pad(batch, size - batch.size)) end
      end,
      options()
    )
  end

  defp start(name, serving, opts \\ []) do
    name = Module.concat(__MODULE__, name)
    opts = Keyword.merge([batch_size: 4, batch_timeout: 20], opts)
    start_supervised!({Nx.Serving, [name: name, serving: serving] ++ opts})
    name
  end

  defp vector(list), do: Nx.Batch.concatenate([Nx.tensor(list)])
  defp batched(name, list), do: name |> Nx.Serving.batched_run(vector(list)) |> Nx.to_flat_list()

  defp read(events),
    do: Enum.map(events, fn event -> {elem(event, 0), Nx.to_flat_list(elem(event, 1))} end)

  # A process that works for a test starts with its backend.
  defp task(fun), do: Task.async(fn -> Nx.with_default_backend(backend(), fun) end)

  defp close_gate, do: Process.register(self(), __MODULE__)
  defp open_gate, do: Process.unregister(__MODULE__)

  describe "inline" do
    test "runs, on the device, also in parts" do
      assert_equal(Nx.Serving.run(serving(&Funs.double/1), vector([1, 2])), [2, 4])
      parts = Nx.Serving.batch_size(serving(&Funs.double/1), 2)
      assert_equal(Nx.Serving.run(parts, vector([1, 2, 3, 4, 5])), [2, 4, 6, 8, 10])
    end

    test "by all ways to make one" do
      for serving <- [
            Nx.Serving.jit(&Funs.double/1, options()),
            Nx.Serving.new(fn :default, opts -> Nx.Defn.jit(&Funs.double/1, opts) end, options()),
            Nx.Serving.defn_options(serving(&Funs.double/1), options(debug: false)),
            compiled(&Funs.double/1, 4)
          ],
          do: assert_equal(Nx.Serving.run(serving, vector([1, 2])), [2, 4])
    end

    test "ignores options that are meant for others" do
      opts = [batch_keys: [:a], cache: "path", client: :host, lazy_transfers: :always]
      assert_equal(Nx.Serving.run(serving(&Funs.double/1, opts), vector([1])), [2])
    end

    test "with pre- and postprocessing, and containers" do
      serving =
        fn %{a: a, b: b} -> {Nx.add(a, b), a} end
        |> serving()
        |> Nx.Serving.client_preprocessing(fn {a, b} ->
          {Nx.Batch.stack([%{a: Nx.tensor(a), b: Nx.tensor(b)}]), :info}
        end)
        |> Nx.Serving.client_postprocessing(fn {{sum, _a}, metadata}, info ->
          {Nx.to_flat_list(sum), metadata, info}
        end)

      assert Nx.Serving.run(serving, {[1, 2], [3, 4]}) == {[4, 6], :server_info, :info}
    end
  end

  describe "a process" do
    test "answers each of many callers with its own" do
      name = start(Many, serving(&Funs.double/1))

      for k <- 1..40 do
        lists = for i <- 1..5, do: Enum.to_list(k..(k + rem(i, 3)))
        task(fn -> for list <- lists, do: {list, batched(name, list)} end)
      end
      |> Task.await_many(20_000)
      |> List.flatten()
      |> Enum.each(fn {list, result} -> assert result == Enum.map(list, &(2 * &1)) end)
    end

    test "keeps batches of different keys apart" do
      factors = %{two: 2, three: 3}
      scale = &Nx.Defn.jit(fn x -> Funs.scale(x, by: factors[&1]) end, &2)
      name = start(Keys, Nx.Serving.new(scale, options()), batch_keys: [:two, :three])

      for k <- 1..20, {key, factor} <- factors do
        task(fn ->
          result = Nx.Serving.batched_run(name, Nx.Batch.key(vector([k]), key))
          {factor * k, Nx.to_flat_list(result)}
        end)
      end
      |> Task.await_many(20_000)
      |> Enum.each(fn {expected, result} -> assert result == [expected] end)
    end

    test "runs as many batches at a time as it has partitions" do
      gated = serving(&Funs.gated/1, max_concurrency: 2)
      name = start(Partitions, gated, partitions: true, batch_size: 1)
      close_gate()
      tasks = for k <- 1..3, do: task(fn -> batched(name, [k]) end)

      # Two are inside before one of them goes on, and the third comes after.
      assert_receive {:gate, first}, 5000
      assert_receive {:gate, second}, 5000
      refute_receive {:gate, _third}, 50
      for pid <- [first, second], do: send(pid, :go)
      assert_receive {:gate, third}, 5000
      send(third, :go)
      assert Task.await_many(tasks) == [[1], [2], [3]]
    end

    test "lives on when its device is stopped" do
      names = [
        start(Jitted, serving(&Funs.double/1)),
        start(Compiled, compiled(&Funs.double/1, 4))
      ]

      for _ <- 1..2 do
        for name <- names, do: assert(batched(name, [1]) == [2])
        :ok = Mlx.Device.stop(device())
      end

      late = start(Late, serving(&Funs.double/1))
      for name <- [late | names], do: assert(batched(name, [1]) == [2])
    end
  end

  describe "what fails" do
    test "in a batch reaches its callers alone" do
      fail = fn x, _opts ->
        if Nx.to_number(Nx.reduce_max(x)) > 100, do: raise("too large"), else: x
      end

      name = start(Failing, serving(&Nx.multiply(Nx.runtime_call(&1, &1, [], fail), 2)))

      for _ <- 1..2 do
        assert {{error, _stacktrace}, _call} = catch_exit(batched(name, [101, 1]))
        assert error == %RuntimeError{message: "too large"}
        assert batched(name, [1, 2]) == [2, 4]
      end
    end

    test "because the device is stopped says so" do
      name = start(Stopped, serving(&Funs.gated/1))
      close_gate()
      doomed = task(fn -> catch_exit(batched(name, [1])) end)
      assert_receive {:gate, pid}, 5000
      :ok = Mlx.Device.stop(device())
      send(pid, :go)
      assert {{%Mlx.Error{kind: :stopped}, _stacktrace}, _call} = Task.await(doomed)
      open_gate()
      assert batched(name, [2]) == [2]
    end

    test "before a batch is made reaches the caller" do
      serving =
        Nx.Serving.client_preprocessing(serving(&Funs.double/1), fn
          :bad -> raise ArgumentError, "no such input"
          list -> {vector(list), :ok}
        end)

      name = start(Preprocessing, serving)
      assert_raise ArgumentError, "no such input", fn -> Nx.Serving.batched_run(name, :bad) end
      assert Nx.to_flat_list(Nx.Serving.batched_run(name, [1, 2])) == [2, 4]
    end

    test "because a caller dies concerns nobody else, and leaves nothing" do
      name = start(Dying, serving(&Funs.gated/1), batch_size: 1)
      large = List.duplicate(1, 250_000)
      batch = &Nx.Batch.stack([Nx.tensor(&1)])

      run = fn list ->
        name |> Nx.Serving.batched_run(batch.(list)) |> Nx.sum() |> Nx.to_number()
      end

      assert run.(large) == 250_000
      before = settled()

      for _ <- 1..5 do
        close_gate()
        doomed = spawn(fn -> Nx.with_default_backend(backend(), fn -> run.(large) end) end)
        assert_receive {:gate, pid}, 5000
        other = task(fn -> run.([7, 8]) end)
        Process.exit(doomed, :kill)
        send(pid, :go)
        assert_receive {:gate, pid}, 5000
        send(pid, :go)
        assert Task.await(other) == 15
        open_gate()
      end

      # A megabyte went in with each.
      assert settled() < before + 2_000_000
    end

    defp settled do
      Enum.each(Process.list(), &:erlang.garbage_collect/1)
      Mlx.Device.sync(device())
      Mlx.Memory.info().active
    end

    test "because its process is killed while it runs concerns nobody else" do
      name = start(Killed, serving(&Funs.gated/1), batch_size: 1)
      close_gate()
      doomed = task(fn -> catch_exit(batched(name, [1])) end)
      assert_receive {:gate, pid}, 5000
      Process.exit(pid, :kill)
      assert {:killed, _call} = Task.await(doomed)
      open_gate()
      assert batched(name, [3]) == [3]
    end
  end

  describe "a stream" do
    test "of batches" do
      serving = Nx.Serving.streaming(serving(&Funs.double/1))
      parts = Nx.Serving.batch_size(serving, 2)
      assert read(Nx.Serving.run(parts, vector([1, 2, 3]))) == [batch: [2, 4], batch: [6]]

      name = start(Batches, serving, batch_size: 2)
      events = Nx.Serving.batched_run(name, vector([1, 2, 3, 4]))
      assert read(events) == [batch: [2, 4], batch: [6, 8]]
    end

    for loop <- [:tokens, :counted] do
      test "of #{loop}, each as it is made" do
        fun = &apply(Funs, unquote(loop), [&1])
        name = start(Streamed, tokens(fun))

        for run <- [&Nx.Serving.run(tokens(fun), &1), &Nx.Serving.batched_run(name, &1)] do
          close_gate()
          me = self()

          reader =
            task(fn -> vector([1, 2]) |> run.() |> Enum.map(&send(me, hd(read([&1])))) end)

          assert made(0) == Task.await(reader)
          open_gate()
        end
      end
    end

    # The loop stands still before each step until the token of the one before has been read.
    defp made(0) do
      assert_receive {:gate, pid}, 5000
      send(pid, :go)
      assert_receive {:token, token}, 5000
      [{:token, token} | made(1)]
    end

    defp made(i) do
      receive do
        {:gate, pid} ->
          refute_received {_token_or_batch, _}
          send(pid, :go)
          assert_receive {:token, token}, 5000
          [{:token, token} | made(i + 1)]

        {:batch, batch} ->
          assert i > 4
          [batch: batch]
      after
        5000 -> flunk("neither a step nor the end")
      end
    end

    test "of tokens, to several callers of one batch" do
      name = start(Shared, tokens(&Funs.tokens/1), batch_timeout: 200)

      streams =
        for x <- 1..3, do: task(fn -> read(Nx.Serving.batched_run(name, vector([x]))) end)

      for {events, x} <- Enum.with_index(Task.await_many(streams), 1) do
        tokens = Enum.scan(0..4, x, &(2 * &2 + &1))
        assert events == Enum.map(tokens, &{:token, [&1]}) ++ [batch: [List.last(tokens)]]
      end
    end

    test "of which nobody wants the rest" do
      serving = tokens(&Funs.looped/1)
      name = start(Unwanted, serving)

      for run <- [&Nx.Serving.run(serving, &1), &Nx.Serving.batched_run(name, &1)] do
        taken = task(fn -> vector([1]) |> run.() |> Enum.take(2) |> read() end)
        assert Task.await(taken) == [token: [2], token: [3]]
      end

      assert {:batch, [61]} = name |> Nx.Serving.batched_run(vector([1])) |> read() |> List.last()
    end
  end

  # A run in a loop that has given way goes on when all that was posted until then is done, and not
  # after each job. Otherwise who reads what the loop tells falls behind, ever further.
  test "whoever computes beside a loop waits for a step or two of it" do
    me = self()

    hook = fn t ->
      {:message_queue_len, before} = Process.info(me, :message_queue_len)
      sum = Enum.reduce(1..20, t[0][0], fn _, t -> Nx.add(t, 1) end)
      assert Nx.to_number(sum) == Nx.to_number(t[0][0]) + 20
      {:message_queue_len, later} = Process.info(me, :message_queue_len)
      Process.put(:most, max(Process.get(:most, 0), later - before))
    end

    x = Nx.broadcast(0.0, {500, 500})
    Nx.Defn.jit_apply(&Funs.slow/1, [x], options(hooks: %{token: hook}))
    assert Process.get(:most) < 10
  end
end
