defmodule Mlx.Backend.UnaryTest do
  # Oracle: Mlx.Oracle, the C library in f64 with C's special values. Nx.BinaryBackend raises
  # outside the domain of a function and has NaN for the tanh of infinity.
  use Mlx.NxCase, async: true

  alias Mlx.Oracle

  # How many units of the type's precision a value may be off.
  @tolerance %{
    {:f, 32} => [default: 4, exp: 16, sigmoid: 16, erfc: 64, erf_inv: 64, tan: 8, rsqrt: 8],
    {:f, 64} => [
      default: 8,
      exp: 16,
      expm1: 16,
      log1p: 16,
      sigmoid: 32,
      sinh: 16,
      cosh: 16,
      tan: 16,
      sin: 16,
      cos: 16,
      erf: 16,
      erfc: 512,
      erf_inv: 64,
      cbrt: 400
    ],
    {:f, 16} => [default: 2],
    {:bf, 16} => [default: 2]
  }

  # MLX computes them to an absolute precision.
  @absolute [:erf, :sin, :cos, :tan]

  property ~w(exp expm1 log log1p sigmoid cos sin tan cosh sinh tanh acos asin atan acosh
           asinh atanh sqrt rsqrt cbrt erf erfc erf_inv)a,
           "everywhere, and at the limits of every float type",
           [over: float_types(), runs: 6],
           fn op, type ->
             # Large angles have no digits left.
             values = if op in [:sin, :cos, :tan], do: :any, else: :extreme
             near = for range <- [2, 10, 0.01], _ <- 1..4, do: (:rand.uniform() - 0.5) * range
             t = Nx.tensor(near, type: type, backend: Nx.BinaryBackend)
             t = Nx.concatenate([t, tensor(type, {12}, values)])
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
    tolerances = @tolerance[type]

    assert_equal(apply(Nx, op, [mlx(t)]), expected,
      args: [t],
      tolerance: tolerances[op] || tolerances[:default],
      relative: op not in @absolute && :flushed
    )
  end

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
