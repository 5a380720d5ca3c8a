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
          _kind,
          _step,
          _operands,
          {:raised, %FunctionClauseError{module: Nx.BinaryBackend}, _},
          _
        ),
        do: "Nx asks the first tensor's backend, which does not know the others'"

    def reason(:wrong_value, %{name: name}, operands, _, _)
        when name in [:select, :all, :any, :logical_and, :logical_or, :logical_xor, :logical_not] do
      if Enum.any?(operands, &Nx.Type.complex?(&1.type)),
        do: "Nx.BinaryBackend takes a complex zero for true"
    end

    def reason(:wrong_value, %{name: name}, operands, _, _)
        when name in [:window_scatter_max, :window_scatter_min] do
      if Enum.any?(operands, &large?/1),
        do: "Nx.BinaryBackend compares and adds window_scatter's numbers as s32 or f32"
    end

    def reason(:wrong_value, %{name: :text}, [%{type: {_, size}}], _, _) when size < 8,
      do: "Nx cannot inspect integers below 8 bits of Nx.BinaryBackend"

    def reason(:wrong_shape, %{name: :svd}, [%{type: {kind, _}}], _, _) when kind in [:s, :u],
      do: "Nx announces floats for the SVD of integers, and answers with integers"

    def reason(:wrong_shape, %{name: :irfft}, [%{type: {:f8_e4m3fn, 8}}], _, _),
      do: "Nx announces f8_e4m3fn, and answers with f32"

    def reason(:wrong_shape, %{name: name}, [t | _], _outcome, _expected)
        when name in [:pad, :pad_outer] do
      _ = t
      "Nx.BinaryBackend pads in the tensor's type and not in the merged one"
    end

    def reason(:wrong_value, %{name: name}, [t | _], _, _) when name in [:sign, :clip] do
      if special?(t), do: "NaN: see Mlx.Backend"
    end

    def reason(:raised, %{name: :cholesky}, operands, {:raised, %ArgumentError{}, _}, _) do
      if not tame?(operands) or Enum.any?(Nx.to_flat_list(hd(operands)), &zero?/1),
        do: "Nx lets singular matrices and special values through"
    end

    def reason(
          :did_not_raise,
          %{name: :irfft},
          _,
          _,
          {:raised, %ArgumentError{message: "length at axis" <> _}, _}
        ),
        do: "Nx cannot make a single number, of which there is nothing to mirror"

    def reason(:wrong_value, _step, operands, _outcome, _expected) do
      if Enum.any?(operands, &subnormal_f8?/1), do: "Nx reads subnormal f8 numbers wrongly"
    end

    def reason(_kind, _step, _operands, _outcome, _expected), do: nil

    defp zero?(%Complex{re: re, im: im}), do: re == 0 and im == 0
    defp zero?(x), do: x == 0

    defp large?(t),
      do: t |> Nx.to_flat_list() |> Enum.any?(&(is_integer(&1) and abs(&1) >= 2 ** 31))

    defp subnormal_f8?(%{type: {:f, 8}} = t),
      do: Enum.any?(for(<<_sign::1, rest::7 <- Nx.to_binary(t)>>, do: rest in 1..3))

    defp subnormal_f8?(_t), do: false

    defp special?(t), do: t |> Nx.to_flat_list() |> Enum.any?(&is_atom/1)

    @doc "Whether the outcome of a compiled chain is none that is wrong."
    def compiled(_kind, _counted, {:raised, %Mlx.Error{kind: :unsupported}, _}), do: true
    def compiled(_kind, _counted, _outcome), do: false
  end
end
