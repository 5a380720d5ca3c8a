defmodule Mlx.Backend.NarrowTest do
  @moduledoc """
  Integers of 2 and 4 bits, every value of them. The oracle is Nx.BinaryBackend; what it lacks for
  these types has an oracle of its own, which the test names.
  """
  use Mlx.NxCase, async: true

  import Bitwise

  @types [u: 2, u: 4, s: 2, s: 4]

  # Nx's main branch cannot compute with two tensors of these types, unless one is a scalar.
  @lacks_oracle (try do
                   t = Nx.tensor([1, 2], type: :u4, backend: Nx.BinaryBackend)
                   Nx.to_flat_list(Nx.add(t, t)) != [2, 4]
                 rescue
                   ArgumentError -> "this version of Nx.BinaryBackend does not compute with u4"
                 end)

  defp values({:u, size}), do: Enum.to_list(0..(2 ** size - 1))
  defp values({:s, size}), do: Enum.to_list(-(2 ** (size - 1))..(2 ** (size - 1) - 1))

  defp binary(list, type), do: Nx.tensor(list, type: type, backend: Nx.BinaryBackend)

  # Every pair of a value of each type.
  defp pairs(left, right, keep \\ fn _, _ -> true end) do
    pairs = for a <- values(left), b <- values(right), keep.(a, b), do: {a, b}
    {as, bs} = Enum.unzip(pairs)
    [binary(as, left), binary(bs, right)]
  end

  describe "the border" do
    test "packs and unpacks any number of elements" do
      for {_, size} = type <- @types, count <- 1..17 do
        elements = for _ <- 1..count, do: pick(values(type))
        expected = binary(elements, type)
        t = mlx(expected)
        assert Nx.to_flat_list(t) == elements
        assert Nx.to_binary(t) == Nx.to_binary(expected)
        assert bit_size(Nx.to_binary(t)) == count * size
        assert Nx.to_binary(Nx.backend_copy(t, Nx.BinaryBackend)) == Nx.to_binary(expected)
        limit = int(1..count)
        assert Nx.to_binary(t, limit: limit) == Nx.to_binary(expected, limit: limit)
        assert_equal(Nx.tensor(elements, type: type), expected)
      end
    end

    test "packs the first element highest" do
      assert Nx.to_binary(Nx.tensor([1, 2, 3], type: :u4)) == <<0x12, 3::4>>
      assert Nx.to_binary(Nx.tensor([1, -1, 0], type: :s2)) == <<1::2, 3::2, 0::2>>
      assert_equal(Nx.from_binary(<<0x1F, 0x80>>, :s4), [1, -1, -8, 0])
      assert_equal(Nx.from_binary(<<0b00011011>>, :u2), [0, 1, 2, 3])
    end

    test "reads what is not in order in memory, and scalars" do
      for_all(fn ->
        type = pick(@types)
        t = tensor(type, shape(1..3))
        assert Nx.to_binary(Nx.transpose(mlx(t))) == Nx.to_binary(Nx.transpose(t))
      end)

      assert Nx.to_binary(Nx.tensor(-2, type: :s2)) == <<2::2>>
      assert Nx.to_number(Nx.tensor(-2, type: :s2)) == -2
    end

    test "packs many elements" do
      t = Nx.iota({1_000_003}, type: :u4)
      packed = Nx.to_binary(t)
      assert bit_size(packed) == 4 * 1_000_003
      assert <<0x0123456789ABCDEF::64, first::binary-size(400_000), _::bitstring>> = packed
      assert <<_::size(4_000_000), 0::4, 1::4, 2::4>> = packed

      assert Nx.to_binary(Nx.from_binary(first, :u4)) == first
    end

    test "refuses bits that are not of the shape" do
      assert_raise Mlx.Error, ~r/u4 tensor of shape \{3\} takes 12 bits.*has 16/, fn ->
        {backend, opts} = backend()
        backend.from_binary(Nx.template({3}, :u4), <<1, 2>>, backend.init(opts))
      end
    end

    test "moves tensors both ways" do
      t = binary([1, -2, 0], {:s, 2})
      there = Nx.backend_transfer(t, backend())
      assert_equal(Nx.backend_copy(there, backend()), t)
      assert Nx.to_binary(Nx.backend_transfer(there)) == Nx.to_binary(t)
    end

    # Nx 0.13 cannot inspect such tensors of Nx.BinaryBackend.
    test "inspects" do
      assert inspect(Nx.tensor([[1, -2], [3, -8]], type: :s4)) =~ "[1, -2],\n    [3, -8]"
      assert inspect(Nx.iota({9}, type: :u2), limit: 3) =~ "[0, 1, 2, ...]"
      assert inspect(Nx.iota({5}, type: :u4), limit: 5) =~ "[0, 1, 2, 3, 4]"
      assert inspect(Nx.iota({5}, type: :u4), limit: :infinity) =~ "[0, 1, 2, 3, 4]"
      assert inspect(Nx.tensor(-2, type: :s2)) =~ "s2\n  -2\n"
    end
  end

  describe "creation" do
    test "iota, eye and constants wrap" do
      for type <- @types do
        assert_equal(
          Nx.iota({21}, type: type),
          Nx.iota({21}, type: type, backend: Nx.BinaryBackend)
        )

        assert_equal(Nx.eye(3, type: type), Nx.eye(3, type: type, backend: Nx.BinaryBackend))
      end

      assert_equal(Nx.iota({2, 3}, axis: 0, type: :u2), [[0, 0, 0], [1, 1, 1]])
      # Nx.BinaryBackend cannot copy a scalar of less than a byte.
      assert_equal(Nx.broadcast(Nx.tensor(-3, type: :s4), {3}), [-3, -3, -3])
      assert_equal(Nx.add(Nx.tensor([1, 2], type: :u4), Nx.tensor(15, type: :u4)), [0, 1])
    end
  end

  describe "element by element" do
    @narrow [:add, :subtract, :multiply, :min, :max, :bitwise_and, :bitwise_or, :bitwise_xor]
    @any @narrow ++
           [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal] ++
           [:logical_and, :logical_or, :logical_xor, :atan2]
    for op <- @any do
      # Results of a byte and more are right in all versions.
      @tag skip: op in @narrow && @lacks_oracle
      test "#{op}" do
        for left <- @types,
            right <- @types,
            do: assert_same(pairs(left, right), &apply(Nx, unquote(op), [&1, &2]))
      end
    end

    for op <- [:quotient, :remainder, :divide] do
      @tag skip: op != :divide && @lacks_oracle
      test "#{op}" do
        for left <- @types, right <- @types do
          assert_same(
            pairs(left, right, fn _, b -> b != 0 end),
            &apply(Nx, unquote(op), [&1, &2])
          )
        end
      end
    end

    for op <- [:pow, :left_shift, :right_shift] do
      @tag skip: @lacks_oracle
      test "#{op}" do
        for left <- @types, right <- @types do
          assert_same(
            pairs(left, right, fn _, b -> b >= 0 end),
            &apply(Nx, unquote(op), [&1, &2])
          )
        end
      end
    end

    test "division by zero is all ones, and leaves the dividend" do
      for type <- @types do
        [a, zero] = pairs(type, type, fn _, b -> b == 0 end)
        ones = if match?({:u, _}, type), do: List.last(values(type)), else: -1
        assert_equal(Nx.quotient(mlx(a), mlx(zero)), Enum.map(values(type), fn _ -> ones end))
        assert_equal(Nx.remainder(mlx(a), mlx(zero)), a)
      end
    end

    for op <-
          [:negate, :abs, :sign, :bitwise_not, :is_nan, :is_infinity, :logical_not] ++
            [:exp, :sin, :tanh, :cbrt, :sigmoid, :floor, :ceil, :round, :conjugate] do
      test "#{op}" do
        for type <- @types,
            do:
              assert_same([binary(values(type), type)], &apply(Nx, unquote(op), [&1]),
                tolerance: 16
              )
      end
    end

    # Nx.BinaryBackend counts no leading zeros in less than 8 bits.
    test "bits are counted in the width of the type" do
      for {_, size} = type <- @types do
        t = mlx(binary(values(type), type))
        bits = for n <- values(type), do: Integer.digits(n &&& 2 ** size - 1, 2)
        ones = for digits <- bits, do: Enum.sum(digits)
        zeros = for digits <- bits, do: if(digits == [0], do: size, else: size - length(digits))
        assert_equal(Nx.population_count(t), binary(ones, type))
        assert_equal(Nx.count_leading_zeros(t), binary(zeros, type))
      end
    end

    test "bits become another type of the same width" do
      for {_, size} = type <- @types,
          to <- [u: size, s: size],
          do: assert_same([binary(values(type), type)], &Nx.bitcast(&1, to))
    end

    test "select and clip" do
      for_all(fn ->
        [type, other] = [pick(@types), pick(@types)]
        shape = shape(1..3)
        args = [tensor(pick(@types), shape), tensor(type, shape), tensor(other, shape)]
        assert_same(args, &Nx.select/3)
        bounds = [binary(pick(values(type)), type), binary(pick(values(type)), type)]
        assert_same([tensor(type, shape) | Enum.sort_by(bounds, &Nx.to_number/1)], &Nx.clip/3)
      end)
    end

    @tag skip: @lacks_oracle
    test "with operands of other types and of the other backend" do
      for_all(fn ->
        shape = shape(1..3)
        {a, b} = {tensor(pick(@types), shape, :small), tensor(pick(types()), shape, :small)}
        assert_same([a, b], &Nx.add/2)
        assert_same([a, b], &Nx.subtract(&2, &1))
        assert_equal(Nx.multiply(mlx(a), a), Nx.multiply(a, a))
      end)

      t = Nx.tensor([1, -2], type: :s4)
      assert_equal(Nx.multiply(t, binary(-3, {:s, 4})), [-3, 6])
    end
  end

  describe "conversion" do
    test "to every type" do
      for type <- @types,
          to <- @types ++ types(),
          do: assert_same([binary(values(type), type)], &Nx.as_type(&1, to))
    end

    test "from integers wraps" do
      for from <- int_types(), to <- @types do
        low = if match?({:u, _}, from), do: 0, else: -20
        assert_same([binary(Enum.to_list(low..40), from)], &Nx.as_type(&1, to))
      end
    end

    test "from floats cuts off, wraps, and has values for what is not finite" do
      special = [:nan, :infinity, :neg_infinity, 0.9, -0.9, 7.99, -8.5, 15.2, 16.0, -1.0e4, 300.5]

      for from <- float_types() ++ [c: 64], to <- @types do
        t = binary(special, from)
        t = if match?({:c, _}, from), do: binary([1.5, -2.5, 9.0], from), else: t
        assert_same([t], &Nx.as_type(&1, to))
      end
    end
  end

  describe "reductions" do
    for op <- [:sum, :product, :all, :any, :reduce_max, :reduce_min, :mean] do
      test "#{op}" do
        for_all(fn ->
          shape = shape(0..3)
          t = tensor(pick(@types), shape)
          opts = if shape == {}, do: [], else: [axes: axes(shape), keep_axes: pick([true, false])]
          assert_same([t], &apply(Nx, unquote(op), [&1, opts]))
        end)
      end
    end

    for op <- [:argmax, :argmin] do
      test "#{op}" do
        for_all(fn ->
          t = tensor(pick(@types), shape(1..3))
          opts = [axis: pick([nil, 0]), tie_break: pick([:low, :high]), type: pick([:s32, :u4])]
          assert_same([t], &apply(Nx, unquote(op), [&1, opts]))
        end)
      end
    end

    test "by a function" do
      for type <- @types do
        t = mlx(binary(values(type), type))
        acc = mlx(binary(1, type))
        sum = Enum.reduce(values(type), 1, &(&1 + &2))
        assert_equal(Nx.reduce(t, acc, &Nx.add/2), sum)
        assert_equal(Nx.reduce(t, acc, fn x, acc -> Nx.add(Nx.multiply(acc, 1), x) end), sum)

        windows = Nx.window_reduce(t, acc, {2}, &Nx.add/2)
        assert_equal(windows, Enum.zip_with(values(type), tl(values(type)), &(&1 + &2 + 1)))
      end
    end

    test "short integers are reduced by a function in their own width" do
      t = Nx.tensor([200, 100, 3], type: :u8)
      assert_equal(Nx.reduce(t, Nx.u8(1), &Nx.add/2), 48)
      assert_equal(Nx.reduce(t, Nx.u8(2), &Nx.multiply/2), 192)
    end
  end

  describe "windows" do
    for op <- [:window_sum, :window_product, :window_max, :window_min] do
      test "#{op}" do
        for_all(fn ->
          t = tensor(pick(@types), shape(1..2, 6))
          dims = t.shape |> Tuple.to_list() |> Enum.map(&int(1..min(&1, 3))) |> List.to_tuple()
          opts = [padding: pick([:valid, :same]), strides: 1]
          assert_same([t], &apply(Nx, unquote(op), [&1, dims, opts]))
        end)
      end
    end

    test "of nothing but padding have the limits of the type" do
      for type <- @types do
        t = mlx(binary([0], type))
        opts = [padding: [{2, 2}]]
        {least, most} = Enum.min_max(values(type))
        assert_equal(Nx.window_max(t, {2}, opts), [least, 0, 0, least])
        assert_equal(Nx.window_min(t, {2}, opts), [most, 0, 0, most])
      end
    end

    test "scatter" do
      for type <- @types do
        t = tensor(type, {4, 4})
        source = tensor(type, {2, 2})
        args = [t, source, binary(0, type)]
        assert_same(args, &Nx.window_scatter_max(&1, &2, &3, {2, 2}, strides: [2, 2]))
        assert_same(args, &Nx.window_scatter_min(&1, &2, &3, {2, 2}, strides: [2, 2]))
      end
    end
  end

  describe "order" do
    test "sort, argsort and top_k" do
      for_all(fn ->
        t = tensor(pick(@types), shape(1..3, 6))
        opts = [axis: int(0..(Nx.rank(t) - 1)), direction: pick([:asc, :desc]), stable: true]
        assert_same([t], &Nx.sort(&1, opts))
        assert_same([t], &Nx.argsort(&1, opts))
        assert_same([t], &Nx.top_k(&1, k: 1))
      end)
    end
  end

  describe "products" do
    @tag skip: @lacks_oracle
    test "dot and outer" do
      for_all(fn ->
        {a, b} = {tensor(pick(@types), {3, 4}), tensor(pick(@types), {4, 2})}
        assert_same([a, b], &Nx.dot/2)
        assert_same([b, a], &Nx.outer/2)
      end)
    end

    test "conv" do
      args = [tensor({:s, 4}, {1, 2, 4, 4}), tensor({:u, 2}, {3, 2, 2, 2})]
      assert_same(args, &Nx.conv/2)
    end

    @tag skip: @lacks_oracle
    test "cumulative" do
      for_all(fn ->
        t = tensor(pick(@types), shape(1..2, 6))
        opts = [axis: 0, reverse: pick([true, false])]

        for op <- [:cumulative_sum, :cumulative_product, :cumulative_max, :cumulative_min],
            do: assert_same([t], &apply(Nx, op, [&1, opts]))
      end)
    end

    test "linear systems and transforms are of floats" do
      a = binary([[1, 1], [0, 1]], {:s, 4})
      assert_same([a, binary([1, -2], {:s, 2})], &Nx.LinAlg.solve/2)
      assert_same([binary([1, -2, 0, 1], {:s, 2})], &Nx.fft/1)
    end
  end

  describe "movement" do
    test "of axes" do
      for_all(fn ->
        t = tensor(pick(@types), shape(1..3))
        assert_same([t], &Nx.transpose/1)
        assert_same([t], &Nx.reverse/1)
        assert_same([t], &Nx.reshape(&1, {Nx.size(&1), 1}))
        assert_same([t], &Nx.squeeze(Nx.new_axis(&1, 0), axes: [0]))
        assert_same([t], &Nx.tile(&1, List.duplicate(2, Nx.rank(&1))))
        assert_same([t, tensor(pick(@types), t.shape)], &Nx.concatenate([&1, &2]))
        assert_same([t, tensor(pick(@types), t.shape)], &Nx.stack([&1, &2]))
      end)
    end

    # Nx.BinaryBackend reads padding of less than a byte wrongly.
    test "of padding" do
      for type <- @types do
        t = mlx(binary([1, 0], type))

        assert_equal(
          Nx.pad(t, mlx(binary(-1, type)), [{1, 2, 1}]),
          padded([:p, 1, :p, 0, :p, :p], type)
        )
      end

      assert_equal(Nx.pad(Nx.tensor([1], type: :u2), Nx.tensor(-8, type: :s4), [{1, 0, 0}]), [
        -8,
        1
      ])
    end

    defp padded(list, type), do: binary(Enum.map(list, &if(&1 == :p, do: -1, else: &1)), type)

    test "to and from positions, which may be of these types" do
      for_all(fn ->
        type = pick(@types)
        t = tensor(type, {3, 4})
        at = tensor({:u, pick([2, 4, 8])}, {2, 2}, 0..2)
        assert_same([t], &Nx.slice(&1, [1, 0], [2, 3], strides: [1, 2]))
        assert_same([t, tensor({:u, 2}, {}, 0..1)], &Nx.slice(&1, [&2, 0], [2, 2]))
        assert_same([t, tensor(pick(@types), {1, 2})], &Nx.put_slice(&1, [1, 1], &2))
        assert_same([t, at], &Nx.gather/2)
        assert_same([t, at], &Nx.take(&1, &2, axis: 1))
        assert_same([t, tensor({:u, 2}, {1, 4}, 0..2)], &Nx.take_along_axis(&1, &2, axis: 0))
        assert_same([t, at, tensor(pick(@types), {2})], &Nx.indexed_add/3)
        at = binary([[0, 1], [2, 2]], {:u, 2})
        assert_same([t, at, tensor(pick(@types), {2})], &Nx.indexed_put/3)
      end)
    end

    test "in batches" do
      t = Nx.iota({5}, type: :s4)
      assert [a, b, c] = Enum.to_list(Nx.to_batched(t, 2))
      assert Enum.map([a, b, c], &Nx.to_flat_list/1) == [[0, 1], [2, 3], [4, 0]]
    end
  end

  describe "Mlx.Compiler" do
    test "gives the same bits, with constants, captured tensors and several results" do
      captured = binary([1, -2, 3], {:s, 4})

      fun = fn x, y ->
        sum = Nx.add(Nx.multiply(x, captured), y)
        {sum, Nx.left_shift(sum, 1), Nx.argsort(sum), Nx.greater(sum, Nx.tensor(2, type: :s4))}
      end

      args = [mlx(binary([7, -8, 3], {:s, 4})), binary([1, 2, 3], {:u, 2})]
      compiled = Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler)
      eager = Nx.Defn.jit_apply(fun, args, compiler: Nx.Defn.Evaluator)
      bits = fn tuple -> tuple |> Tuple.to_list() |> Enum.map(&{&1.type, Nx.to_binary(&1)}) end
      assert bits.(compiled) == bits.(eager)
      assert elem(compiled, 0).type == {:s, 4}
    end

    test "runs loops and branches" do
      fun = fn x ->
        if Nx.any(Nx.greater(x, 2)), do: Nx.add(x, 3), else: Nx.subtract(x, 3)
      end

      for x <- [[1, 2, 3], [0, 1, 2]] do
        t = binary(x, {:u, 2})
        assert_equal(Nx.Defn.jit_apply(fun, [mlx(t)], compiler: Mlx.Compiler), fun.(t))
      end
    end

    test "programs take the bytes that hold the values" do
      fun = fn x -> Nx.add(x, binary([1, 2, -3], {:s, 4})) end
      program = Mlx.Compiler.to_program(fun, [Nx.template({3}, :s4)])
      assert program.inputs == [{{:s, 8}, {3}}]

      path = Path.join(System.tmp_dir!(), "narrow-#{System.unique_integer([:positive])}.mlxp")
      Mlx.Program.save!(program, path)
      program = Mlx.Program.load!(path)
      File.rm!(path)

      array = Mlx.Array.from_binary(<<7, -8, -1>>, {:s, 8}, {3})
      assert [sum] = Mlx.Program.run(program, [array])
      assert Mlx.Array.to_binary(sum) == <<-8, -6, -4>>
    end
  end

  test "vectorized tensors of packed types are read whole" do
    for type <- [:u2, :s2, :u4, :s4] do
      t = Nx.tensor([[1, 0], [1, 1], [0, 1], [0, 0]], type: type)
      v = Nx.vectorize(t, :v)
      assert Nx.to_binary(v) == Nx.to_binary(t)
      assert v |> Nx.serialize() |> Nx.deserialize() |> Nx.to_binary() == Nx.to_binary(t)

      assert v |> Nx.reverse() |> Nx.devectorize() |> Nx.to_flat_list() == [
               0,
               1,
               1,
               1,
               1,
               0,
               0,
               0
             ]
    end
  end
end
