defmodule Mlx.Backend.Inspect do
  @moduledoc false
  # How a tensor of the backend looks. Only as many elements as are shown are read, and a tensor
  # that cannot be read says why instead of raising: inspection happens in crash reports.

  import Inspect.Algebra

  alias Mlx.Backend, as: B
  alias Mlx.{Native, Type}
  alias Nx.Tensor, as: T

  @show_backend Application.compile_env(:mlx, :add_backend_on_inspect, true)

  @doc "The document of the tensor's elements, headed by where they are if asked to."
  def inspect(%T{data: %B{ref: ref}} = tensor, opts, show_backend? \\ @show_backend) do
    elements =
      try do
        tensor |> bytes() |> Nx.Backend.inspect(Native.to_binary(ref, limit(tensor, opts)), opts)
      rescue
        error in Mlx.Error -> Exception.message(error)
      end

    if show_backend?, do: concat([heading(ref), line(), elements]), else: elements
  end

  # Nx 0.13 takes whole bytes only, and an array has one for each integer of fewer bits.
  defp bytes(%T{type: type} = t),
    do: if(Type.packed?(type), do: %{t | type: Type.held!(type)}, else: t)

  # `Nx.Backend.inspect/3` tells a cut tensor by an element beyond the limit.
  defp limit(%T{shape: shape}, %{limit: :infinity}), do: Tuple.product(shape)
  defp limit(%T{shape: shape}, %{limit: limit}), do: min(Tuple.product(shape), limit + 1)

  defp heading(ref), do: "Mlx.Backend<#{device(ref)}, #{Native.inspect_ref(ref)}>"

  defp device(ref) do
    case Native.device(ref) do
      {kind, index} -> "#{kind}:#{index}"
      device -> device
    end
  rescue
    Mlx.Error -> "gone"
  end
end
