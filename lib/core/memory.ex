defmodule Mlx.Memory do
  @moduledoc """
  The memory that MLX holds outside of the BEAM, in bytes.

  MLX has one allocator for all devices of the VM, so these numbers and limits are the whole VM's.

  Arrays are freed when the BEAM collects the last reference to them, and at once by
  `Nx.backend_deallocate/1` or `Mlx.Array.deallocate/1`. Nothing has to be done in a loop: the BEAM
  sees a few words where MLX holds megabytes, so a process that makes arrays collects its garbage
  whenever much more is held than before. MLX keeps freed buffers for reuse, up to the cache limit.

  ## Out of memory

  Arrays may hold as much as `limit/0` says, by default four fifths of the machine's memory. What goes
  beyond it, a result or something in the middle of a computation, is refused with an `Mlx.Error` of
  kind `:out_of_memory`, raised where the result is read. Everything else goes on, and the result can
  be read once there is room. On a GPU the device's own allocator refuses, when its memory is full.

  The limit is also what keeps a machine without memory from ending the VM: Linux hands out more than
  there is, and ends a process that uses it. Where a container has less memory than the machine,
  `set_limit/1` has to say so.
  """

  alias Mlx.{Native, NIF}

  @doc """
  What is held: `:active` by arrays, `:cache` for reuse, the `:peak` of active memory, and the
  `:limit` of what arrays may hold.

      iex> %{active: active, cache: _, peak: peak, limit: _} = Mlx.Memory.info()
      iex> active <= peak
      true
  """
  @spec info() :: %{
          active: non_neg_integer,
          cache: non_neg_integer,
          peak: non_neg_integer,
          limit: non_neg_integer
        }
  def info do
    {active, cache, peak, limit} = NIF.memory()
    # After a reset, MLX counts a peak only from the next allocation on.
    %{active: active, cache: cache, peak: max(peak, active), limit: limit}
  end

  @doc """
  How many bytes arrays may hold.

      iex> Mlx.Memory.limit() == Mlx.Memory.info().limit
      true
  """
  @spec limit() :: pos_integer
  def limit, do: info().limit

  @doc """
  Sets how many bytes arrays may hold and returns the limit before.

  What is held already stays, also where it is more. Raises `ArgumentError` for what is not a positive
  integer.

      iex> before = Mlx.Memory.set_limit(1_000_000_000)
      iex> Mlx.Memory.set_limit(before)
      1_000_000_000
      iex> Mlx.Memory.set_limit(0)
      ** (ArgumentError) the memory limit is a positive number of bytes, got: 0
  """
  @spec set_limit(pos_integer) :: pos_integer
  def set_limit(bytes) do
    bytes?(bytes, 1) ||
      raise ArgumentError,
            "the memory limit is a positive number of bytes, got: #{inspect(bytes)}"

    Native.answer!(NIF.memory_set_limit(bytes))
  end

  @doc """
  How many bytes MLX may keep for reuse.

  The first call waits for what is being computed.

      iex> Mlx.Memory.set_cache_limit(Mlx.Memory.cache_limit()) == Mlx.Memory.cache_limit()
      true
  """
  @spec cache_limit() :: non_neg_integer
  def cache_limit, do: Native.answer!(NIF.memory_cache_limit())

  @doc """
  Sets how many bytes MLX may keep for reuse and returns the limit before. 0 keeps nothing.

  Waits for what is being computed. Raises `ArgumentError` for what is not a non-negative integer.

      iex> before = Mlx.Memory.set_cache_limit(0)
      iex> Mlx.Memory.set_cache_limit(before)
      0
      iex> Mlx.Memory.set_cache_limit(:none)
      ** (ArgumentError) the cache limit is a number of bytes, 0 or more, got: :none
  """
  @spec set_cache_limit(non_neg_integer) :: non_neg_integer
  def set_cache_limit(bytes) do
    bytes?(bytes, 0) ||
      raise ArgumentError,
            "the cache limit is a number of bytes, 0 or more, got: #{inspect(bytes)}"

    Native.answer!(NIF.memory_set_cache_limit(bytes))
  end

  defp bytes?(bytes, least), do: is_integer(bytes) and bytes in least..0x7FFF_FFFF_FFFF_FFFF

  @doc """
  Gives what is kept for reuse back to the system. Waits for what is being computed.

      iex> Mlx.Memory.clear_cache()
      iex> Mlx.Memory.info().cache
      0
  """
  @spec clear_cache() :: :ok
  def clear_cache do
    Native.answer!(NIF.memory_clear_cache())
    :ok
  end

  @doc """
  Starts the peak anew, from what is active now.

      iex> Mlx.Memory.reset_peak()
      :ok
  """
  @spec reset_peak() :: :ok
  def reset_peak do
    Native.answer!(NIF.memory_reset_peak())
    :ok
  end
end
