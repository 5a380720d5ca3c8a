defmodule Mlx.Compiler.ZooTest do
  @moduledoc """
  Every operation and block of Nx, compiled. Oracle: the same operation on `Mlx.Backend`, bit for
  bit.
  """
  use Mlx.NxCase, async: true

  alias Mlx.Zoo

  setup_all do
    Mlx.Generators.seed(1)
    %{table: Zoo.table()}
  end

  test "the table has every callback that computes, and every block of Nx", %{table: table} do
    {:ok, modules} = :application.get_key(:nx, :modules)

    blocks =
      for module <- modules,
          match?(["Nx", "Block" | _], Module.split(module)),
          Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0),
          do: module

    callbacks = Keyword.keys(Nx.Backend.behaviour_info(:callbacks)) -- Mlx.Lower.not_computing()
    names = for {name, [_ | _]} <- table, do: name
    assert length(callbacks) == 104
    assert Enum.sort(names) == Enum.sort(callbacks ++ blocks)
  end

  for {name, _samples} <- Mlx.Generators.seed(1) && Zoo.table() do
    test "#{inspect(name)}", %{table: table} do
      name = unquote(name)
      {^name, samples} = List.keyfind(table, name, 0)
      for {fun, args} <- samples, do: assert_compiled(name, fun, Enum.map(args, &mlx/1))
    end
  end

  defp assert_compiled(name, fun, args) do
    expr = apply(Nx.Defn.debug_expr(fun), args)
    assert name in Zoo.ops(expr), "#{inspect(name)} is not in #{inspect(expr)}"
    both(args, fun)
  end
end
