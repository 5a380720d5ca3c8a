defmodule Mlx.Error do
  @moduledoc """
  What the native side, or an operation that it does not have, answers in place of a result.

  Operations hand out their results before these are computed, so the error of one may be raised
  where a result that depends on it is read. `:op` names the operation that failed first.
  `config :mlx, dispatch: :sync` raises it at the operation itself.

  ## Fields

    * `:kind` - one of
      * `:invalid_argument` - wrong sizes, ranks, types, or an unknown instruction
      * `:native` - MLX refused; the message is MLX's own
      * `:out_of_memory` - a result larger than the memory limit, see `Mlx.Memory.set_limit/1`
      * `:deallocated` - the array was freed before
      * `:stopped` - the device's worker was stopped
      * `:cancelled` - the run was given up because nobody held its results
      * `:unsupported` - Mlx does not have the operation yet
      * `:not_loaded` - the native library could not be loaded
      * `:panic` - a bug in Mlx
    * `:op` - the operation, a string, or `nil`
    * `:message` - what is wrong
    * `:operands` - the operands' types and shapes as a string, or `nil`
  """

  @type t :: %__MODULE__{
          kind: atom,
          op: String.t() | nil,
          message: String.t(),
          operands: String.t() | nil
        }

  defexception [:kind, :op, :operands, message: "unknown error"]

  @impl true
  def message(%__MODULE__{op: op, message: message, operands: operands}) do
    # MLX's own texts begin with the operation in brackets.
    prefix = if op && not String.starts_with?(message, "["), do: "#{op}: ", else: ""
    suffix = if operands, do: "\n\nOperands: #{operands}", else: ""
    prefix <> message <> suffix
  end
end
