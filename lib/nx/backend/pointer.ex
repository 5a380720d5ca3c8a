defmodule Mlx.Backend.Pointer do
  @moduledoc false
  # Nx.to_pointer/2 and Nx.from_pointer/5: what a caller may get wrong is refused here, in Nx's
  # terms, before the native side reads or shares anything.

  alias Mlx.Backend, as: B
  alias Mlx.{Native, Type}
  alias Nx.Tensor, as: T

  @addresses 2 ** 64

  @doc "The callback `to_pointer`."
  def to_pointer(%T{type: type, data: %B{ref: ref}}, opts) do
    opts = Keyword.validate!(opts, mode: :local, permissions: 0o400)
    permissions = permissions!(opts[:permissions])
    plain!(type)

    case opts[:mode] do
      :local ->
        {address, size} = Native.address(ref)
        %Nx.Pointer{kind: :local, address: address, data_size: size}

      :ipc ->
        {name, size} = Native.share(ref, permissions)
        %Nx.Pointer{kind: :ipc, handle: name, data_size: size}

      other ->
        raise ArgumentError,
              "expected :mode to be :local, for an address in this process, or :ipc, for shared " <>
                "memory that other processes can open, got: #{inspect(other)}"
    end
  end

  @doc "The callback `from_pointer`, with the worker that is to have the tensor."
  def from_pointer(pointer, type, shape, worker, opts) do
    opts = Keyword.validate!(opts, [:names])
    template = Nx.template(shape, type, names: opts[:names])
    held = plain!(type)
    size!(pointer, template)
    %{template | data: %B{ref: read(pointer, worker, held, shape)}}
  end

  defp read(%Nx.Pointer{kind: :local, address: address}, worker, held, shape)
       when is_integer(address) and address >= 0 and address < @addresses,
       do: Native.from_address(worker, held, shape, address)

  defp read(%Nx.Pointer{kind: :local, address: address}, _worker, _held, _shape) do
    raise ArgumentError,
          "a pointer of kind :local needs an :address in memory, got: #{inspect(address)}"
  end

  defp read(%Nx.Pointer{kind: :ipc, handle: name}, worker, held, shape) do
    (is_binary(name) and String.valid?(name)) ||
      raise ArgumentError,
            "a pointer of kind :ipc needs the name of shared memory as its :handle, a string such " <>
              "as \"/name\", got: #{inspect(name)}"

    Native.from_shared(worker, held, shape, name)
  end

  # A pointer need not say how much it points to.
  defp size!(%Nx.Pointer{kind: kind, data_size: size}, %T{type: {_, bits}, shape: shape} = t)
       when kind in [:local, :ipc] do
    needed = div(Nx.size(t) * bits, 8)

    size in [nil, needed] ||
      raise ArgumentError,
            "a tensor of type #{Nx.Type.to_string(t.type)} and shape #{inspect(shape)} takes " <>
              "#{needed} bytes, and the pointer is to #{inspect(size)}: give the type and the " <>
              "shape of what it points to"
  end

  defp size!(other, _template) do
    raise ArgumentError,
          "expected an Nx.Pointer of kind :local or :ipc, as Nx.to_pointer/2 returns it, " <>
            "got: #{inspect(other)}"
  end

  defp permissions!(bits) when is_integer(bits) and bits in 0..0o777, do: bits

  defp permissions!(other) do
    raise ArgumentError,
          "expected :permissions to be the mode of a file without its type, 0o000 to 0o777 " <>
            "(0o400 lets the owner read, 0o444 lets everybody), got: #{inspect(other)}"
  end

  # What others read must be laid out as Nx says.
  defp plain!({_, bits} = type) do
    case Type.held!(type) do
      {_, ^bits} = held ->
        held

      _wider ->
        raise ArgumentError,
              "Mlx does not keep the type #{Nx.Type.to_string(type)} as it is laid out in Nx, so " <>
                "that there is nothing to point to: convert the tensor with Nx.as_type/2 first"
    end
  end
end
