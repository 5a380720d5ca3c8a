defmodule Mlx.Stream do
  @moduledoc """
  Streams: work of a device that does not wait for other work of it.

  A device has one worker that everybody shares, and does what is posted to it in order. A process
  that is not to wait behind the others takes a stream, which has a worker of its own:

      stream = Mlx.Stream.new()
      Mlx.Stream.put_default(stream)

  What the process makes from then on is made on its stream, and what it computes is computed there,
  eagerly or by `Mlx.Compiler`, if it is on the stream's device. `with_default/2` does so for the
  time of a function, and the option `:stream` of `Mlx.Compiler` for a compiled function. Other
  processes, those that it starts among them, keep theirs.

  ## Crossing streams

  An array may be used by any stream of its device, such as weights that many processes share. It is
  not copied. Where it is not computed yet, the operation that brings it across waits until it is,
  and raises `Mlx.Error` if it could not be. What other streams compute is not waited for, so order
  that two processes need is theirs to make: by handing over tensors.

  ## The end of a stream

  There is nothing to close. A stream lives as long as anything refers to it, be it a process, an
  array that was made on it, or work that is still to be done. Its thread then serves the next stream
  that is made, so short-lived ones are cheap. At most 512 of a device exist at a time.

  On a CPU each stream computes on one core, but for large matrix products and large elementwise
  operations of compiled functions. More streams than cores take turns.
  """

  alias Mlx.{Device, Native}

  @type t :: %__MODULE__{worker: reference, device: Device.t()}

  @enforce_keys [:worker, :device]
  defstruct [:worker, :device]

  @doc """
  A stream of the device, the default one if left out.

  Raises `ArgumentError` for what is not a device, and `Mlx.Error` if the device is not there or 512
  streams are in use.

      iex> Mlx.Stream.new(:cpu).device
      :cpu
  """
  @spec new(Device.t() | :gpu) :: t
  def new(device \\ Device.default()) do
    device = Device.normalize!(device)
    %__MODULE__{worker: start(device), device: device}
  end

  # Streams that nobody refers to any more are gone once that was noticed.
  defp start(device) do
    Native.start_worker(device)
  rescue
    error in Mlx.Error ->
      if error.op != "stream", do: reraise(error, __STACKTRACE__)
      Enum.each(Process.list(), &:erlang.garbage_collect/1)
      Native.start_worker(device)
  end

  @doc """
  Gives the calling process a stream, or takes it away with `nil`. Returns the one before.

      iex> stream = Mlx.Stream.new(:cpu)
      iex> Mlx.Stream.put_default(stream)
      nil
      iex> Mlx.Stream.put_default(nil) == stream
      true
  """
  @spec put_default(t | nil) :: t | nil
  def put_default(nil), do: Native.put_stream(nil)
  def put_default(%__MODULE__{} = stream), do: Native.put_stream(stream)

  @doc """
  The stream of the calling process, or `nil` where it uses the devices' own workers.

      iex> Mlx.Stream.default()
      nil
  """
  @spec default() :: t | nil
  defdelegate default(), to: Native, as: :stream

  @doc """
  Calls the function while the calling process has this stream.

      iex> Mlx.Stream.with_default(Mlx.Stream.new(:cpu), fn -> Mlx.Stream.default().device end)
      :cpu
      iex> Mlx.Stream.default()
      nil
  """
  @spec with_default(t, (-> result)) :: result when result: var
  def with_default(%__MODULE__{} = stream, fun) when is_function(fun, 0) do
    before = put_default(stream)

    try do
      fun.()
    after
      put_default(before)
    end
  end

  @doc """
  Waits until everything posted to the stream so far is computed.

      iex> Mlx.Stream.sync(Mlx.Stream.new(:cpu))
      :ok
  """
  @spec sync(t) :: :ok
  def sync(%__MODULE__{worker: worker}), do: Native.sync(worker)
end

defimpl Inspect, for: Mlx.Stream do
  def inspect(stream, _opts),
    do: "#Mlx.Stream<#{Kernel.inspect(stream.device)}, #{Mlx.Native.inspect_ref(stream.worker)}>"
end
