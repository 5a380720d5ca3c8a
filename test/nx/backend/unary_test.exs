defmodule Mlx.Backend.UnaryTest do
  # Oracle: Mlx.Oracle, the C library in f64 with C's special values. Nx.BinaryBackend raises
  # outside the domain of a function and has NaN for the tanh of infinity.
  use Mlx.NxCase, async: true

  alias Mlx.Oracle

  # How many units of the type's precision a value may be off. f64 is as precise as the oracle.
  @tolerance %{{:f, 32} => 1, {:f, 64} => 16, {:f, 16} => 1, {:bf, 16} => 1}

  property ~w(exp expm1 log log1p sigmoid cos sin tan cosh sinh tanh acos asin atan acosh
           asinh atanh sqrt rsqrt cbrt erf erfc erf_inv)a,
           "everywhere, and at the limits of every float type",
           [over: float_types(), runs: 6],
           fn op, type ->
             near =
               for range <- [2, 20, 200, 0.01], _ <- 1..3, do: (:rand.uniform() - 0.5) * range

             t = Nx.tensor(near, type: type, backend: Nx.BinaryBackend)
             t = Nx.concatenate([t, tensor(type, {12}, :extreme)])
             check(op, t)
           end

  property ~w(exp expm1 log log1p sigmoid cos sin tan cosh sinh tanh acos asin atan acosh
           asinh atanh sqrt rsqrt cbrt erf erfc erf_inv)a,
           "of integers are those of f32",
           [over: int_types(), runs: 1],
           fn op, {kind, _} = type ->
             check(op, tensor(type, shape(1..3), if(kind == :u, do: 0..20, else: -20..20)))
           end

  defp check(op, t) do
    type = if match?({k, _} when k in [:u, :s], t.type), do: {:f, 32}, else: t.type
    expected = Oracle.map([t], type, &overflowing(type, Oracle.unary(op, &1)))
    opts = [args: [t], tolerance: tolerance(op, type), relative: true]
    assert_equal(apply(Nx, op, [mlx(t)]), expected, opts)
  end

  # Near 1 the oracle solves for it by functions that hardly change there.
  defp tolerance(:erf_inv, {:f, 64}), do: 512
  defp tolerance(_op, type), do: @tolerance[type]

  defp overflowing({:f, 64}, x), do: x
  defp overflowing(_type, x) when not is_number(x), do: x

  defp overflowing(type, x) do
    most = %{{:f, 16} => 65_504.0, {:bf, 16} => 3.38e38, {:f, 32} => 3.4028235e38}[type]

    cond do
      abs(x) <= most -> x
      x > 0 -> :infinity
      true -> :neg_infinity
    end
  end

  test "erfc keeps its tail" do
    for {type, precision} <- [f32: 1.0e-5, f64: 1.0e-13], x <- [3.0, 5.0, 8.0] do
      tail = Nx.to_number(Nx.erfc(Nx.tensor(x, type: type)))
      assert_in_delta tail / :math.erfc(x), 1, precision
    end
  end

  test "cube roots of negatives, zeros and infinities" do
    roots = Nx.cbrt(Nx.tensor([-8.0, 27.0, 0.0, :infinity, :neg_infinity, :nan]))
    assert_equal(roots, [-2.0, 3.0, 0.0, :infinity, :neg_infinity, :nan])
  end

  test "the inverse of erf inverts it" do
    p = Nx.tensor([0.0, 0.1, -0.5, 0.99], type: :f64, backend: Nx.BinaryBackend)
    assert_equal(Nx.erf(Nx.erf_inv(mlx(p))), p, tolerance: 8)
    assert_equal(Nx.erf_inv(Nx.tensor([1.0, -1.0])), [:infinity, :neg_infinity])
  end
end
