defmodule Mlx.Oracle do
  @moduledoc false
  # Values of single elements where Nx.BinaryBackend raises or is wrong: functions outside their
  # domain, at zeros, infinities and NaN, and near zero. Numbers are Elixir's, computed by the
  # C library in f64 and by the rules of C for special values.

  @inf :infinity
  @neg :neg_infinity
  @pi :math.pi()

  @doc "The tensor of `type` whose elements are `fun` of those of `tensors`, which have one shape."
  def map(tensors, type, fun) do
    [%{shape: shape} | _] = tensors

    tensors
    |> Enum.map(&Nx.to_flat_list/1)
    |> Enum.zip_with(&apply(fun, &1))
    |> Nx.tensor(type: type, backend: Nx.BinaryBackend)
    |> then(&%{&1 | shape: shape, names: List.duplicate(nil, tuple_size(shape))})
  end

  @at_infinities %{
    exp: {@inf, 0.0},
    expm1: {@inf, -1.0},
    log: {@inf, :nan},
    log1p: {@inf, :nan},
    sigmoid: {1.0, 0.0},
    cos: {:nan, :nan},
    sin: {:nan, :nan},
    tan: {:nan, :nan},
    cosh: {@inf, @inf},
    sinh: {@inf, @neg},
    tanh: {1.0, -1.0},
    acos: {:nan, :nan},
    asin: {:nan, :nan},
    atan: {@pi / 2, -@pi / 2},
    acosh: {@inf, :nan},
    asinh: {@inf, @neg},
    atanh: {:nan, :nan},
    sqrt: {@inf, :nan},
    rsqrt: {0.0, :nan},
    cbrt: {@inf, @neg},
    erf: {1.0, -1.0},
    erfc: {0.0, 2.0},
    erf_inv: {:nan, :nan}
  }

  @doc "The functions of one real number that `unary/2` knows."
  def unary, do: Map.keys(@at_infinities)

  @doc "The real function `op` at `x`."
  def unary(_op, :nan), do: :nan
  def unary(op, @inf), do: elem(@at_infinities[op], 0)
  def unary(op, @neg), do: elem(@at_infinities[op], 1)
  def unary(op, x) when is_integer(x), do: unary(op, x * 1.0)

  def unary(op, x) do
    finite(op, x)
  rescue
    # The C library overflows: only functions that grow do, and those odd in x downwards too.
    ArithmeticError -> if op == :sinh and x < 0, do: @neg, else: @inf
  end

  defp finite(:log, x) when x < 0, do: :nan
  defp finite(:log, x) when x == 0, do: @neg
  defp finite(:log1p, x) when x < -1, do: :nan
  defp finite(:log1p, x) when x == -1, do: @neg
  defp finite(op, x) when op in [:acos, :asin] and abs(x) > 1, do: :nan
  defp finite(:acosh, x) when x < 1, do: :nan
  defp finite(op, x) when op in [:atanh, :erf_inv] and abs(x) > 1, do: :nan
  defp finite(op, x) when op in [:atanh, :erf_inv] and x == 1, do: @inf
  defp finite(op, x) when op in [:atanh, :erf_inv] and x == -1, do: @neg
  defp finite(op, x) when op in [:sqrt, :rsqrt] and x < 0, do: :nan
  defp finite(:rsqrt, x) when x == 0, do: signed(@inf, [x])
  defp finite(:rsqrt, x), do: 1 / :math.sqrt(x)
  defp finite(:expm1, x), do: expm1(x)
  defp finite(:log1p, x), do: log1p(x)
  defp finite(:sigmoid, x) when x < 0, do: exp(x) / (1 + exp(x))
  defp finite(:sigmoid, x), do: 1 / (1 + exp(-x))
  defp finite(:sinh, x) when abs(x) < 1, do: (expm1(x) - expm1(-x)) / 2
  defp finite(:cbrt, x) when x < 0, do: -cbrt(-x)
  defp finite(:cbrt, x), do: cbrt(x)
  defp finite(:erf_inv, x), do: erf_inv(x)
  defp finite(op, x), do: apply(:math, op, [x])

  # exp(x) rounds; what it rounded to is the logarithm's argument, so the errors cancel.
  defp expm1(x) when abs(x) > 1, do: :math.exp(x) - 1

  defp expm1(x) do
    case :math.exp(x) do
      u when u == 1.0 -> x
      u -> (u - 1) * x / :math.log(u)
    end
  end

  defp log1p(x) do
    case 1 + x do
      u when u == 1.0 -> x
      u -> :math.log(u) * (x / (u - 1))
    end
  end

  defp exp(x), do: :math.exp(x)

  defp cbrt(x) when x == 0, do: x

  defp cbrt(x) do
    root = :math.pow(x, 1 / 3)
    root - (root - x / (root * root)) / 3
  end

  # Newton's iteration from a rational start.
  defp erf_inv(x) do
    l = :math.log(max(1 - x * x, 1.0e-300))
    a = 2 / (@pi * 0.147) + l / 2
    start = :math.sqrt(max(:math.sqrt(a * a - l / 0.147) - a, 0.0))
    start = if x < 0, do: -start, else: start

    Enum.reduce(1..6, start, fn _, y ->
      y - (:math.erf(y) - x) / (2 / :math.sqrt(@pi) * :math.exp(-y * y))
    end)
  end

  @doc "The quotient of two floats."
  def divide(a, b) when a == :nan or b == :nan, do: :nan
  def divide(a, b) when a in [@inf, @neg] and b in [@inf, @neg], do: :nan
  def divide(a, b) when a in [@inf, @neg], do: signed(@inf, [a, b])
  def divide(a, b) when b in [@inf, @neg], do: signed(0.0, [a, b])
  def divide(a, b) when a == 0 and b == 0, do: :nan
  def divide(a, b) when b == 0, do: signed(@inf, [a, b])

  def divide(a, b) do
    a / b
  rescue
    ArithmeticError -> signed(@inf, [a, b])
  end

  @doc "The angle of the point (x, y), as C has it."
  def atan2(y, x) when y == :nan or x == :nan, do: :nan

  def atan2(y, x) when y in [@inf, @neg] or x in [@inf, @neg] do
    # Infinities stand for any large numbers of one size, finite ones are nothing beside them.
    :math.atan2(beside(y, x), beside(x, y))
  end

  def atan2(y, x), do: :math.atan2(y * 1.0, x * 1.0)

  defp beside(@inf, _other), do: 1.0
  defp beside(@neg, _other), do: -1.0
  defp beside(x, _infinite), do: signed(0.0, [x])

  @doc "`a` to the power of `b`, as C has it."
  def pow(_a, b) when b == 0, do: 1.0
  def pow(a, _b) when a == 1, do: 1.0
  def pow(a, b) when a == :nan or b == :nan, do: :nan
  def pow(a, b) when b in [@inf, @neg] and a == -1, do: 1.0
  def pow(a, @inf), do: if(size(a) > 1, do: @inf, else: 0.0)
  def pow(a, @neg), do: if(size(a) > 1, do: 0.0, else: @inf)

  def pow(a, b) when a in [@inf, @neg] do
    power = if b > 0, do: @inf, else: 0.0
    if a == @neg and odd?(b), do: negated(power), else: power
  end

  def pow(a, b) when a == 0 do
    power = if b > 0, do: 0.0, else: @inf
    if odd?(b) and negative?(a), do: negated(power), else: power
  end

  def pow(a, b) when a < 0 and trunc(b) != b, do: :nan

  def pow(a, b) do
    :math.pow(a, b)
  rescue
    ArithmeticError -> if a < 0 and odd?(b), do: @neg, else: @inf
  end

  @doc "The remainder of floats with the sign of the dividend."
  def remainder(a, b) when a in [:nan, @inf, @neg] or b == :nan or b == 0, do: :nan
  def remainder(a, b) when b in [@inf, @neg], do: a
  def remainder(a, b), do: :math.fmod(a, b)

  defp size(a) when a in [@inf, @neg], do: 2
  defp size(a), do: abs(a)
  defp odd?(b) when is_number(b), do: trunc(b) == b and rem(trunc(b), 2) != 0

  # The value with the sign that the product of `factors` has.
  defp signed(value, factors) do
    if factors |> Enum.count(&negative?/1) |> rem(2) == 1, do: negated(value), else: value
  end

  @doc "Whether the sign of a number is set, also of -0.0."
  def negative?(@neg), do: true
  def negative?(x) when is_float(x), do: match?(<<1::1, _::63>>, <<x::float>>)
  def negative?(x), do: is_integer(x) and x < 0

  @doc "The number with its sign changed, also of 0.0."
  def negated(:nan), do: :nan
  def negated(@inf), do: @neg
  def negated(@neg), do: @inf
  def negated(x), do: -x
end
