defmodule Mlx.Memory do
  @moduledoc """
  The memory that MLX holds outside of the BEAM, in bytes.

  Arrays are freed when the BEAM collects the last reference to them, and at once by
  `Nx.backend_deallocate/1` or `Mlx.Array.deallocate/1`. MLX keeps freed buffers for reuse, up to
  the cache limit.
  """

  alias Mlx.{Native, NIF}

  @doc """
  What is held: `:active` by arrays, `:cache` for reuse, the `:peak` of active memory, and the
  `:limit` beyond which a single array is refused.

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
  Sets the memory limit in bytes and returns the one before.

  An array larger than the limit is refused with an `Mlx.Error` of kind `:out_of_memory`.

      iex> before = Mlx.Memory.set_limit(1_000_000_000)
      iex> Mlx.Memory.set_limit(before)
      1_000_000_000
  """
  @spec set_limit(pos_integer) :: pos_integer
  def set_limit(bytes) when is_integer(bytes) and bytes > 0,
    do: Native.answer!(NIF.memory_set_limit(bytes))

  @doc """
  Sets how many bytes MLX may keep for reuse and returns the limit before. 0 keeps nothing.

      iex> before = Mlx.Memory.set_cache_limit(0)
      iex> Mlx.Memory.set_cache_limit(before)
      0
  """
  @spec set_cache_limit(non_neg_integer) :: non_neg_integer
  def set_cache_limit(bytes) when is_integer(bytes) and bytes >= 0,
    do: Native.answer!(NIF.memory_set_cache_limit(bytes))

  @doc """
  Gives what is kept for reuse back to the system.

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
