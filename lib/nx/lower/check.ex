defmodule Mlx.Lower.Check do
  @moduledoc false
  # Checks that a program makes while it runs, as the flags ask for: `Mlx.Flags`. They are operations
  # that hand on a value, put around the operands and the results of a lowering. An operation is what
  # Nx calls one, and errors call it by that name.
  #
  # With nothing on, a lowering is what it is.
  import Mlx.Lower.Tree

  alias Mlx.{Flags, Lower, Type}
  alias Mlx.Lower.Narrow
  alias Nx.Block
  alias Nx.Tensor, as: T

  # Each element of their results is one of an operand, or a number of the caller's choice.
  @moving [:constant, :iota, :eye, :reshape, :squeeze, :transpose, :reverse, :broadcast, :slice] ++
            [:gather, :pad, :concatenate, :stack, :select, :put_slice, :indexed_put, :clip, :sort]

  @floats [:f, :bf, :c, :f8_e4m3fn]

  @doc "As `Mlx.Lower.lower/3`, with what the flags ask for."
  @spec lower(Flags.t(), atom, T.t(), [term]) :: Lower.tree() | [Lower.tree()]
  def lower(:off, name, out, args), do: Lower.lower(name, out, args)

  def lower(flags, name, out, args),
    do: results(flags, name, out, args, Lower.lower(name, out, operands(flags, name, args)))

  @doc "As `Mlx.Lower.block/3`, with what the flags ask for."
  @spec block(Flags.t(), struct, T.t() | tuple, [term]) ::
          Lower.tree() | [Lower.tree()] | :default
  def block(:off, struct, out, args), do: Lower.block(struct, out, args)

  def block(flags, struct, out, args) do
    with trees when trees != :default <- Lower.block(struct, out, operands(flags, struct, args)),
         do: results(flags, struct, out, args, trees)
  end

  @doc "The arguments of a callback or block, with checks of the indices among them."
  @spec operands(Flags.t(), atom | struct, [term]) :: [term]
  def operands(:off, _name, args), do: args
  def operands(%Flags{bounds_check: false}, _name, args), do: args

  def operands(_flags, name, [t, %T{} = indices | rest] = args) do
    case indexed(name, t, List.last(rest)) do
      nil ->
        args

      {first, count, sizes} ->
        sizes = List.to_tuple(sizes)
        check = {{:check_bounds, name(name), first, count, sizes}, [indices]}
        [t, %{indices | data: check} | rest]
    end
  end

  def operands(_flags, _name, args), do: args

  # The first axis that the indices are for, for how many they are in turns, and the sizes: those of
  # the tensor as Nx.BinaryBackend turns it around, which are in its messages.
  defp indexed(name, t, opts) when name in [:gather, :indexed_add, :indexed_put] do
    axes = opts[:axes]
    {0, length(axes), sizes(t, axes ++ (axes(nil, t.shape) -- axes))}
  end

  defp indexed(%Block.Take{axis: axis}, t, _opts),
    do: {0, 1, sizes(t, [axis | axes(nil, t.shape) -- [axis]])}

  defp indexed(%Block.TakeAlongAxis{axis: axis}, t, _opts),
    do: {axis, 1, Tuple.to_list(t.shape)}

  defp indexed(_name, _t, _opts), do: nil

  defp sizes(t, axes), do: for(axis <- axes, do: elem(t.shape, axis))

  @doc "The results of a callback or block for `args`, checked."
  @spec results(Flags.t(), atom | struct, T.t() | tuple, [term], Lower.tree() | [Lower.tree()]) ::
          Lower.tree() | [Lower.tree()]
  def results(:off, _name, _out, _args, trees), do: trees

  def results(flags, name, out, args, trees) when is_list(trees) do
    for {tree, out} <- Enum.zip(trees, Tuple.to_list(out)),
        do: results(flags, name, out, args, tree)
  end

  def results(flags, name, out, args, tree) do
    tree = if flags.detect_non_finite, do: finite(tree, flags, name, out, args), else: tree

    if flags.check_results do
      {{:check_result, name(name), Type.held!(out.type), out.shape}, [tree]}
    else
      tree
    end
  end

  defp finite(tree, _flags, name, _out, _args) when name in @moving, do: tree

  defp finite(tree, flags, name, %T{type: {kind, _}} = out, args) when kind in @floats do
    tensors = args |> List.flatten() |> Enum.filter(&is_struct(&1, T))
    operands = for %T{type: {kind, _}} = t <- tensors, kind in @floats, do: Narrow.widen(t)
    described = Enum.map_join(tensors, ", ", &described/1)
    {nan?, infinity?} = wanted(flags.detect_non_finite)
    looked_at = [tree, Narrow.widened(tree, out.type) | operands]
    {{:check_finite, name(name), described, nan?, infinity?}, looked_at}
  end

  defp finite(tree, _flags, _name, _out, _args), do: tree

  defp wanted(true), do: {true, true}
  defp wanted(:nan), do: {true, false}
  defp wanted(:infinity), do: {false, true}

  defp described(%T{type: type, shape: shape}) do
    Nx.Type.to_string(type) <> Enum.map_join(Tuple.to_list(shape), &"[#{&1}]")
  end

  @doc "What errors call a callback or block."
  @spec name(atom | struct) :: String.t()
  def name(%name{}), do: name |> Module.split() |> List.last() |> Macro.underscore()
  def name(name), do: Atom.to_string(name)
end
