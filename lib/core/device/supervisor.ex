defmodule Mlx.Device.Supervisor do
  @moduledoc false
  # One Mlx.Device.Worker per device in use, started by its first use.

  use DynamicSupervisor

  alias Mlx.Device.Worker

  def start_link(_opts), do: DynamicSupervisor.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_opts), do: DynamicSupervisor.init(strategy: :one_for_one)

  @doc "The device's native worker, started if need be."
  @spec start(Mlx.Device.t()) :: Mlx.Native.worker()
  def start(device) do
    case start_child(device) do
      {:ok, _} -> :ok
      {:error, {:already_started, pid}} -> Worker.publish(pid)
      {:error, {%{__exception__: true} = error, _stacktrace}} -> raise error
      {:error, reason} -> raise Mlx.Error, kind: :native, op: "device", message: inspect(reason)
    end

    # It may have been stopped again since.
    :persistent_term.get({Mlx.Device, device}, nil) || start(device)
  end

  # It may also be about to end.
  defp start_child(device) do
    DynamicSupervisor.start_child(__MODULE__, {Worker, device})
  catch
    :exit, _ ->
      raise Mlx.Error,
        kind: :stopped,
        message:
          "the application :mlx is not started: call Application.ensure_all_started(:mlx) first"
  end

  @doc "Stops the device's native worker, if there is one."
  @spec stop(Mlx.Device.t()) :: :ok
  def stop(device) do
    if pid = Process.whereis(Worker.name(device)), do: terminate_child(pid)

    # Its process may just be restarting after a crash; the thread is stopped all the same.
    Worker.retire(device)
  end

  # The application may end meanwhile, and stops it then.
  defp terminate_child(pid) do
    DynamicSupervisor.terminate_child(__MODULE__, pid)
  catch
    :exit, _ -> :ok
  end
end
