if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Exceptions do
    @moduledoc false
    # Where Mlx and Nx.BinaryBackend differ and Mlx is right, or means to: a clause per reason. What
    # is documented for users stands in `Mlx.Backend`.

    import Mlx.Fuzz.Compare, only: [tame?: 1]

    @doc "Why the outcome of `step` for `operands` is none that is wrong, or `nil`."
    def reason(kind, step, operands, outcome, expected)

    def reason(_kind, _step, _operands, {:raised, %Mlx.Error{kind: :unsupported}, _}, _expected),
      do: "c128, where config :mlx, fallback: :raise"

    # `clip`, `gather`, `put_slice`, `slice` and the functions built on them.
    def reason(
          :raised,
          _step,
          _operands,
          {:raised, %FunctionClauseError{module: Nx.BinaryBackend}, _},
          _
        ),
        do: "Nx asks the first tensor's backend, which does not know the others'"

    def reason(:wrong_shape, %{name: name}, [t | _], _outcome, _expected)
        when name in [:pad, :pad_outer] do
      _ = t
      "Nx.BinaryBackend pads in the tensor's type and not in the merged one"
    end

    def reason(:wrong_value, %{name: name}, [t | _], _, _) when name in [:sign, :clip] do
      if special?(t), do: "NaN: see Mlx.Backend"
    end

    def reason(:raised, %{name: :cholesky}, operands, {:raised, %ArgumentError{}, _}, _) do
      if not tame?(operands), do: "no matrix with special values is positive-definite"
    end

    def reason(
          :did_not_raise,
          %{name: :irfft},
          _,
          _,
          {:raised, %ArgumentError{message: "length at axis" <> _}, _}
        ),
        do: "Nx cannot make a single number, of which there is nothing to mirror"

    def reason(_kind, _step, _operands, _outcome, _expected), do: nil

    defp special?(t), do: t |> Nx.to_flat_list() |> Enum.any?(&is_atom/1)

    @doc "Whether the outcome of a compiled chain is none that is wrong."
    def compiled(_kind, _counted, {:raised, %Mlx.Error{kind: :unsupported}, _}), do: true
    def compiled(_kind, _counted, _outcome), do: false
  end
end
