defmodule Mlx.Application do
  @moduledoc false
  # Starts what outlives a call: the devices' workers and, where Nx is there, the table of eager
  # programs and the compiler's cache.

  use Application

  @with_nx [Mlx.Backend.Programs, Mlx.Compiler.Cache]

  @impl true
  def start(_type, _args) do
    dispatch = Application.get_env(:mlx, :dispatch, :async)

    dispatch in [:async, :sync] ||
      raise ArgumentError,
            "config :mlx, dispatch: must be :async or :sync, got: #{inspect(dispatch)}"

    :persistent_term.put({Mlx, :dispatch}, dispatch)

    children = [Mlx.Device.Supervisor | Enum.filter(@with_nx, &Code.ensure_loaded?/1)]
    Supervisor.start_link(children, strategy: :one_for_one, name: Mlx.Supervisor)
  end
end
