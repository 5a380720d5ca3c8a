defmodule Mlx.Type do
  @moduledoc false
  # Which Nx types the arrays of MLX can hold, and how a number becomes the bytes of such a type.
  # Every way into the native side (creation, casts, constants) passes through `held!/1`, so that
  # a type that MLX lacks is refused in words before anything is posted.

  @type t :: Nx.Type.t()

  @held [u: 8, u: 16, u: 32, u: 64, s: 8, s: 16, s: 32, s: 64] ++
          [f: 16, bf: 16, f: 32, f: 64, c: 64]

  # The type to use instead, per refused type.
  @refused [
    {{:u, 2}, "MLX has no integers below 8 bits", :u8},
    {{:u, 4}, "MLX has no integers below 8 bits", :u8},
    {{:s, 2}, "MLX has no integers below 8 bits", :s8},
    {{:s, 4}, "MLX has no integers below 8 bits", :s8},
    {{:f, 8}, "MLX has no 8-bit floats", :bf16},
    {{:f8_e4m3fn, 8}, "MLX has no 8-bit floats", :bf16},
    {{:c, 128}, "MLX has no complex numbers of double precision", :c64}
  ]

  @doc "The types that arrays hold as they are."
  @spec held() :: [t]
  def held, do: @held

  @doc "Whether arrays can hold values of `type`."
  @spec held?(t) :: boolean
  for type <- @held, do: def(held?(unquote(type)), do: true)
  def held?(_type), do: false

  @doc "Returns `type` when arrays can hold it, raises `ArgumentError` otherwise."
  @spec held!(t) :: t
  for type <- @held, do: def(held!(unquote(type)), do: unquote(type))

  for {type, reason, instead} <- @refused do
    message =
      "Mlx does not support the type #{Nx.Type.to_string(type)} yet: #{reason}. Use the type " <>
        "#{inspect(instead)}, or keep the tensor on Nx.BinaryBackend"

    def held!(unquote(Macro.escape(type))), do: raise(ArgumentError, unquote(message))
  end

  @doc """
  The bytes of one `number` of `type`, in native byte order. Integers wrap, floats overflow to
  infinity.
  """
  @spec scalar(number | Complex.t() | :nan | :infinity | :neg_infinity, t) :: binary
  def scalar(number, {kind, size}) when kind in [:s, :u] and is_integer(number),
    do: <<number::size(size)-native>>

  def scalar(number, {kind, _} = type) when kind in [:s, :u] and is_float(number),
    do: scalar(trunc(number), type)

  def scalar(number, {kind, _} = type) when kind in [:s, :u] do
    raise ArgumentError,
          "cannot make a constant of type #{Nx.Type.to_string(type)} from #{inspect(number)}"
  end

  def scalar(%Complex{re: re, im: im}, {:c, 64}),
    do: scalar(re, {:f, 32}) <> scalar(im, {:f, 32})

  def scalar(number, {:c, 64}), do: scalar(number, {:f, 32}) <> <<0::32>>
  def scalar(:nan, type), do: Nx.Type.nan_binary(type)
  def scalar(:infinity, type), do: Nx.Type.infinity_binary(type)
  def scalar(:neg_infinity, type), do: Nx.Type.neg_infinity_binary(type)

  # Nx keeps the upper half of the f32 when it makes bf16 from numbers: a scalar must equal the
  # element of a list.
  def scalar(number, {:bf, 16}) do
    case scalar(number, {:f, 32}) do
      <<bits::32-native>> -> <<Bitwise.bsr(bits, 16)::16-native>>
    end
  end

  def scalar(number, {:f, size} = type) when is_number(number) do
    <<number * 1.0::float-size(size)-native>>
  rescue
    _error in [ArgumentError, ArithmeticError] ->
      if number > 0, do: Nx.Type.infinity_binary(type), else: Nx.Type.neg_infinity_binary(type)
  end
end
