defmodule Mlx.Backend.CoverageTest do
  # Every callback of Nx.Backend and every block of Nx has a property. The names are read off the
  # sources beside this one; a property that does not come to its callback fails by itself.
  use ExUnit.Case, async: true

  @sources Path.wildcard(Path.join(__DIR__, "*_test.exs"))

  # They take no values, but options and addresses: see backend_test.exs and pointer_test.exs.
  @without_values [:init, :from_pointer, :to_pointer]

  test "every callback has a property" do
    callbacks = Keyword.keys(Nx.Backend.behaviour_info(:callbacks)) -- @without_values
    # A block's property names its struct.
    assert Enum.sort(callbacks -- [:block]) == Enum.sort(names() -- blocks())
  end

  test "every block has a property" do
    assert blocks() -- names() == []
    assert length(blocks()) >= 21
  end

  defp names, do: @sources |> Enum.flat_map(&properties/1) |> Enum.uniq()

  defp properties(path) do
    {_ast, found} =
      path |> File.read!() |> Code.string_to_quoted!() |> Macro.prewalk([], &property/2)

    found
  end

  defp property({:property, _, [names, text | _]} = ast, found) when is_binary(text),
    do: {ast, names(names) ++ found}

  defp property(ast, found), do: {ast, found}

  defp names({:sigil_w, _, [{:<<>>, _, [names]}, ~c"a"]}),
    do: names |> String.split() |> Enum.map(&String.to_existing_atom/1)

  defp names(names), do: names |> List.wrap() |> Enum.map(&name/1)

  defp name({:__aliases__, _, parts}), do: Module.concat(parts)
  defp name(name) when is_atom(name), do: name

  defp blocks do
    {:ok, modules} = :application.get_key(:nx, :modules)

    for module <- modules,
        match?(["Nx", "Block" | _], Module.split(module)),
        Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0),
        do: module
  end
end
