defmodule Mlx.NxStreamTest do
  # Streams under Mlx.Backend and Mlx.Compiler. Oracle: values computed by hand, and the worker that a
  # tensor belongs to.
  use Mlx.NxCase, async: true

  alias Mlx.{Backend, Compiler, Device, NIF, Stream}

  @mlx [compiler: Mlx.Compiler]

  defp new, do: Stream.new(device())
  defp on(stream, fun), do: Stream.with_default(stream, fun)
  defp at?(%{data: %Backend{ref: ref}}, stream), do: NIF.worker_owns(stream.worker, ref)
  defp at_home?(t), do: at?(t, %{worker: Device.shared_worker(device())})

  # Keeps the stream busy for about a tenth of a second.
  defp occupy(stream) do
    on(stream, fn ->
      Enum.reduce(
        1..if(device() == :cpu, do: 20, else: 5000),
        Nx.iota({1_000_000}, type: :f32),
        fn _, t -> Nx.sin(t) end
      )
    end)
  end

  describe "eagerly" do
    test "a process's stream makes and computes, with tensors of all others" do
      stream = new()
      shared = Nx.tensor([[1.0, 2.0], [3.0, 4.0]])

      on(stream, fn ->
        x = Nx.tensor([1.0, 1.0])
        product = Nx.dot(x, shared)
        assert at?(x, stream) and at?(product, stream)
        assert_equal(product, [4.0, 6.0])
        assert at?(Nx.sum(shared), stream)
        assert_equal(Nx.concatenate([shared, Nx.negate(shared)]) |> Nx.sum(), 0.0)

        assert_equal(Nx.add(shared, Nx.tensor([1.0, 1.0], backend: Nx.BinaryBackend))[0], [
          2.0,
          3.0
        ])
      end)

      assert at_home?(Nx.negate(shared))
    end

    test "the default backend may name one" do
      stream = new()
      Nx.default_backend({Backend, stream: stream})
      assert at?(Nx.exp(Nx.tensor([1.0, 2.0])), stream)
      assert at?(Nx.add(Nx.iota({3}), 1), stream)
    end

    test "what is no stream of the device is refused" do
      for stream <- [:cpu, %{worker: nil}, make_ref()] do
        assert_raise ArgumentError, ~r/must be an Mlx.Stream of the device/, fn ->
          Nx.default_backend({Backend, stream: stream})
        end
      end

      assert_raise ArgumentError, ~r/for \{:gpu, 7\}/, fn ->
        Nx.default_backend({Backend, device: {:gpu, 7}, stream: Stream.new(:cpu)})
      end
    end
  end

  describe "compiled" do
    test "a program runs on the process's stream, or the one that the options name" do
      {own, named} = {new(), new()}
      fun = Nx.Defn.jit(&Nx.multiply(&1, 3), @mlx)
      assert at_home?(fun.(2))
      assert at?(on(own, fn -> fun.(2) end), own)
      with_named = Nx.Defn.jit(&Nx.multiply(&1, 3), @mlx ++ [stream: named])
      assert at?(with_named.(2), named)
      assert at?(on(own, fn -> with_named.(2) end), named)
      assert Nx.to_number(with_named.(2)) == 6
    end

    test "is traced once for all streams, which share its constants" do
      parent = self()
      constant = Nx.iota({1000}, type: :f32, backend: Nx.BinaryBackend)

      fun = fn x ->
        send(parent, :traced)
        Nx.sum(Nx.multiply(constant, x))
      end

      results =
        for _ <- 1..8 do
          Task.async(fn ->
            Stream.put_default(new())
            Nx.to_number(Nx.Defn.jit(fun, @mlx).(2.0))
          end)
        end
        |> Task.await_many()

      assert Enum.uniq(results) == [999_000.0]
      assert_received :traced
      refute_received :traced
    end

    test "arguments come from any stream and backend" do
      stream = new()
      here = on(new(), fn -> Nx.negate(Nx.tensor([1.0, 2.0])) end)
      binary = Nx.tensor([10.0, 20.0], backend: Nx.BinaryBackend)
      fun = Nx.Defn.jit(&Nx.add(Nx.add(&1, &2), &3), @mlx ++ [stream: stream])
      sum = fun.(here, binary, Nx.tensor([100.0, 100.0]))
      assert at?(sum, stream)
      assert_equal(sum, [109.0, 118.0])
    end

    test "compile/3 runs where its caller computes" do
      compiled = Nx.Defn.compile(&Nx.add(&1, 1), [Nx.template({}, :s32)], @mlx)
      stream = new()
      assert at_home?(compiled.(1))
      assert at?(on(stream, fn -> compiled.(1) end), stream)
    end

    test "hooks and calls compute where they like" do
      {stream, other} = {new(), new()}

      double = fn t, _opts -> on(other, fn -> Nx.multiply(t, 2) end) end

      fun = fn x ->
        x = Nx.Defn.Kernel.hook(Nx.sin(x), :seen)
        Nx.runtime_call(x, x, [], double) |> Nx.add(1)
      end

      parent = self()
      hooks = %{seen: &send(parent, {:seen, Nx.to_flat_list(&1)})}
      opts = @mlx ++ [stream: stream, hooks: hooks]
      result = Nx.Defn.jit_apply(fun, [Nx.tensor([0.0, 0.0])], opts)
      assert at?(result, stream)
      assert_equal(result, [1.0, 1.0])
      assert_received {:seen, [+0.0, +0.0]}
    end

    test "does not wait for other streams" do
      {busy, free} = {new(), new()}
      fun = Nx.Defn.jit(&Nx.add(&1, 1), @mlx ++ [stream: free])
      fun.(1)
      slow = occupy(busy)
      waiting = Task.async(fn -> Nx.to_binary(slow) end)
      assert Nx.to_number(fun.(1)) == 2
      assert Task.yield(waiting, 0) == nil
      Task.await(waiting, :infinity)
    end

    test "options that contradict each other, and what is no stream, raise" do
      stream = Stream.new(:cpu)

      assert_raise ArgumentError, ~r/:device and :stream of Mlx.Compiler must agree/, fn ->
        Nx.Defn.jit_apply(&Nx.negate/1, [1], @mlx ++ [device: {:gpu, 3}, stream: stream])
      end

      assert_raise ArgumentError, ~r/:stream of Mlx.Compiler must be an Mlx.Stream/, fn ->
        Nx.Defn.jit_apply(&Nx.negate/1, [1], @mlx ++ [stream: :cpu])
      end
    end

    test "partitions beyond the first have streams of their own" do
      opts = [device: device(), max_concurrency: 3, garbage_collect: true]
      [first, second, third] = Compiler.__partitions_options__(opts)
      assert first[:stream] == nil
      assert %Stream{} = second[:stream]
      assert second[:stream] != third[:stream]

      assert Enum.all?(
               [first, second, third],
               &(&1[:garbage_collect] and &1[:device] == device())
             )

      assert {Backend, backend} = Compiler.__to_backend__(second)
      assert backend[:stream] == second[:stream]
      assert Compiler.__to_backend__(first) == {Backend, device: device()}
      stream = new()
      assert [one, _] = Compiler.__partitions_options__(stream: stream, max_concurrency: 2)
      assert one[:stream] == stream
    end
  end
end
