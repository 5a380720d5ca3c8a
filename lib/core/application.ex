defmodule Mlx.Application do
  @moduledoc false
  # Starts what outlives a call: the devices' workers and, where Nx is there, the table of eager
  # programs and the compiler's cache.

  use Application

  @impl true
  def start(_type, _args) do
    dispatch = Application.get_env(:mlx, :dispatch, :async)

    dispatch in [:async, :sync] ||
      raise ArgumentError,
            "config :mlx, dispatch: must be :async or :sync, got: #{inspect(dispatch)}"

    :persistent_term.put({Mlx, :dispatch}, dispatch)

    # This process lives as long as the application, and the table with it.
    if Code.ensure_loaded?(Mlx.Backend.Programs), do: Mlx.Backend.Programs.init()

    children = [Mlx.Device.Supervisor | compiler_cache()]
    Supervisor.start_link(children, strategy: :one_for_one, name: Mlx.Supervisor)
  end

  defp compiler_cache do
    if Code.ensure_loaded?(Mlx.Compiler.Cache), do: [Mlx.Compiler.Cache], else: []
  end
end
