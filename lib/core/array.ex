defmodule Mlx.Array do
  @moduledoc """
  Arrays of MLX, for programs that do without Nx.

  With Nx, `Mlx.Backend` holds them inside tensors. An array is immutable, belongs to a device, and
  may still be to be computed: operations hand out their results at once, and reading one waits.

  Types are those of Nx: `{:u, 8..64}`, `{:s, 8..64}`, `{:f, 16 | 32 | 64}`, `{:bf, 16}` and
  `{:c, 64}`. MLX computes `{:f, 64}` on the CPU only. Shapes are tuples of at most 32 sizes.
  """

  alias Mlx.{Device, Native}

  @type type :: {:u | :s | :f | :bf | :c, 8 | 16 | 32 | 64}
  @type t :: %__MODULE__{ref: reference}

  @enforce_keys [:ref]
  defstruct [:ref]

  @doc """
  An array with a copy of `binary`, which holds the elements row by row in native byte order.

  Raises `Mlx.Error` if the size of the binary is not what type and shape take, and if the shape has
  more than 32 axes or more elements than can be addressed.

  ## Options

    * `:device` - see `Mlx.Device`; the default device if left out

  ## Examples

      iex> array = Mlx.Array.from_binary(<<1::32-native, 2::32-native>>, {:s, 32}, {2})
      iex> {Mlx.Array.type(array), Mlx.Array.shape(array)}
      {{:s, 32}, {2}}

      iex> Mlx.Array.from_binary(<<1, 2, 3>>, {:u, 8}, {2})
      ** (Mlx.Error) from_binary: a Uint8 array of shape [2] takes 2 bytes, and the binary has 3
  """
  @spec from_binary(binary, type, tuple, device: Device.t() | :gpu) :: t
  def from_binary(binary, type, shape, opts \\ [])
      when is_binary(binary) and is_tuple(type) and is_tuple(shape) do
    %__MODULE__{ref: Native.from_binary(worker(opts), type, shape, binary)}
  end

  @doc """
  The elements row by row in native byte order. Waits until they are computed.

  Large results are not copied: the binary refers to MLX's buffer, and keeps it from being freed.

  ## Options

    * `:limit` - how many elements at most; all if left out

  ## Examples

      iex> array = Mlx.Array.from_binary(<<1, 2, 3>>, {:u, 8}, {3})
      iex> Mlx.Array.to_binary(array)
      <<1, 2, 3>>
      iex> Mlx.Array.to_binary(array, limit: 2)
      <<1, 2>>
  """
  @spec to_binary(t, limit: non_neg_integer) :: binary
  def to_binary(%__MODULE__{ref: ref}, opts \\ []) do
    opts = Keyword.validate!(opts, [:limit])
    Native.to_binary(ref, opts[:limit])
  end

  @doc """
  Computes the arrays and waits.

      iex> array = Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2})
      iex> Mlx.Array.eval([array])
      :ok
  """
  @spec eval(t | [t]) :: :ok
  def eval(arrays), do: arrays |> List.wrap() |> Enum.map(& &1.ref) |> Native.eval()

  @doc """
  An array of its own with the same elements: freeing either leaves the other.

  On the device where the array is, it returns at once. To another device it waits until the
  elements are computed, and raises `Mlx.Error` if they could not be.

  ## Options

    * `:device` - where the copy is to be, see `Mlx.Device`; the default device if left out

  ## Examples

      iex> array = Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2})
      iex> copy = Mlx.Array.copy(array, device: :cpu)
      iex> Mlx.Array.deallocate(array)
      iex> {Mlx.Array.device(copy), Mlx.Array.to_binary(copy)}
      {:cpu, <<1, 2>>}
  """
  @spec copy(t, device: Device.t() | :gpu) :: t
  def copy(%__MODULE__{ref: ref}, opts \\ []),
    do: %__MODULE__{ref: Native.copy_to(ref, worker(opts))}

  @doc """
  The element type. Waits until what makes the array has run, and not until it is computed.

      iex> Mlx.Array.type(Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2}))
      {:u, 8}
  """
  @spec type(t) :: type
  def type(%__MODULE__{ref: ref}), do: ref |> Native.describe() |> elem(0)

  @doc """
  The shape. Waits like `type/1`.

      iex> Mlx.Array.shape(Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2, 1}))
      {2, 1}
  """
  @spec shape(t) :: tuple
  def shape(%__MODULE__{ref: ref}), do: ref |> Native.describe() |> elem(1)

  @doc """
  The device it is on.

      iex> Mlx.Array.device(Mlx.Array.from_binary(<<1>>, {:u, 8}, {1}, device: :cpu))
      :cpu
  """
  @spec device(t) :: Device.t()
  def device(%__MODULE__{ref: ref}), do: Native.device(ref)

  @doc """
  Frees it, once what was posted before is done. Reading it later raises.

      iex> array = Mlx.Array.from_binary(<<1>>, {:u, 8}, {1})
      iex> Mlx.Array.deallocate(array)
      :ok
      iex> Mlx.Array.deallocate(array)
      :already_deallocated
      iex> Mlx.Array.to_binary(array)
      ** (Mlx.Error) the array was deallocated
  """
  @spec deallocate(t) :: :ok | :already_deallocated
  def deallocate(%__MODULE__{ref: ref}), do: Native.deallocate(ref)

  @doc false
  def worker(opts) do
    opts = Keyword.validate!(opts, [:device])
    device = if device = opts[:device], do: Device.normalize!(device), else: Device.default()
    Device.worker(device)
  end
end
