if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Exceptions do
    @moduledoc false
    # Where Mlx and Nx.BinaryBackend differ and Mlx is right, or means to: a clause per reason. What
    # is documented for users stands in `Mlx.Backend`.

    import Mlx.Fuzz.Compare, only: [tame?: 1]

    @doc "Why the outcome of `step` for `operands` is none that is wrong, or `nil`."
    def reason(kind, step, operands, outcome, expected) do
      because(kind, step, operands, outcome, expected) || values(kind, operands, outcome)
    end

    defp because(
           _kind,
           _step,
           _operands,
           {:raised, %Mlx.Error{kind: :unsupported}, _},
           _expected
         ),
         do: "c128, where config :mlx, fallback: :raise"

    # `clip`, `gather`, `put_slice`, `slice` and the functions built on them.
    defp because(
           _kind,
           _step,
           _operands,
           {:raised, %FunctionClauseError{module: Nx.BinaryBackend}, _},
           _
         ),
         do: "Nx asks the first tensor's backend, which does not know the others'"

    defp because(:wrong_value, %{name: name}, operands, _, _)
         when name in [:select, :all, :any, :logical_and, :logical_or, :logical_xor, :logical_not] do
      if Enum.any?(operands, &Nx.Type.complex?(&1.type)),
        do: "Nx.BinaryBackend takes a complex zero for true"
    end

    defp because(:wrong_value, %{name: name}, operands, _, _)
         when name in [:window_scatter_max, :window_scatter_min] do
      if Enum.any?(operands, &(large?(&1) or special?(&1) or &1.type == {:f, 64})),
        do: "Nx.BinaryBackend compares and adds window_scatter's numbers as s32 or f32"
    end

    defp because(:wrong_value, %{name: :text}, [%{type: {_, size}}], _, _) when size < 8,
      do: "Nx cannot inspect integers below 8 bits of Nx.BinaryBackend"

    defp because(:wrong_shape, %{name: name}, [%{type: {kind, _}}], _, _)
         when name in [:svd, :eigh] and kind in [:s, :u],
         do: "Nx announces floats for decompositions of integers, and answers with integers"

    defp because(:wrong_value, %{name: :window_reduce}, [%{type: type} | _] = operands, _, _) do
      if type not in [{:s, 32}, {:f, 32}] or Enum.any?(operands, &large?/1),
        do: "Nx.BinaryBackend hands numbers to a window's function, which become s32 or f32"
    end

    defp because(:wrong_shape, %{name: :eigh}, [%{type: {:c, _}}], _, _),
      do: "Nx announces complex eigenvalues, and answers with real ones"

    defp because(:wrong_shape, %{name: name}, [%{type: {kind, size}}], _, _)
         when name in [:irfft, :cholesky] and size <= 16 and kind not in [:s, :u],
         do: "Nx announces the operand's type, and answers with f32"

    defp because(:wrong_shape, %{name: name}, [%{names: [_ | _] = names} | _], _, _)
         when name in [:indexed_add, :indexed_put] do
      if Enum.any?(names), do: "Nx.BinaryBackend answers with the names in the order of its loops"
    end

    defp because(:wrong_value, %{name: name}, [t | _], _, _)
         when name in [:indexed_add, :indexed_put] do
      if t.vectorized_axes != [], do: "Nx.BinaryBackend adds an update of several elements to one"
    end

    defp because(:raised, %{name: name}, _, {:raised, %{message: "negative padding" <> _}, _}, _)
         when name in [:pad, :pad_outer],
         do: "Nx.BinaryBackend answers with a tensor without elements, which Nx does not have"

    defp because(_kind, %{name: name, args: [_, opts]}, [%{vectorized_axes: [_ | _]}], _, _)
         when name in [:argmax, :argmin] do
      if opts[:keep_axis] && opts[:axis] == nil,
        do: "Nx names another axis than the one it announces"
    end

    defp because(:did_not_raise, %{module: Nx.LinAlg, name: name}, _, _, _)
         when name != :triangular_solve,
         do:
           "Nx's own function of linear algebra raises for types and shapes that Nx lets through"

    defp because(:wrong_value, %{name: name, args: [_ | opts]}, [%{shape: shape} = t], _, _)
         when name in [:fft, :ifft, :rfft, :irfft] do
      opts = List.first(opts) || []
      rank = tuple_size(shape) + length(t.vectorized_axes)

      if rank > 2 and opts[:axis] not in [nil, -1],
        do: "Nx.BinaryBackend puts the results of transforms along inner axes elsewhere"
    end

    defp because(:wrong_value, %{name: name}, operands, _, _) when name in [:equal, :not_equal] do
      if Enum.any?(operands, &Nx.Type.complex?(&1.type)) and not tame?(operands),
        do: "Nx.BinaryBackend compares complex numbers as structs, to which NaN is NaN"
    end

    defp because(:wrong_value, %{name: name, args: args}, operands, _, _)
         when name in [:phase, :atan2] do
      if not tame?(operands) or Enum.any?(args, &is_atom/1),
        do: "Nx.BinaryBackend loses signs at infinity"
    end

    defp because(:wrong_shape, %{name: name}, _, _, _) when name in [:pad, :pad_outer],
      do: "Nx.BinaryBackend pads in the tensor's type and not in the merged one"

    defp because(:wrong_value, %{name: name}, [t | _], _, _) when name in [:sign, :clip] do
      cond do
        special?(t) ->
          "NaN: see Mlx.Backend"

        Nx.Type.complex?(t.type) ->
          "the sign of a complex number: Nx.BinaryBackend compares structs"

        t.type == {:u, 64} and large?(t) ->
          "numbers of u64 beyond the merged type, s64"

        true ->
          nil
      end
    end

    defp because(
           :raised,
           %{module: Nx.LinAlg},
           _,
           {:raised, %ArgumentError{message: "cholesky needs" <> _}, _},
           _
         ),
         do: "Nx lets singular matrices and special values through"

    defp because(:raised, %{module: Nx.LinAlg, name: name}, operands, {:raised, error, _}, _) do
      if match?(%ArgumentError{message: "can't solve" <> _}, error) and
           (name != :triangular_solve or not tame?(operands)),
         do: "a matrix that is singular but for what rounding leaves"
    end

    defp because(
           :raised,
           _,
           _,
           {:raised, %Mlx.Error{message: "instruction 0 is not" <> _}, _},
           _
         ),
         do: "a number of more than 32 bits among sizes and strides"

    defp because(:wrong_value, %{name: name}, [%{type: {:c, _}} = t | _], _, _)
         when name in [:sqrt, :rsqrt, :log, :log1p, :log2, :log10] do
      if t |> Nx.to_flat_list() |> Enum.any?(&(&1.im == 0)),
        do: "complex functions at their cut, where C goes by the sign of the zero"
    end

    defp because(:wrong_value, %{name: name}, [%{type: {:c, _}} | _], _, _)
         when name in [:standard_deviation, :variance, :covariance],
         do: "squares of complex numbers cancel, and roots of what is left are at their cut"

    defp because(:wrong_value, %{name: name}, [%{type: {_, 16}} | _], _, _)
         when name in [:repeat, :steps],
         do: "exp of exp of half precision"

    defp because(:wrong_value, %{name: name}, [%{type: {:c, _}} | _], _, _)
         when name in [:repeat, :steps],
         do: "complex functions at their cut, where C goes by the sign of the zero"

    defp because(:wrong_value, %{name: :divide, args: args}, operands, _, _) do
      if not tame?(operands) or Enum.any?(args, &is_atom/1),
        do: "Nx.BinaryBackend loses the sign of what infinity or a zero divides"
    end

    # Zero times what overflows is NaN, and stays so; what is zero before does not overflow.
    defp because(:wrong_value, %{name: :cumulative_product}, [%{type: {_, 16}} = t], _, _) do
      if Nx.size(t) > 100, do: "products in another order, of which some overflow"
    end

    defp because(:wrong_value, %{name: :lu}, [t], {:ok, {p, l, u}, _}, _) do
      product = p |> Nx.dot(l) |> Nx.dot(u)

      if Nx.to_number(Nx.all_close(product, t, rtol: 1.0e-2)) == 1,
        do: "rows whose pivots are equal, but for what rounding leaves"
    end

    # It becomes the greatest number, or NaN.
    defp because(:wrong_value, %{args: args}, [%{type: {:f8_e4m3fn, 8}} | _], _, _) do
      if Enum.any?(args, &(&1 in [:infinity, :neg_infinity])), do: "f8_e4m3fn has no infinity"
    end

    defp because(:raised, %{name: name}, operands, {:raised, %Mlx.Error{op: "from_binary"}, _}, _)
         when name in [:pad, :pad_outer] do
      if Enum.any?(operands, &(&1.type == {:c, 128})),
        do: "Nx.BinaryBackend pads in the tensor's type and not in the merged one"
    end

    defp because(:did_not_raise, _, _, _, {:raised, %{message: "cannot merge name" <> _}, _}),
      do: "a name that Nx lets through and then does not merge with itself"

    defp because(
           :raised,
           _,
           _,
           {:raised, %ArgumentError{message: "strides and dilations" <> _}, _},
           _
         ),
         do: "Nx lets strides and dilations below 1 through"

    defp because(
           :did_not_raise,
           %{name: :irfft},
           _,
           _,
           {:raised, %ArgumentError{message: "length at axis" <> _}, _}
         ),
         do: "Nx cannot make a single number, of which there is nothing to mirror"

    defp because(_kind, _step, _operands, _outcome, _expected), do: nil

    # Of any operation.
    defp values(:wrong_value, [_ | _] = operands, {:ok, _, [{:tensor, type, _, _, _, _} | _]}) do
      cond do
        Enum.any?(operands, &subnormal_f8?/1) ->
          "Nx reads subnormal f8 numbers wrongly"

        type == {:s, 64} and Enum.any?(operands, &(&1.type == {:u, 64} and large?(&1))) ->
          "numbers of u64 beyond the merged type, s64"

        Enum.any?(operands, &wide?/1) and Nx.Type.float?(type) ->
          "integers that the merged type, a float, does not hold"

        true ->
          nil
      end
    end

    defp values(_kind, _operands, _outcome), do: nil

    defp large?(t),
      do: t |> Nx.to_flat_list() |> Enum.any?(&(is_integer(&1) and abs(&1) >= 2 ** 31))

    # Half precision holds integers of 11 bits, and single of 24.
    defp wide?(%{type: {kind, size}} = t) when kind in [:u, :s] and size >= 16,
      do: t |> Nx.to_flat_list() |> Enum.any?(&(abs(&1) > 2 ** 11))

    defp wide?(_t), do: false

    defp subnormal_f8?(%{type: {:f, 8}} = t),
      do: Enum.any?(for(<<_sign::1, rest::7 <- Nx.to_binary(t)>>, do: rest in 1..3))

    defp subnormal_f8?(_t), do: false

    defp special?(t), do: t |> Nx.to_flat_list() |> Enum.any?(&is_atom/1)

    @doc "Whether the outcome of a compiled chain is none that is wrong."
    def compiled(_kind, _counted, {:raised, %Mlx.Error{kind: :unsupported}, _}), do: true
    def compiled(_kind, _counted, _outcome), do: false
  end
end
