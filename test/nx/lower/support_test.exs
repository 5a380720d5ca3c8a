defmodule Mlx.Lower.SupportTest do
  # Oracle: the callbacks and blocks of the loaded Nx, and the op table's host kernels.
  use ExUnit.Case, async: true

  alias Mlx.Lower.Support

  test "every computing callback stands in the table, once" do
    callbacks = Keyword.keys(Nx.Backend.behaviour_info(:callbacks)) -- Mlx.Lower.not_computing()
    assert Enum.sort(Keyword.keys(Mlx.Lower.table())) == Enum.sort(callbacks)

    for name <- callbacks do
      assert Support.markdown() |> String.split("`#{name}`") |> length() == 2
    end
  end

  test "every block stands in the table" do
    named =
      for {name, _status} <- Support.blocks(), into: MapSet.new(), do: hd(String.split(name))

    {:ok, modules} = :application.get_key(:nx, :modules)

    blocks =
      for module <- modules,
          ["Nx", "Block" | rest] when rest != [] <- [Module.split(module)],
          Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0),
          do: Enum.join(rest, ".")

    assert length(blocks) == 21
    assert named == MapSet.new(blocks)
  end

  test "what is said to have a host kernel has one" do
    hosted = for {name, :host} <- Mlx.Lower.table(), do: name
    kernels = Mlx.NIF.hosted()
    t = %Nx.Tensor{type: {:f, 32}, shape: {2}, names: [nil], data: 0}

    for name <- hosted -- [:as_type] do
      assert [{op, [0]}] = instructions(Mlx.Lower.lower(name, t, [t]))
      assert to_string(op) in kernels, "#{name} is #{op}"
    end
  end

  defp instructions(tree) do
    {_slot, builder} = Mlx.Program.Builder.add(Mlx.Program.Builder.new(1), tree)
    Mlx.Program.Builder.instructions(builder)
  end
end
