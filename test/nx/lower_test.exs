defmodule Mlx.LowerTest do
  use Mlx.LowerCase, async: true

  test "every computing callback of Nx.Backend has a status" do
    callbacks = Keyword.keys(Nx.Backend.behaviour_info(:callbacks))
    table = Mlx.Lower.table()

    assert Enum.sort(Keyword.keys(table) ++ Mlx.Lower.not_computing()) == Enum.sort(callbacks)

    for {name, status} <- table do
      assert status in [:native, :composed, :host],
             inspect(name)
    end
  end

  test "an unknown name is an error, not a crash" do
    assert_raise Mlx.Error, ~r/no_such_thing: it is not an operation of this version of Nx/, fn ->
      Mlx.Lower.lower(:no_such_thing, t(:f32, {}), [])
    end
  end

  test "equal subtrees are computed once" do
    x = %{t(:s32, {2}) | data: 0}
    tree = Mlx.Lower.lower(:add, t(:f32, {2}), [x, x])
    {slot, builder} = Mlx.Program.Builder.add(Mlx.Program.Builder.new(1), tree)

    assert Mlx.Program.Builder.instructions(builder) == [
             {{:astype, {:f, 32}}, [0]},
             {:add, [1, 1]}
           ]

    assert slot == 2
  end
end
