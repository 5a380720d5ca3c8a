defmodule Mlx.Compiler.Unsupported do
  @moduledoc false
  # Says what the compiler cannot lower and how to run it all the same. One place, so that every
  # refusal names the construct and the way out in the same words.

  @remedy "Run this function with `compiler: Nx.Defn.Evaluator`: it evaluates operation by " <>
            "operation, on Mlx.Backend all the same"

  @nodes %{
    fun: "a hook inside the function of a reduction",
    runtime_call: "runtime_call, which calls Elixir in the middle of a program",
    c128: "complex numbers of double precision (c128), which MLX lacks, into a program",
    export: "hook into a program that is to be saved, for its callback is Elixir code"
  }

  @doc "Raises for an expression node, or for one in the wrong place."
  @spec node!(atom) :: no_return
  def node!(op), do: unsupported!(op, "#{Map.fetch!(@nodes, op)}")

  @doc "Raises for an operation that there is no lowering for."
  @spec operation!(atom, String.t()) :: no_return
  def operation!(op, reason), do: unsupported!(op, "#{op}: #{reason}")

  @doc "Raises for a loop that cannot be written out."
  @spec loop!(String.t()) :: no_return
  def loop!(reason), do: unsupported!(:while, "this while loop: #{reason}")

  @doc "Raises for what may fail inside a branch that is not taken."
  @spec fallible!(atom) :: no_return
  def fallible!(op) do
    unsupported!(
      :cond,
      "#{op} inside cond or if: all branches are computed, and this one may fail for values " <>
        "that its branch is not meant for"
    )
  end

  defp unsupported!(op, construct) do
    raise Mlx.Error,
      kind: :unsupported,
      op: to_string(op),
      message: "Mlx.Compiler does not compile #{construct}. #{@remedy}"
  end
end
