defmodule Mlx.Error do
  @moduledoc """
  What the native side, or an operation that it does not have, answers in place of a result.

  Operations hand out their results before these are computed, so the error of one may be raised
  where a result that depends on it is read. `:op` names the operation that failed first.
  The flag `dispatch: :sync` raises it at the operation itself, see `Mlx`.

  ## Fields

    * `:kind` - one of
      * `:invalid_argument` - wrong sizes, ranks, types, or an unknown instruction
      * `:native` - MLX refused; the message is MLX's own
      * `:out_of_memory` - more than the memory limit allows, see `Mlx.Memory`
      * `:deallocated` - the array was freed before
      * `:stopped` - the device's worker was stopped
      * `:cancelled` - the run was given up because nobody held its results
      * `:unsupported` - Mlx does not have the operation yet
      * `:not_loaded` - the native library could not be loaded
      * `:non_finite` - an operation made NaN or infinity, which the flag `:detect_non_finite` looks for
      * `:wrong_result` - a result is not what Nx announced, a bug in Mlx that the flag
        `:check_results` finds
      * `:panic` - a bug in Mlx
    * `:op` - the operation, a string, or `nil`
    * `:message` - what is wrong
    * `:operands` - the operands' types and shapes as a string, or `nil`
    * `:function` - the compiled function that it happened in, as an entry of a stacktrace,
      `{module, name, arity, location}`; `nil` for eager operations and saved programs. The message
      names it with its file and line, where its module was compiled with debug information
    * `:stage` - `:compile` where that function could not be compiled, `:run` where its program
      failed, or `nil`
  """

  alias Mlx.Source

  @type t :: %__MODULE__{
          kind: atom,
          op: String.t() | nil,
          message: String.t(),
          operands: String.t() | nil,
          function: {module, atom, arity, keyword} | nil,
          stage: :compile | :run | nil
        }

  defexception [:kind, :op, :operands, :function, :stage, message: "unknown error"]

  @impl true
  def message(%__MODULE__{op: op, message: message, operands: operands} = error) do
    # MLX's own texts begin with the operation in brackets.
    prefix = if op && not String.starts_with?(message, "["), do: "#{op}: ", else: ""
    suffix = if operands, do: "\n\nOperands: #{operands}", else: ""
    prefix <> message <> suffix <> place(error)
  end

  defp place(%{function: nil}), do: ""
  defp place(%{function: function, stage: stage}), do: place(stage, function)

  @doc false
  # Also for the exceptions of others that are raised while a function is compiled.
  def place(:compile, function), do: "\n\nWhile compiling #{Source.format(function)}"
  def place(_run, function), do: "\n\nIn the compiled function #{Source.format(function)}"
end
