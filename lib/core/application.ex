defmodule Mlx.Application do
  @moduledoc false
  # Starts what outlives a call: the devices' workers and, where Nx is there, the table of eager
  # programs and the compiler's cache.

  use Application

  @with_nx [Mlx.Backend.Programs, Mlx.Compiler.Cache]

  @impl true
  def start(_type, _args) do
    Mlx.Flags.configure!()
    children = [Mlx.Device.Supervisor | Enum.filter(@with_nx, &Code.ensure_loaded?/1)]
    Supervisor.start_link(children, strategy: :one_for_one, name: Mlx.Supervisor)
  end
end
