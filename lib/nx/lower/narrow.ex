defmodule Mlx.Lower.Narrow do
  @moduledoc false
  # Types without arithmetic in MLX: integers of 2 and 4 bits, and 8-bit floats. The families of
  # lowerings do not know them. Operands become leaves of a wide type, computed from the bytes that
  # hold them; the operation is lowered for that type; and its result is brought back into range,
  # or rounded to the nearest 8-bit float as Nx rounds. What only moves elements moves their bytes.
  #
  # Here is what that does not cover: the bits and the limits of a type.
  import Mlx.Lower.Tree

  alias Mlx.Lower.Float8
  alias Mlx.Type
  alias Nx.Block
  alias Nx.Tensor, as: T

  @floats [f: 8, f8_e4m3fn: 8]
  @bits [:population_count, :count_leading_zeros]
  @extremes [:window_max, :window_min]
  @movement [:reshape, :squeeze, :transpose, :reverse, :broadcast, :slice, :gather, :pad] ++
              [:concatenate, :stack, :select, :put_slice, :indexed_put]

  @type lower :: (term, Nx.Tensor.t() | tuple, [term] -> Mlx.Lower.tree() | :default)

  @doc "Whether a template, or tuple of them, or an argument is of a narrow type."
  @spec any?(Nx.Tensor.t() | tuple, [term]) :: boolean
  def any?(out, args), do: narrow?(out) or Enum.any?(args, &narrow?/1)

  defp narrow?(%T{type: type}), do: Type.narrow?(type)
  defp narrow?([_ | _] = list), do: Enum.any?(list, &narrow?/1)
  defp narrow?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> Enum.any?(&narrow?/1)
  defp narrow?(_term), do: false

  @doc "The tree of the callback or block `name`, which `lower` gives for wide types."
  @spec lower(term, Nx.Tensor.t() | tuple, [term], lower) :: Mlx.Lower.tree() | :default
  def lower(:constant, out, args, lower), do: lower.(:constant, out, args)

  # The program of the reduction says which types it takes.
  def lower(name, out, args, lower) when name in [:reduce, :window_reduce],
    do: lower.(name, out, args)

  def lower(:eye, %{type: type} = out, [], lower) do
    ones = lower.(:eye, held(out), [])
    if type in @floats, do: {:multiply, [ones, const(1, type)]}, else: ones
  end

  def lower(:as_type, %{type: type}, [%{type: type} = t], _lower), do: t

  def lower(:as_type, %{type: type}, [%{type: from} = t], _lower) when type in @floats,
    do: Float8.encode(single(widen(t), Type.wide(from)), type)

  def lower(:as_type, %{type: {kind, _} = type} = out, [t], lower) when kind in [:u, :s] do
    t = widen(t)
    converted = narrowed(lower.(:as_type, widen(out), [t]), type)

    # The extremes that infinities become are those of the narrow type.
    if Nx.Type.integer?(t.type) or not Type.narrow?(type),
      do: converted,
      else: saturated(converted, real(t), type)
  end

  def lower(:bitcast, %{type: type} = out, [t], lower),
    do: narrowed_bits(lower.(:bitcast, held(out), [held(t)]), type)

  def lower(name, %{type: type}, [%{type: {kind, size}} = t], lower) when name in @bits do
    bits = if kind == :s, do: narrowed({{:view, {:u, 8}}, [t]}, {:u, size}), else: t
    byte = %{t | type: {:u, 8}, data: bits}
    count = lower.(name, byte, [byte])

    count =
      if name == :count_leading_zeros,
        do: {:subtract, [count, const(8 - size, {:u, 8})]},
        else: count

    narrowed_bits({{:view, Type.held!(type)}, [count]}, type)
  end

  # A window of padding alone has the least or greatest value of the wide type.
  def lower(name, %{type: {kind, _} = type} = out, args, lower)
      when name in @extremes and kind in [:u, :s] do
    held = Type.held!(type)
    {least, greatest} = limits(type)
    tree = lower.(name, widen(out), Enum.map(args, &widen/1))
    {:minimum, [{:maximum, [tree, const(least, held)]}, const(greatest, held)]}
  end

  def lower(name, out, args, lower) do
    if moved?(name, out, args) do
      moved = args |> Enum.with_index() |> Enum.map(&moved(name, &1))
      lower.(name, held(out), moved)
    else
      case lower.(name, widen(out), Enum.map(args, &widen/1)) do
        :default ->
          :default

        trees when is_list(trees) ->
          Enum.zip_with(trees, Tuple.to_list(out), &narrowed(&1, &2.type))

        tree ->
          narrowed(tree, out.type)
      end
    end
  end

  ## Moving
  #
  # Bytes move as they are where every element of the result is one of an operand of its type.
  # Positions and predicates are operands too, and are widened.

  defp moved?(name, %T{type: type}, args) do
    moving?(name) and
      args
      |> Enum.with_index()
      |> Enum.filter(&element?(name, &1))
      |> Enum.flat_map(fn {arg, _position} -> List.wrap(arg) end)
      |> Enum.all?(&(&1.type == type))
  end

  defp moved?(_name, _out, _args), do: false

  defp moving?(%Block.Take{}), do: true
  defp moving?(%Block.TakeAlongAxis{}), do: true
  defp moving?(name), do: name in @movement

  defp element?(:select, {_arg, position}), do: position > 0
  defp element?(:put_slice, {_arg, position}), do: position != 1
  defp element?(:indexed_put, {_arg, position}), do: position in [0, 2]
  defp element?(:pad, {_arg, position}), do: position < 2
  defp element?(_name, {_arg, position}), do: position == 0

  defp moved(name, {arg, _position} = indexed),
    do: if(element?(name, indexed), do: held(arg), else: widen(arg))

  ## Operands

  @doc "A tensor, or all of a list or tuple, in a type to compute in; templates have no data."
  def widen(%T{type: type} = t) when type in @floats,
    do: %{t | type: Type.wide(type), data: Float8.decode(t, type)}

  def widen(%T{type: type} = t), do: %{t | type: Type.wide(type)}
  def widen([%T{} | _] = list), do: Enum.map(list, &widen/1)
  def widen([start | _] = list) when is_integer(start), do: Enum.map(list, &widen/1)
  def widen(tuple) when is_tuple(tuple), do: map_tuple(tuple, &widen/1)
  def widen(term), do: term

  @doc "A tree of the bytes of `type` in the type to compute in."
  def widened(tree, type) when type in @floats, do: Float8.decode(tree, type)
  def widened(tree, _type), do: tree

  defp held(%T{type: type} = t), do: %{t | type: Type.held!(type)}
  defp held(list) when is_list(list), do: Enum.map(list, &held/1)

  defp map_tuple(tuple, fun), do: tuple |> Tuple.to_list() |> Enum.map(fun) |> List.to_tuple()

  ## Results

  # What of a result in the wide type the narrow one holds.
  defp narrowed(tree, type) when type in @floats, do: Float8.encode(tree, type)
  defp narrowed(tree, type), do: narrowed_bits(tree, type)

  # The lowest bits, with the sign extended.
  defp narrowed_bits(tree, {:u, size}) when size < 8,
    do: {:bitwise_and, [tree, const(2 ** size - 1, {:u, 8})]}

  defp narrowed_bits(tree, {:s, size}) when size < 8 do
    by = const(8 - size, {:s, 8})
    {:right_shift, [{:left_shift, [tree, by]}, by]}
  end

  defp narrowed_bits(tree, _type), do: tree

  defp saturated(tree, {real, from}, type) do
    {least, greatest} = limits(type)
    infinite = fn name -> {:equal, [real, const(name, from)]} end
    held = Type.held!(type)
    below = where(infinite.(:neg_infinity), const(least, held), tree)
    where(infinite.(:infinity), const(greatest, held), below)
  end

  defp limits({:u, size}), do: {0, 2 ** size - 1}
  defp limits({:s, size}), do: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}

  # The real part of a leaf and its type.
  defp real(%{type: {:c, _}} = t), do: {{:real, [t]}, {:f, 32}}
  defp real(%{type: type} = t), do: {t, type}

  # A leaf as f32, from which 8-bit floats are made. f64 is cut off, or it would be rounded twice;
  # both 8-bit types round a half away from zero, so that nothing depends on what is cut off.
  defp single(t, {:f, 64}) do
    near = astype(t, {:f, 32})
    above = {:greater, [{:abs, [astype(near, {:f, 64})]}, {:abs, [t]}]}
    bits = {:subtract, [{{:view, {:u, 32}}, [near]}, astype(above, {:u, 32})]}
    {{:view, {:f, 32}}, [bits]}
  end

  defp single(t, type), do: cast(t, type, {:f, 32})
end
