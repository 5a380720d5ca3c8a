defmodule Mlx.Lower.Float do
  @moduledoc false
  # Functions of floats. On CPUs host kernels compute them, to the last place; on GPUs, where MLX
  # lacks one, the native side composes it.
  use Mlx.Lower.Family

  host exp: :exp,
       expm1: :expm1,
       log: :log,
       log1p: :log1p,
       sigmoid: :sigmoid,
       sin: :sin,
       cos: :cos,
       tan: :tan,
       sinh: :sinh,
       cosh: :cosh,
       tanh: :tanh,
       asin: :arcsin,
       acos: :arccos,
       atan: :arctan,
       asinh: :arcsinh,
       acosh: :arccosh,
       atanh: :arctanh,
       rsqrt: :rsqrt,
       cbrt: :cbrt,
       erf: :erf,
       erfc: :erfc,
       erf_inv: :erfinv,
       round: :round_away

  compose :sign, %{type: {kind, _} = type}, [t] do
    # Zeros keep their sign and NaN stays: neither is greater than zero in magnitude.
    if kind in [:f, :bf],
      do: where({:greater, [{:abs, [t]}, const(0, type)]}, {:sign, [t]}, t),
      else: {:sign, [t]}
  end
end
