defmodule Mlx.BackendTest do
  use Mlx.NxCase, async: false

  import ExUnit.CaptureLog

  alias Mlx.Backend.Fallback

  describe "init" do
    test "takes a device and nothing else" do
      assert Mlx.Backend.init([]) == []
      assert Mlx.Backend.init(device: :gpu) == [device: {:gpu, 0}]
      assert_raise ArgumentError, ~r/a device is/, fn -> Mlx.Backend.init(device: :tpu) end

      assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, fn ->
        Mlx.Backend.init(devise: :cpu)
      end
    end
  end

  describe "reading" do
    test "honours the limit" do
      t = Nx.iota({1000}, type: :u8)
      assert Nx.to_binary(t, limit: 3) == <<0, 1, 2>>
      assert Nx.to_flat_list(t, limit: 2) == [0, 1]
      assert Nx.to_number(Nx.iota({100})[42]) == 42
    end

    test "inspects as Nx does, and only what is shown" do
      assert inspect(Nx.tensor([[1, 2], [3, 4]])) == """
             #Nx.Tensor<
               s32[2][2]
               [
                 [1, 2],
                 [3, 4]
               ]
             >\
             """

      assert inspect(Nx.iota({1_000_000}), limit: 3) =~ "[0, 1, 2, ...]"
      assert inspect(Nx.tensor([1, 2]), limit: :infinity) =~ "[1, 2]"
      assert inspect(Nx.tensor([1, 2], names: [:x]) |> Nx.vectorize(:x)) =~ "vectorized[x: 2]"
    end
  end

  describe "deallocation" do
    test "frees once, then says so" do
      t = Nx.iota({4})
      assert Nx.backend_deallocate(t) == :ok
      assert Nx.backend_deallocate(t) == :already_deallocated
      assert_raise Mlx.Error, ~r/deallocated/, fn -> Nx.to_binary(t) end
    end

    test "leaves what was computed from it" do
      t = Nx.iota({4})
      double = Nx.multiply(t, 2)
      Nx.backend_deallocate(t)
      assert_equal(double, [0, 2, 4, 6])
    end

    test "does not keep a tensor from being inspected" do
      t = Nx.iota({4})
      Nx.backend_deallocate(t)
      assert inspect(t) =~ "deallocated"
    end
  end

  describe "transfer" do
    test "to and from the binary backend keeps every bit" do
      for_all(fn ->
        t = tensor(pick(types()), shape())
        there = Nx.backend_transfer(t, backend())
        assert %Mlx.Backend{} = there.data
        back = Nx.backend_transfer(there)
        assert %Nx.BinaryBackend{} = back.data
        assert Nx.to_binary(back) == Nx.to_binary(t)
        assert_raise Mlx.Error, fn -> Nx.to_binary(there) end
      end)
    end

    test "to the same device is free" do
      t = Nx.iota({4})
      assert Nx.backend_transfer(t, backend()) == t
      assert_equal(t, [0, 1, 2, 3])
    end

    test "copies are independent" do
      t = Nx.iota({4})
      copy = Nx.backend_copy(t, backend())
      Nx.backend_deallocate(t)
      assert_equal(copy, [0, 1, 2, 3])

      kept = Nx.iota({4})
      Nx.backend_deallocate(Nx.backend_copy(kept, backend()))
      assert_equal(kept, [0, 1, 2, 3])
    end
  end

  describe "to_batched" do
    test "cuts, and completes the last batch from the start" do
      t = Nx.iota({5, 2})
      batches = fn opts -> t |> Nx.to_batched(2, opts) |> Enum.map(&Nx.to_flat_list/1) end
      assert batches.([]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
      assert batches.(leftover: :discard) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    end

    test "is lazy" do
      assert [first] = Nx.iota({100}) |> Nx.to_batched(10) |> Enum.take(1)
      assert_equal(first, Enum.to_list(0..9))
    end
  end

  describe "operands of the binary backend" do
    test "are taken in, scalars and larger ones" do
      binary = &Nx.tensor(&1, backend: Nx.BinaryBackend)
      t = Nx.tensor([1, 2, 3])
      assert_equal(Nx.add(t, binary.(1)), [2, 3, 4])
      assert_equal(Nx.add(binary.([1, 1, 1]), t), [2, 3, 4])
      assert_equal(Nx.concatenate([binary.([9]), t]), [9, 1, 2, 3])
      assert_equal(Nx.stack([t, binary.([1, 1, 1])]), [[1, 2, 3], [1, 1, 1]])
      assert_equal(Nx.select(t, binary.([1, 1, 1]), binary.(0)), [1, 1, 1])
      assert_equal(Nx.take(t, binary.([2])), [3])
      assert_equal(Nx.dot(binary.([1, 1, 1]), t), 6)
      assert_equal(t[binary.(1)], 2)
      assert_equal(Nx.put_slice(t, [binary.(1)], binary.([7])), [1, 7, 3])
    end
  end

  describe "names and vectorized axes" do
    test "are Nx's business, and survive" do
      t = Nx.tensor([[1, 2], [3, 4]], names: [:x, :y])
      assert Nx.names(Nx.sum(t, axes: [:x])) == [:y]
      v = Nx.vectorize(Nx.tensor([[1, 2], [3, 4]]), :batch)
      assert_equal(Nx.devectorize(Nx.sum(v), keep_names: false), [3, 7])
    end
  end

  describe "what MLX cannot compute" do
    setup do
      policy = Application.fetch_env(:mlx, :fallback)

      on_exit(fn ->
        case policy do
          {:ok, policy} -> Application.put_env(:mlx, :fallback, policy)
          :error -> Application.delete_env(:mlx, :fallback)
        end
      end)

      t = Nx.tensor([[1, 2], [3, 4]])
      # No operation of Nx is left that falls back, so one is sent there by hand.
      %{
        run: fn ->
          Fallback.run(
            :reduce,
            Nx.template({}, :s32),
            [t, Nx.tensor(0), [axes: nil], &Nx.add/2],
            "a test"
          )
        end
      }
    end

    test "raises where the policy says so", %{run: run} do
      Application.put_env(:mlx, :fallback, :raise)
      error = catch_error(run.())
      assert %Mlx.Error{kind: :unsupported, op: "reduce"} = error
      assert Exception.message(error) =~ "Nx.backend_transfer(tensor, Nx.BinaryBackend)"
    end

    test "runs on the binary backend otherwise, and comes back", %{run: run} do
      test = self()
      :telemetry.attach(test, [:mlx, :fallback], &__MODULE__.report/4, test)
      on_exit(fn -> :telemetry.detach(test) end)

      Application.put_env(:mlx, :fallback, :silent)
      assert capture_log(fn -> assert_equal(run.(), 10) end) == ""
      assert_received {:fallback, :reduce}

      Application.put_env(:mlx, :fallback, :warn)

      assert capture_log(fn -> assert_equal(run.(), 10) end) =~
               "Nx.reduce runs on Nx.BinaryBackend"
    end

    test "refuses an unknown policy", %{run: run} do
      Application.put_env(:mlx, :fallback, :maybe)
      assert_raise ArgumentError, ~r/fallback: must be :silent, :warn or :raise, got: :maybe/, run
    end
  end

  def report(_event, _measurements, %{op: op}, pid), do: send(pid, {:fallback, op})

  describe "one post per operation" do
    test "however many instructions it takes" do
      assert_equal(Nx.remainder(Nx.tensor([-7, 7]), 3), [-1, 1])
      assert_equal(Nx.argmax(Nx.tensor([1.0, 3.0, 3.0]), tie_break: :high), 2)
    end
  end
end
