defmodule Mlx.Lower.LinAlg do
  @moduledoc false
  # Triangular systems. MLX solves A X = B for real matrices of 32 and 64 bits; every other side
  # and transposition is that one after transposing, and complex systems are substituted row by
  # row. What has no solution comes out as NaN or infinity.
  use Mlx.Lower.Family

  @real [f: 32, f: 64]

  compose :triangular_solve, out, [a, b, opts] do
    type = if out.type in @real or match?({:c, _}, out.type), do: out.type, else: {:f, 32}
    rank = tuple_size(a.shape)
    vector? = tuple_size(b.shape) < rank
    n = elem(a.shape, rank - 1)

    left = cast(a, type)
    left = if opts[:transform_a] == :conjugate, do: {:conjugate, [left]}, else: left
    right = cast(b, type)

    # X A = B is A^T X^T = B^T; a vector is a column on either side.
    right? = opts[:left_side] == false
    transposed? = opts[:transform_a] == :transpose != right?
    left = if transposed?, do: swap(left, rank), else: left
    lower? = opts[:lower] != false != transposed?

    {right, columns} =
      cond do
        vector? -> {{{:expand_dims_axes, [-1]}, [right]}, 1}
        right? -> {swap(right, rank), elem(b.shape, rank - 2)}
        true -> {right, elem(b.shape, rank - 1)}
      end

    solved =
      if match?({:c, _}, type),
        do: substitute(left, right, a.shape, n, columns, lower?),
        else: {{:solve_triangular, not lower?}, [left, right]}

    solved =
      cond do
        vector? -> {{:squeeze_axes, [-1]}, [solved]}
        right? -> swap(solved, rank)
        true -> solved
      end

    cast(solved, type, out.type)
  end

  @doc "Whether a matrix with the triangle `a` has no inverse: its diagonal has a zero."
  def singular(%T{shape: shape, type: type} = a) do
    n = elem(shape, tuple_size(shape) - 1)
    on_diagonal = {{:astype, :bool}, [{{:eye, n, n, 0, {:u, 8}}, []}]}
    pivotless = {:logical_and, [{:equal, [a, const(0, type)]}, on_diagonal]}
    from_bool({{:any_axes, axes(nil, shape), false}, [pivotless]})
  end

  defp swap(tree, rank) do
    {{:transpose_axes, Enum.to_list(0..(rank - 3)//1) ++ [rank - 1, rank - 2]}, [tree]}
  end

  # Row i is what is left of B's row after the rows already known, divided by the diagonal.
  defp substitute(a, b, shape, n, columns, lower?) do
    b_shape = put_elem(shape, tuple_size(shape) - 1, columns)
    axis = tuple_size(shape) - 2
    order = if lower?, do: 0..(n - 1), else: (n - 1)..0//-1

    rows =
      Enum.reduce(order, [], fn i, known ->
        rest = slice_axis(b, b_shape, axis, i, i + 1)
        row = slice_axis(a, shape, axis, i, i + 1)
        row_shape = put_elem(shape, axis, 1)
        diagonal = slice_axis(row, row_shape, axis + 1, i, i + 1)
        [{:divide, [reduced(rest, row, row_shape, known, i, lower?), diagonal]} | known]
      end)

    rows = if lower?, do: Enum.reverse(rows), else: rows
    if n == 1, do: hd(rows), else: {{:concatenate_axis, axis}, rows}
  end

  defp reduced(rest, _row, _row_shape, [], _i, _lower?), do: rest

  defp reduced(rest, row, row_shape, known, i, lower?) do
    axis = tuple_size(row_shape) - 1
    count = length(known)
    {from, to} = if lower?, do: {0, i}, else: {i + 1, i + 1 + count}
    factors = slice_axis(row, row_shape, axis, from, to)
    known = if lower?, do: Enum.reverse(known), else: known
    {:subtract, [rest, {:matmul, [factors, join(known, axis - 1)]}]}
  end

  defp join([one], _axis), do: one
  defp join(rows, axis), do: {{:concatenate_axis, axis}, rows}
end
