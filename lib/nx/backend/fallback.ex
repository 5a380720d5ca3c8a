defmodule Mlx.Backend.Fallback do
  @moduledoc false
  # What happens to an operation that MLX cannot do: a policy of the application's, never an
  # accident. See `Mlx.Backend`.

  require Logger

  alias Mlx.Backend, as: B
  alias Nx.Tensor, as: T

  @c128 "MLX has no complex numbers of double precision (c128, which transforms of f64 give), " <>
          "only c64"

  @doc "Whether a tensor is of the type that no array of MLX holds, or one in a list or tuple is."
  @spec c128?(term) :: boolean
  def c128?(%T{type: {:c, 128}}), do: true
  def c128?([term | terms]), do: c128?(term) or c128?(terms)
  def c128?({left, right}), do: c128?(left) or c128?(right)
  def c128?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> c128?()
  def c128?(_term), do: false

  @doc "Runs the callback `name` with Nx.BinaryBackend, or raises, as the policy says."
  @spec run(atom, Nx.Tensor.t(), [term], String.t()) :: Nx.Tensor.t()
  def run(name, out, args, reason \\ @c128) do
    permit!(name, reason)
    compute(args, fn args -> apply(Nx.BinaryBackend, name, [out | args]) end)
  end

  @doc "As `run/4`, with the default function of a block."
  @spec block(struct, [term], fun) :: Nx.Tensor.t() | tuple
  def block(%name{} = struct, args, fun) do
    permit!(name)
    compute(args, fn args -> apply(fun, [struct | args]) end)
  end

  @doc "Emits the event for `name`, and warns or raises as the policy says."
  @spec permit!(atom, String.t()) :: :ok
  def permit!(name, reason \\ @c128) do
    :telemetry.execute([:mlx, :fallback], %{}, %{op: name})

    case Application.get_env(:mlx, :fallback, :warn) do
      :silent ->
        :ok

      :warn ->
        Logger.warning("#{label(name)} runs on Nx.BinaryBackend, which is slow: #{reason}")

      :raise ->
        raise_unsupported(name, reason)

      other ->
        raise ArgumentError,
              "config :mlx, fallback: must be :silent, :warn or :raise, got: #{inspect(other)}"
    end
  end

  defp label(name) do
    case to_string(name) do
      "Elixir." <> block -> block
      name -> "Nx." <> name
    end
  end

  defp raise_unsupported(name, reason) do
    raise Mlx.Error,
      kind: :unsupported,
      op: String.replace_prefix(to_string(name), "Elixir.", ""),
      message:
        "Mlx.Backend does not support it: #{reason}. Transfer its tensors with " <>
          "Nx.backend_transfer(tensor, Nx.BinaryBackend), or set config :mlx, fallback: :warn"
  end

  # The binary backend allocates on the default backend of the process, which therefore changes,
  # and expects numbers of its own from the functions it is given.
  defp compute(args, fun) do
    device = device(args)
    args = Enum.map(args, &to_binary_backend/1)
    result = Nx.with_default_backend(Nx.BinaryBackend, fn -> fun.(args) end)
    back(result, {B, device: device})
  end

  @doc "A tensor of any backend, or a tuple of them, on `backend`, but for c128."
  def back(tuple, backend) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> Enum.map(&back(&1, backend)) |> List.to_tuple()

  def back(%T{type: {:c, 128}} = t, _backend), do: t
  def back(%T{data: %B{}} = t, _backend), do: t
  def back(t, backend), do: Nx.backend_copy(t, backend)

  # The device of the first tensor that has one.
  defp device(%T{data: %B{ref: ref}}), do: Mlx.Native.device(ref)
  defp device([_ | _] = list), do: Enum.find_value(list, &device/1)
  defp device(_arg), do: nil

  defp to_binary_backend(%T{} = t), do: Nx.backend_copy(t, Nx.BinaryBackend)
  defp to_binary_backend([_ | _] = list), do: Enum.map(list, &to_binary_backend/1)

  defp to_binary_backend(fun) when is_function(fun, 2),
    do: fn element, acc -> element |> fun.(acc) |> to_binary_backend() end

  defp to_binary_backend(other), do: other
end
