defmodule Mlx.Backend.ConvertTest do
  # Oracle: Nx.BinaryBackend, and Nx's documented rules at infinities and NaN.
  use Mlx.NxCase, async: true

  property :as_type, "from any type to any", [over: types(), runs: 2], fn _op, from ->
    # The binary backend cannot truncate the infinite parts of complex numbers.
    values = if from == {:c, 64}, do: :finite, else: :any
    for to <- types(), do: assert_same([tensor(from, shape(0..2), values)], &Nx.as_type(&1, to))
  end

  property :as_type, "of integers at their limits", [over: int_types()], fn _op, from ->
    for to <- types(), do: assert_same([tensor(from, {6})], &Nx.as_type(&1, to))
  end

  test "float to integer truncates, wraps, and knows NaN and infinity" do
    assert_equal(Nx.as_type(Nx.tensor([300.7, -1.5]), :u8), [44, 255])

    for {kind, size} = to <- int_types(), from <- [:f16, :bf16, :f32, :f64] do
      {least, most} =
        if kind == :u, do: {0, 2 ** size - 1}, else: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}

      special = Nx.tensor([:nan, :infinity, :neg_infinity], type: from)
      assert_equal(Nx.as_type(special, to), [0, most, least])
    end

    for type <- [:f32, :f64] do
      big = [3.0e9, -3.0e9, 1.0e15, 1.0e19, -1.0e19, 1.0e30, -1.0e30, 9.2e18]
      big = Nx.tensor(big, type: type, backend: Nx.BinaryBackend)
      for to <- int_types(), do: assert_same([big], &Nx.as_type(&1, to))
    end
  end

  # Oracle: by hand; half of the last place of f16 at 1 is 2^-11.
  test "f64 is rounded once on its way to half precision" do
    t = Nx.tensor([1 + 2 ** -11 + 2 ** -30, 1 + 2 ** -11, 1.0e300], type: :f64)
    assert_equal(Nx.as_type(t, :f16), [1.0009765625, 1.0, :infinity])
    t = Nx.tensor([1 + 2 ** -8 + 2 ** -30, 1 + 2 ** -8], type: :f64)
    assert_equal(Nx.as_type(t, :bf16), [1.0078125, 1.0])
  end
end
