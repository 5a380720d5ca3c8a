defmodule Mlx.Compiler.Export do
  @moduledoc false
  # A compiler whose result is the program instead of running it. Being one, it gets the traced
  # function and its parameters from Nx through the front door.

  @behaviour Nx.Defn.Compiler

  alias Mlx.Compiler.{Trace, Unsupported}
  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T

  # Each element of a captured tensor becomes an instruction.
  @max_captured 256

  @impl true
  def __jit__(_key, vars, fun, [_args], _opts) do
    params = Composite.flatten_list(vars)

    case Trace.run(fun.(vars), vars, keep: length(params)) do
      :c128 -> Unsupported.node!(:c128)
      %{hooks: [_ | _]} -> Unsupported.node!(:export)
      trace -> [program(trace, Enum.map(params, &Nx.devectorize/1))]
    end
  end

  @impl true
  def __compile__(_key, _vars, _fun, _opts), do: raise("a program is exported, not compiled")

  @impl true
  def __partitions_options__(opts), do: [opts]

  @impl true
  def __to_backend__(opts), do: Mlx.Compiler.__to_backend__(opts)

  # Captured tensors are computed by instructions of their own, ahead of all others.
  defp program(trace, params) do
    count = length(params)
    {constants, captured, next} = captured(trace.captured, count)
    captured = Map.new(Enum.with_index(captured), fn {slot, i} -> {count + i, slot} end)
    shift = next - count - map_size(captured)

    rename = fn
      slot when slot < count -> slot
      slot -> Map.get(captured, slot) || slot + shift
    end

    instructions = for {op, slots} <- trace.instructions, do: {op, Enum.map(slots, rename)}

    inputs = for %T{type: type, shape: shape} <- params, do: {Mlx.Type.held!(type), shape}
    Mlx.Program.new(inputs, constants ++ instructions, Enum.map(trace.outputs, rename))
  end

  defp captured(tensors, next) do
    {chunks, {slots, next}} =
      Enum.map_reduce(tensors, {[], next}, fn tensor, {slots, next} ->
        {instructions, slot, next} = constant(Nx.devectorize(tensor), next)
        {instructions, {[slot | slots], next}}
      end)

    {Enum.concat(chunks), Enum.reverse(slots), next}
  end

  defp constant(%T{type: type, shape: shape} = tensor, next) do
    size = Nx.size(tensor)
    held = Mlx.Type.held!(type)

    if size > @max_captured do
      raise ArgumentError,
            "cannot export a function that captures a tensor of #{size} elements, at most " <>
              "#{@max_captured} are part of a program. Pass it as an argument instead, got: " <>
              inspect(Nx.to_template(tensor))
    end

    elements =
      for element <- tensor |> Nx.to_binary() |> Mlx.Type.elements(type),
          do: {{:constant, held, element}, []}

    stack = {{:stack_axis, 0}, Enum.to_list(next..(next + size - 1)//1)}
    reshape = {{:reshape, shape}, [next + size]}
    {elements ++ [stack, reshape], next + size + 1, next + size + 2}
  end
end
