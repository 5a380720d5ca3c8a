defmodule Mlx.Lower.Float do
  @moduledoc false
  # Functions of floats. On CPUs host kernels compute them, rounded correctly; on GPUs, where MLX
  # lacks one, the native side composes it.
  use Mlx.Lower.Family

  host(
    exp: :exp,
    log: :log,
    log1p: :log1p,
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
  )

  hosted :expm1, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      {:c, _} -> {:subtract, [{:exp, [x]}, const(1, type)]}
      _ -> {:expm1, [x]}
    end
  end

  hosted :sigmoid, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      {:c, _} -> {:reciprocal, [{:add, [const(1, type), {:exp, [{:negative, [x]}]}]}]}
      _ -> {:sigmoid, [x]}
    end
  end

  compose :sign, %{type: {kind, _} = type}, [t] do
    # Zeros keep their sign and NaN stays: neither is greater than zero in magnitude.
    if kind in [:f, :bf],
      do: where({:greater, [{:abs, [t]}, const(0, type)]}, {:sign, [t]}, t),
      else: {:sign, [t]}
  end
end
