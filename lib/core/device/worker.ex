defmodule Mlx.Device.Worker do
  @moduledoc false
  # Owns a device's native worker on the BEAM's side: publishes its handle, and stops it when told
  # to. Callers never talk to this process; they read the handle and post to the thread.

  use GenServer

  alias Mlx.{Native, NIF}

  def start_link(device), do: GenServer.start_link(__MODULE__, device, name: name(device))

  def name(:cpu), do: Mlx.Device.Worker.Cpu
  def name({:gpu, index}), do: :"Elixir.Mlx.Device.Worker.Gpu#{index}"

  @impl true
  def init(device) do
    Process.flag(:trap_exit, true)
    start(device)
    {:ok, device}
  end

  # After a crash of this process the thread is as good as before, and arrays are on it.
  defp start(device) do
    worker = :persistent_term.get({Mlx.Device, device}, nil)

    if worker == nil or NIF.worker_stopped(worker) do
      :persistent_term.put({Mlx.Device, device}, Native.start_worker(device))
    end
  end

  @doc "Has the process see to it that there is a handle, unless it is about to end."
  @spec publish(pid) :: :ok
  def publish(pid) do
    GenServer.call(pid, :publish, :infinity)
  catch
    :exit, _ -> :ok
  end

  @impl true
  def handle_call(:publish, _from, device) do
    start(device)
    {:reply, :ok, device}
  end

  @impl true
  def handle_info(_message, device), do: {:noreply, device}

  @impl true
  def terminate(_reason, device), do: retire(device)

  @doc "Stops the device's thread, if there is one, and takes its handle back."
  @spec retire(Mlx.Device.t()) :: :ok
  def retire(device) do
    if worker = :persistent_term.get({Mlx.Device, device}, nil) do
      NIF.worker_stop(worker)
      :persistent_term.erase({Mlx.Device, device})
    end

    :ok
  end
end
