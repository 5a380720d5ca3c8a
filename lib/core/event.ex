defmodule Mlx.Event do
  @moduledoc false
  # The events of the core, which is compiled where :telemetry is not: that comes with Nx, and with
  # it `Mlx.Telemetry`, which lists them.

  if Code.ensure_loaded?(Nx.Defn) do
    @doc "Emits `[:mlx, :memory]` with what MLX holds."
    @spec memory(map) :: :ok
    def memory(metadata), do: :telemetry.execute([:mlx, :memory], Mlx.Memory.info(), metadata)
  else
    @doc "Does nothing: there is nobody to tell."
    @spec memory(map) :: :ok
    def memory(_metadata), do: :ok
  end
end
