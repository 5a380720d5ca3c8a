defmodule Mlx.Backend.Float8Test do
  @moduledoc """
  8-bit floats, every one of them. Nx.BinaryBackend is the oracle, with operands and results in f64
  or f32: it reads the subnormals of f8 wrongly (byte 1 as 1.25 * 2^-15 instead of 2^-16), but
  rounds to both types as Nx specifies. For functions, the oracle is Mlx in f32, rounded by
  Nx.BinaryBackend.
  """
  use Mlx.NxCase, async: true

  @types [f: 8, f8_e4m3fn: 8]
  @bytes for byte <- 0..255, into: <<>>, do: <<byte>>

  defp all(type), do: bytes(@bytes, type)
  defp bytes(bytes, type), do: Nx.from_binary(bytes, type, backend: Nx.BinaryBackend)

  # The values in another type, by way of the f16 whose upper byte an f8 is.
  defp converted(%{type: {:f, 8}} = t, to) do
    halves = for <<byte <- Nx.to_binary(t)>>, into: <<>>, do: <<byte * 256::16-native>>
    halves |> Nx.from_binary(:f16, backend: Nx.BinaryBackend) |> converted(to)
  end

  defp converted(t, to), do: on_binary(fn -> Nx.as_type(t, to) end)

  defp on_binary(fun), do: Nx.with_default_backend(Nx.BinaryBackend, fun)

  defp assert_bits(actual, expected) do
    assert %Mlx.Backend{} = actual.data
    assert {actual.type, actual.shape} == {expected.type, expected.shape}

    pairs =
      Enum.zip(
        :binary.bin_to_list(Nx.to_binary(actual)),
        :binary.bin_to_list(Nx.to_binary(expected))
      )

    assert Enum.reject(Enum.with_index(pairs), fn {{a, b}, _} -> a == b end) == []
  end

  defp pairs do
    {for(a <- 0..255, _ <- 0..255, into: <<>>, do: <<a>>),
     for(_ <- 0..255, b <- 0..255, into: <<>>, do: <<b>>)}
  end

  test "bytes stay as they are" do
    for type <- @types do
      t = mlx(all(type))
      assert Nx.to_binary(t) == @bytes
      assert Nx.to_binary(t, limit: 3) == <<0, 1, 2>>
      assert Nx.to_binary(Nx.backend_copy(t, Nx.BinaryBackend)) == @bytes
      assert Nx.to_binary(Nx.reverse(Nx.reverse(t))) == @bytes
      assert Nx.to_binary(Nx.concatenate([t[0..99], t[100..255]])) == @bytes
      assert Nx.to_binary(Nx.take(t, Nx.iota({256}))) == @bytes
      assert Nx.to_binary(Nx.bitcast(Nx.bitcast(t, :s8), type)) == @bytes
      assert_equal(Nx.bitcast(t, :u8), Nx.iota({256}, type: :u8, backend: Nx.BinaryBackend))
    end
  end

  test "inspects" do
    assert inspect(Nx.tensor([1.5, :nan, :infinity], type: :f8)) =~ "[1.5, NaN, Inf]"
    assert inspect(Nx.iota({9}, type: :f8_e4m3fn), limit: 2) =~ "[0.0, 1.0, ...]"
  end

  describe "conversion" do
    test "of every byte to every type" do
      for type <- @types, to <- [:f16, :bf16, :f32, :f64, :c64] do
        assert_equal(Nx.as_type(mlx(all(type)), to), converted(all(type), to))
      end

      for type <- @types, to <- int_types() ++ [u: 2, u: 4, s: 2, s: 4] do
        assert_bits(Nx.as_type(mlx(all(type)), to), converted(converted(all(type), :f32), to))
      end

      for type <- @types, to <- @types, type != to do
        assert_bits(Nx.as_type(mlx(all(type)), to), converted(converted(all(type), :f32), to))
      end
    end

    test "of every f16, and of what is next to it" do
      every = for n <- 0..65_535, into: <<>>, do: <<n::16-native>>
      halves = Nx.from_binary(every, :f16, backend: Nx.BinaryBackend)

      next =
        for <<n::32-native <- Nx.to_binary(converted(halves, :f32))>>,
            step <- [-1, 0, 1],
            into: <<>> do
          <<n + step::32-native>>
        end

      for type <- @types, t <- [halves, Nx.from_binary(next, :f32, backend: Nx.BinaryBackend)] do
        assert_bits(Nx.as_type(mlx(t), type), converted(t, type))
      end
    end

    test "of f64 rounds once" do
      near =
        for whole <- [1.0, 1.75, 2.0, 448.0, 240.0, 57_344.0, 2.0 ** -16, 2.0 ** -9, 2.0 ** -10],
            off <- [
              1.0e-9,
              -1.0e-9,
              2.0 ** -11,
              -(2.0 ** -11),
              2.0 ** -12 + 2.0 ** -40,
              2.0 ** -11 - 2.0 ** -40,
              -(2.0 ** -11) - 2.0 ** -40,
              0.0
            ],
            sign <- [1, -1],
            do: sign * whole * (1 + off)

      special = [
        :nan,
        :infinity,
        :neg_infinity,
        0.0,
        -0.0,
        1.0e300,
        -1.0e300,
        1.0e-300,
        -1.0e-300
      ]

      t = Nx.tensor(near ++ special, type: :f64, backend: Nx.BinaryBackend)
      for type <- @types, do: assert_bits(Nx.as_type(mlx(t), type), converted(t, type))
    end

    test "of integers and complex numbers" do
      for type <- @types, from <- [:u8, :s8, :s32, :u64, :s64, :bf16] do
        numbers = [0, 1, 17, 100, 127]

        numbers =
          if from in [:s32, :u64, :s64],
            do: [449, 65_519, 65_520, 2 ** 30 | numbers],
            else: numbers

        t = Nx.tensor(numbers, type: from, backend: Nx.BinaryBackend)
        assert_bits(Nx.as_type(mlx(t), type), converted(t, type))
      end

      t = Nx.tensor([Complex.new(1.3, 5), Complex.new(-0.0, 1)], backend: Nx.BinaryBackend)
      for type <- @types, do: assert_bits(Nx.as_type(mlx(t), type), converted(t, type))
    end

    test "of constants, counters and the identity" do
      for type <- @types do
        on = [type: type, backend: Nx.BinaryBackend]
        assert_bits(Nx.iota({600}, type: type), Nx.iota({600}, on))
        assert_bits(Nx.eye({2, 3}, type: type), Nx.eye({2, 3}, on))

        for number <- [0, 1, -3, 1.97, -0.0, 1.0e9, :nan, :infinity, :neg_infinity] do
          assert_bits(Nx.tensor(number, type: type), Nx.tensor(number, on))

          assert_bits(
            Nx.broadcast(Nx.tensor(number, type: type), {2}),
            Nx.tensor([number, number], on)
          )
        end
      end
    end
  end

  describe "one operand" do
    @functions [:exp, :expm1, :log, :log1p, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh] ++
                 [:acos, :asin, :atan, :acosh, :asinh, :atanh, :sqrt, :rsqrt, :cbrt] ++
                 [:erf, :erfc, :erf_inv, :abs, :ceil, :floor, :negate, :round, :sign] ++
                 [:is_nan, :is_infinity, :logical_not, :phase]
    for op <- @functions do
      test "#{op}" do
        for type <- @types do
          actual = apply(Nx, unquote(op), [mlx(all(type))])
          wide = apply(Nx, unquote(op), [mlx(converted(all(type), :f32))])
          assert actual.type == if(wide.type == {:f, 32}, do: type, else: wide.type)
          assert_bits(actual, converted(Nx.backend_copy(wide, Nx.BinaryBackend), actual.type))
        end
      end
    end

    test "conjugate and parts" do
      for type <- @types do
        wide = converted(all(type), :f32)
        assert_equal(Nx.real(Nx.as_type(mlx(all(type)), :c64)), wide)
        assert_equal(Nx.real(Nx.conjugate(mlx(all(type)))), wide)
      end
    end
  end

  describe "every pair" do
    for op <- [:add, :subtract, :multiply, :min, :max] do
      test "#{op}" do
        {left, right} = pairs()

        for type <- @types do
          [a, b] = [bytes(left, type), bytes(right, type)]
          [wa, wb] = [converted(a, :f64), converted(b, :f64)]
          expected = on_binary(fn -> Nx.as_type(apply(Nx, unquote(op), [wa, wb]), type) end)
          actual = apply(Nx, unquote(op), [mlx(a), mlx(b)])
          # Which zero is the greater one is open.
          zeros =
            if unquote(op) in [:min, :max],
              do: &Nx.add(&1, mlx(Nx.tensor(0, type: type))),
              else: & &1

          assert_bits(zeros.(actual), zeros.(mlx(expected)))
        end
      end
    end

    test "divide and remainder, of finite numbers" do
      {left, right} = pairs()

      for type <- @types, op <- [:divide, :remainder] do
        finite =
          Nx.to_list(
            on_binary(fn ->
              Nx.logical_and(Nx.less(Nx.abs(converted(all(type), :f32)), 1.0e9), 1)
            end)
          )

        zero = [0, 128]

        keep =
          for {<<a>>, <<b>>} <- Enum.zip(chunks(left), chunks(right)),
              Enum.at(finite, a) == 1 and Enum.at(finite, b) == 1 and b not in zero,
              do: {<<a>>, <<b>>}

        {left, right} = Enum.unzip(keep)
        [a, b] = [bytes(IO.iodata_to_binary(left), type), bytes(IO.iodata_to_binary(right), type)]
        [wa, wb] = [converted(a, :f64), converted(b, :f64)]
        expected = on_binary(fn -> Nx.as_type(apply(Nx, op, [wa, wb]), type) end)
        assert_bits(apply(Nx, op, [mlx(a), mlx(b)]), expected)
      end
    end

    for op <-
          [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal] ++
            [:logical_and, :logical_or, :logical_xor] do
      test "#{op}" do
        {left, right} = pairs()

        for type <- @types do
          [a, b] = [bytes(left, type), bytes(right, type)]
          [wa, wb] = [converted(a, :f32), converted(b, :f32)]
          expected = on_binary(fn -> apply(Nx, unquote(op), [wa, wb]) end)
          assert_bits(apply(Nx, unquote(op), [mlx(a), mlx(b)]), expected)
        end
      end
    end

    defp chunks(bytes), do: for(<<byte <- bytes>>, do: <<byte>>)
  end

  describe "mixed with other types" do
    test "the result has Nx's type" do
      for_all(fn ->
        shape = shape(1..3)

        [a, b] = [
          tensor(pick(@types), shape, :small),
          tensor(pick(types() ++ @types), shape, :small)
        ]

        assert_same([a, b], &Nx.add/2)
        assert_same([b, a], &Nx.multiply/2)
        unless match?({:c, _}, b.type), do: assert_same([b, a], &Nx.less/2)
        assert_same([b, a], &Nx.concatenate([&1, &2]))
        assert_same([tensor({:u, 8}, shape, 0..1), b, a], &Nx.select/3)
        assert_equal(Nx.subtract(mlx(a), a), Nx.subtract(a, a))
      end)
    end

    test "a predicate is false for both zeros" do
      pred = Nx.tensor([0.0, -0.0, 0.5, :nan], type: :f8)
      assert_equal(Nx.select(pred, 1, 2), [2, 2, 1, 1])
      assert_equal(Nx.select(pred, pred, Nx.negate(pred)), [-0.0, 0.0, 0.5, :nan])
      assert Nx.to_binary(Nx.select(pred, pred, Nx.negate(pred))) == <<0x80, 0, 0x38, 0x7E>>
    end
  end

  describe "many elements" do
    for op <- [:sum, :product, :all, :any, :reduce_max, :reduce_min, :mean] do
      test "#{op}" do
        for_all(fn ->
          t = tensor(pick(@types), shape(1..3), :small)
          axes = axes(t.shape)
          assert_same([t], &apply(Nx, unquote(op), [&1, [axes: axes]]))
        end)
      end
    end

    test "NaN is the greatest, and found" do
      for type <- @types do
        t = Nx.tensor([2.0, :nan, -1.0, 7.0], type: type)
        assert_equal(Nx.sort(t), [-1.0, 2.0, 7.0, :nan])
        assert_equal(Nx.sort(t, direction: :desc), [:nan, 7.0, 2.0, -1.0])
        assert_equal(Nx.argsort(t), [2, 0, 3, 1])
        assert_equal(Nx.argmax(t), 1)
        assert_equal(Nx.argmin(t), 1)
        assert_equal(Nx.reduce_max(t), :nan)
        assert_equal(elem(Nx.top_k(t, k: 2), 0), [:nan, 7.0])
      end
    end

    test "order" do
      for_all(fn ->
        t = tensor(pick(@types), shape(1..3, 6), :finite)
        opts = [axis: 0, direction: pick([:asc, :desc]), stable: true]
        assert_same([t], &Nx.sort(&1, opts))
        assert_same([t], &Nx.argsort(&1, opts))
        tie_break = pick([:low, :high])
        assert_same([t], &Nx.argmax(&1, tie_break: tie_break))
        assert_same([t], &Nx.argmin(&1, axis: 0))
      end)
    end

    test "windows" do
      for_all(fn ->
        t = tensor(pick(@types), shape(1..2, 6), :small)
        dims = t.shape |> Tuple.to_list() |> Enum.map(&int(1..min(&1, 2))) |> List.to_tuple()
        opts = [padding: pick([:valid, :same, Enum.map(1..Nx.rank(t), fn _ -> {2, 1} end)])]

        for op <- [:window_sum, :window_product, :window_max, :window_min],
            do: assert_same([t], &apply(Nx, op, [&1, dims, opts]))
      end)
    end

    test "window_scatter and reductions by a function" do
      for type <- @types do
        args = [
          tensor(type, {4, 4}, :small),
          tensor(type, {2, 2}, :small),
          tensor(type, {}, :small)
        ]

        assert_same(args, &Nx.window_scatter_max(&1, &2, &3, {2, 2}, strides: [2, 2]))

        t = Nx.tensor([1.0, 2.0, 3.5], type: type)
        assert_equal(Nx.reduce(t, Nx.tensor(0, type: type), &Nx.add/2), 6.5)
        assert_equal(Nx.reduce(t, Nx.tensor(8, type: type), &Nx.subtract(&2, &1)), 1.5)
        assert_equal(Nx.window_reduce(t, Nx.tensor(0, type: type), {2}, &Nx.max/2), [2.0, 3.5])
      end
    end

    test "products, convolutions and scans" do
      for_all(fn ->
        type = pick(@types)

        assert_same(
          [tensor(type, {3, 4}, :small), tensor(pick(@types), {4, 2}, :small)],
          &Nx.dot/2
        )

        assert_same(
          [tensor(type, {1, 2, 4}, :small), tensor(type, {3, 2, 2}, :small)],
          &Nx.conv/2
        )

        t = tensor(type, {5}, -1..1)

        for op <- [:cumulative_sum, :cumulative_product, :cumulative_max],
            do: assert_same([t], &apply(Nx, op, [&1]))
      end)
    end

    test "positions" do
      for_all(fn ->
        type = pick(@types)
        t = tensor(type, {3, 4}, :small)
        at = tensor({:u, 8}, {2, 2}, 0..2)
        assert_same([t], &Nx.slice(&1, [1, 0], [2, 3], strides: [1, 2]))
        assert_same([t, tensor(pick(@types), {1, 2}, :small)], &Nx.put_slice(&1, [1, 1], &2))
        assert_same([t, at], &Nx.gather/2)
        assert_same([t, at], &Nx.take(&1, &2, axis: 1))
        assert_same([t, at, tensor(type, {2}, :small)], &Nx.indexed_add/3)

        assert_same(
          [t, Nx.tensor([[0, 1], [2, 2]], backend: Nx.BinaryBackend), tensor(type, {2}, :small)],
          &Nx.indexed_put/3
        )

        assert_same([t, tensor(type, {}, :small)], &Nx.pad(&1, &2, [{1, -1, 1}, {0, 2, 0}]))
      end)
    end

    test "linear algebra is computed in f32" do
      for type <- @types do
        a = Nx.tensor([[4.0, 2.0], [2.0, 5.0]], type: type)
        assert_equal(Nx.LinAlg.cholesky(a), [[2.0, 0.0], [1.0, 2.0]])
        upper = Nx.tensor([[2.0, 1.0], [0.0, 4.0]], type: type)
        b = Nx.tensor([4.0, 8.0], type: type)
        assert_equal(Nx.LinAlg.triangular_solve(upper, b, lower: false), [1.0, 2.0])

        assert_raise ArgumentError, ~r/singular/, fn ->
          Nx.LinAlg.triangular_solve(
            Nx.tensor([[-0.0]], type: type),
            Nx.tensor([1.0], type: type)
          )
        end

        assert_raise ArgumentError, ~r/positive-definite/, fn ->
          Nx.LinAlg.cholesky(Nx.tensor([[1.0, 2.0], [2.0, 1.0]], type: type))
        end

        assert_equal(Nx.fft(b), [12.0, -4.0])
      end
    end
  end

  test "compiled as evaluated" do
    fun = fn x, y -> {Nx.dot(x, y), Nx.sort(Nx.sin(x)), Nx.add(Nx.sum(y), 0.3)} end

    for type <- @types do
      args = [mlx(tensor(type, {3, 3}, :small)), tensor(type, {3, 3}, :small)]
      compiled = Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler)
      eager = Nx.Defn.jit_apply(fun, args, compiler: Nx.Defn.Evaluator)
      for i <- 0..2, do: assert_bits(elem(compiled, i), elem(eager, i))
    end
  end

  test "random numbers are Nx's" do
    for type <- @types do
      draw = fn -> elem(Nx.Random.uniform(Nx.Random.key(7), shape: {50}, type: type), 0) end
      assert_bits(draw.(), on_binary(draw))
    end
  end
end
