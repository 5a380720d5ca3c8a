defmodule Mlx.OpTableTest do
  # Oracle: the native op table itself.
  use ExUnit.Case, async: true

  alias Mlx.{Native, NIF, Program}

  test "every element type that the table names crosses the border" do
    {_ops, types} = NIF.op_table()
    assert length(types) == 14
    worker = Mlx.Device.worker(:cpu)

    for type <- types -- [:bool] do
      bytes = div(elem(type, 1), 8)
      ref = Native.from_binary(worker, type, {1}, <<0::size(bytes)-unit(8)>>)
      assert Native.describe(ref) == {type, {1}}
    end
  end

  test "the builder knows how many results each operation has" do
    {ops, _types} = NIF.op_table()

    for {name, _attributes, outputs} <- ops do
      assert {name, Program.Builder.outputs(String.to_atom(name))} == {name, outputs}
    end
  end
end
