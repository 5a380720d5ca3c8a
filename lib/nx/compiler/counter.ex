defmodule Mlx.Compiler.Counter do
  @moduledoc false
  # Evaluates the integer scalars of an expression whose value is fixed while it is compiled:
  # loop counters, the conditions on them and the indices computed from them. It is what allows
  # loops to be written out and slices to be static. Anything else is unknown, never an error.

  import Bitwise

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @arithmetic [:add, :subtract, :multiply, :quotient, :remainder, :min, :max]
  @comparisons [:equal, :not_equal, :less, :less_equal, :greater, :greater_equal]
  @logical [:logical_and, :logical_or, :logical_xor]
  @binary @arithmetic ++ @comparisons ++ @logical
  @unary [:as_type, :negate, :reshape, :squeeze, :broadcast]

  @doc """
  The value of `t`, or nil where it is not fixed, given the loop variables in `state.bindings`.

  Answers are kept in `state.memo`, so that shared operands are looked at once.
  """
  @spec known(Nx.Tensor.t(), map) :: {integer | nil, map}
  def known(%T{shape: {}, type: {kind, _}, data: %Expr{} = expr} = t, state)
      when kind in [:u, :s] do
    key = {:known, expr.id}

    case state.memo do
      %{^key => number} ->
        {number, state}

      %{} ->
        case evaluate(expr.op, expr.args, t, state) do
          {nil, state} when expr.op == :elem -> {nil, state}
          {number, state} -> {number, %{state | memo: Map.put(state.memo, key, number)}}
        end
    end
  end

  def known(_t, state), do: {nil, state}

  # Beyond so many iterations a loop is as well told when to stop.
  @most_trips 65_536

  @doc """
  How often a loop runs, and what is known of its variables at the end, or `:unknown` where that is
  not fixed.

  A loop sees nothing but its variables, so what they begin with decides. The answer is kept in
  `state.trips`: the loop may be inside of one that is written out.
  """
  @spec trips([T.t()], [T.t()], T.t(), [T.t()], map) ::
          {{non_neg_integer, [integer | nil]} | :unknown, map}
  def trips(initial, params, condition, body, state) do
    {numbers, state} = Enum.map_reduce(initial, state, &known/2)
    key = {condition.data.id, numbers}

    case state.trips do
      %{^key => trips} ->
        {trips, state}

      %{} ->
        ids = for %T{data: %Expr{id: id}} <- params, do: id
        trips = count(numbers, ids, condition, body, state, 0)
        {trips, %{state | trips: Map.put(state.trips, key, trips)}}
    end
  end

  defp count(_numbers, _ids, _condition, _body, _state, @most_trips), do: :unknown

  defp count(numbers, ids, condition, body, state, trips) do
    bindings =
      for {id, number} <- Enum.zip(ids, numbers),
          number != nil,
          into: %{},
          do: {id, {:known, number}}

    state = %{state | memo: %{}, bindings: bindings, parent: nil}

    case known(condition, state) do
      {nil, _state} ->
        :unknown

      {0, _state} ->
        {trips, numbers}

      {_true, state} ->
        {numbers, _state} = Enum.map_reduce(body, state, &known/2)
        count(numbers, ids, condition, body, state, trips + 1)
    end
  end

  # A constant keeps the number that it was made of, which its type need not hold.
  defp evaluate(:constant, [number], %{type: {kind, _} = type}, state)
       when is_integer(number) and kind in [:u, :s],
       do: {wrap(number, type), state}

  defp evaluate(:constant, [number], _t, state) when is_integer(number), do: {number, state}

  defp evaluate(:parameter, _args, %T{data: %Expr{id: id}}, state) do
    case state.bindings do
      %{^id => {:known, number}} -> {number, state}
      %{} -> {nil, state}
    end
  end

  # What a loop left, once the walk has been there.
  defp evaluate(:elem, [%T{data: %Expr{id: id}}, position], _t, state) do
    with %{^id => tuple} <- state.memo, {:known, number} <- elem(tuple, position) do
      {number, state}
    else
      _ -> {nil, state}
    end
  end

  defp evaluate(:metadata, [%T{} = expr, _metadata], _t, state), do: known(expr, state)

  defp evaluate(op, [operand | _], t, state) when op in @unary do
    {number, state} = known(operand, state)
    {number && wrap(unary(op, number), t.type), state}
  end

  defp evaluate(op, [left, right], t, state) when op in @binary do
    case known(left, state) do
      {nil, state} ->
        {nil, state}

      {a, state} ->
        {b, state} = known(right, state)
        {b && binary(op, a, b, operand_type(op, left, right, t), t.type), state}
    end
  end

  defp evaluate(_op, _args, _t, state), do: {nil, state}

  defp unary(:negate, number), do: -number
  defp unary(_cast_or_shape, number), do: number

  # Nx compares in the common type of both operands and computes in the type of the result.
  defp operand_type(op, left, right, _t) when op in @comparisons,
    do: Nx.Type.merge(left.type, right.type)

  defp operand_type(op, _left, _right, t) when op in @arithmetic, do: t.type
  defp operand_type(_logical, _left, _right, _t), do: nil

  defp binary(op, a, b, nil, _out), do: logical(op, a != 0, b != 0) |> to_number()

  defp binary(op, a, b, type, out) do
    case compute(op, wrap(a, type), wrap(b, type)) do
      nil -> nil
      truth when is_boolean(truth) -> to_number(truth)
      number -> wrap(number, out)
    end
  end

  defp compute(:add, a, b), do: a + b
  defp compute(:subtract, a, b), do: a - b
  defp compute(:multiply, a, b), do: a * b
  defp compute(division, _a, 0) when division in [:quotient, :remainder], do: nil
  defp compute(:quotient, a, b), do: div(a, b)
  defp compute(:remainder, a, b), do: rem(a, b)
  defp compute(:min, a, b), do: min(a, b)
  defp compute(:max, a, b), do: max(a, b)
  defp compute(:equal, a, b), do: a == b
  defp compute(:not_equal, a, b), do: a != b
  defp compute(:less, a, b), do: a < b
  defp compute(:less_equal, a, b), do: a <= b
  defp compute(:greater, a, b), do: a > b
  defp compute(:greater_equal, a, b), do: a >= b

  defp logical(:logical_and, a, b), do: a and b
  defp logical(:logical_or, a, b), do: a or b
  defp logical(:logical_xor, a, b), do: a != b

  defp to_number(true), do: 1
  defp to_number(false), do: 0

  defp wrap(number, {:u, bits}), do: number &&& (1 <<< bits) - 1

  defp wrap(number, {:s, bits}) do
    half = 1 <<< (bits - 1)
    (number + half &&& (1 <<< bits) - 1) - half
  end
end
