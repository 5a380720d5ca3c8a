defmodule Mlx.Compiler.Unsupported do
  @moduledoc false
  # Says what the compiler cannot lower and how to run it all the same. One place, so that every
  # refusal names the construct and the way out in the same words.

  @remedy "Run this function with `compiler: Nx.Defn.Evaluator`: it evaluates operation by " <>
            "operation, on Mlx.Backend all the same"

  @nodes %{
    fun: "hook or runtime_call inside the function of a reduction",
    c128: "complex numbers of double precision (c128), which MLX lacks, into a program",
    export: "hook or runtime_call into a program that is to be saved, for it calls Elixir code"
  }

  @doc "Raises for an expression node, or for one in the wrong place."
  @spec node!(atom) :: no_return
  def node!(op), do: unsupported!(op, "#{Map.fetch!(@nodes, op)}")

  @doc "Raises for an operation that there is no lowering for."
  @spec operation!(atom, String.t()) :: no_return
  def operation!(op, reason), do: unsupported!(op, "#{op}: #{reason}")

  defp unsupported!(op, construct) do
    raise Mlx.Error,
      kind: :unsupported,
      op: to_string(op),
      message: "Mlx.Compiler does not compile #{construct}. #{@remedy}"
  end
end
