defmodule Mlx.Backend.Bits do
  @moduledoc false
  # Between the bits of Nx and the arrays that hold a type. They are the same but for integers below
  # 8 bits: Nx packs several into a byte, the first one highest, where an array has a byte for each.
  # The device packs and unpacks them, and only the end of the last byte is cut off here.

  import Mlx.Lower.Tree

  alias Mlx.Backend.Programs
  alias Mlx.{Error, Native, Type}
  alias Mlx.Lower.Create
  alias Mlx.Program.Builder

  @byte {:u, 8}

  @doc "The array of a tensor of `type` and `shape` with the elements in `bits`, a copy."
  @spec write(Mlx.NIF.worker(), Nx.Type.t(), tuple, bitstring) :: reference
  def write(worker, type, shape, bits) do
    if Type.packed?(type) do
      check_size(bits, type, shape)
      bytes = <<bits::bitstring, 0::size(rem(8 - rem(bit_size(bits), 8), 8))>>
      array = Native.from_binary(worker, @byte, {byte_size(bytes)}, bytes)
      run({:unpack, type, shape}, unpack(%{data: 0}, type, shape, byte_size(bytes)), array)
    else
      Native.from_binary(worker, Type.held!(type), shape, bits)
    end
  end

  @doc "The first `limit` elements. Waits."
  @spec read(reference, Nx.Type.t(), tuple, non_neg_integer) :: bitstring
  def read(array, {_kind, size} = type, shape, limit) do
    if Type.packed?(type) and limit > 0 do
      packed = run({:pack, type, shape, limit}, pack(%{data: 0}, type, shape, limit), array)
      <<bits::bitstring-size(^limit * ^size), _::bitstring>> = Native.to_binary(packed)
      bits
    else
      Native.to_binary(array, limit)
    end
  end

  defp check_size(bits, {_kind, size} = type, shape) do
    wanted = Tuple.product(shape) * size

    if bit_size(bits) != wanted do
      raise Error,
        kind: :invalid_argument,
        op: "from_binary",
        message:
          "a #{Nx.Type.to_string(type)} tensor of shape #{inspect(shape)} takes #{wanted} bits, " <>
            "and the binary has #{bit_size(bits)}"
    end
  end

  defp unpack(bytes, {kind, size}, shape, count) do
    per_byte = div(8, size)
    shifted = {:right_shift, [reshape(bytes, {count, 1}), amounts(size)]}

    # What was above an element is shifted out at the top; what was below it, at the bottom.
    elements =
      if kind == :s,
        do: sign_extended(shifted, size),
        else: {:bitwise_and, [shifted, const(2 ** size - 1, @byte)]}

    elements
    |> reshape({count * per_byte})
    |> slice({count * per_byte}, [0], [Tuple.product(shape)])
    |> reshape(shape)
  end

  defp sign_extended(bytes, size) do
    top = {:left_shift, [bytes, const(8 - size, @byte)]}
    {:right_shift, [{{:view, {:s, 8}}, [top]}, const(8 - size, {:s, 8})]}
  end

  defp pack(array, {kind, size}, shape, limit) do
    per_byte = div(8, size)
    count = div(limit + per_byte - 1, per_byte)
    total = Tuple.product(shape)
    bytes = if kind == :s, do: {{:view, @byte}, [array]}, else: array

    {first, _} =
      bytes
      |> reshape({total})
      |> slice({total}, [0], [limit])
      |> pad({limit}, [{0, count * per_byte - limit, 0}], const(0, @byte))

    rows = reshape(first, {count, per_byte})

    # Every place in a byte is an array of its own: MLX is slow to reduce so short an axis.
    0..(per_byte - 1)
    |> Enum.map(fn place ->
      column = slice_axis(rows, {count, per_byte}, 1, place, place + 1)
      masked = {:bitwise_and, [column, const(2 ** size - 1, @byte)]}
      {:left_shift, [masked, const((per_byte - 1 - place) * size, @byte)]}
    end)
    |> Enum.reduce(&{:bitwise_or, [&2, &1]})
    |> reshape({count})
  end

  # How far each element of a byte is from its lowest bit.
  defp amounts(size),
    do: {:multiply, [{{:flip, [0]}, [Create.arange(div(8, size), @byte)]}, const(size, @byte)]}

  defp run(key, tree, array) do
    case Programs.lookup(key) do
      nil ->
        {slot, builder} = Builder.add(Builder.new(1), tree)
        hd(Programs.run(key, Builder.instructions(builder), [slot], [array], nil, nil))

      program ->
        hd(Native.run_program(program, [array]))
    end
  end
end
