defmodule Mlx.Device do
  @moduledoc """
  Where arrays are computed: the processor or a GPU.

  A device is `:cpu`, `{:gpu, index}`, or `:gpu` for the first GPU. The default is the first GPU
  where MLX can use one, else the CPU; `config :mlx, device: :cpu` or `put_default/1` chooses
  another.

  Each device in use has one worker: a native thread that owns MLX's stream and does everything
  posted to it in order. It is started by the first use of the device. Processes that are not to wait
  for each other take streams of their own, see `Mlx.Stream`.
  """

  alias Mlx.{Native, NIF}

  @type t :: :cpu | {:gpu, non_neg_integer}

  @doc """
  The default device.

      iex> Mlx.Device.default() in [:cpu, {:gpu, 0}]
      true
  """
  @spec default() :: t
  def default do
    case :persistent_term.get({__MODULE__, :default}, nil) do
      nil -> put_default(Application.get_env(:mlx, :device) || first_available())
      device -> device
    end
  end

  @doc """
  Makes `device` the default for everything made from now on, and returns it.

  Raises `ArgumentError` if it is not there.

      iex> Mlx.Device.put_default(Mlx.Device.default()) == Mlx.Device.default()
      true
  """
  @spec put_default(t | :gpu) :: t
  def put_default(device) do
    device = normalize!(device)

    available?(device) ||
      raise ArgumentError,
            "the device #{inspect(device)} is not there; MLX finds #{inspect(list())} on this machine"

    :persistent_term.put({__MODULE__, :default}, device)
    device
  end

  @doc """
  The devices that MLX can use on this machine.

      iex> :cpu in Mlx.Device.list()
      true
  """
  @spec list() :: [t]
  def list, do: [:cpu | for(index <- 0..(NIF.gpu_count() - 1)//1, do: {:gpu, index})]

  @doc """
  Whether MLX can use the device on this machine.

      iex> Mlx.Device.available?(:cpu)
      true
      iex> Mlx.Device.available?({:gpu, 1000})
      false
  """
  @spec available?(t | :gpu) :: boolean
  def available?(device) do
    case normalize!(device) do
      :cpu -> true
      {:gpu, index} -> index < NIF.gpu_count()
    end
  end

  @doc """
  The device in its full form. Raises `ArgumentError` for anything else.

      iex> Mlx.Device.normalize!(:gpu)
      {:gpu, 0}
      iex> Mlx.Device.normalize!("cpu")
      ** (ArgumentError) a device is :cpu, :gpu or {:gpu, index}, got: "cpu"
  """
  @spec normalize!(term) :: t
  def normalize!(:cpu), do: :cpu
  def normalize!(:gpu), do: {:gpu, 0}

  def normalize!({:gpu, index} = device) when is_integer(index) and index in 0..0xFFFF,
    do: device

  def normalize!(other) do
    raise ArgumentError, "a device is :cpu, :gpu or {:gpu, index}, got: #{inspect(other)}"
  end

  @doc """
  Waits until everything posted so far to where the calling process computes is computed: the
  device's worker, or the process's stream.

      iex> Mlx.Device.sync(:cpu)
      :ok
  """
  @spec sync(t | :gpu) :: :ok
  def sync(device), do: device |> normalize!() |> worker() |> Native.sync()

  @doc """
  Stops the device's worker: what is queued there fails with an `Mlx.Error` of kind `:stopped`, and
  so does reading any array of it. The next use of the device starts a new worker. Streams, and the
  arrays made on them, are workers of their own.

  For giving a device's memory back, or ending work that has run away. `:ok` also where the device
  was not in use.

      iex> Mlx.Device.stop({:gpu, 999})
      :ok
  """
  @spec stop(t | :gpu) :: :ok
  def stop(device), do: device |> normalize!() |> Mlx.Device.Supervisor.stop()

  # Where the calling process computes: on its stream, or with all others.
  @doc false
  @spec worker(t) :: Native.worker()
  def worker(device) do
    case Native.stream() do
      %{device: ^device, worker: worker} -> worker
      _ -> shared_worker(device)
    end
  end

  @doc false
  @spec shared_worker(t) :: Native.worker()
  def shared_worker(device) do
    case :persistent_term.get({__MODULE__, device}, nil) do
      nil -> Mlx.Device.Supervisor.start(device)
      worker -> worker
    end
  end

  defp first_available do
    if NIF.gpu_count() > 0, do: {:gpu, 0}, else: :cpu
  end
end
