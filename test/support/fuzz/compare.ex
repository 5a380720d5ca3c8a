if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Compare do
    @moduledoc false
    # When results are the same. Between Mlx and Nx.BinaryBackend that is a matter of what is computed:
    # its class says, see `Mlx.Fuzz.Calls`. Between ways of running Mlx it is one of bits, where a NaN
    # is a NaN.

    import Bitwise

    @layouts %{
      {:f, 8} => {8, 5},
      {:f, 16} => {16, 5},
      {:bf, 16} => {16, 8},
      {:f, 32} => {32, 8},
      {:f, 64} => {64, 11}
    }

    @doc "`:ok`, or where the bits differ."
    def same_bits(a, b) do
      if length(a) != length(b) do
        "#{length(a)} results and not #{length(b)}"
      else
        a |> Enum.zip(b) |> Enum.find_value(:ok, &differ/1)
      end
    end

    defp differ({same, same}), do: nil

    defp differ({{:tensor, type, shape, names, axes, a}, {:tensor, type, shape, names, axes, b}}) do
      if a == b or ordered(a, type) == ordered(b, type),
        do: nil,
        else:
          "#{inspect(type)} #{inspect(shape)} #{inspect(few(a, type), limit: 24)} and not #{inspect(few(b, type), limit: 24)}"
    end

    defp differ({a, b}), do: "#{inspect(a, limit: 20)} and not #{inspect(b, limit: 20)}"

    defp few(binary, type), do: binary |> numbers(type) |> Enum.take(24)

    @doc "The numbers of a tensor."
    def numbers(binary, type) do
      size = div(bit_size(binary), elem(type, 1))
      %{Nx.template({size}, type) | data: %Nx.BinaryBackend{state: binary}} |> Nx.to_flat_list()
    end

    @doc """
    `:ok`, or the kind of difference and a text, for what `name` of the class `class` gave for
    `operands`.
    """
    def same(class, name, operands, got, right) do
      if length(got) != length(right) do
        {:wrong_shape, "#{length(got)} results instead of #{length(right)}"}
      else
        got |> Enum.zip(right) |> Enum.find_value(:ok, &one(class, name, operands, &1))
      end
    end

    defp one(_class, _name, _operands, {same, same}), do: nil

    defp one(class, name, operands, {{:tensor, t, s, n, v, a}, {:tensor, t, s, n, v, b}}) do
      unless close?(class, name, t, operands, a, b),
        do:
          {:wrong_value,
           "#{inspect(few(a, t), limit: 24)} instead of #{inspect(few(b, t), limit: 24)} (#{inspect(t)} #{inspect(s)})"}
    end

    defp one(
           _class,
           _name,
           _operands,
           {{:tensor, _, _, _, _, _} = a, {:tensor, _, _, _, _, _} = b}
         ),
         do: {:wrong_shape, "#{head(a)} instead of #{head(b)}"}

    defp one(_class, _name, _operands, {{:term, a}, {:term, b}}) when a == b, do: nil

    defp one(_class, _name, _operands, {a, b}),
      do: {:wrong_value, "#{inspect(a, limit: 20)} instead of #{inspect(b, limit: 20)}"}

    defp head(tensor), do: inspect(Tuple.delete_at(tensor, 5))

    defp close?(_class, _name, {kind, _}, _operands, _a, _b) when kind in [:u, :s], do: false

    defp close?(class, name, type, operands, a, b) do
      case class do
        :exact when elem(type, 0) == :c and name in [:sqrt, :divide, :multiply, :abs] ->
          not tame?(operands) or near?(a, b, type, 16)

        :exact when name == :abs ->
          not tame?(operands) or ulps?(a, b, type, 2)

        :exact ->
          ulps?(a, b, type, if(type in [{:bf, 16}, {:f, 8}, {:f8_e4m3fn, 8}], do: 1, else: 0))

        :rounded ->
          rounded?(name, type, operands, a, b)

        :sums when name in [:branches, :pair] ->
          not halves?(operands) or near?(a, b, type, 8)

        :sums ->
          not tame?(operands) or near?(a, b, type, spread(operands), least(type, operands))

        :linalg ->
          linalg?(name, type, operands, a, b)

        :term ->
          false
      end
    end

    # Nx's formulas for complex inverses take other branches than C's functions, and lose digits.
    @inverses ~w(acos acosh asin asinh atan atanh pow atan2)a
    defp rounded?(name, {:c, _} = type, operands, a, b),
      do: name in @inverses or not tame?(operands) or near?(a, b, type, 16)

    @exact_unary Mlx.Oracle.unary()
    defp rounded?(name, type, [operand], a, b) when name in @exact_unary do
      if Nx.Type.complex?(operand.type) do
        not tame?([operand]) or near?(a, b, type, 16)
      else
        right = [Nx.as_type(operand, type)] |> Mlx.Oracle.map(type, &Mlx.Oracle.unary(name, &1))
        ulps?(a, Nx.to_binary(right), type, ulps(type))
      end
    end

    defp rounded?(name, type, [l, r], a, b) when name in [:atan2, :pow] do
      shape = Nx.shape(Nx.add(Nx.devectorize(l), Nx.devectorize(r)))

      operands =
        for t <- [l, r], do: t |> Nx.devectorize() |> Nx.as_type(type) |> Nx.broadcast(shape)

      right = Mlx.Oracle.map(operands, type, &apply(Mlx.Oracle, name, [&1, &2]))
      ulps?(a, Nx.to_binary(right), type, ulps(type))
    rescue
      _vectorized_apart in [ArgumentError, ArithmeticError] -> ulps?(a, b, type, ulps(type))
    end

    # Quotients of logarithms: those of a narrow type have its precision.
    defp rounded?(name, type, operands, a, b) when name in [:log, :log2, :log10],
      do:
        not tame?(operands) or
          near?(a, b, type, 8, least(type, operands))

    defp rounded?(_name, type, _operands, a, b), do: ulps?(a, b, type, ulps(type))

    defp narrow?({kind, size}), do: kind not in [:u, :s] and size <= 16

    defp ulps({:f, 64}), do: 16
    defp ulps({:f, 32}), do: 2
    defp ulps(_narrow), do: 1

    @unique ~w(adjoint norm determinant matrix_power)a
    defp linalg?(name, type, operands, a, b),
      do:
        name not in @unique or not tame?(operands) or
          near?(a, b, type, 100 * spread(operands), least(type, operands))

    # The precision is that of the operand where it has less.
    defp least(type, operands) do
      Enum.find_value(operands, type, &if(narrow?(&1.type), do: &1.type))
    end

    ## Units in the last place

    defp ulps?(a, b, type, units) do
      Enum.zip(ordered(a, type), ordered(b, type))
      |> Enum.all?(fn
        {x, x} -> true
        {x, y} when is_integer(x) and is_integer(y) -> abs(x - y) <= units
        _ -> false
      end)
    end

    # Numbers as integers in their order, one for either zero, and NaN.
    defp ordered(binary, {:c, size}), do: ordered(binary, {:f, div(size, 2)})

    defp ordered(binary, {:f8_e4m3fn, 8}) do
      for <<bits::8 <- binary>> do
        if band(bits, 0x7F) == 0x7F, do: :nan, else: place(bits, 8)
      end
    end

    defp ordered(binary, type) when is_map_key(@layouts, type) do
      {size, exponent} = @layouts[type]
      infinity = bsl(bsl(1, exponent) - 1, size - 1 - exponent)
      magnitude = bsl(1, size - 1) - 1

      for <<bits::size(size)-native <- binary>> do
        if band(bits, magnitude) > infinity, do: :nan, else: place(bits, size)
      end
    end

    defp ordered(binary, _integer), do: binary

    defp place(bits, size) do
      sign = bsl(1, size - 1)
      if band(bits, sign) == 0, do: bits, else: -(bits - sign)
    end

    ## Sums

    @doc "Whether sums and products of the operands' numbers stay small."
    def tame?(operands) do
      Enum.all?(operands, fn t ->
        t |> Nx.to_flat_list() |> Enum.all?(&tame_number?/1)
      end)
    end

    defp tame_number?(%Complex{re: re, im: im}), do: tame_number?(re) and tame_number?(im)
    defp tame_number?(x) when is_number(x), do: x == 0 or (abs(x) <= 50 and abs(x) >= 0.01)
    defp tame_number?(_special), do: false

    # Of others the branch that is taken may depend on the last digit.
    defp halves?(operands) do
      tame?(operands) and
        Enum.all?(operands, fn t ->
          t |> Nx.to_flat_list() |> Enum.all?(&(is_number(&1) and 2 * &1 == trunc(2 * &1)))
        end)
    end

    # How many numbers are added up, at most.
    defp spread(operands), do: 8 + 2 * Enum.sum_by(operands, &Nx.size(Nx.devectorize(&1)))

    defp near?(a, b, type, units, precision \\ nil) do
      {a, b} = {numbers(a, type), numbers(b, type)}
      scale = Enum.reduce(b, 1.0, &max(size(&1), &2))
      tolerance = units * epsilon(precision || type) * scale

      Enum.zip(a, b)
      |> Enum.all?(fn
        {x, x} ->
          true

        # At poles C and Nx's formulas have infinities of their own.
        {%Complex{} = x, %Complex{} = y}
        when not (is_number(x.re) and is_number(x.im) and is_number(y.re) and is_number(y.im)) ->
          true

        {x, y} when is_number(x) and is_number(y) ->
          abs(x - y) <= tolerance

        {%Complex{} = x, %Complex{} = y} ->
          apart(x.re, y.re) <= tolerance and apart(x.im, y.im) <= tolerance

        _ ->
          false
      end)
    end

    defp apart(x, y) when is_number(x) and is_number(y), do: abs(x - y)
    defp apart(x, x), do: 0
    defp apart(_x, _y), do: 1.0e300

    defp size(%Complex{re: re, im: im}), do: max(size(re), size(im))
    defp size(x) when is_number(x), do: abs(x)
    defp size(_special), do: 0

    defp epsilon({:f, 8}), do: 0.25
    defp epsilon({:f8_e4m3fn, 8}), do: 0.125
    defp epsilon({:f, 16}), do: 1.0e-3
    defp epsilon({:bf, 16}), do: 8.0e-3
    defp epsilon({:f, 64}), do: 2.3e-16
    defp epsilon({:c, 128}), do: 1.0e-14
    defp epsilon(_single), do: 1.2e-7
  end
end
