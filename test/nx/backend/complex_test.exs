defmodule Mlx.Backend.ComplexTest do
  # Oracle: Nx.BinaryBackend, and the values of C's complex functions where the Complex library
  # is wrong: arc cosines of negative real parts, and special values.
  use Mlx.NxCase, async: true

  property ~w(exp expm1 log log1p sigmoid cos sin tan cosh sinh tanh asin atan asinh atanh
           sqrt rsqrt)a,
           "of complex numbers",
           fn op -> assert_same([quadrants()], &apply(Nx, op, [&1]), tolerance: 64) end

  property [:acos, :acosh], "of complex numbers of positive real part", fn op ->
    args = [Nx.complex(tensor({:f, 32}, {6}, 1..4), tensor({:f, 32}, {6}, :small))]
    # On the real axis the sign of zero decides.
    args = Enum.map(args, &Nx.add(&1, Complex.new(0.25, 0.125)))
    assert_same(args, &apply(Nx, op, [&1]), tolerance: 64)
  end

  property [:negate, :conjugate, :abs, :real, :imag],
           "of complex numbers, infinite ones included",
           fn op ->
             t = tensor({:c, 64}, shape(0..2), :any)
             # C knows that what has an infinite part is infinite.
             t = if op == :abs, do: tensor({:c, 64}, shape(0..2), :finite), else: t
             assert_same([t], &apply(Nx, op, [&1]))
           end

  property [:conjugate, Nx.Block.Phase],
           "of real numbers",
           [over: real_types() -- [f: 64]],
           fn op, type ->
             function = if op == Nx.Block.Phase, do: :phase, else: op
             assert_same([tensor(type, shape(), :small)], &apply(Nx, function, [&1]))
           end

  property Nx.Block.Phase, "of complex numbers", fn _block ->
    assert_same([quadrants()], &Nx.phase/1)
  end

  # No zeros: the sign of a zero decides on which side of a cut a value lies.
  defp quadrants do
    shape = shape(1..3)
    part = fn -> Nx.add(tensor({:f, 32}, shape, -4..3), 0.3) |> Nx.multiply(pick([1.0, 0.25])) end
    Nx.with_default_backend(Nx.BinaryBackend, fn -> Nx.complex(part.(), part.()) end)
  end

  test "the conjugate of a real number has a negative zero" do
    assert Nx.to_binary(Nx.conjugate(Nx.tensor(1))) ==
             <<1.0::float-32-native, -0.0::float-32-native>>
  end

  test "principal values left of the imaginary axis" do
    z = Nx.tensor([Complex.new(-3.0, 2.0), Complex.new(-0.5, -1.0)])

    assert_equal(Nx.acos(z), [
      Complex.new(2.5354547, -1.9686379),
      Complex.new(1.9202354, 0.926133)
    ])

    assert_equal(Nx.acosh(z), [
      Complex.new(1.9686379, 2.5354547),
      Complex.new(0.926133, -1.9202354)
    ])
  end

  test "the modulus of what has an infinite part is infinite, of other NaN it is NaN" do
    z =
      for {re, im} <- [{:infinity, :nan}, {:nan, :neg_infinity}, {:nan, 1.0}],
          do: Complex.new(re, im)

    assert_equal(Nx.abs(Nx.tensor(z)), [:infinity, :infinity, :nan])
  end

  test "special values" do
    zero = Nx.tensor(Complex.new(0.0, 0.0))
    assert_equal(Nx.exp(zero), Complex.new(1, 0))
    assert_equal(Nx.sqrt(zero), zero |> Nx.backend_copy(Nx.BinaryBackend))
    assert_equal(Nx.sqrt(Nx.tensor(Complex.new(-4.0, 0.0))), Complex.new(0, 2))
    assert_equal(Nx.exp(Nx.tensor(Complex.new(:neg_infinity, 0.0))), Complex.new(0, 0))
    assert_equal(Nx.real(Nx.log(zero)), :neg_infinity)
    assert_equal(Nx.sign(zero), Complex.new(0, 0))
  end

  test "parts of complex numbers make one" do
    re = tensor({:f, 32}, {5}, :small)
    assert_same([re, Nx.multiply(re, 2)], &Nx.complex/2)
    i = Nx.tensor(Complex.new(0, 1))
    assert_equal(Nx.multiply(i, i), Complex.new(-1, 0))
  end

  # Oracle: the principal values, by hand and by C's functions.
  test "roots, what is small, and the side of a cut" do
    root = Nx.cbrt(Nx.tensor([Complex.new(-3, 2), Complex.new(0, 0), Complex.new(8, 0)]))
    wanted = [Complex.new(1.0106428, 1.1532282), Complex.new(0, 0), Complex.new(2, 0)]
    assert_equal(root, wanted)

    small = Nx.expm1(Nx.tensor(Complex.new(1.0e-5, 1.0e-6)))
    wanted = Complex.new(1.00000495e-5, 1.00001000e-6)
    assert_in_delta Nx.to_number(Nx.real(small)), wanted.re, 1.0e-11
    assert_in_delta Nx.to_number(Nx.imag(small)), wanted.im, 1.0e-12

    sides = Nx.acosh(Nx.tensor([Complex.new(0.0, 0.0), Complex.new(0.0, -0.0)]))
    half = :math.pi() / 2
    assert_equal(sides, [Complex.new(0, half), Complex.new(0, -half)])
  end
end
