defmodule Mlx.PeersTest do
  # Faults that were reproduced in other bindings of MLX, as tests: the input and its right value,
  # operation by operation and compiled where both make sense. The numbers are the rows of the
  # list of faults.
  use Mlx.NxCase, async: false

  import Mlx.CompilerCase, only: [jit: 2]

  describe "compiled functions" do
    test "row 1: that differ in the values of a captured tensor" do
      adding = fn captured -> fn x -> Nx.add(x, captured) end end

      for value <- [1, 100] do
        captured = Nx.tensor([value, value], backend: Nx.BinaryBackend)
        assert_equal(jit(adding.(captured), [Nx.tensor([1, 2])]), [1 + value, 2 + value])
      end
    end

    test "row 2: that differ in the environment of a hook's function" do
      parent = self()

      for tag <- [:first, :second] do
        hooked = fn x ->
          Nx.Defn.Kernel.hook(Nx.add(x, 1), &send(parent, {tag, Nx.to_flat_list(&1)}))
        end

        jit(hooked, [Nx.tensor([1, 2])])
        assert_received {^tag, [2, 3]}
        refute_received _
      end
    end

    test "row 3: outlive the process that compiled them first" do
      double = Nx.Defn.jit(&Nx.multiply(&1, 2), compiler: Mlx.Compiler)

      for k <- 1..400 do
        task = Task.async(fn -> Nx.to_number(double.(Nx.tensor(k, backend: backend()))) end)
        assert Task.await(task) == 2 * k
      end
    end

    test "row 5: hand hooks what is a view, in order" do
      parent = self()
      see = fn t -> Nx.Defn.Kernel.hook(t, &send(parent, {:seen, Nx.to_flat_list(&1)})) end

      views = fn t ->
        {see.(Nx.transpose(t)), see.(t[[0..1, 1..2]]), see.(Nx.broadcast(t[0], {2, 3}))}
      end

      jit(views, [Nx.iota({2, 3})])
      assert_received {:seen, [0, 3, 1, 4, 2, 5]}
      assert_received {:seen, [1, 2, 4, 5]}
      assert_received {:seen, [0, 1, 2, 0, 1, 2]}
    end

    test "row 10: to which an argument was given up, which is then gone and no crash" do
      given = Map.put(Nx.iota({4}), :donatable?, true)
      assert_equal(jit(&Nx.add(&1, 1), [given]), [1, 2, 3, 4])
      assert %Mlx.Error{kind: :deallocated} = catch_error(Nx.to_binary(given))
      assert %Mlx.Error{kind: :deallocated} = catch_error(jit(&Nx.add(&1, 1), [given]))
      assert %Mlx.Error{kind: :deallocated} = catch_error(Nx.to_binary(Nx.multiply(given, 2)))
    end

    test "row 28: need no device to be configured" do
      script = """
      {:ok, _} = Application.ensure_all_started(:mlx)
      add = Nx.Defn.jit(&Nx.add(&1, 1), compiler: Mlx.Compiler)
      IO.inspect({Nx.to_flat_list(add.(Nx.tensor([1, 2]))), Application.get_all_env(:mlx)})
      """

      paths = for path <- :code.get_path(), arg <- ["-pa", to_string(path)], do: arg
      assert {"{[2, 3], []}\n", 0} = System.cmd("elixir", paths ++ ["-e", script])
    end

    test "row 9: with a block whose function leaves its first argument alone" do
      block = fn a, b ->
        Nx.block(%Mlx.Containers.Pair{}, [a, b], Nx.template({2}, :s32), fn _block, _a, b ->
          Nx.multiply(b, 10)
        end)
      end

      args = [Nx.tensor([1, 2]), Nx.tensor([3, 4])]
      assert_equal(both(args, block), [30, 40])
    end

    test "row 11: with constants that are not finite, or complex" do
      t = Nx.tensor([1.0, -1.0])
      infinite = &Nx.select(Nx.greater(&1, 0), Nx.Constants.infinity(), :nan)
      assert_equal(both([t], infinite), [:infinity, :nan])
      turned = both([t], &Nx.multiply(&1, Complex.new(0, 1)))
      assert_equal(turned, [Complex.new(0, 1), Complex.new(0, -1)])
    end

    test "row 31: leave nothing behind in tables" do
      fun = &Nx.add(&1, 1)

      tables = fn ->
        Enum.sum(for t <- :ets.all(), is_integer(size = :ets.info(t, :size)), do: size)
      end

      for _ <- 1..5, do: jit(fun, [Nx.tensor([1.0])])
      before = tables.()
      for _ <- 1..1000, do: jit(fun, [Nx.tensor([1.0])])
      assert tables.() - before < 20
    end
  end

  describe "values" do
    test "row 6: numbers that are not finite are read" do
      for number <- [:nan, :infinity, :neg_infinity], type <- float_types() do
        assert Nx.to_number(Nx.tensor(number, type: type)) == number
        assert Nx.to_number(Nx.sum(Nx.tensor([number, 1.0], type: type))) == number
      end
    end

    test "row 12: no more is read than there is" do
      for {type, bytes} <- [s: 8, f: 32, s: 64] |> Enum.map(&{&1, div(elem(&1, 1), 8)}) do
        t = Nx.iota({4}, type: type)
        assert byte_size(Nx.to_binary(t, limit: 1_000_000)) == 4 * bytes
        assert Nx.to_binary(t, limit: 1_000_000) == Nx.to_binary(t)
      end

      # Two of its numbers are a byte.
      assert Nx.to_binary(Nx.tensor([7, -8, 0, 1], type: :s4), limit: 1_000_000) == <<120, 1>>
    end

    test "row 13: numbers of 4 bits are inspected, read and copied" do
      for {type, list} <- [s4: [7, -8, 0, 1], u4: [15, 0, 1, 8]] do
        t = Nx.tensor(list, type: type)
        assert inspect(t) =~ inspect(list)
        assert Nx.to_flat_list(t) == list

        for to <- [backend(), Nx.BinaryBackend],
            do: assert(list == Nx.to_flat_list(Nx.backend_copy(t, to)))
      end
    end

    test "row 25: zeros of 8 bits are zero" do
      for type <- [:f8, :f8_e4m3fn] do
        t = Nx.tensor([0.0, -0.0, 1.0], type: type)
        assert_equal(both([t], &Nx.multiply(&1, 1)), [0.0, -0.0, 1.0])
        assert_equal(both([t], &Nx.as_type(&1, :f32)), [0.0, -0.0, 1.0])
        assert Nx.to_number(Nx.sum(Nx.tensor([0.0, 0.0], type: type))) == 0.0
      end
    end

    test "row 15: remainders of even quotients are zero" do
      {a, b} = {Nx.tensor([-4, 4, -4, -5]), Nx.tensor([2, -2, -2, 2])}
      assert_equal(both([a, b], &Nx.remainder/2), [0, 0, 0, -1])
    end

    test "row 16: the least and greatest of a type sort downwards" do
      t = Nx.tensor([0, 200, 2, 1], type: :u8)
      assert_equal(both([t], &Nx.sort(&1, direction: :desc)), [200, 2, 1, 0])
      assert_equal(both([t], &Nx.argsort(&1, direction: :desc)), [1, 2, 3, 0])
      assert_equal(both([t], &Nx.top_k(&1, k: 2)) |> elem(0), [200, 2])

      for type <- [s: 8, s: 16, s: 32, s: 64] do
        least = -(2 ** (elem(type, 1) - 1))
        t = Nx.tensor([0, least, -1, 5], type: type)
        assert_equal(both([t], &Nx.sort(&1, direction: :desc)), [5, 0, -1, least])
      end
    end

    test "row 17: tolerances of all_close are not mixed up" do
      {a, b} = {Nx.tensor([100.0]), Nx.tensor([101.0])}
      assert_equal(both([a, b], &Nx.all_close(&1, &2, rtol: 0.05, atol: 0.0)), 1)
      assert_equal(both([a, b], &Nx.all_close(&1, &2, rtol: 0.0, atol: 0.05)), 0)
    end

    test "row 18: argmax and argmin know ties and NaN" do
      t = Nx.tensor([3.0, 1.0, 3.0, 1.0])

      for {op, low, high} <- [{:argmax, 0, 2}, {:argmin, 1, 3}] do
        assert_equal(both([t], &apply(Nx, op, [&1, [tie_break: :low]])), low)
        assert_equal(both([t], &apply(Nx, op, [&1, [tie_break: :high]])), high)
        nan = Nx.tensor([3.0, 1.0, :nan, 1.0])
        assert_equal(both([nan], &apply(Nx, op, [&1, [tie_break: :high]])), 2)
      end
    end

    test "row 19: padding of windows never wins, in any type" do
      for {kind, size} = type <- int_types() do
        {least, most} =
          if kind == :u, do: {0, 2 ** size - 1}, else: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}

        padded = [padding: [{1, 1}]]
        low = Nx.tensor([least, least], type: type)
        assert_equal(both([low], &Nx.window_max(&1, {2}, padded)), [least, least, least])
        high = Nx.tensor([most, most], type: type)
        assert_equal(both([high], &Nx.window_min(&1, {2}, padded)), [most, most, most])
      end
    end

    test "row 20: infinities and NaN become integers" do
      t = Nx.tensor([:infinity, :neg_infinity, :nan, 1.9])
      assert_equal(both([t], &Nx.as_type(&1, :s32)), [2 ** 31 - 1, -(2 ** 31), 0, 1])
      assert_equal(both([t], &Nx.as_type(&1, :u8)), [255, 0, 0, 1])
    end

    test "rows 22 and 23: 64-bit constants keep their bits" do
      for {number, type} <- [{2 ** 53 + 1, :s64}, {-(2 ** 63), :s64}, {2 ** 64 - 1, :u64}] do
        assert Nx.to_number(Nx.tensor(number, type: type)) == number
        zero = Nx.tensor([0], type: type)
        sum = both([zero], &Nx.add(&1, Nx.tensor(number, type: type)))
        assert Nx.to_flat_list(sum) == [number]
      end
    end

    test "row 24: products of integers are exact" do
      assert_equal(both([Nx.tensor([16_777_217]), Nx.tensor([1])], &Nx.dot/2), 16_777_217)
      matrix = Nx.broadcast(Nx.tensor(46_341), {40, 40})
      wrapped = rem(40 * 46_341 * 46_341, 2 ** 32)
      wrapped = if wrapped >= 2 ** 31, do: wrapped - 2 ** 32, else: wrapped
      assert Nx.to_flat_list(both([matrix], &Nx.dot(&1, &1))[0]) == List.duplicate(wrapped, 40)
    end

    test "row 26: dynamic starts below zero clamp" do
      slice = &Nx.slice(&1, [&2], [2])
      assert_equal(both([Nx.iota({4}), Nx.tensor(-3)], slice), [0, 1])
      assert_equal(both([Nx.iota({4}), Nx.tensor(9)], slice), [2, 3])
    end
  end

  describe "matrices" do
    @singular [[1.0, 2.0], [2.0, 4.0]]

    test "row 7: without an inverse, or with NaN, kill nothing" do
      b = Nx.tensor([1.0, 2.0])
      singular = Nx.tensor(@singular)
      assert_raise ArgumentError, ~r/singular/, fn -> Nx.LinAlg.solve(singular, b) end
      assert :nan in Nx.to_flat_list(jit(&Nx.LinAlg.solve/2, [singular, b]))
      triangle = Nx.tensor([[0.0, 0.0], [1.0, 1.0]])
      assert_raise ArgumentError, ~r/singular/, fn -> Nx.LinAlg.triangular_solve(triangle, b) end
      assert :nan in Nx.to_flat_list(jit(&Nx.LinAlg.triangular_solve/2, [triangle, b]))
      {_u, s, _vt} = both([Nx.tensor([[:nan, 1.0], [1.0, 1.0]])], &Nx.LinAlg.svd/1)
      assert_equal(s, [:nan, :nan])
    end

    test "row 21: complex ones keep their imaginary part" do
      hermitian = Nx.tensor([[2.0, Complex.new(0, 1)], [Complex.new(0, -1), 2.0]])
      l = Nx.LinAlg.cholesky(hermitian)

      for l <- [l, jit(&Nx.LinAlg.cholesky/1, [hermitian])] do
        back = Nx.dot(l, Nx.conjugate(Nx.transpose(l)))
        assert Nx.to_number(Nx.all_close(back, hermitian, atol: 1.0e-5)) == 1
      end
    end

    test "row 32: that are not positive definite have no Cholesky factor" do
      assert_raise ArgumentError, ~r/positive-definite/, fn ->
        Nx.LinAlg.cholesky(Nx.tensor([[1.0, 2.0], [2.0, 1.0]]))
      end
    end
  end

  describe "memory and processes" do
    test "row 14: deallocation gives the memory back" do
      t = Nx.iota({1_000_000}, type: :f32)
      Nx.to_binary(t, limit: 1)
      before = Mlx.Memory.info().active
      assert Nx.backend_deallocate(t) == :ok
      Mlx.Native.sync(Mlx.Device.worker(device()))
      assert before - Mlx.Memory.info().active >= 4_000_000
    end

    test "row 30: a stream that is dropped while it computes holds up no scheduler" do
      a = Nx.broadcast(Nx.tensor(0.001), {1500, 1500})

      # The checks of the test environment would wait.
      post = fn ->
        Mlx.put_flags(check_results: false)
        Mlx.Stream.put_default(Mlx.Stream.new(device()))
        Nx.dot(a, Nx.add(a, 1))
      end

      {alone, _} = :timer.tc(fn -> run(fn -> Nx.to_binary(post.(), limit: 1) end) end)

      delays =
        for _ <- 1..5 do
          # The computation has begun; with its process goes the last reference.
          run(fn ->
            product = post.()
            Process.sleep(div(alone, 5000))
            is_struct(product)
          end)

          Enum.max(for scheduler <- 1..System.schedulers_online(), do: delay(scheduler))
        end

      # By chance somebody else has the cores.
      assert Enum.min(delays) < alone / 3
    end

    test "row 29: what one process made another computes with, before it is computed" do
      lazy = Nx.add(Nx.iota({4}), 1)
      task = Task.async(fn -> Nx.multiply(lazy, 2) end)
      assert_equal(Task.await(task), [2, 4, 6, 8])
    end
  end

  defp run(fun) do
    Task.await(
      Task.async(fn -> Nx.with_default_backend(backend(), fn -> fun.() && :ok end) end),
      60_000
    )
  end

  # Microseconds until a process of that scheduler has run.
  defp delay(scheduler) do
    start = System.monotonic_time(:microsecond)
    opts = [:monitor, priority: :high, scheduler: scheduler]
    {_, monitor} = :erlang.spawn_opt(fn -> :ok end, opts)
    receive do: ({:DOWN, ^monitor, _, _, _} -> System.monotonic_time(:microsecond) - start)
  end
end
