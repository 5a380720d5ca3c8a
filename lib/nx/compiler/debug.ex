defmodule Mlx.Compiler.Debug do
  @moduledoc false
  # A compiled function in words, for `debug: true`.

  alias Mlx.Compiler.{Names, Trace}
  alias Mlx.Program.Builder
  alias Mlx.Source
  alias Nx.Tensor, as: T

  # What the programs of an operation are to it, and whether its operands are their inputs.
  @programs %{
    if: {["then", "else"], &tl/1},
    while: {["condition", "body"], &Function.identity/1},
    repeat: {["body"], &Function.identity/1}
  }

  @doc """
  The function's name, its inputs by the names of its arguments, a line per instruction, and what it
  returns.
  """
  @spec text(Trace.t() | :c128, Source.t() | nil, [Nx.Container.t()], Nx.Container.t()) ::
          String.t()
  def text(:c128, source, _vars, _output),
    do: "#{head(source)}\n  has complex numbers of type c128, and so is evaluated in Elixir"

  def text(%Trace{} = trace, source, vars, output) do
    arguments = source |> Source.arguments() |> Names.arguments(vars) |> List.to_tuple()
    parameters = for i <- trace.parameters, do: elem(arguments, i)
    inputs = parameters ++ Enum.map(trace.captured, &{"captured", &1})

    heads =
      for {{name, t}, slot} <- Enum.with_index(inputs),
          do: "  %#{slot} = input #{name} #{type(t)}\n"

    returned = Names.leaves(output, "")
    {outputs, hooked} = Enum.split(trace.outputs, length(returned))

    tails =
      for {slot, {name, t}} <- Enum.zip(outputs, returned),
          do: "  return #{name}#{if name != "", do: " = "}%#{slot} #{type(t)}\n"

    IO.iodata_to_binary([
      head(source),
      "\n",
      heads,
      body(trace.instructions, length(inputs), "  ", trace.effects),
      hooks(hooked, trace),
      tails
    ])
    |> String.trim_trailing()
  end

  defp head(nil), do: "A function"
  defp head(source), do: Source.format(source)

  @doc "How much there is of it, and how long that took."
  @spec summary(Trace.t(), %{atom => integer}) :: String.t()
  def summary(%Trace{} = trace, times) do
    {programs, nested} = nested_counts(trace.instructions)
    {constants, captured} = {constant_bytes(trace.instructions), trace.captured}
    held = captured |> Enum.map(&bytes/1) |> Enum.sum()

    [
      "  #{count(length(trace.instructions), "instruction")}",
      if(programs > 0, do: ", #{nested} more in #{count(programs, "nested program")}", else: ""),
      "; constants of #{count(constants, "byte")}",
      if(captured != [],
        do: ", #{count(length(captured), "captured tensor")} of #{count(held, "byte")}",
        else: ""
      ),
      "\n  traced in #{time(times.trace)}, lowered in #{time(times.lower)}, built in #{time(times.build)}"
    ]
    |> IO.iodata_to_binary()
  end

  defp nested_counts(instructions) do
    for {op, _operands} <- instructions,
        {_inputs, inner, _outputs} <- programs(op),
        reduce: {0, 0} do
      {programs, nested} ->
        {more, deeper} = nested_counts(inner)
        {programs + 1 + more, nested + length(inner) + deeper}
    end
  end

  defp constant_bytes(instructions) do
    Enum.sum_by(instructions, fn
      {{:constant, _type, bytes}, _operands} ->
        byte_size(bytes)

      {op, _operands} ->
        Enum.sum_by(programs(op), fn {_, inner, _} -> constant_bytes(inner) end)
    end)
  end

  defp count(1, noun), do: "1 #{noun}"
  defp count(number, noun), do: "#{number} #{noun}s"

  defp time(native) do
    microseconds = System.convert_time_unit(native, :native, :microsecond)
    :io_lib.format("~.1f ms", [microseconds / 1000])
  end

  ## Instructions

  defp body(instructions, first, indent, effects) do
    {lines, _next} =
      Enum.map_reduce(instructions, first, fn {op, operands}, slot ->
        count = Builder.outputs(op)
        results = Enum.to_list(slot..(slot + count - 1)//1)
        {line(op, operands, results, indent, effects), slot + count}
      end)

    lines
  end

  defp line(op, operands, results, indent, effects) do
    left = if results == [], do: "", else: "#{slots(results)} = "
    operands_text = if operands == [], do: "", else: " " <> slots(operands)
    {labels, inputs} = Map.get(@programs, name(op), {nil, fn _operands -> nil end})
    programs = programs(op)
    labels = labels || Enum.map(programs, fn _ -> "program" end)

    [
      "#{indent}#{left}#{name(op)}#{operands_text}#{attributes(op, effects)}\n",
      for(
        {program, label} <- Enum.zip(programs, labels),
        do: nested(program, label, inputs.(operands), indent, effects)
      )
    ]
  end

  defp nested({inputs, instructions, outputs}, label, operands, indent, effects) do
    within = indent <> "  "
    slots = Enum.to_list(0..(inputs - 1)//1)

    taken =
      if operands,
        do: Enum.zip_with(slots, operands, &"%#{&1} <- %#{&2}") |> Enum.join(", "),
        else: slots(slots)

    [
      "#{String.trim_trailing("#{within}#{label} #{taken}")}\n",
      body(instructions, inputs, within <> "  ", effects),
      "#{String.trim_trailing("#{within}  return #{slots(outputs)}")}\n"
    ]
  end

  defp name(op) when is_atom(op), do: op
  defp name(op), do: elem(op, 0)

  defp programs(op), do: Enum.filter(values(op), &program?/1)

  defp program?({inputs, instructions, outputs}),
    do: is_integer(inputs) and is_list(instructions) and is_list(outputs)

  defp program?(_attribute), do: false

  defp values(op) when is_atom(op), do: []
  defp values(op), do: op |> Tuple.to_list() |> tl()

  defp attributes({:constant, type, bytes}, _effects),
    do: " #{type(type, {})} #{number(bytes, type)}"

  defp attributes({check, op, _, _, _}, _effects) when check in [:check_bounds, :check_finite],
    do: " of #{op}"

  defp attributes({:check_result, op, type, shape}, _effects),
    do: " of #{op}, #{type(type, shape)}"

  defp attributes({:hook, id}, effects), do: " " <> effect(Enum.at(effects, id))

  defp attributes({:call, id, results}, effects) do
    types = Enum.map_join(results, ", ", fn {type, shape} -> type(type, shape) end)
    " #{effect(Enum.at(effects, id))} for #{types}"
  end

  defp attributes(op, _effects) do
    for attribute <- values(op), not program?(attribute), do: [" ", attribute(attribute)]
  end

  defp attribute(bytes) when is_binary(bytes), do: "0x" <> Base.encode16(bytes, case: :lower)
  defp attribute(other), do: inspect(other, charlists: :as_lists)

  defp number(bytes, type) do
    bytes
    |> Nx.from_binary(type, backend: Nx.BinaryBackend)
    |> Nx.to_flat_list()
    |> Enum.map_join(" ", &to_string/1)
  end

  # Hooks at the top level are further outputs, which the caller hands to their functions.
  defp hooks(slots, %{attended?: false, effects: effects}) do
    {lines, []} =
      Enum.map_reduce(effects, slots, fn {:hook, _callback, expr} = hook, slots ->
        {own, rest} = Enum.split(slots, length(Trace.flatten(expr)))
        {"  hook #{slots(own)} #{effect(hook)}\n", rest}
      end)

    lines
  end

  defp hooks([], _trace), do: []

  defp effect({:hook, {:named, name, _default}, _expr}), do: inspect(name)
  defp effect({:hook, {:fn, fun}, _expr}), do: Source.format(Source.entry(fun))
  defp effect({:call, fun, _expr, _template, _opts}), do: Source.format(Source.entry(fun))

  defp slots(slots), do: Enum.map_join(slots, ", ", &"%#{&1}")

  ## Types

  defp type(%T{} = t) do
    flat = Nx.devectorize(t)
    "#{type(t.type, flat.shape)}, #{count(bytes(t), "byte")}"
  end

  defp type({kind, size}, shape),
    do: "#{kind}#{size}" <> Enum.map_join(Tuple.to_list(shape), &"[#{&1}]")

  # On the device.
  defp bytes(t) do
    t = Nx.devectorize(t)
    {_kind, bits} = Mlx.Type.held!(t.type)
    Nx.size(t.shape) * div(bits, 8)
  end
end
