defmodule Mlx.Type do
  @moduledoc false
  # Which of MLX's types hold the values of an Nx type, and how a number becomes the bytes of one.
  # Most types are MLX's own. The narrow ones are held one element per byte: integers below 8 bits
  # in u8 or s8, with the sign extended, and 8-bit floats as their bits in u8. Every way into the
  # native side (creation, casts, constants) passes through `held!/1`, so that the one type without
  # a place in MLX is refused in words before anything is posted.

  @type t :: Nx.Type.t()

  @own [u: 8, u: 16, u: 32, u: 64, s: 8, s: 16, s: 32, s: 64] ++
         [f: 16, bf: 16, f: 32, f: 64, c: 64]

  # The type of the arrays, and the type to compute in.
  @narrow [
    {{:u, 2}, {:u, 8}, {:u, 8}},
    {{:u, 4}, {:u, 8}, {:u, 8}},
    {{:s, 2}, {:s, 8}, {:s, 8}},
    {{:s, 4}, {:s, 8}, {:s, 8}},
    {{:f, 8}, {:u, 8}, {:f, 32}},
    {{:f8_e4m3fn, 8}, {:u, 8}, {:f, 32}}
  ]

  @refused "MLX has no complex numbers of double precision (c128). Use the type :c64, or keep the " <>
             "tensor on Nx.BinaryBackend"

  @doc "The types that are MLX's own."
  @spec own() :: [t]
  def own, do: @own

  @doc "The types that arrays hold in the bytes of another one."
  @spec narrow() :: [t]
  def narrow, do: for({type, _held, _wide} <- @narrow, do: type)

  @doc "Whether `type` is held in the bytes of another one."
  @spec narrow?(t) :: boolean
  for {type, _held, _wide} <- @narrow, do: def(narrow?(unquote(type)), do: true)
  def narrow?(_type), do: false

  @doc "Whether elements of `type` share bytes at the border."
  @spec packed?(t) :: boolean
  def packed?({_kind, size}), do: size < 8

  @doc "The type of the arrays that hold `type`. Raises `ArgumentError` for c128."
  @spec held!(t) :: t
  for type <- @own, do: def(held!(unquote(type)), do: unquote(type))
  for {type, held, _wide} <- @narrow, do: def(held!(unquote(type)), do: unquote(held))
  def held!({:c, 128}), do: raise(ArgumentError, @refused)

  @doc "The type in which values of `type` are computed."
  @spec wide(t) :: t
  for {type, _held, wide} <- @narrow, do: def(wide(unquote(type)), do: unquote(wide))
  def wide(type), do: type

  @doc "The bytes that hold one element, given as Nx's bits."
  @spec element(bitstring, t) :: binary
  def element(bits, {kind, size}) when size < 8 do
    case {kind, bits} do
      {:u, <<number::size(^size)>>} -> <<number>>
      {:s, <<number::signed-size(^size)>>} -> <<number>>
    end
  end

  def element(bits, _type), do: bits

  @doc "All elements of Nx's bits, each as `element/2` has it."
  @spec elements(bitstring, t) :: [binary]
  def elements(bits, {_kind, size} = type),
    do: for(<<bits::bitstring-size(^size) <- bits>>, do: element(bits, type))

  @doc """
  The bytes that hold one `number` of `type`, in native byte order. Integers wrap, floats overflow
  to infinity.
  """
  @spec scalar(number | Complex.t() | :nan | :infinity | :neg_infinity, t) :: binary
  def scalar(number, {kind, size} = type) when kind in [:s, :u] and is_integer(number),
    do: element(<<number::size(size)-native>>, type)

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

  def scalar(number, {:f, 8}), do: Nx.Floating.dump_f8(number)
  def scalar(number, {:f8_e4m3fn, 8}), do: Nx.Floating.dump_f8_e4m3fn(number)

  def scalar(number, {:f, size} = type) when is_number(number) do
    <<number * 1.0::float-size(size)-native>>
  rescue
    _error in [ArgumentError, ArithmeticError] ->
      if number > 0, do: Nx.Type.infinity_binary(type), else: Nx.Type.neg_infinity_binary(type)
  end
end
