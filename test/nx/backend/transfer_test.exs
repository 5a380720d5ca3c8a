defmodule Mlx.Backend.TransferTest do
  # Tensors between workers, devices and backends, in batches, and inspected. Oracle:
  # Nx.BinaryBackend, and values computed by hand.
  use Mlx.NxCase, async: false

  alias Mlx.{Backend, Device, Memory, Native, NIF}

  # On a worker of its own, as a tensor of another device is.
  defp elsewhere(tensor, worker \\ Native.start_worker(:cpu)) do
    %{data: %Backend{ref: ref}} = tensor = mlx(tensor)
    %{tensor | data: %Backend{ref: Native.copy_to(ref, worker)}}
  end

  defp home, do: Device.worker(Device.normalize!(device()))
  defp at_home?(%{data: %Backend{ref: ref}}), do: NIF.worker_owns(home(), ref)

  defp binary(values, opts \\ []), do: Nx.tensor(values, [backend: Nx.BinaryBackend] ++ opts)

  describe "between workers" do
    test "a transfer keeps every bit and gives the source up" do
      for_all(fn ->
        t = tensor(pick(types()), shape())
        there = elsewhere(t)
        here = Nx.backend_transfer(there, backend())
        assert at_home?(here)
        assert Nx.to_binary(here) == Nx.to_binary(t)
        assert {here.type, here.shape, here.names} == {t.type, t.shape, t.names}
        assert_raise Mlx.Error, ~r/deallocated/, fn -> Nx.to_binary(there) end
      end)
    end

    test "a copy is a tensor of its own" do
      for source <- [&elsewhere/1, &mlx/1] do
        t = source.(binary([1, 2, 3], names: [:x]))
        copy = Nx.backend_copy(t, backend())
        assert at_home?(copy)
        Nx.backend_deallocate(t)
        assert_equal(copy, binary([1, 2, 3], names: [:x]))

        t = source.(binary([1, 2, 3]))
        Nx.backend_deallocate(Nx.backend_copy(t, backend()))
        assert Nx.to_flat_list(t) == [1, 2, 3]
      end
    end

    test "a transfer to where the tensor is returns it, and takes no memory" do
      t = Nx.iota({1000, 1000})
      Native.eval([t.data.ref])
      before = Memory.info().active
      assert Nx.backend_transfer(t, backend()) === t
      assert Memory.info().active <= before
      assert Nx.backend_deallocate(t) == :ok
    end

    test "a transfer from a worker that was stopped says so" do
      worker = Native.start_worker(:cpu)
      t = elsewhere(binary([1, 2]), worker)
      NIF.worker_stop(worker)
      error = assert_raise Mlx.Error, fn -> Nx.backend_transfer(t, backend()) end
      assert error.kind == :stopped
    end

    test "a transfer of what failed raises the first error" do
      %{data: %Backend{ref: ref}} = t = elsewhere(binary([1, 2]))
      [bad] = Native.run([{{:reshape, {3}}, [0]}], [1], [ref])
      [later] = Native.run([{:negative, [0]}], [1], [bad])

      for move <- [&Nx.backend_transfer/2, &Nx.backend_copy/2],
          target <- [backend(), Nx.BinaryBackend] do
        error =
          assert_raise Mlx.Error, fn -> move.(%{t | data: %Backend{ref: later}}, target) end

        assert {error.kind, error.op} == {:native, "reshape"}
      end
    end

    test "containers and vectorized tensors go whole" do
      vectorized = Nx.vectorize(elsewhere(binary([[1, 2], [3, 4]])), :x)
      {moved, %{a: b}} = Nx.backend_transfer({vectorized, %{a: elsewhere(binary(7))}}, backend())
      assert at_home?(moved) and at_home?(b)
      assert moved.vectorized_axes == [x: 2]
      assert_equal(Nx.devectorize(moved, keep_names: false), [[1, 2], [3, 4]])
      assert_equal(b, 7)
    end
  end

  describe "operands on different workers" do
    setup do
      %{
        here: Nx.tensor([[2.0, 0.0], [0.0, 2.0]]),
        there: elsewhere(binary([[1.0, 0.0], [0.0, 1.0]]))
      }
    end

    # On a CPU `there` is another worker of the same device, on a GPU it is another device.
    test "of a device come together, and of two devices raise with what to do, whatever the operation",
         %{here: h, there: t} do
      index = binary([[0, 0]])
      rows = binary([0])

      for {name, operation} <- [
            add: fn h, t, _, _ -> Nx.add(h, t) end,
            equal: fn h, t, _, _ -> Nx.equal(t, h) end,
            dot: fn h, t, _, _ -> Nx.dot(h, t) end,
            concatenate: fn h, t, _, _ -> Nx.concatenate([h, t]) end,
            stack: fn h, t, _, _ -> Nx.stack([h, h, t]) end,
            select: fn h, t, _, _ -> Nx.select(h, t, h) end,
            put_slice: fn h, t, _, _ -> Nx.put_slice(h, [0, 0], t) end,
            gather: fn h, _, index, _ -> Nx.gather(h, index) end,
            take: fn h, _, _, rows -> Nx.take(h, rows) end,
            indexed_add: fn h, _, index, _ -> Nx.indexed_add(h, index, Nx.tensor([1.0])) end,
            solve: fn h, t, _, _ -> Nx.LinAlg.solve(h, t) end
          ] do
        apart = fn -> operation.(h, t, elsewhere(index), elsewhere(rows)) end

        if device() == :cpu do
          together = operation.(h, Nx.backend_copy(t, backend()), index, rows)
          assert {name, Nx.to_binary(apart.())} == {name, Nx.to_binary(together)}
        else
          error = assert_raise Mlx.Error, apart
          assert {name, error.kind} == {name, :invalid_argument}

          assert Exception.message(error) =~
                   "transfer one of them first, with Nx.backend_transfer/2"
        end
      end
    end

    test "compute once one of them is transferred", %{here: h, there: t} do
      moved = Nx.backend_transfer(t, backend())
      assert_equal(Nx.add(h, moved), [[3.0, 0.0], [0.0, 3.0]])
      assert_equal(Nx.concatenate([moved, h]) |> Nx.sum(), 6.0)
    end

    test "are brought together where all but one are scalars", %{here: h, there: t} do
      scalar = elsewhere(binary(5.0))
      assert_equal(Nx.add(h, scalar), [[7.0, 5.0], [5.0, 7.0]])
      assert_equal(Nx.add(scalar, h), [[7.0, 5.0], [5.0, 7.0]])
      assert at_home?(Nx.add(h, scalar))
      # The scalar that an expression makes is at home, and follows.
      sum = Nx.add(t, 1)
      refute at_home?(sum)
      assert Nx.to_flat_list(sum) == [2.0, 1.0, 1.0, 2.0]
      assert_equal(Nx.clip(h, scalar, elsewhere(binary(6.0))), [[5.0, 5.0], [5.0, 5.0]])
      assert_equal(Nx.pad(h, scalar, [{0, 0, 0}, {1, 0, 0}])[0], [5.0, 2.0, 0.0])
    end
  end

  describe "operands of the binary backend" do
    test "give what they give there, whichever they are" do
      for_all(fn ->
        type = pick(real_types())
        shape = shape(1..3)
        tensors = for _ <- 1..3, do: tensor(type, shape, :small)
        [a, b, c] = Enum.map(tensors, &if(pick([true, false]), do: mlx(&1), else: &1))
        # One at least decides the backend.
        a = mlx(a)
        [x, y, z] = tensors

        for {actual, expected} <- [
              {fn -> Nx.add(b, a) end, fn -> Nx.add(y, x) end},
              {fn -> Nx.concatenate([a, b, c]) end, fn -> Nx.concatenate([x, y, z]) end},
              {fn -> Nx.stack([b, a]) end, fn -> Nx.stack([y, x]) end},
              {fn -> Nx.select(Nx.greater(a, 0), b, c) end,
               fn -> Nx.select(Nx.greater(x, 0), y, z) end},
              {fn -> Nx.max(a, 1) end, fn -> Nx.max(x, 1) end}
            ] do
          expected = Nx.with_default_backend(Nx.BinaryBackend, expected)
          assert_equal(actual.(), expected, args: tensors)
        end
      end)
    end

    test "keep names, and vectorized axes" do
      t = Nx.tensor([[1, 2], [3, 4]], names: [:x, :y])
      other = binary([[10, 20], [30, 40]], names: [nil, :y])
      assert_equal(Nx.add(other, t), binary([[11, 22], [33, 44]], names: [:x, :y]))

      vectorized = Nx.vectorize(Nx.tensor([[1, 2], [3, 4]]), :batch)
      sum = Nx.add(vectorized, Nx.vectorize(binary([10, 20]), :batch))
      assert sum.vectorized_axes == [batch: 2]
      assert_equal(Nx.devectorize(sum, keep_names: false), [[11, 12], [23, 24]])
    end
  end

  describe "batches" do
    test "are those of the binary backend" do
      for_all(100, fn ->
        t = tensor(pick(types()), shape(1..3, 7), :finite)
        batch = int(1..elem(t.shape, 0))
        opts = pick([[], [leftover: :repeat], [leftover: :discard]])
        t = t |> named() |> vectorized(int(0..tuple_size(t.shape)))

        expected = t |> Nx.to_batched(batch, opts) |> Enum.to_list()
        actual = t |> mlx() |> Nx.to_batched(batch, opts) |> Enum.to_list()
        assert length(actual) == length(expected)

        for {actual, expected} <- Enum.zip(actual, expected) do
          assert actual.vectorized_axes == expected.vectorized_axes
          assert {actual.names, actual.shape} == {expected.names, expected.shape}
          assert Nx.to_binary(actual) == Nx.to_binary(expected)
        end
      end)
    end

    test "may be as large as the tensor, and not larger" do
      t = Nx.iota({3, 2})

      for leftover <- [:repeat, :discard] do
        assert [all] = t |> Nx.to_batched(3, leftover: leftover) |> Enum.to_list()
        assert_equal(all, [[0, 1], [2, 3], [4, 5]])
        assert [first | _] = t |> Nx.to_batched(2, leftover: leftover) |> Enum.to_list()
        assert_equal(first, [[0, 1], [2, 3]])
      end

      assert_raise ArgumentError, ~r/cannot batch beyond original tensor/, fn ->
        Nx.to_batched(t, 4)
      end
    end

    test "are cut as they are asked for, of tensors on any worker" do
      t = elsewhere(binary(Enum.to_list(0..9)))
      batches = Nx.to_batched(t, 4)
      assert [first] = Enum.take(batches, 1)
      assert Nx.to_flat_list(first) == [0, 1, 2, 3]
      refute at_home?(first)
      assert Enum.map(batches, &Nx.to_flat_list/1) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
      Nx.backend_deallocate(t)
      assert Nx.to_flat_list(first) == [0, 1, 2, 3]
      assert_raise Mlx.Error, ~r/deallocated/, fn -> Enum.take(batches, 1) end
    end

    defp named(t) do
      names = for axis <- 0..(tuple_size(t.shape) - 1), do: pick([nil, :"axis#{axis}"])
      Nx.rename(t, names)
    end

    # The outermost vectorized axis is the one that is cut.
    defp vectorized(t, axes),
      do: Enum.reduce(1..axes//1, t, &Nx.vectorize(&2, :"vectorized#{&1}"))
  end

  describe "inspection" do
    defp shown(t, opts \\ []) do
      opts = struct(Inspect.Opts, opts)
      t |> Backend.Inspect.inspect(opts, true) |> Inspect.Algebra.format(80) |> to_string()
    end

    test "tells the device and the array" do
      t = Nx.tensor([1, 2])
      device = if device() == :cpu, do: "cpu", else: "gpu:0"
      assert [heading, "[1, 2]"] = t |> shown() |> String.split("\n")
      assert heading =~ ~r/\AMlx\.Backend<#{device}, [0-9]+\.[0-9]+>\z/
      assert shown(t) == shown(t)
      refute shown(t) == shown(Nx.tensor([1, 2]))
    end

    test "does not where the configuration says so, as in these tests" do
      refute inspect(Nx.tensor([1, 2])) =~ "Mlx.Backend"
    end

    test "shows as many elements as Nx does" do
      t = tensor({:s, 32}, {5, 3, 2})

      for limit <- [0, 1, 2, 5, 6, 7, 29, 30, 31, :infinity] do
        assert inspect(mlx(t), limit: limit) == inspect(t, limit: limit)
        view = Nx.transpose(t)
        assert inspect(Nx.transpose(mlx(t)), limit: limit) == inspect(view, limit: limit)
      end
    end

    test "reads what it shows of a tensor that memory has no room for" do
      limit = Memory.set_limit(2 ** 45)
      on_exit(fn -> Memory.set_limit(limit) end)

      huge =
        Nx.broadcast(Nx.tensor([[3], [4]], type: :u8), {2, (2 ** 33) |> div(2 ** 12), 2 ** 12},
          axes: [0, 1]
        )

      Memory.reset_peak()
      before = Memory.info().active
      assert inspect(huge, limit: 5) =~ "[3, 3, 3, 3, 3, ...]"
      assert Memory.info().peak < before + 1_000_000
      assert Nx.to_binary(huge, limit: 2) == <<3, 3>>
    end

    test "says why a tensor cannot be shown, and does not raise" do
      deallocated = Nx.iota({4})
      Nx.backend_deallocate(deallocated)
      worker = Native.start_worker(:cpu)
      stopped = elsewhere(binary([1]), worker)
      NIF.worker_stop(worker)
      %{data: %Backend{ref: ref}} = t = Nx.iota({4})
      [bad] = Native.run([{{:reshape, {3}}, [0]}], [1], [ref])
      failed = %{t | data: %Backend{ref: bad}}

      for {t, reason} <- [
            {deallocated, "the array was deallocated"},
            {stopped, "was stopped"},
            {failed, "Cannot reshape"}
          ] do
        assert inspect(t) =~ "#Nx.Tensor<\n  s32["
        assert inspect(t) =~ reason
        assert shown(t) =~ ~r/\AMlx\.Backend<.*#{reason}/s
      end
    end
  end
end
