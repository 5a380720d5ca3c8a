defmodule Mlx.Backend.PointerTest do
  # Oracle: the tensors that the pointers are made of, another process of the system, and the
  # system's list of shared memory.
  use Mlx.NxCase, async: true

  alias Mlx.{Device, Native}

  # The tensor is held until `fun` has its pointer no more.
  defp with_pointer(tensor, opts, fun) do
    result = fun.(Nx.to_pointer(tensor, opts))
    assert Nx.to_binary(tensor, limit: 1)
    result
  end

  defp from(pointer, type, shape, opts \\ []),
    do: Nx.from_pointer(backend(), pointer, type, shape, opts)

  defp sync, do: Native.sync(Device.worker(Device.normalize!(device())))

  defp shared?(name), do: File.exists?("/dev/shm" <> name)

  describe "there and back" do
    for mode <- [:local, :ipc] do
      test "keeps every bit of every type, #{mode}" do
        for_all(fn ->
          {type, shape} = {pick(types()), shape()}
          t = mlx(tensor(type, shape))

          with_pointer(t, [mode: unquote(mode)], fn pointer ->
            assert pointer.kind == unquote(mode)
            assert pointer.data_size == byte_size(Nx.to_binary(t))
            back = from(pointer, type, shape)
            assert Nx.to_binary(back) == Nx.to_binary(t)
            assert {back.type, back.shape} == {type, shape}
          end)
        end)
      end

      test "is in rows, whatever view the tensor is, #{mode}" do
        t = Nx.iota({2, 3}, type: :s16) |> Nx.transpose()

        with_pointer(t, [mode: unquote(mode)], fn pointer ->
          assert_equal(from(pointer, :s16, {3, 2}), [[0, 3], [1, 4], [2, 5]])
          assert_equal(from(pointer, {:s, 16}, {6}), [0, 3, 1, 4, 2, 5])
        end)
      end

      test "is a copy: neither changes the other, #{mode}" do
        t = Nx.iota({1000})
        copy = with_pointer(t, [mode: unquote(mode)], &from(&1, :s32, {1000}))
        Nx.backend_deallocate(t)
        sync()
        assert_equal(copy, Enum.to_list(0..999))
      end

      test "raises what the tensor's computation raised, #{mode}" do
        t = Nx.iota({4})
        [bad] = Native.run([{{:reshape, {3}}, [0]}], [1], [t.data.ref])
        [later] = Native.run([{:negative, [0]}], [1], [bad])
        later = %{t | data: %Mlx.Backend{ref: later}}
        error = assert_raise Mlx.Error, fn -> Nx.to_pointer(later, mode: unquote(mode)) end
        assert error.op == "reshape"
      end

      test "raises for a tensor that was deallocated, #{mode}" do
        t = Nx.iota({4})
        Nx.backend_deallocate(t)

        assert_raise Mlx.Error, ~r/deallocated/, fn ->
          Nx.to_pointer(t, mode: unquote(mode))
        end
      end
    end

    test "takes names, and vectorized tensors whole" do
      t = Nx.tensor([[1, 2], [3, 4]])

      with_pointer(t, [], fn pointer ->
        assert from(pointer, :s32, {2, 2}, names: [:x, nil]).names == [:x, nil]
        assert from(pointer, :s32, {2, 2}).names == [nil, nil]

        assert_raise ArgumentError, ~r/names/, fn -> from(pointer, :s32, {2, 2}, names: [:x]) end
        assert_raise ArgumentError, ~r/unknown keys/, fn -> from(pointer, :s32, {4}, name: :x) end
      end)

      vectorized = Nx.vectorize(t, :rows)

      with_pointer(vectorized, [], fn pointer ->
        assert pointer.data_size == 16
        assert_equal(from(pointer, :s32, {4}), [1, 2, 3, 4])
      end)
    end

    test "needs no data_size, as in Nx's examples" do
      t = Nx.u8([10, 20, 30])

      with_pointer(t, [], fn pointer ->
        assert_equal(from(%{pointer | data_size: nil}, :u8, {1, 3}), [[10, 20, 30]])
      end)
    end

    test "is made where the options say" do
      t = Nx.u8([1])

      with_pointer(t, [], fn pointer ->
        there = Nx.from_pointer({Mlx.Backend, device: :cpu}, pointer, :u8, {1})
        assert Native.device(there.data.ref) == :cpu

        assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, fn ->
          Nx.from_pointer({Mlx.Backend, devise: :cpu}, pointer, :u8, {1})
        end
      end)
    end
  end

  describe "an address" do
    test "stays while the tensor is held" do
      t = Nx.iota({100})
      pointer = Nx.to_pointer(t)
      for _ <- 1..20, do: Nx.to_binary(Nx.add(Nx.multiply(t, 2), t))
      :erlang.garbage_collect()
      sync()
      assert Nx.to_pointer(t) == pointer
      assert_equal(from(pointer, :s32, {100}), Enum.to_list(0..99))
    end

    test "that is none is an error" do
      for address <- [0, 1, 4096, 2 ** 47, 2 ** 63, 2 ** 64 - 1] do
        pointer = %Nx.Pointer{kind: :local, address: address, data_size: 8}
        error = assert_raise Mlx.Error, fn -> from(pointer, :f32, {2}) end
        assert %{kind: :invalid_argument, op: "from_pointer"} = error
        assert Exception.message(error) =~ ~r/0x[0-9a-f]+ cannot be read: Bad address/
      end

      for address <- [nil, -1, 2 ** 64, 1.0, "1234"] do
        assert_raise ArgumentError, ~r/needs an :address/, fn ->
          from(%Nx.Pointer{kind: :local, address: address}, :f32, {2})
        end
      end
    end
  end

  describe "shared memory" do
    test "is another for each call, and all of it goes with the tensor" do
      t = Nx.iota({10})
      pointers = for _ <- 1..3, do: Nx.to_pointer(t, mode: :ipc)
      assert pointers |> Enum.map(& &1.handle) |> Enum.uniq() |> length() == 3
      for pointer <- pointers, do: assert_equal(from(pointer, :s32, {10}), Enum.to_list(0..9))
      assert Nx.backend_deallocate(t) == :ok
      sync()

      for pointer <- pointers do
        assert_raise Mlx.Error, ~r/No such file.*hold on to that tensor/, fn ->
          from(pointer, :s32, {10})
        end
      end
    end

    test "goes when the tensor is collected" do
      make = fn -> Nx.to_pointer(Nx.iota({4}, backend: backend()), mode: :ipc).handle end
      pointer = %Nx.Pointer{kind: :ipc, handle: Task.await(Task.async(make))}
      assert eventually(fn -> gone?(pointer, :s32, {4}) end)
    end

    test "does not outlive a caller that is killed while it waits for it" do
      worker = Native.start_worker(:cpu)
      before = shared()

      for _ <- 1..30 do
        {pid, ref} =
          spawn_monitor(fn ->
            binary = :binary.copy(<<1>>, 1_000_000)
            t = Native.from_binary(worker, {:u, 8}, {1_000_000}, binary)
            for _ <- 1..100, do: Native.share(t, 0o400)
          end)

        Process.sleep(Enum.random(0..10))
        Process.exit(pid, :kill)
        assert_receive {:DOWN, ^ref, _, _, _}
      end

      # What their heaps held is dropped by the schedulers, and posted.
      assert eventually(fn -> Native.sync(worker) == :ok and shared() -- before == [] end)
    end

    test "is opened by other processes of the system, and theirs goes with them" do
      t = Nx.tensor([[1.5, -2.0], [:nan, 4.0]], type: :f64)

      with_pointer(t, [mode: :ipc], fn pointer ->
        script = """
        {:ok, _} = Application.ensure_all_started(:mlx)
        pointer = #{inspect(pointer)}
        backend = {Mlx.Backend, device: :cpu}
        t = Nx.from_pointer(backend, pointer, :f64, {2, 2}, names: [:x, :y])
        [:x, :y] = t.names
        doubled = Nx.add(t, t)
        own = Nx.to_pointer(doubled, mode: :ipc)
        IO.puts("read " <> Base.encode16(Nx.to_binary(t)))
        IO.puts("made " <> own.handle)
        IO.gets("")
        Nx.to_binary(doubled)
        System.halt(0)
        """

        paths = Enum.flat_map([:mlx, :nx, :complex, :telemetry], &["-pa", ebin(&1)])

        port =
          Port.open({:spawn_executable, System.find_executable("elixir")}, [
            :binary,
            :exit_status,
            :stderr_to_stdout,
            line: 1000,
            args: paths ++ ["-e", script]
          ])

        assert line(port, "read ") == Base.encode16(Nx.to_binary(t))
        theirs = %Nx.Pointer{kind: :ipc, handle: line(port, "made "), data_size: 32}
        doubled = from(theirs, :f64, {2, 2})
        assert Nx.to_binary(doubled) == Nx.to_binary(Nx.add(t, t))

        Port.command(port, "\n")
        assert_receive {^port, {:exit_status, 0}}, 60_000
        assert gone?(theirs, :f64, {2, 2})
      end)
    end

    test "may be opened as the permissions say" do
      t = Nx.u8([1])

      for {opts, permissions} <- [
            {[], 0o400},
            {[permissions: 0o400], 0o400},
            {[permissions: 0o644], 0o644},
            {[permissions: 0], 0}
          ] do
        with_pointer(t, [mode: :ipc] ++ opts, fn pointer ->
          if File.dir?("/dev/shm") do
            assert Bitwise.band(File.stat!("/dev/shm" <> pointer.handle).mode, 0o777) ==
                     permissions
          end
        end)
      end
    end

    test "of another kind, size or name is refused" do
      t = Nx.iota({4})

      with_pointer(t, [mode: :ipc], fn pointer ->
        assert_raise Mlx.Error, ~r/has 16 bytes, and 80 are asked for/, fn ->
          from(%{pointer | data_size: nil}, :s32, {20})
        end

        # Without a slash, as some backends name it, where the system puts up with that.
        "/" <> bare = pointer.handle
        if shared?(pointer.handle), do: from(%{pointer | handle: bare}, :s32, {4})
      end)

      for name <- ["/", "", "/a/b", "/../../etc/passwd", "/a\0b", String.duplicate("x", 300)] do
        assert_raise Mlx.Error, ~r/is not a name of shared memory/, fn ->
          from(%Nx.Pointer{kind: :ipc, handle: name}, :s32, {4})
        end
      end

      for name <- [nil, :name, ~c"/name", <<255>>] do
        assert_raise ArgumentError, ~r/needs the name of shared memory/, fn ->
          from(%Nx.Pointer{kind: :ipc, handle: name}, :s32, {4})
        end
      end
    end
  end

  describe "arguments" do
    test "that contradict each other are refused with the fix" do
      t = Nx.iota({4})

      for mode <- [:local, :ipc] do
        with_pointer(t, [mode: mode], fn pointer ->
          for {type, shape} <- [{:s32, {5}}, {:s32, {3}}, {:s64, {4}}, {:u8, {4}}] do
            assert_raise ArgumentError, ~r/the pointer is to 16: give the type and the/, fn ->
              from(pointer, type, shape)
            end
          end
        end)
      end

      for size <- [16.0, -16, "16"] do
        assert_raise ArgumentError, ~r/takes 16 bytes/, fn ->
          from(%Nx.Pointer{kind: :local, address: 4096, data_size: size}, :s32, {4})
        end
      end
    end

    test "of unknown kinds are refused with the fix" do
      t = Nx.u8([1])

      assert_raise ArgumentError, ~r/:mode to be :local.*or :ipc.*got: :global/, fn ->
        Nx.to_pointer(t, mode: :global)
      end

      for wrong <- [0o1000, -1, "0400", nil], mode <- [:local, :ipc] do
        assert_raise ArgumentError, ~r/:permissions to be the mode of a file.*0o400/, fn ->
          Nx.to_pointer(t, mode: mode, permissions: wrong)
        end
      end

      assert_raise ArgumentError, ~r/unknown keys \[:made\]/, fn ->
        Nx.to_pointer(t, made: :ipc)
      end

      for wrong <- [%Nx.Pointer{kind: :device, address: 1}, 4096, nil] do
        assert_raise ArgumentError, ~r/expected an Nx.Pointer of kind :local or :ipc/, fn ->
          from(wrong, :u8, {1})
        end
      end
    end
  end

  defp ebin(app), do: Path.join(:code.lib_dir(app), "ebin")

  defp gone?(pointer, type, shape) do
    _ = from(pointer, type, shape)
    false
  rescue
    error in Mlx.Error -> Exception.message(error) =~ "No such file"
  end

  defp shared do
    case File.ls("/dev/shm") do
      {:ok, names} -> Enum.filter(names, &String.starts_with?(&1, "mlx-"))
      {:error, _} -> []
    end
  end

  # What the other process says after `start`; whatever else it says belongs into the failure.
  defp line(port, start, said \\ []) do
    receive do
      {^port, {:data, {_, line}}} ->
        case String.split(line, start, parts: 2) do
          ["", rest] -> rest
          _ -> line(port, start, [line | said])
        end

      {^port, {:exit_status, status}} ->
        flunk("it ended with #{status}: #{said |> Enum.reverse() |> Enum.join("\n")}")
    after
      60_000 -> flunk("it said only: #{said |> Enum.reverse() |> Enum.join("\n")}")
    end
  end

  defp eventually(condition, tries \\ 200) do
    condition.() or (tries > 0 and Process.sleep(20) == :ok and eventually(condition, tries - 1))
  end
end
