defmodule Mlx.Lower.Body do
  @moduledoc false
  # The function of a reduction, as instructions over two slots: the element and what is so far.
  # What it makes has the type of the latter.

  @enforce_keys [:instructions, :output, :element, :acc]
  defstruct [:instructions, :output, :element, :acc]

  @type t :: %__MODULE__{
          instructions: Mlx.NIF.instructions(),
          output: non_neg_integer,
          element: Nx.Type.t(),
          acc: Nx.Type.t()
        }
end
