defmodule Mlx.Backend.LinAlgTest do
  # Oracle: what a decomposition has to satisfy, for signs and orders are LAPACK's to choose;
  # Nx.BinaryBackend where results are unique.
  use Mlx.NxCase, async: true

  defp matrix(shape, type \\ {:f, 32}), do: mlx(tensor(type, shape, -9..9))

  defp close(a, b, tolerance \\ 1.0e-4) do
    assert Nx.to_number(Nx.all_close(a, b, atol: tolerance, rtol: tolerance)) == 1,
           "#{inspect(a)} is not #{inspect(b)}"
  end

  defp t(m),
    do:
      Nx.transpose(m,
        axes: Enum.to_list(0..(Nx.rank(m) - 3)//1) ++ [Nx.rank(m) - 1, Nx.rank(m) - 2]
      )

  defp mul(a, b),
    do: if(Nx.rank(a) == 3, do: Nx.dot(a, [2], [0], b, [1], [0]), else: Nx.dot(a, b))

  property :triangular_solve,
           "in every orientation, with batches and vectors",
           [over: [{:f, 32}, {:f, 64}, {:c, 64}], runs: 20],
           fn _op, type ->
             n = int(1..4)
             batch = pick([[], [], [2]])

             opts = [
               lower: pick([true, false]),
               left_side: pick([true, false]),
               transform_a: pick([:none, :transpose])
             ]

             a = tensor(type, List.to_tuple(batch ++ [n, n]), 1..4)
             b_dims = pick([[n], if(opts[:left_side], do: [n, 3], else: [3, n])])
             b = tensor(type, List.to_tuple(batch ++ b_dims), -4..4)

             # Only the triangle is to be looked at.
             triangle =
               Nx.with_default_backend(Nx.BinaryBackend, fn ->
                 if(opts[:lower], do: Nx.tril(a), else: Nx.triu(a))
               end)

             args = [triangle, b]
             assert_same(args, &Nx.LinAlg.triangular_solve(&1, &2, opts), tolerance: 20_000)
           end

  describe "triangular_solve" do
    test "raises for a singular matrix" do
      a = Nx.tensor([[1.0, 0.0], [1.0, 0.0]])

      assert_raise ArgumentError, "can't solve for singular matrix", fn ->
        Nx.LinAlg.triangular_solve(a, Nx.tensor([1.0, 2.0]))
      end
    end

    test "with more columns than rows" do
      a = Nx.tensor([[1.0, 0.0], [1.0, 1.0]])
      b = Nx.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
      assert_equal(Nx.LinAlg.triangular_solve(a, b), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    end
  end

  property Nx.Block.LinAlg.Solve, "solves, and inverts", [runs: 15], fn _block ->
    n = int(1..4)
    shape = pick([{n, n}, {2, n, n}])
    a = Nx.add(matrix(shape), Nx.multiply(40, Nx.eye(shape)))
    b = matrix(shape)
    close(mul(a, Nx.LinAlg.solve(a, b)), b, 1.0e-3)
    close(mul(a, Nx.LinAlg.invert(a)), Nx.eye(shape), 1.0e-4)
  end

  test "singular systems are refused" do
    assert_raise ArgumentError, ~r/singular/, fn ->
      Nx.LinAlg.solve(Nx.tensor([[1.0, 2.0], [2.0, 4.0]]), Nx.tensor([1.0, 2.0]))
    end
  end

  property Nx.Block.LinAlg.Cholesky, "gives a lower factor", [runs: 15], fn _block ->
    n = int(1..4)
    m = matrix(pick([{n, n}, {2, n, n}]))
    a = Nx.add(mul(m, t(m)), Nx.eye(Nx.shape(m)))
    l = Nx.LinAlg.cholesky(a)
    close(mul(l, t(l)), a, 1.0e-3)
    assert_equal(l, Nx.backend_copy(Nx.tril(l), Nx.BinaryBackend))
  end

  test "cholesky refuses what is not positive definite, and takes what is Hermitian" do
    for indefinite <- [[[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]] do
      assert_raise ArgumentError, ~r/positive-definite/, fn ->
        Nx.LinAlg.cholesky(Nx.tensor(indefinite))
      end
    end

    hermitian = Nx.tensor([[1.0, Complex.new(0, -2)], [Complex.new(0, 2), 5.0]])
    close(Nx.LinAlg.cholesky(hermitian), Nx.tensor([[1, 0], [Complex.new(0, 2), 1]]))
  end

  property Nx.Block.LinAlg.LU, "gives factors and a permutation", [runs: 15], fn _block ->
    n = int(1..4)
    a = matrix(pick([{n, n}, {2, n, n}]), pick([{:f, 32}, {:s, 32}, {:f, 64}]))
    {p, l, u} = Nx.LinAlg.lu(a)
    assert Nx.type(p) == Nx.type(a)
    close(mul(mul(Nx.as_type(p, Nx.type(l)), l), u), a)
    close(Nx.tril(l), l)
    close(Nx.triu(u), u)
  end

  property Nx.Block.LinAlg.QR, "reduced and complete", [runs: 30], fn _block ->
    a = matrix(pick([{int(1..4), int(1..4)}, {2, int(1..4), int(1..4)}]))
    {q, r} = Nx.LinAlg.qr(a, mode: pick([:reduced, :complete]))
    close(mul(q, r), a)
    rank = Nx.rank(q)
    k = Nx.axis_size(q, -1)
    identity = if rank == 3, do: Nx.eye({2, k, k}), else: Nx.eye({k, k})
    close(mul(t(q), q), identity)
    close(Nx.triu(r), r)
  end

  property Nx.Block.LinAlg.SVD, "full and thin", [runs: 30], fn _block ->
    a = matrix({int(1..4), int(1..4)})
    {m, n} = Nx.shape(a)
    k = min(m, n)

    {u, s, vt} = Nx.LinAlg.svd(a, full_matrices?: false)
    assert {Nx.shape(u), Nx.shape(s), Nx.shape(vt)} == {{m, k}, {k}, {k, n}}
    close(Nx.dot(Nx.multiply(u, s), vt), a)
    assert Nx.to_flat_list(s) == Enum.sort(Nx.to_flat_list(s), :desc)

    {u, s, vt} = Nx.LinAlg.svd(a)
    assert {Nx.shape(u), Nx.shape(s), Nx.shape(vt)} == {{m, m}, {k}, {n, n}}
    close(Nx.dot(Nx.multiply(u[[.., 0..(k - 1)]], s), vt[0..(k - 1)]), a)
    close(Nx.dot(u, t(u)), Nx.eye({m, m}))
  end

  property Nx.Block.LinAlg.Eigh, "the largest magnitude first", [runs: 20], fn _block ->
    n = int(1..4)
    m = matrix(pick([{n, n}, {2, n, n}]))
    a = Nx.add(m, t(m))
    {values, vectors} = Nx.LinAlg.eigh(a)
    close(mul(a, vectors), Nx.multiply(vectors, Nx.new_axis(values, -2)), 1.0e-3)
    magnitudes = Nx.abs(values)
    close(Nx.sort(magnitudes, axis: -1, direction: :desc), magnitudes)
  end

  test "matrices with NaN or infinity decompose into NaN, those beside them as ever" do
    good = [[2.0, 0.0], [0.0, 1.0]]

    for bad <- [:nan, :infinity] do
      a = Nx.tensor([good, [[bad, 1.0], [1.0, 1.0]]])
      {_u, s, _vt} = Nx.LinAlg.svd(a)
      assert_equal(s, [[2.0, 1.0], [:nan, :nan]])
      {values, vectors} = Nx.LinAlg.eigh(a)
      assert_equal(values, [[2.0, 1.0], [:nan, :nan]])
      assert_equal(Nx.abs(vectors[0]), [[1.0, 0.0], [0.0, 1.0]])
    end
  end

  test "determinant, norm, rank, power and pseudo-inverse build on them" do
    permutation =
      Nx.tensor([
        [-1.0, 1.0, -1.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 0.0]
      ])

    close(Nx.LinAlg.determinant(permutation), 1.0)
    deficient = Nx.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])

    assert_equal(
      Nx.LinAlg.matrix_rank(deficient),
      Nx.tensor(2, type: Nx.type(Nx.LinAlg.matrix_rank(deficient)), backend: Nx.BinaryBackend)
    )

    close(
      Nx.LinAlg.matrix_power(Nx.tensor([[1, 2], [3, 4]]), 3),
      Nx.tensor([[37, 54], [81, 118]])
    )

    close(
      Nx.dot(Nx.dot(deficient, Nx.LinAlg.pinv(deficient, eps: 1.0e-4)), deficient),
      deficient,
      1.0e-3
    )

    close(Nx.LinAlg.norm(Nx.tensor([3.0, 4.0])), 5.0)
  end

  property Nx.Block.LinAlg.Determinant,
           "of small matrices, with batches",
           [runs: 15],
           fn _block ->
             n = int(1..4)
             a = tensor(pick([{:f, 32}, {:f, 64}]), pick([{n, n}, {2, n, n}]), -3..3)
             assert_same([a], &Nx.LinAlg.determinant/1, tolerance: 4000)
           end

  test "determinants of complex matrices" do
    [a, b, c, d] = for {re, im} <- [{1, 2}, {0, 1}, {3, 0}, {-1, 1}], do: Complex.new(re, im)
    determinant = Nx.LinAlg.determinant(Nx.tensor([[a, b], [c, d]]))
    expected = Complex.subtract(Complex.multiply(a, d), Complex.multiply(b, c))
    assert_equal(determinant, expected, tolerance: 16)
  end

  property Nx.Block.AllClose, "over mixed types", [over: real_types()], fn _block, type ->
    opts = [rtol: pick([0.0, 0.5]), atol: pick([0.0, 1.0]), equal_nan: pick([true, false])]
    shape = shape()

    args = [
      tensor(type, shape, :any),
      tensor(pick([type, {:f, 32}]), shape, pick([:any, :small]))
    ]

    assert_same(args, &Nx.all_close(&1, &2, opts))
  end

  test "all_close knows infinities and NaN" do
    close = fn a, b, opts -> Nx.to_number(Nx.all_close(Nx.tensor(a), Nx.tensor(b), opts)) end
    assert close.(:infinity, :infinity, []) == 1
    assert close.(:infinity, :neg_infinity, []) == 0
    assert close.(:nan, :nan, []) == 0
    assert close.(:nan, :nan, equal_nan: true) == 1
    assert close.(1.0, 1.1, rtol: 0.2) == 1
    assert close.(1.0, 1.1, atol: 0.05, rtol: 0) == 0
  end
end
