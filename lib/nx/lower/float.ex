defmodule Mlx.Lower.Float do
  @moduledoc false
  # Functions of floats. On CPUs host kernels compute them, rounded correctly; on GPUs, where MLX
  # lacks one, the native side composes it.
  use Mlx.Lower.Family

  host exp: :exp,
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
       atanh: :arctanh,
       rsqrt: :rsqrt,
       erf: :erf,
       erfc: :erfc,
       erf_inv: :erfinv,
       round: :round_away

  hosted :acosh, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      {:c, _} -> acosh(x)
      _ -> {:arccosh, [x]}
    end
  end

  hosted :cbrt, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      # By way of the logarithm, which zero has not.
      {:c, _} ->
        zero = {:equal, [x, const(0, type)]}
        where(zero, x, {:power, [x, const(1 / 3, type)]})

      _ ->
        {:cbrt, [x]}
    end
  end

  hosted :expm1, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      {:c, _} -> expm1(x)
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

  # On the cut the value is that of the side that the sign of the imaginary part names, zero's too.
  defp acosh(x) do
    value = {:arccosh, [x]}
    size = {:abs, [{:imag, [value]}]}
    below = {:less, [{{:view, {:s, 32}}, [{:imag, [x]}]}, const(0, {:s, 32})]}
    complex({:real, [value]}, where(below, {:negative, [size]}, size))
  end

  # exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b/2)^2, which keeps what is small.
  defp expm1(x) do
    type = {:f, 32}
    {a, b} = {{:real, [x]}, {:imag, [x]}}
    half = {:sin, [{:multiply, [b, const(0.5, type)]}]}
    lost = {:multiply, [const(2, type), {:square, [half]}]}
    real = {:subtract, [{:multiply, [{:expm1, [a]}, {:cos, [b]}]}, lost]}
    complex(real, {:multiply, [{:exp, [a]}, {:sin, [b]}]})
  end
end
