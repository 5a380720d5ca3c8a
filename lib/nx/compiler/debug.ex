defmodule Mlx.Compiler.Debug do
  @moduledoc false
  # A compiled function in words, for `debug: true`.

  alias Mlx.Compiler.Trace
  alias Mlx.Program.Builder

  @doc "The program of a trace, a line per instruction."
  @spec text(Trace.t(), [{Nx.Type.t(), tuple}]) :: String.t()
  def text(%Trace{} = trace, inputs) do
    heads =
      for {{type, shape}, slot} <- Enum.with_index(inputs),
          do: "  %#{slot} = input #{type(type, shape)}\n"

    IO.iodata_to_binary([
      heads,
      body(trace.instructions, length(inputs), "  "),
      "  return #{slots(trace.outputs)}\n"
    ])
  end

  defp body(instructions, first, indent) do
    {lines, _next} =
      Enum.map_reduce(instructions, first, fn {op, operands}, slot ->
        count = Builder.outputs(op)
        {line(op, operands, Enum.to_list(slot..(slot + count - 1)//1), indent), slot + count}
      end)

    lines
  end

  defp line(op, operands, results, indent) do
    {name, attributes} = parts(op)

    {programs, plain} =
      Enum.split_with(attributes, &match?({n, list, _} when is_integer(n) and is_list(list), &1))

    left = if results == [], do: "", else: "#{slots(results)} = "
    right = Enum.map_join(plain, fn attribute -> " " <> attribute(attribute) end)
    operands = if operands == [], do: "", else: " " <> slots(operands)

    [
      "#{indent}#{left}#{name}#{operands}#{right}\n"
      | for(
          {inputs, instructions, outputs} <- programs,
          do: nested(inputs, instructions, outputs, indent)
        )
    ]
  end

  defp nested(inputs, instructions, outputs, indent) do
    within = indent <> "  "

    [
      "#{within}program #{slots(Enum.to_list(0..(inputs - 1)//1))}\n",
      body(instructions, inputs, within <> "  "),
      "#{within}  return #{slots(outputs)}\n"
    ]
  end

  defp parts(op) when is_atom(op), do: {op, []}
  defp parts(op), do: {elem(op, 0), op |> Tuple.to_list() |> tl()}

  defp attribute(bytes) when is_binary(bytes), do: "0x" <> Base.encode16(bytes, case: :lower)
  defp attribute(other), do: inspect(other, charlists: :as_lists)

  defp type({kind, size}, shape),
    do: "#{kind}#{size}" <> Enum.map_join(Tuple.to_list(shape), &"[#{&1}]")

  defp slots(slots), do: Enum.map_join(slots, ", ", &"%#{&1}")
end
