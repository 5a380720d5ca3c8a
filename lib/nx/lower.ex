defmodule Mlx.Lower do
  @moduledoc false
  # The one translation of an Nx operation into instructions, shared by the backend and the
  # compiler. A lowering takes the name of an `Nx.Backend` callback, its template and the
  # arguments after it (backend options dropped), and returns the tree that computes it. Tensors
  # among the arguments are leaves: their `data` is their slot.
  #
  # The result has the template's shape and the type that holds the template's (`Mlx.Type.held!/1`),
  # whatever the operands' types are.

  alias Mlx.Lower

  @families [
    Lower.Create,
    Lower.Elementwise,
    Lower.Integer,
    Lower.Float,
    Lower.Convert,
    Lower.Shape,
    Lower.Reduce,
    Lower.Fold,
    Lower.Window,
    Lower.Index,
    Lower.Dot,
    Lower.Conv,
    Lower.Sort,
    Lower.LinAlg,
    Lower.Transform
  ]

  # Callbacks that move data or describe it; they compute nothing.
  @not_computing [
    :init,
    :from_binary,
    :backend_copy,
    :backend_deallocate,
    :backend_transfer,
    :block,
    :to_batched,
    :to_binary,
    :to_pointer,
    :from_pointer,
    :inspect
  ]

  @lowered Map.new(@families, fn family -> {family, family.__lowered__()} end)
  @table for {family, names} <- @lowered, {name, status} <- names, do: {name, {family, status}}

  names = Keyword.keys(@table)
  computing = Keyword.keys(Nx.Backend.behaviour_info(:callbacks)) -- @not_computing

  problems = [
    {"not lowered", computing -- names},
    {"lowered without being a callback of Nx.Backend", names -- computing},
    {"lowered twice", names -- Enum.uniq(names)}
  ]

  for {problem, [_ | _] = names} <- problems do
    raise CompileError,
      file: __ENV__.file,
      line: __ENV__.line,
      description: "Nx operations #{problem}: #{Enum.map_join(names, ", ", &inspect/1)}"
  end

  @type tree :: Lower.Tree.tree()
  @type status :: :native | :composed | :host

  @doc "The tree (or one per result) that computes the callback `name` of Nx.Backend."
  @spec lower(atom, Nx.Tensor.t(), [term]) :: tree | [tree]
  def lower(name, out, args) do
    if Lower.Narrow.any?(out, args),
      do: Lower.Narrow.lower(name, out, args, &wide/3),
      else: wide(name, out, args)
  end

  for {name, {family, _status}} <- @table do
    defp wide(unquote(name), out, args),
      do: unquote(family).unquote(Lower.Family.function(name))(out, args)
  end

  defp wide(name, _out, _args) do
    raise Mlx.Error,
      kind: :unsupported,
      op: to_string(name),
      message: "it is not an operation of this version of Nx"
  end

  @doc "The trees of an `Nx.Block` struct, or `:default` when its default function is to be used."
  @spec block(struct, Nx.Tensor.t() | tuple, [term]) :: tree | [tree] | :default
  def block(struct, out, args) do
    if Lower.Narrow.any?(out, args),
      do: Lower.Narrow.lower(struct, out, args, &Lower.Block.lower/3),
      else: Lower.Block.lower(struct, out, args)
  end

  @doc """
  What Nx specifies to raise depending on values: the tree of a bool that tells whether to raise,
  and the exception. `nil` for everything but `:triangular_solve` and Cholesky's block.
  """
  @spec guard(atom | struct, Nx.Tensor.t() | tuple, [term], tree | [tree]) ::
          {tree, Exception.t()} | nil
  def guard(:triangular_solve, _out, [a | _], _trees) do
    {Lower.LinAlg.singular(Lower.Narrow.widen(a)),
     %ArgumentError{message: "can't solve for singular matrix"}}
  end

  def guard(%Nx.Block.LinAlg.Cholesky{}, %{type: type} = out, _args, tree) do
    {Lower.Decompose.indefinite(Lower.Narrow.widened(tree, type), Lower.Narrow.widen(out)),
     %ArgumentError{message: "cholesky needs positive-definite matrices"}}
  end

  def guard(_name, _out, _args, _trees), do: nil

  @doc "How the callback `name` is computed."
  @spec status(atom) :: status
  for {name, {_family, status}} <- @table, do: def(status(unquote(name)), do: unquote(status))

  @doc "Every computing callback with its status, in alphabetical order."
  @spec table() :: [{atom, status}]
  def table, do: for(name <- unquote(Enum.sort(computing)), do: {name, status(name)})

  @doc "The callbacks of Nx.Backend that compute nothing."
  @spec not_computing() :: [atom]
  def not_computing, do: @not_computing
end
