defmodule Mlx.Lower.Decompose do
  @moduledoc false
  # The decompositions of Nx.LinAlg that LAPACK does; narrower types than f32 are decomposed in it.
  # Of complex matrices MLX has the eigenvalues only, and the others run Nx's default functions.
  import Mlx.Lower.Tree

  alias Mlx.Lower.{Create, Sort}
  alias Nx.Block.LinAlg

  @doc "The trees of a block's results, or `:default`."
  def lower(block, out, args)

  # Nx orders eigenvalues by magnitude, the largest first; LAPACK by value, the least first.
  # Those of Hermitian matrices are real.
  def lower(%LinAlg.Eigh{}, {values, vectors}, [a]) do
    node = {{:eigh, true}, [wide(a, vectors)]}
    axis = tuple_size(values.shape) - 1
    order = Sort.order({:abs, [{:elem, node, 0}]}, values.shape, axis, :desc)
    columns = {{:broadcast_to, vectors.shape}, [{{:expand_dims_axes, [axis]}, [order]}]}

    sorted = {{:take_along_axis, axis}, [{:elem, node, 0}, order]}
    made = {{:take_along_axis, axis + 1}, [{:elem, node, 1}, columns]}

    made =
      case vectors.type do
        {:c, _} ->
          made

        type ->
          turned(
            made,
            signs(made, axis, values.shape, compute_type(type)),
            axis,
            compute_type(type)
          )
      end

    [cast(sorted, real_type(values.type), values.type), back(made, vectors)]
  end

  def lower(_struct, _out, [%{type: {:c, _}} | _]), do: :default

  def lower(%LinAlg.Cholesky{}, out, [a]),
    do: back({{:cholesky, false}, [wide(a, out)]}, out)

  # MLX gives, for every row of A, its row in L; Nx wants the matrix that moves it there.
  def lower(%LinAlg.LU{}, {p, l, u}, [a]) do
    node = {:lu, [wide(a, l)]}
    n = elem(p.shape, tuple_size(p.shape) - 1)
    rows = {{:expand_dims_axes, [-1]}, [{:elem, node, 0}]}
    moves = {:equal, [rows, Create.arange(n, {:u, 32})]}
    [astype(moves, p.type), back({:elem, node, 1}, l), back({:elem, node, 2}, u)]
  end

  def lower(%LinAlg.QR{}, {q, r}, [a]) do
    rank = tuple_size(a.shape)
    {m, n} = {elem(a.shape, rank - 2), elem(a.shape, rank - 1)}
    x = wide(a, q)

    # A tall matrix beside the identity spans everything: its Q is complete.
    if m > n and q.shape != a.shape do
      batch = a.shape |> Tuple.to_list() |> Enum.drop(-2)
      identity = {{:eye, m, m, 0, compute_type(q.type)}, []}
      identity = {{:broadcast_to, List.to_tuple(batch ++ [m, m])}, [identity]}
      node = {:qr, [{{:concatenate_axis, rank - 1}, [x, identity]}]}
      grown = List.to_tuple(batch ++ [m, n + m])
      upper = slice_axis({:elem, node, 1}, grown, rank - 1, 0, n)
      signed({:elem, node, 0}, upper, q, r)
    else
      node = {:qr, [x]}
      signed({:elem, node, 0}, {:elem, node, 1}, q, r)
    end
  end

  def lower(%LinAlg.SVD{} = svd, {u, s, vt}, [a]) do
    node = {:svd, [wide(a, u)]}
    rank = tuple_size(a.shape)
    k = elem(s.shape, rank - 2)
    full_u = put_elem(a.shape, rank - 1, elem(a.shape, rank - 2))
    full_v = put_elem(a.shape, rank - 2, elem(a.shape, rank - 1))

    left =
      if u.shape == full_u,
        do: {:elem, node, 0},
        else: first({:elem, node, 0}, full_u, rank - 1, k)

    right =
      if vt.shape == full_v,
        do: {:elem, node, 2},
        else: first({:elem, node, 2}, full_v, rank - 2, k)

    values = {:elem, node, 1}
    values = if svd.full_matrices?, do: values, else: significant(values, a.shape, s)

    # As many vectors as there are values come in pairs, and turn together.
    type = compute_type(u.type)
    {m, n} = {elem(a.shape, rank - 2), elem(a.shape, rank - 1)}
    {axis, of} = if m < n, do: {rank - 2, left}, else: {rank - 1, right}
    signs = signs(of, axis, s.shape, type)
    columns = widened(signs, s.shape, elem(u.shape, rank - 1), type)
    rows = widened(signs, s.shape, elem(vt.shape, rank - 2), type)
    left = turned(left, columns, rank - 2, type)
    right = turned(right, rows, rank - 1, type)
    [back(left, u), back(values, s), back(right, vt)]
  end

  def lower(_struct, _out, _args), do: :default

  @doc "Whether the factor `l` says that its matrix was not positive definite."
  def indefinite(tree, out) do
    type = out.type
    n = elem(out.shape, tuple_size(out.shape) - 1)
    positive = {:greater, [tree, const(0, type)]}
    off_diagonal = {:equal, [{{:eye, n, n, 0, {:u, 8}}, []}, const(0, {:u, 8})]}
    fine = {{:all_axes, axes(nil, out.shape), false}, [{:logical_or, [positive, off_diagonal]}]}
    from_bool({:logical_not, [fine]})
  end

  # Nx's reflections leave a positive diagonal in R, LAPACK's mostly a negative one. Its gradient
  # takes the factors of its default function and what was computed with ours, which only fit if
  # they have the same signs. The last row of a matrix that is not tall was not reflected: its sign
  # follows from the others, for the determinant of Q stays. Where Q has a 1, nothing was reflected.
  defp signed(q, r, %{type: type} = out, %{shape: shape} = r_out) do
    type = compute_type(type)
    rank = tuple_size(shape)
    {rows, n} = {elem(shape, rank - 2), elem(shape, rank - 1)}
    m = elem(out.shape, rank - 2)
    {zero, one} = {const(0, type), const(1, type)}
    below = {:less, [diagonal(r, rows, n, rank - 1, type), zero]}
    turn = {:logical_and, [below, {:not_equal, [diagonal(q, m, rows, rank - 2, type), one]}]}
    signs = where(turn, const(-1, type), one)
    signs = if m > n, do: signs, else: last_sign(signs, rows, rank - 2, one)

    q = turned(q, signs, rank - 2, type)
    [back(q, out), back(turned(r, signs, rank - 1, type), r_out)]
  end

  # Of each vector along the axis: what makes the first of its large elements positive. LAPACK's
  # signs are arbitrary, and Nx's gradient of a singular value decomposition takes the vectors of
  # its default function, an eigendecomposition, together with those from here. Elements that only
  # rounding tells apart must not decide.
  defp signs(vectors, axis, shape, type) do
    size = {:abs, [vectors]}
    largest = {{:max_axes, [axis], true}, [size]}
    large = {:greater_equal, [size, {:multiply, [largest, const(0.9, type)]}]}
    pivot = {{:argmax_axis, axis, true}, [astype(large, {:u, 8})]}
    pivot = reshape({{:take_along_axis, axis}, [vectors, pivot]}, nil, shape)
    where({:less, [pivot, const(0, type)]}, const(-1, type), const(1, type))
  end

  # Vectors beyond those in pairs stay.
  defp widened(signs, shape, count, type) do
    axis = tuple_size(shape) - 1
    more = count - elem(shape, axis)
    config = List.duplicate({0, 0, 0}, axis) ++ [{0, more, 0}]
    {signs, _shape} = pad(signs, shape, config, const(1, type))
    signs
  end

  # A zero stays one without a sign.
  defp turned(tree, signs, axis, type) do
    turned = {:multiply, [tree, {{:expand_dims_axes, [axis]}, [signs]}]}
    where({:equal, [tree, const(0, type)]}, tree, turned)
  end

  defp diagonal(tree, rows, columns, axis, type) do
    on = {:not_equal, [{{:eye, rows, columns, 0, {:u, 8}}, []}, const(0, {:u, 8})]}
    {{:sum_axes, [axis], false}, [where(on, tree, const(0, type))]}
  end

  defp last_sign(signs, count, axis, one) do
    last = {:equal, [Create.arange(count, {:u, 32}), const(count - 1, {:u, 32})]}
    others = where(last, one, signs)
    where(last, {{:prod_axes, [axis], true}, [others]}, others)
  end

  defp first(tree, shape, axis, count), do: slice_axis(tree, shape, axis, 0, count)

  # Of a matrix of lower rank LAPACK makes singular values that are rounding errors of the largest.
  # Nx.LinAlg.pinv/2, which takes the thin decomposition, divides by all that are not next to zero.
  defp significant(values, shape, s) do
    type = compute_type(s.type)
    rank = tuple_size(shape)
    size = max(elem(shape, rank - 2), elem(shape, rank - 1))
    epsilon = if type == {:f, 64}, do: 2.0 ** -52, else: 2.0 ** -23
    largest = slice_axis(values, s.shape, rank - 2, 0, 1)
    noise = {:multiply, [largest, const(size * epsilon, type)]}
    where({:less_equal, [values, noise]}, const(0, type), values)
  end

  defp real_type({:c, 64}), do: {:f, 32}
  defp real_type(type), do: compute_type(type)

  defp wide(a, out), do: cast(a, compute_type(out.type))
  defp back(tree, out), do: cast(tree, compute_type(out.type), out.type)

  defp compute_type({:c, _} = type), do: type
  defp compute_type({:f, 64}), do: {:f, 64}
  defp compute_type(_type), do: {:f, 32}
end
