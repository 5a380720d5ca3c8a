defmodule Mlx.Lower.Float do
  @moduledoc false
  # Functions that MLX lacks, or has with other values than Nx: rounding half away from zero, the
  # sign of NaN, cube roots of negatives, the tail of erfc. MLX computes exp, sin, cos, sigmoid
  # and erf of f64 with the precision of f32; they are rebuilt here from functions that it
  # computes in full.
  use Mlx.Lower.Family

  @f64 {:f, 64}
  @half [f: 16, bf: 16]

  compose :exp, %{type: type}, [t] do
    exp(cast(t, type), type)
  end

  compose :sin, %{type: type}, [t] do
    x = cast(t, type)
    if type == @f64, do: sin_f64(x), else: {:sin, [x]}
  end

  compose :cos, %{type: type}, [t] do
    x = cast(t, type)
    if type == @f64, do: cos_f64(x), else: {:cos, [x]}
  end

  compose :expm1, %{type: type}, [t] do
    x = cast(t, type)

    case type do
      {:c, _} -> {:subtract, [{:exp, [x]}, const(1, type)]}
      _ -> {:expm1, [x]}
    end
  end

  compose :sigmoid, %{type: type}, [t] do
    x = cast(t, type)

    if type == @f64 or match?({:c, _}, type),
      do: {:reciprocal, [{:add, [const(1, type), exp({:negative, [x]}, type)]}]},
      else: {:sigmoid, [x]}
  end

  compose :round, %{type: type}, [t] do
    magnitude = {:abs, [t]}
    whole = {:floor, [magnitude]}
    half = {:greater_equal, [{:subtract, [magnitude, whole]}, const(0.5, type)]}
    rounded = {:add, [whole, astype(half, type)]}
    signed = where(negative?(t, type), {:negative, [rounded]}, rounded)

    # What is whole already keeps the sign of its zero; infinity is whole.
    where({:equal, [magnitude, whole]}, t, signed)
  end

  compose :sign, %{type: {kind, _} = type}, [t] do
    # Zeros keep their sign and NaN stays: neither is greater than zero in magnitude.
    if kind in [:f, :bf],
      do: where({:greater, [{:abs, [t]}, const(0, type)]}, {:sign, [t]}, t),
      else: {:sign, [t]}
  end

  compose :cbrt, %{type: type}, [t] do
    wide = wide(type)
    x = cast(t, wide)
    magnitude = {:abs, [x]}
    root = {:power, [magnitude, const(1 / 3, wide)]}
    quotient = {:divide, [magnitude, {:multiply, [root, root]}]}
    step = {:divide, [{:subtract, [root, quotient]}, const(3, wide)]}
    refined = {:subtract, [root, step]}

    # The Newton step has no value at zero and infinity, whose first root is right.
    root = where({:isnan, [refined]}, root, refined)
    cast(where(negative?(x, wide), {:negative, [root]}, root), wide, type)
  end

  compose :erf, %{type: type}, [t] do
    x = cast(t, type)
    if type == @f64, do: erf_f64(x), else: {:erf, [x]}
  end

  compose :erfc, %{type: type}, [t] do
    wide = wide(type)
    x = cast(t, wide)
    tail = erfc_tail({:abs, [x]}, wide)
    reflected = {:subtract, [const(2, wide), tail]}
    cast(where(negative?(x, wide), reflected, tail), wide, type)
  end

  compose :erf_inv, %{type: type}, [t] do
    x = cast(t, type)
    if type == @f64, do: erf_inv_f64(x), else: {:erfinv, [x]}
  end

  # expm1 is precise, and adding 1 to it is where it is not small and negative; there the
  # reciprocal is taken.
  defp exp(x, @f64) do
    grown = {:add, [{:expm1, [{:abs, [x]}]}, const(1, @f64)]}
    where(negative?(x, @f64), {:reciprocal, [grown]}, grown)
  end

  defp exp(x, _type), do: {:exp, [x]}

  # With t = tan(x / 2): sin x = 2t / (1 + t^2), cos x = (1 - t)(1 + t) / (1 + t^2).
  defp sin_f64(x) do
    t = half_tangent(x)
    {:divide, [{:add, [t, t]}, {:add, [const(1, @f64), {:multiply, [t, t]}]}]}
  end

  defp cos_f64(x) do
    t = half_tangent(x)
    one = const(1, @f64)
    above = {:multiply, [{:subtract, [one, t]}, {:add, [one, t]}]}
    {:divide, [above, {:add, [one, {:multiply, [t, t]}]}]}
  end

  defp half_tangent(x), do: {:tan, [{:multiply, [x, const(0.5, @f64)]}]}

  # erf(x) / x as a polynomial in x^2 on [0, 1]; relative error 3e-21.
  @erf_f64 [
    1.1283791670955126,
    -0.37612638903183754,
    0.1128379167095512,
    -0.026866170645129854,
    0.005223977625423455,
    -0.0008548327021945428,
    0.00012055332903350668,
    -1.4925647581008593e-05,
    1.6462045711013026e-06,
    -1.6364645854816389e-07,
    1.479243542696247e-08,
    -1.2164764337224506e-09,
    8.709755232851789e-11,
    -4.2320376764874594e-12
  ]

  defp erf_f64(x) do
    magnitude = {:abs, [x]}
    near = {:multiply, [x, polynomial(@erf_f64, {:multiply, [x, x]}, @f64)]}
    far = {:subtract, [const(1, @f64), erfc_tail(magnitude, @f64)]}
    far = where(negative?(x, @f64), {:negative, [far]}, far)
    where({:less, [magnitude, const(1, @f64)]}, near, far)
  end

  # With t = 2 / (2 + z), erfc(z) = t exp(-z^2 + P(2t - 1)) for z >= 0; these are Chebyshev fits
  # of P, with an error of 1e-8 and 3e-18.
  @erfc_f32 [
    -0.6717940916807759,
    0.672643154774543,
    0.047343887612987114,
    -0.04689364055996262,
    -0.009880019324020219,
    0.008808825369385993,
    0.0017940662497394012,
    -0.002288765238593006,
    -0.00022791096599906392,
    0.0005737663720050471,
    8.000738161697865e-06,
    -8.728381021688478e-05
  ]
  @erfc_f64 [
    -0.6717940840566923,
    0.6726432239776567,
    0.04734330684190443,
    -0.0468956102311753,
    -0.009872689366389959,
    0.008824938557060623,
    0.001758933557799016,
    -0.002345812500482853,
    -0.00014624686337800336,
    0.000673678795580235,
    -9.37350311709817e-05,
    -0.0001743029472030762,
    7.14010141275703e-05,
    3.17451797494374e-05,
    -3.0187884551394243e-05,
    1.3772664134464417e-07,
    8.562623420121286e-06,
    -2.947986876998259e-06,
    -1.27231190486887e-06,
    1.2500276612569754e-06,
    -1.6849800720653297e-07,
    -2.495832761719667e-07,
    1.5334345920908177e-07,
    1.4448658046252676e-09,
    -3.9171820510271855e-08,
    1.1172352263623759e-08,
    4.06088214696972e-09,
    -1.8902306008944537e-09
  ]

  defp erfc_tail(z, type) do
    coefficients = if type == @f64, do: @erfc_f64, else: @erfc_f32
    two = const(2, type)
    t = {:divide, [two, {:add, [two, z]}]}
    y = {:subtract, [{:add, [t, t]}, const(1, type)]}
    exponent = {:subtract, [polynomial(coefficients, y, type), {:multiply, [z, z]}]}
    {:multiply, [t, exp(exponent, type)]}
  end

  # MLX's value is right to about 1e-7; two Newton steps on erf make it right to f64.
  defp erf_inv_f64(x) do
    first = {:erfinv, [x]}
    refined = first |> erf_inv_step(x) |> erf_inv_step(x)
    inside = {:less, [{:abs, [x]}, const(1, @f64)]}
    where(inside, refined, first)
  end

  defp erf_inv_step(y, x) do
    error = {:subtract, [erf_f64(y), x]}
    inverse_slope = {:multiply, [exp({:multiply, [y, y]}, @f64), const(0.886226925452758, @f64)]}
    {:subtract, [y, {:multiply, [error, inverse_slope]}]}
  end

  # Horner's rule, the constant term first in the list.
  defp polynomial(coefficients, x, type) do
    [highest | rest] = Enum.reverse(coefficients)

    Enum.reduce(rest, const(highest, type), fn coefficient, sum ->
      {:add, [{:multiply, [sum, x]}, const(coefficient, type)]}
    end)
  end

  defp negative?(tree, type), do: {:less, [tree, const(0, type)]}

  # The type in which a composition runs: half precision loses too much between its steps.
  defp wide(type) when type in @half, do: {:f, 32}
  defp wide(type), do: type
end
