defmodule Mlx.Cases.ShapesTest do
  # Public bug reports about shapes, indices, products and matrices, as cases: the input that
  # failed elsewhere and its right value, operation by operation and compiled.
  use Mlx.NxCase, async: true

  describe "shapes" do
    test "A1-02 (elixir-nx/emlx#64): padding between elements" do
      padded = both([Nx.tensor([1, 2, 3])], &Nx.pad(&1, 5, [{1, 0, 3}]))
      assert_equal(padded, [5, 1, 5, 5, 5, 2, 5, 5, 5, 3])
    end

    test "A1-04: a scalar out of a slice is read in its type" do
      for type <- types() -- [u: 8, s: 8, c: 64] do
        t = Nx.iota({100}, type: type)
        element = both([t], &(&1 |> Nx.slice_along_axis(42, 1, axis: 0) |> Nx.squeeze(axes: [0])))
        assert Nx.to_number(element) == 42
      end

      t = Nx.iota({1000}, type: :s32)
      assert Nx.to_number(Nx.squeeze(Nx.slice_along_axis(t, 951, 1, axis: 0), axes: [0])) == 951
    end

    test "A1-13: what is not in order in memory is read in order" do
      assert Nx.to_binary(both([Nx.iota({2, 3}, type: :u8)], &Nx.transpose/1)) ==
               <<0, 3, 1, 4, 2, 5>>
    end

    test "A1-46: a padding value takes the tensor's type" do
      fun =
        &(&1
          |> Nx.slice([0], [12], strides: [4])
          |> Nx.broadcast({3, 3}, axes: [0])
          |> Nx.pad(0, [{0, 0, 0}, {0, 1, 0}]))

      padded = both([Nx.tensor(Enum.to_list(1..12), type: :s8)], fun)
      assert Nx.type(padded) == {:s, 8}
      assert_equal(padded, [[1, 1, 1, 0], [5, 5, 5, 0], [9, 9, 9, 0]])
    end

    test "A1-76: bytes are read after they are computed" do
      half = Nx.divide(Nx.iota({2, 3}), 2)
      assert Nx.to_binary(half) == for(i <- 0..5, into: <<>>, do: <<i / 2::float-32-native>>)
    end
  end

  describe "indices" do
    test "A1-03: positions outside are clamped, and nothing dies" do
      t = Nx.tensor([1.0, 2.0, 3.0])
      assert_equal(both([t, Nx.tensor([[2 ** 32 - 1]], type: :u32)], &Nx.gather/2), [3.0])
      assert_equal(both([t, Nx.tensor([7, 1_000_000])], &Nx.take/2), [3.0, 3.0])
      assert_equal(both([t, Nx.tensor([[-1_000_000]])], &Nx.gather/2), [1.0])
    end

    test "A1-22: a slice of another type is cast, not reinterpreted" do
      put = both([Nx.tensor([0.0, 0.0]), Nx.tensor([1])], &Nx.put_slice(&1, [0], &2))
      assert Nx.type(put) == {:f, 32}
      assert_equal(put, [1.0, 0.0])
    end

    test "A1-23: starts of different integer types" do
      starts = [Nx.u32(2), Nx.s64(0)]
      assert_equal(both([Nx.eye(4) | starts], &Nx.reshape(&1[[&2, &3]], {})), 0)
      assert_equal(both([Nx.eye(4), Nx.s64(0)], &Nx.reshape(&1[[0, &2]], {})), 1)
    end

    test "A1-41: updates of one element add up, and the last is kept" do
      indices = Nx.tensor([[1], [1], [2]])
      args = [Nx.tensor([0, 0, 0]), indices, Nx.tensor([10, 5, 1])]
      assert_equal(both(args, &Nx.indexed_add/3), [0, 15, 1])
      assert_equal(both(args, &Nx.indexed_put/3), [0, 5, 1])
    end

    test "A1-42: vectorized indices" do
      t = Nx.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
      i = Nx.tensor([[0, 2, 3]], type: :u16)

      gather = fn t, i ->
        t |> Nx.gather(i |> Nx.vectorize([:x, :o]) |> Nx.reshape({1})) |> Nx.devectorize()
      end

      gathered = both([t, i], gather)
      assert Nx.shape(gathered) == {1, 3, 2}
      assert Nx.to_flat_list(gathered) == [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    end

    test "A1-58: gathering from what a gather left in columns" do
      zeros = Nx.tensor([0, 0, 0])

      take = fn t, all, zeros ->
        t |> Nx.take(all, axis: 0) |> Nx.take(zeros, axis: 1) |> Nx.take(zeros, axis: 2)
      end

      taken = both([Nx.tensor([[[1.0]], [[2.0]]]), Nx.tensor([0, 1]), zeros], take)
      assert Nx.shape(taken) == {2, 3, 3}
      assert Nx.to_flat_list(taken) == List.duplicate(1.0, 9) ++ List.duplicate(2.0, 9)
    end
  end

  describe "products" do
    test "A1-01: integers convolve as f32" do
      kernel = Nx.broadcast(Nx.tensor(1, type: :u8), {1, 1, 2, 2})
      result = both([Nx.iota({1, 1, 3, 3}, type: :u8), kernel], &Nx.conv/2)
      assert Nx.type(result) == {:f, 32}
      assert_equal(result, [[[[8.0, 12.0], [20.0, 24.0]]]])
    end

    test "A1-20: contracted axes pair up in their order" do
      l = Nx.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
      r = Nx.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
      assert_equal(both([l, r], &Nx.dot(&1, [0, 1], &2, [1, 0])), 50.0)
    end

    test "A1-21: several batch axes" do
      l = Nx.tensor([[[1, 1]], [[2, 2]]])
      r = Nx.tensor([[[1, 2]], [[1, 2]]])
      assert_equal(both([l, r], &Nx.dot(&1, [2], [0, 1], &2, [2], [0, 1])), [[3], [6]])
    end

    test "A1-52: a row alone and in a batch agree but for the last digits" do
      {t, _key} = Nx.Random.uniform(Nx.Random.key(12), shape: {10, 7})
      alone = Nx.to_number(Nx.dot(t[3..3], t[0])[0])
      assert_in_delta Nx.to_number(Nx.dot(t, t[0])[3]), alone, 1.0e-6
    end

    test "A1-73: products of many rows, in every float type, point the same way" do
      for m <- [1, 8, 9, 64, 256], type <- [:f32, :f16, :bf16] do
        {l, key} = Nx.Random.normal(Nx.Random.key(m), shape: {m, 128})
        {r, _key} = Nx.Random.normal(key, shape: {128, 96})

        [exact, product] =
          for to <- [:f64, type], do: Nx.dot(Nx.as_type(l, to), Nx.as_type(r, to))

        product = Nx.as_type(product, :f64)
        norm = &Nx.sqrt(Nx.sum(Nx.multiply(&1, &1)))

        cosine =
          Nx.divide(
            Nx.sum(Nx.multiply(exact, product)),
            Nx.multiply(norm.(exact), norm.(product))
          )

        assert Nx.to_number(cosine) > 0.999
      end
    end
  end

  describe "matrices" do
    test "A1-17: the rank of a deficient matrix" do
      deficient = Nx.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
      assert Nx.to_number(Nx.LinAlg.matrix_rank(deficient)) == 2
    end

    test "A1-35: the determinant of a permuted matrix" do
      m = [
        [-1.0, 1.0, -1.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 0.0]
      ]

      assert_in_delta Nx.to_number(both([Nx.tensor(m)], &Nx.LinAlg.determinant/1)), 1.0, 1.0e-6
    end

    test "A1-36: more right-hand sides than rows" do
      a = Nx.tensor([[1.0, 0.0], [1.0, 1.0]])
      b = Nx.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
      ones = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
      assert_equal(both([a, b], &Nx.LinAlg.triangular_solve/2), ones)
    end

    test "A1-37: eigenvalues of a batch of 1x1 matrices" do
      # Nx 0.13.1 traces a default function that cannot take it, so it is not compiled here.
      {values, vectors} = Nx.LinAlg.eigh(Nx.tensor([[[2.0]], [[5.0]]]))
      assert_equal(values, [[2.0], [5.0]])
      assert_equal(Nx.abs(vectors), [[[1.0]], [[1.0]]])
    end

    # Of a batch, Nx's own function makes a tensor of rank 4, on every backend.
    test "A1-38: the pseudo-inverse of each matrix" do
      matrices = Nx.tensor([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])

      right =
        Nx.tensor([[[0.5, 0.0], [0.0, 0.25]], [[1.0, 0.0], [0.0, 0.5]]],
          backend: Nx.BinaryBackend
        )

      for i <- 0..1, do: assert_equal(both([matrices[i]], &Nx.LinAlg.pinv/1), right[i])

      vectorized =
        &(&1 |> Nx.vectorize(:each) |> Nx.LinAlg.pinv() |> Nx.devectorize(keep_names: false))

      assert_equal(both([matrices], vectorized), right)
    end

    test "A1-39: singular values of zero" do
      {u, s, vt} = both([Nx.broadcast(0.0, {3, 4})], &Nx.LinAlg.svd/1)
      assert_equal(s, [0.0, 0.0, 0.0])

      assert_equal(
        Nx.dot(u, Nx.transpose(u)),
        Nx.backend_copy(Nx.eye(3, type: :f32), Nx.BinaryBackend)
      )

      assert_equal(
        Nx.dot(vt, Nx.transpose(vt)),
        Nx.backend_copy(Nx.eye(4, type: :f32), Nx.BinaryBackend)
      )
    end

    test "A1-40: norms along axes" do
      t = Nx.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
      norms = both([t], &Nx.LinAlg.norm(&1, axes: [1]))
      assert_equal(norms, [1.4142135, 0.0, 1.4142135])
    end

    test "A1-53: singular matrices raise or have no inverse, and nothing dies" do
      singular = Nx.tensor([[1.0, 2.0], [2.0, 4.0]])

      assert_raise ArgumentError, "can't solve for singular matrix", fn ->
        Nx.LinAlg.solve(singular, Nx.tensor([1.0, 2.0]))
      end

      outcome =
        try do
          Nx.to_flat_list(Nx.LinAlg.invert(singular))
        rescue
          error in ArgumentError -> error.message
        end

      assert outcome in [[:nan, :nan, :nan, :nan], "can't solve for singular matrix"]

      solved =
        Nx.Defn.jit_apply(&Nx.LinAlg.solve/2, [singular, Nx.tensor([1.0, 2.0])],
          compiler: Mlx.Compiler
        )

      assert :nan in Nx.to_flat_list(solved)
    end

    test "A1-71: an operation that fails leaves what is computed beside it" do
      a = Nx.multiply(Nx.broadcast(3.0, {1024}), 2.0)
      singular = Nx.tensor([[1.0, 2.0], [2.0, 4.0]])
      catch_error(Nx.to_binary(Nx.LinAlg.solve(singular, Nx.tensor([1.0, 2.0]))))
      assert Nx.to_flat_list(a) == List.duplicate(6.0, 1024)
      assert_equal(Nx.add(a[0], 1), 7.0)
    end
  end

  describe "found by calls at random" do
    test "padding that leaves no element is refused in words" do
      message = ~r/negative padding cuts off all of an axis: the sizes left are \[0\]/

      for fun <- [&Nx.pad(&1, 0, [{-1, -1, 0}]), &Nx.pad_outer(&1, 0, [{-2, 0}])] do
        assert_raise ArgumentError, message, fn -> fun.(Nx.tensor([1, 2])) end

        assert_raise ArgumentError, message, fn ->
          Nx.Defn.jit_apply(fun, [Nx.tensor([1, 2])], compiler: Mlx.Compiler)
        end
      end

      assert_equal(both([Nx.tensor([1, 2])], &Nx.pad(&1, 0, [{-1, 0, 0}])), [2])
    end

    test "windows that do not fit, and strides that lead nowhere, are refused in words" do
      t = Nx.tensor([[1.0, 2.0]])
      wide = [strides: [1, 2], window_dilations: [2, 2]]

      for fun <- [
            &Nx.window_mean(&1, {1, 2}, wide),
            &Nx.window_max(&1, {1, 2}, wide),
            &Nx.window_reduce(&1, 0, {1, 2}, wide, fn x, acc -> Nx.subtract(acc, x) end)
          ],
          do: assert_raise(ArgumentError, ~r/window of 2 elements, 2 apart/, fn -> fun.(t) end)

      assert_raise ArgumentError,
                   ~r/strides and dilations of windows are 1 or more, got: -1/,
                   fn ->
                     Nx.window_sum(Nx.tensor([1]), {1}, strides: [-1])
                   end
    end

    test "complex numbers have no extremes" do
      for fun <- [&Nx.cumulative_min/1, &Nx.cumulative_max/1, &Nx.top_k/1],
          do:
            assert_raise(ArgumentError, ~r/does not support complex inputs/, fn ->
              fun.(Nx.tensor([Complex.new(1, 2), 3]))
            end)
    end

    test "a constant counts as what its type holds of it" do
      t = Nx.tensor([1, 2, 3, 4])
      last = both([t], &Nx.slice(&1, [Nx.u8(-1)], [1]))
      assert_equal(last, [4])
      assert_equal(both([t], &Nx.slice(&1, [Nx.u2(-2)], [1])), [3])
      assert_equal(both([t], &Nx.put_slice(&1, [Nx.u2(-2)], Nx.tensor([9]))), [1, 2, 9, 4])
    end

    test "any value that is true keeps reduced axes" do
      for fun <- [&Nx.sum/2, &Nx.product/2, &Nx.reduce_max/2, &Nx.any/2],
          do: assert_equal(both([Nx.tensor([1])], &fun.(&1, keep_axes: :yes)), [1])
    end

    test "updates may be smaller than what the indices leave" do
      t = Nx.tensor([[1, 2, 3], [4, 5, 6]])
      {i, u} = {Nx.tensor([[1], [0], [1]]), Nx.tensor([[10, 20], [30, 40], [50, 60]])}
      assert_equal(both([t, i, u], &Nx.indexed_add/3), [[31, 42, 3], [64, 85, 6]])

      # One that is outside is dropped whole.
      {i, u} = {Nx.tensor([[1], [9]]), Nx.tensor([[10, 20], [30, 40]])}
      assert_equal(both([t, i, u], &Nx.indexed_put/3), [[1, 2, 3], [10, 20, 6]])
      assert_equal(both([t, i, u], &Nx.indexed_add/3), [[1, 2, 3], [14, 25, 6]])
    end

    test "updates of several elements for every vector" do
      t = Nx.vectorize(Nx.tensor([[[1, 2]], [[3, 4]]]), :v)
      {i, u} = {Nx.tensor([[0], [0]]), Nx.tensor([[10, 20], [100, 200]])}
      sum = both([t, i, u], &Nx.devectorize(Nx.indexed_add(&1, &2, &3)))
      assert Nx.to_flat_list(sum) == [111, 222, 113, 224]

      put =
        both([t, Nx.tensor([[0]]), Nx.tensor([[7]])], &Nx.devectorize(Nx.indexed_put(&1, &2, &3)))

      assert Nx.to_flat_list(put) == [7, 2, 7, 4]
      wide = Nx.vectorize(Nx.iota({1, 2, 2, 3}), :v)

      assert_raise ArgumentError, ~r/updates of 4 elements each do not say which part/, fn ->
        Nx.indexed_add(wide, Nx.tensor([[0]]), Nx.iota({1, 2, 2}))
      end
    end
  end
end
