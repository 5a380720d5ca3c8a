defmodule Mlx.Lower.Support do
  @moduledoc false
  # How every operation and block of Nx is computed, in words for the documentation. It is read off
  # the lowering: the families record what an operation is made of, and blocks are lowered for
  # sample operands.

  alias Mlx.Lower
  alias Nx.Block
  alias Nx.Tensor, as: T

  @headings [
    native: "MLX's operation",
    host: "a host kernel on CPUs; on GPUs MLX's operation, or a composition",
    composed: "composed of MLX's operations",
    default: "Nx's own function, operation by operation"
  ]

  @matrix {3, 3}

  @doc "Two tables in Markdown."
  @spec markdown() :: String.t()
  def markdown do
    """
    | callbacks of `Nx.Backend` | computed by |
    | --- | --- |
    #{rows(Lower.table())}

    | blocks | computed by |
    | --- | --- |
    #{rows(blocks())}
    """
  end

  defp rows(statuses) do
    for {status, heading} <- @headings,
        names = for({name, ^status} <- statuses, do: "`#{name}`"),
        names != [],
        into: "",
        do: "| #{Enum.join(names, " ")} | #{heading} |\n"
  end

  @doc "Every block of Nx with how it is computed, for real numbers and where it differs for complex ones."
  @spec blocks() :: [{String.t(), Lower.status() | :default}]
  def blocks do
    for {struct, out, args} <- samples(), label <- labels(struct, out, args), do: label
  end

  defp labels(struct, out, args) do
    name = struct.__struct__ |> Module.split() |> Enum.drop(2) |> Enum.join(".")
    real = status(struct, out, args)

    case status(struct, complex(out), complex(args)) do
      ^real -> [{name, real}]
      status -> [{name, real}, {name <> " (complex)", status}]
    end
  end

  defp status(struct, out, args) do
    case Lower.block(struct, out, args) do
      :default ->
        :default

      trees ->
        if trees |> List.wrap() |> Enum.flat_map(&operations/1) |> one?(),
          do: :native,
          else: :composed
    end
  end

  # Results of one operation count once; what only fits types to each other does not count.
  defp one?(operations), do: operations |> Enum.uniq() |> length() <= 1

  defp operations({:elem, node, _k}), do: operations(node)
  defp operations({{:astype, _type}, operands}), do: Enum.flat_map(operands, &operations/1)
  defp operations({{:constant, _type, _bytes}, []}), do: []
  defp operations({_op, operands} = node), do: [node | Enum.flat_map(operands, &operations/1)]
  defp operations(%{data: data}) when is_tuple(data), do: operations(data)
  defp operations(_leaf), do: []

  # A block, the template of its result, and its operands.
  defp samples do
    t = t(@matrix)
    {u8, index} = {t(@matrix, {:u, 8}), t(@matrix, {:s, 32}, 1)}
    c64 = t(@matrix, {:c, 64})
    lines = [eps: 1.0e-10, lengths: [3, 3], axes: [0, 1]]
    line = [eps: 1.0e-10, length: 3, axis: 1]

    [
      {%Block.LogicalNot{}, u8, [t]},
      {%Block.Phase{}, t, [t]},
      {struct(Block.AllClose, equal_nan: false, rtol: 1.0e-5, atol: 1.0e-8), t({}, {:u, 8}),
       [t, t]},
      {struct(Block.CumulativeSum, axis: 0, reverse: false), t, [t]},
      {struct(Block.CumulativeProduct, axis: 0, reverse: false), t, [t]},
      {struct(Block.CumulativeMin, axis: 0, reverse: false), t, [t]},
      {struct(Block.CumulativeMax, axis: 0, reverse: false), t, [t]},
      {struct(Block.Take, axis: 0), t({3, 3, 3}), [t, index]},
      {struct(Block.TakeAlongAxis, axis: 0), t, [t, index]},
      {struct(Block.TopK, k: 2), {t({3, 2}), t({3, 2}, {:s, 32})}, [t]},
      {struct(Block.FFT2, lines), c64, [t]},
      {struct(Block.IFFT2, lines), c64, [t]},
      {struct(Block.RFFT, line), t({3, 2}, {:c, 64}), [t]},
      {struct(Block.IRFFT, line), t, [c64]},
      {struct(Block.LinAlg.Cholesky, []), t, [t]},
      {struct(Block.LinAlg.Solve, []), t, [t, t]},
      {struct(Block.LinAlg.QR, eps: 1.0e-10, mode: :reduced), {t, t}, [t]},
      {struct(Block.LinAlg.Eigh, max_iter: 1, eps: 1.0e-10), {t({3}), t}, [t]},
      {struct(Block.LinAlg.SVD, max_iter: 1, full_matrices?: true), {t, t({3}), t}, [t]},
      {struct(Block.LinAlg.LU, eps: 1.0e-10), {t, t, t}, [t]},
      {struct(Block.LinAlg.Determinant, []), t({}), [t]}
    ]
  end

  defp t(shape, type \\ {:f, 32}, slot \\ 0),
    do: %T{type: type, shape: shape, names: List.duplicate(nil, tuple_size(shape)), data: slot}

  # Matrices become complex, and so does what has their type.
  defp complex(%T{type: {:f, 32}} = t), do: %{t | type: {:c, 64}}

  defp complex(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> Enum.map(&complex/1) |> List.to_tuple()

  defp complex(list) when is_list(list), do: Enum.map(list, &complex/1)
  defp complex(other), do: other
end
