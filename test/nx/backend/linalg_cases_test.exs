defmodule Mlx.Backend.LinAlgCasesTest do
  # What linalg_test.exs leaves out: complex matrices, narrow types and integers, batches, shapes at
  # the edge, and values at it. Oracle: what a decomposition has to satisfy; Nx.BinaryBackend where
  # results are unique. All of it eagerly and compiled.
  use Mlx.NxCase, async: true

  @eager [compiler: Nx.Defn.Evaluator]
  @compiled [compiler: Mlx.Compiler]

  defp pair(args, fun) do
    for opts <- [@eager, @compiled], do: Nx.Defn.jit_apply(fun, args, opts)
  end

  defp close(a, b, tolerance \\ 1.0e-4) do
    assert Nx.shape(a) == Nx.shape(b)

    assert Nx.to_number(Nx.all_close(a, b, atol: tolerance, rtol: tolerance)) == 1,
           "#{inspect(a)} is not #{inspect(b)}"
  end

  defp mul(a, b) do
    batch = Enum.to_list(0..(Nx.rank(a) - 3)//1)
    Nx.dot(a, [-1], batch, b, [-2], batch)
  end

  defp identity(shape), do: Nx.eye(shape)
  defp adjoint(m), do: Nx.LinAlg.adjoint(m)

  defp random(type, shape), do: mlx(tensor(type, shape, -4..4))

  # Regular by the weight of its diagonal.
  defp regular(type, shape), do: Nx.add(random(type, shape), Nx.multiply(20, Nx.eye(shape)))

  defp shapes(n), do: pick([{n, n}, {2, n, n}, {2, 1, n, n}])

  describe "complex matrices" do
    test "cholesky" do
      for_all(6, fn ->
        m = random({:c, 64}, shapes(int(1..4)))
        a = Nx.add(mul(m, adjoint(m)), Nx.eye(Nx.shape(m)))
        for l <- pair([a], &Nx.LinAlg.cholesky/1), do: close(mul(l, adjoint(l)), a, 1.0e-3)
      end)
    end

    test "qr" do
      for_all(6, fn ->
        m = int(1..4)
        # Nx's own gives NaN for a column of zeros.
        a = regular({:c, 64}, pick([{m, int(1..m)}, {2, m, int(1..m)}]))

        for {q, r} <- pair([a], &Nx.LinAlg.qr/1) do
          close(mul(q, r), a, 1.0e-3)
          k = Nx.axis_size(q, -1)
          close(mul(adjoint(q), q), identity(put_elem(Nx.shape(r), Nx.rank(r) - 1, k)), 1.0e-3)
        end
      end)
    end

    test "lu, solve, invert and determinant" do
      for_all(6, fn ->
        shape = shapes(int(1..4))
        a = regular({:c, 64}, shape)
        b = random({:c, 64}, shape)

        for {p, l, u} <- pair([a], &Nx.LinAlg.lu/1), do: close(mul(mul(p, l), u), a, 1.0e-3)
        for x <- pair([a, b], &Nx.LinAlg.solve/2), do: close(mul(a, x), b, 1.0e-3)
        for x <- pair([a], &Nx.LinAlg.invert/1), do: close(mul(a, x), identity(shape), 1.0e-3)

        expected = Nx.LinAlg.determinant(Nx.backend_copy(a, Nx.BinaryBackend))

        for x <- pair([a], &Nx.LinAlg.determinant/1),
            do: close(Nx.divide(x, expected), Nx.broadcast(1.0, x))
      end)
    end

    test "eigh: real values in the order of their magnitude, and vectors with a phase of their own" do
      for_all(12, fn ->
        m = random({:c, 64}, shapes(int(2..4)))
        a = Nx.add(m, adjoint(m))

        for {values, vectors} <- pair([a], &Nx.LinAlg.eigh/1) do
          assert {Nx.type(values), Nx.type(vectors)} == {{:c, 64}, {:c, 64}}
          close(mul(a, vectors), Nx.multiply(vectors, Nx.new_axis(values, -2)), 1.0e-3)
          close(mul(adjoint(vectors), vectors), identity(Nx.shape(a)), 1.0e-3)
          close(Nx.imag(values), Nx.broadcast(0.0, values))
          magnitudes = Nx.abs(values)
          close(Nx.sort(magnitudes, axis: -1, direction: :desc), magnitudes)
        end
      end)
    end
  end

  describe "narrow types and integers" do
    @types [{:f, 16}, {:bf, 16}, {:s, 32}, {:u, 8}, {:f, 64}]

    test "decompose in f32 at least, and keep the type that Nx gives them" do
      for type <- @types do
        a = Nx.tensor([[4, 1, 2], [1, 5, 3], [2, 3, 6]], type: type)
        floating = Nx.Type.to_floating(type)
        tolerance = if match?({_, 16}, floating), do: 0.1, else: 1.0e-4
        wide = Nx.as_type(a, {:f, 64})
        as_f64 = &Nx.as_type(&1, {:f, 64})

        for l <- pair([a], &Nx.LinAlg.cholesky/1) do
          assert Nx.type(l) == floating
          close(mul(as_f64.(l), adjoint(as_f64.(l))), wide, tolerance)
        end

        for {q, r} <- pair([a], &Nx.LinAlg.qr/1),
            do: close(mul(as_f64.(q), as_f64.(r)), wide, tolerance)

        for {p, l, u} <- pair([a], &Nx.LinAlg.lu/1) do
          assert {Nx.type(p), Nx.type(u)} == {type, floating}
          close(mul(mul(as_f64.(p), as_f64.(l)), as_f64.(u)), wide, tolerance)
        end

        for {values, _} <- pair([a], &Nx.LinAlg.eigh/1) do
          assert Nx.type(values) == floating
          close(Nx.sum(as_f64.(values)), Nx.tensor(15.0), tolerance)
        end

        for {_, s, _} <- pair([a], &Nx.LinAlg.svd/1) do
          assert Nx.type(s) == floating
          close(Nx.sum(as_f64.(s)), Nx.tensor(15.0), tolerance)
        end

        b = Nx.tensor([7, 9, 11], type: type)

        for x <- pair([a, b], &Nx.LinAlg.solve/2),
            do: close(as_f64.(x), Nx.tensor([1.0, 1.0, 1.0]), tolerance)

        for x <- pair([Nx.tril(a), b], &Nx.LinAlg.triangular_solve/2) do
          assert Nx.type(x) == floating
          close(as_f64.(x), Nx.tensor([1.75, 1.45, 0.525]), tolerance)
        end
      end
    end
  end

  describe "triangular_solve" do
    test "with the conjugate, with vectors and vectorized" do
      for_all(20, fn ->
        type = pick([{:f, 32}, {:c, 64}])
        n = int(1..4)
        opts = [transform_a: pick([:none, :transpose, :conjugate]), lower: pick([true, false])]
        a = regular(type, {2, n, n})
        a = if opts[:lower], do: Nx.tril(a), else: Nx.triu(a)
        b = random(type, pick([{2, n}, {2, n, 5}]))

        as_it_is =
          case opts[:transform_a] do
            :none -> a
            :transpose -> Nx.transpose(a, axes: [0, 2, 1])
            :conjugate -> if match?({:c, _}, type), do: Nx.conjugate(a), else: a
          end

        vectorized = [Nx.vectorize(a, :batch), Nx.vectorize(b, :batch)]

        for args <- [[a, b], vectorized],
            x <- pair(args, &Nx.LinAlg.triangular_solve(&1, &2, opts)) do
          x = Nx.devectorize(x, keep_names: false)
          column = fn t -> if Nx.rank(t) == 2, do: Nx.new_axis(t, -1), else: t end
          close(mul(as_it_is, column.(x)), column.(b), 1.0e-3)
        end
      end)
    end

    test "looks at its triangle only" do
      a = Nx.tensor([[2.0, :nan], [1.0, 4.0]])
      assert_equal(Nx.LinAlg.triangular_solve(a, Nx.tensor([2.0, 5.0])), [1.0, 1.0])
    end
  end

  test "svd of zeros, of batches and of what lacks rank" do
    for {m, n} <- [{3, 4}, {4, 3}, {2, 2}], full? <- [true, false] do
      for {u, s, vt} <-
            pair([Nx.broadcast(0.0, {m, n})], &Nx.LinAlg.svd(&1, full_matrices?: full?)) do
        close(s, Nx.broadcast(0.0, {min(m, n)}))
        close(mul(adjoint(u), u), identity({Nx.axis_size(u, 1), Nx.axis_size(u, 1)}))
        close(mul(vt, adjoint(vt)), identity({Nx.axis_size(vt, 0), Nx.axis_size(vt, 0)}))
      end
    end

    for_all(10, fn ->
      a = random({:f, 32}, {2, int(2..4), int(2..4)})

      for {u, s, vt} <- pair([a], &Nx.LinAlg.svd(&1, full_matrices?: false)),
          do: close(mul(Nx.multiply(u, Nx.new_axis(s, -2)), vt), a)
    end)

    deficient = Nx.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [2.0, 4.0, 6.0]])

    for pinv <- pair([deficient], &Nx.LinAlg.pinv/1),
        do: close(mul(mul(deficient, pinv), deficient), deficient)

    for x <- pair([deficient], &Nx.LinAlg.matrix_rank/1), do: assert(Nx.to_number(x) == 2)

    for x <- pair([deficient, Nx.tensor([6.0, 15.0, 24.0, 12.0])], &Nx.LinAlg.least_squares/2),
        do: close(Nx.dot(deficient, x), Nx.tensor([6.0, 15.0, 24.0, 12.0]))
  end

  test "qr, complete, of batches" do
    for shape <- [{2, 4, 2}, {2, 2, 4}, {3, 1, 1}, {2, 3, 1}] do
      a = random({:f, 32}, shape)
      {_, m, _} = shape

      for {q, r} <- pair([a], &Nx.LinAlg.qr(&1, mode: :complete)) do
        assert {Nx.shape(q), Nx.shape(r)} == {{elem(shape, 0), m, m}, shape}
        close(mul(q, r), a)
        close(mul(adjoint(q), q), identity({elem(shape, 0), m, m}))
      end
    end
  end

  test "eigh keeps the batch of single numbers, and orders by magnitude" do
    # Not in a function: Nx cannot trace its default for such a batch.
    {values, vectors} = Nx.LinAlg.eigh(Nx.tensor([[[2.0]], [[-5.0]]]))
    assert_equal(values, [[2.0], [-5.0]])
    close(Nx.abs(vectors), Nx.tensor([[[1.0]], [[1.0]]]))

    for {values, _} <- pair([Nx.tensor([[1.0, 0.0], [0.0, -3.0]])], &Nx.LinAlg.eigh/1),
        do: assert_equal(values, [-3.0, 1.0])
  end

  test "the determinant has the sign of the permutation" do
    permutations = for a <- 0..3, b <- 0..3, c <- 0..3, d <- 0..3, do: [a, b, c, d]

    rows =
      for order <- permutations, Enum.uniq(order) == order do
        inversions = for i <- 0..3, j <- 0..3, i < j, Enum.at(order, i) > Enum.at(order, j), do: 1
        {order, if(rem(length(inversions), 2) == 0, do: 1.0, else: -1.0)}
      end

    {orders, signs} = Enum.unzip(rows)
    matrices = Nx.take(Nx.eye(4, type: {:f, 32}), Nx.tensor(orders))
    for x <- pair([matrices], &Nx.LinAlg.determinant/1), do: assert_equal(x, signs)
  end

  test "norms along axes" do
    t = Nx.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])

    for x <- pair([t], &Nx.LinAlg.norm(&1, axes: [1])),
        do: close(x, Nx.tensor([1.4142135, 0.0, 1.4142135]))
  end

  test "an inverse is NaN where there is none; solving raises, or is NaN when compiled" do
    singular = Nx.tensor([[1.0, 2.0], [2.0, 4.0]])
    nan = Nx.broadcast(Nx.tensor(:nan, backend: Nx.BinaryBackend), {2, 2})
    for x <- pair([singular], &Nx.LinAlg.invert/1), do: assert_equal(x, nan)

    assert_raise ArgumentError, "can't solve for singular matrix", fn ->
      Nx.LinAlg.solve(singular, Nx.tensor([1.0, 2.0]))
    end

    assert_raise ArgumentError, "can't solve for singular matrix", fn ->
      Nx.LinAlg.triangular_solve(Nx.tensor([[0]]), Nx.tensor([1]))
    end
  end

  test "magnitudes at the edge of the type keep their eigenvalues" do
    for scale <- [1.0e-40, 1.0e-20, 1.0e20, 1.0e38] do
      a = Nx.multiply(Nx.tensor([[2.0, 1.0], [1.0, 2.0]]), scale)

      for {values, _} <- pair([a], &Nx.LinAlg.eigh/1),
          do: close(Nx.divide(values, scale), Nx.tensor([3.0, 1.0]), 1.0e-3)
    end
  end
end
