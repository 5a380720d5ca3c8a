defmodule Mlx.Compiler.Closed do
  @moduledoc false
  # Programs that need nothing but their arguments: those that are saved, and those inside of an
  # operation. The tensors that a function captured become instructions.

  alias Mlx.Compiler.Trace
  alias Nx.Tensor, as: T

  # Each element of a captured tensor becomes an instruction.
  @max_captured 256

  @doc """
  The instructions and outputs of a trace whose first `count` parameters are its inputs. Captured
  tensors are computed by instructions of their own, ahead of all others.
  """
  @spec instructions(Trace.t(), non_neg_integer) :: {list, [non_neg_integer]}
  def instructions(trace, count) do
    {constants, captured, next} = captured(trace.captured, count)
    captured = Map.new(Enum.with_index(captured), fn {slot, i} -> {count + i, slot} end)
    shift = next - count - map_size(captured)

    rename = fn
      slot when slot < count -> slot
      slot -> Map.get(captured, slot) || slot + shift
    end

    instructions = for {op, slots} <- trace.instructions, do: {op, Enum.map(slots, rename)}
    {constants ++ instructions, Enum.map(trace.outputs, rename)}
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
