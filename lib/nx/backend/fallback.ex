defmodule Mlx.Backend.Fallback do
  @moduledoc false
  # What happens to an operation that MLX cannot do: a policy of the application's, never an
  # accident. See `Mlx.Backend`.

  require Logger

  alias Mlx.Backend, as: B
  alias Nx.Tensor, as: T

  @doc "Runs the callback `name` with Nx.BinaryBackend, or raises, as the policy says."
  def run(name, out, args, reason) do
    :telemetry.execute([:mlx, :fallback], %{}, %{op: name})

    case Application.get_env(:mlx, :fallback, :warn) do
      :silent ->
        compute(name, out, args)

      :warn ->
        warn(name, reason) && compute(name, out, args)

      :raise ->
        raise_unsupported(name, reason)

      other ->
        raise ArgumentError,
              "config :mlx, fallback: must be :silent, :warn or :raise, got: #{inspect(other)}"
    end
  end

  defp warn(name, reason) do
    Logger.warning("Nx.#{name} runs on Nx.BinaryBackend, which is slow: #{reason}")
    true
  end

  defp raise_unsupported(name, reason) do
    raise Mlx.Error,
      kind: :unsupported,
      op: to_string(name),
      message:
        "Mlx.Backend does not support it: #{reason}. Transfer its tensors with " <>
          "Nx.backend_transfer(tensor, Nx.BinaryBackend), or set config :mlx, fallback: :warn"
  end

  # The binary backend allocates on the default backend of the process, which therefore changes,
  # and expects numbers of its own from the functions it is given.
  defp compute(name, out, args) do
    device = Enum.find_value(args, &device/1)

    result =
      Nx.with_default_backend(Nx.BinaryBackend, fn ->
        apply(Nx.BinaryBackend, name, [out | Enum.map(args, &to_binary_backend/1)])
      end)

    Nx.backend_copy(result, {B, device: device})
  end

  defp device(%T{data: %B{ref: ref}}), do: Mlx.Native.device(ref)
  defp device(_arg), do: nil

  defp to_binary_backend(%T{} = t), do: Nx.backend_copy(t, Nx.BinaryBackend)

  defp to_binary_backend(fun) when is_function(fun, 2),
    do: fn element, acc -> element |> fun.(acc) |> to_binary_backend() end

  defp to_binary_backend(other), do: other
end
