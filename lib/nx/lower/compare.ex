defmodule Mlx.Lower.Compare do
  @moduledoc false
  # Comparisons of two types whose merged type does not hold all numbers of both, or is not MLX's.
  import Mlx.Lower.Tree

  @doc """
  A u64 with a signed number, whose merged type is s64. Both are compared as u64, and a negative number
  is less than all.
  """
  def unsigned(op, u64, signed) do
    compared = {op, [u64, cast(signed, {:u, 64})]}
    zero = const(0, signed.type)

    from_bool(
      if op in [:greater, :greater_equal, :not_equal],
        do: {:logical_or, [{:less, [signed, zero]}, compared]},
        else: {:logical_and, [{:greater_equal, [signed, zero]}, compared]}
    )
  end

  @doc "Whether a c64 and an f64 are equal, or not. Their merged type is c128; none are ordered."
  def complex(op, complex, real) do
    double = {:f, 64}
    join = if op == :not_equal, do: :logical_or, else: :logical_and
    same_real = {op, [astype({:real, [complex]}, double), real]}
    from_bool({join, [same_real, {op, [{:imag, [complex]}, const(0, {:f, 32})]}]})
  end
end
