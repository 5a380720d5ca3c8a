defmodule Bench.Compare do
  @moduledoc """
  Whether two peers have computed the same.
  """

  @doc """
  Compares results, each a type and its numbers, as a row's `:check` and `:tolerance` ask.

  A number may be off by the tolerance times itself or times the root mean square of its result,
  whichever is more.
  """
  @spec check([{String.t(), binary}], [{String.t(), binary}], atom, float) ::
          :ok | {:differs, String.t()}
  def check(_results, _expected, :nothing, _tolerance), do: :ok
  def check(same, same, _how, _tolerance), do: :ok

  def check(results, expected, _how, _tolerance) when length(results) != length(expected),
    do: {:differs, "#{length(results)} results instead of #{length(expected)}"}

  def check(results, expected, how, tolerance) do
    results
    |> Enum.zip(expected)
    |> Enum.with_index()
    |> Enum.find_value(:ok, fn {{result, expected}, i} ->
      difference = differs(seen(result, how), seen(expected, how), tolerance)
      if difference, do: {:differs, "result #{i} #{difference}"}
    end)
  end

  defp seen({type, binary}, how) do
    numbers = numbers(type, binary)

    case how do
      :values -> numbers
      :magnitudes -> Enum.map(numbers, fn x -> if is_number(x), do: abs(x), else: x end)
      :moments -> moments(numbers)
    end
  end

  defp moments(numbers) do
    count = length(numbers)
    mean = Enum.sum(numbers) / count
    squares = Enum.reduce(numbers, 0.0, fn x, sum -> sum + (x - mean) * (x - mean) end)
    [mean, :math.sqrt(squares / count)]
  end

  defp differs(numbers, expected, _tolerance) when length(numbers) != length(expected),
    do: "has #{length(numbers)} numbers instead of #{length(expected)}"

  defp differs(numbers, expected, tolerance) do
    finite = Enum.filter(expected, &is_number/1)
    squares = Enum.reduce(finite, 0.0, fn x, sum -> sum + x * x end)
    size = :math.sqrt(squares / max(length(finite), 1))

    numbers
    |> Enum.zip(expected)
    |> Enum.with_index()
    |> Enum.find_value(fn {{x, e}, i} ->
      unless close?(x, e, size, tolerance), do: off(x, e, size, i)
    end)
  end

  defp close?(x, x, _size, _tolerance), do: true

  defp close?(x, e, size, tolerance) when is_number(x) and is_number(e),
    do: abs(x - e) <= tolerance * max(abs(e), size)

  defp close?(_x, _e, _size, _tolerance), do: false

  defp off(x, e, size, i) when is_number(x) and is_number(e) do
    "is off by #{Float.round(abs(x - e) / max(abs(e), size), 6)} of #{e / 1} at #{i}"
  end

  defp off(x, e, _size, i), do: "is #{x} instead of #{e} at #{i}"

  # What is no number is an atom, as in Nx.
  defp numbers("f32", binary), do: floats(binary, 32)
  defp numbers("f64", binary), do: floats(binary, 64)
  defp numbers("s32", binary), do: for(<<x::32-signed-little <- binary>>, do: x)
  defp numbers("s64", binary), do: for(<<x::64-signed-little <- binary>>, do: x)
  defp numbers("u32", binary), do: for(<<x::32-little <- binary>>, do: x)
  defp numbers("u8", binary), do: :binary.bin_to_list(binary)

  defp floats(binary, size) do
    for <<bits::bitstring-size(size) <- binary>> do
      case bits do
        <<x::float-little-size(size)>> -> x
        _ -> no_number(bits, size)
      end
    end
  end

  defp no_number(bits, size) do
    <<bits::little-size(size)>> = bits
    fraction = if size == 32, do: 23, else: 52
    sign = Bitwise.bsr(bits, size - 1)

    cond do
      Bitwise.band(bits, Bitwise.bsl(1, fraction) - 1) != 0 -> :nan
      sign == 1 -> :neg_infinity
      true -> :infinity
    end
  end
end
