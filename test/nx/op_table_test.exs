defmodule Mlx.Nx.OpTableTest do
  # Oracle: the native op table, against the source of the lowerings.
  use ExUnit.Case, async: true

  @sources Path.wildcard(Path.expand("../../lib/nx/lower/*.ex", __DIR__))
  @keywords [:axes, :do, :instructions, :lengths]
  @tables [:unary, :host, :arith, :compare]

  test "every operation that a lowering names is in the native table, with as many attributes" do
    {ops, _types} = Mlx.NIF.op_table()
    table = for {name, attributes, _} <- ops, into: %{}, do: {name, length(attributes)}
    named = @sources |> Enum.flat_map(&operations/1) |> Enum.uniq()
    assert length(named) > 80

    assert Enum.reject(named, fn {name, attributes} -> table[to_string(name)] == attributes end) ==
             []
  end

  test "the types that tensors are held in are the native ones" do
    {_ops, types} = Mlx.NIF.op_table()
    assert Enum.sort(Mlx.Type.own()) == Enum.sort(types -- [:bool])
  end

  # What stands before a list of operands, `{op, [tree]}`, and in the tables of names.
  defp operations(path) do
    {_ast, found} =
      path |> File.read!() |> Code.string_to_quoted!() |> Macro.prewalk([], &operation/2)

    found
  end

  defp operation({table, _, [names]} = ast, found) when table in @tables and is_list(names),
    do: {ast, for({_name, op} <- names, do: {op, 0}) ++ found}

  defp operation({{op, attribute}, operands}, found) when is_list(operands),
    do: {operands, tuple([op, attribute]) ++ found}

  defp operation({{:{}, _, parts}, operands}, found) when is_list(operands),
    do: {operands, tuple(parts) ++ found}

  # A node of an operation without attributes looks like a pair of a keyword list.
  defp operation({op, operands} = ast, found)
       when is_atom(op) and is_list(operands) and op not in @keywords,
       do: {ast, [{op, 0} | found]}

  defp operation(ast, found), do: {ast, found}

  defp tuple([op | attributes]) when is_atom(op), do: [{op, length(attributes)}]
  defp tuple(_parts), do: []
end
