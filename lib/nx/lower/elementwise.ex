defmodule Mlx.Lower.Elementwise do
  @moduledoc false
  # Operations that MLX has as Nx means them, for every type that Nx lets through.
  use Mlx.Lower.Family

  unary sqrt: :sqrt,
        floor: :floor,
        ceil: :ceil,
        negate: :negative,
        bitwise_not: :bitwise_invert,
        conjugate: :conjugate

  arith add: :add,
        subtract: :subtract,
        multiply: :multiply,
        divide: :divide,
        min: :minimum,
        max: :maximum,
        bitwise_and: :bitwise_and,
        bitwise_or: :bitwise_or,
        bitwise_xor: :bitwise_xor

  compare equal: :equal,
          not_equal: :not_equal,
          greater: :greater,
          less: :less,
          greater_equal: :greater_equal,
          less_equal: :less_equal

  lower :abs, _out, [t] do
    {:abs, [t]}
  end

  lower :real, out, [t] do
    cast(t, out.type)
  end

  lower :imag, out, [t] do
    case t.type do
      {:c, _} -> {:imag, [t]}
      _real -> {{:broadcast_to, out.shape}, [const(0, out.type)]}
    end
  end

  lower :is_nan, out, [t] do
    classify(:isnan, out, t)
  end

  lower :is_infinity, out, [t] do
    classify(:isinf, out, t)
  end

  lower :logical_and, _out, [l, r] do
    from_bool({:logical_and, [truthy(l), truthy(r)]})
  end

  lower :logical_or, _out, [l, r] do
    from_bool({:logical_or, [truthy(l), truthy(r)]})
  end

  compose :logical_xor, _out, [l, r] do
    from_bool({:not_equal, [truthy(l), truthy(r)]})
  end

  lower :select, out, [pred, on_true, on_false] do
    where(truthy(pred), cast(on_true, out.type), cast(on_false, out.type))
  end

  compose :clip, out, [t, min, max] do
    {:minimum, [{:maximum, [cast(t, out.type), cast(min, out.type)]}, cast(max, out.type)]}
  end

  lower :atan2, out, [l, r] do
    if match?({:c, _}, out.type) do
      raise ArithmeticError, "Complex.atan2 only accepts real numbers as arguments"
    end

    type = operand_type(out.type, l.type, r.type)
    cast({:arctan2, [cast(l, type), cast(r, type)]}, type, out.type)
  end

  # Integers are neither.
  defp classify(op, out, %{type: {kind, _}} = t) do
    if kind in [:u, :s],
      do: {{:broadcast_to, out.shape}, [const(0, out.type)]},
      else: from_bool({op, [t]})
  end
end
