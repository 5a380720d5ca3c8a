defmodule Mlx.FuzzTest do
  # Oracle: the VM is alive. Operations of the table with random attributes and operands, most of
  # them senseless, are run and read; each gives a result or an error. The seed is ExUnit's, so a
  # run that ends the VM can be repeated: `mix test --seed`. MLX_FUZZ sets how many are run.
  use ExUnit.Case, async: true

  alias Mlx.{Native, NIF}

  @count String.to_integer(System.get_env("MLX_FUZZ", "3000"))
  @numbers [-3, -1, 0, 1, 2, 3, 5, 31, 1000, 2_147_483_647, -2_147_483_648]
  @small [0, 1, 2, -1]
  @flags ~w(keep reverse inclusive precise upper lower flip)

  @tag timeout: :infinity
  test "no operation takes the VM down" do
    {ops, types} = NIF.op_table()
    types = types -- [:bool]
    worker = Native.start_worker(:cpu)

    outcomes =
      for _ <- 1..@count do
        {name, attributes, outputs} = Enum.random(ops)
        op = op(String.to_atom(name), Enum.map(attributes, &attribute(&1, types)))
        operands = for _ <- 1..Enum.random([0, 1, 1, 2, 2, 3])//1, do: operand(worker, types)
        run(op, operands, outputs, worker)
      end

    # Sense enough that something was computed.
    assert Enum.count(outcomes, &(&1 == :ok)) > @count / 20
    sum = Native.run([{:add, [0, 0]}], [1], [Native.from_binary(worker, {:u, 8}, {1}, <<2>>)])
    assert Native.to_binary(hd(sum)) == <<4>>
  end

  defp run(op, operands, outputs, worker) do
    count = length(operands)
    slots = Enum.to_list(0..(count - 1)//1)
    results = Enum.to_list(count..(count + outputs - 1))
    [{op, slots}] |> Native.run(results, operands, worker) |> read()
  rescue
    error in Mlx.Error -> error.kind
  end

  defp read(refs) do
    Enum.each(refs, &Native.to_binary/1)
    :ok
  end

  defp op(name, []), do: name
  defp op(name, attributes), do: List.to_tuple([name | attributes])

  defp operand(worker, types) do
    {_, bits} = type = Enum.random(types)
    shape = Enum.random([shape(), shape(), {}, {4, 4}, {2, 2}, {3, 3}])
    bytes = Tuple.product(shape) * div(bits, 8)

    binary =
      case Enum.random(1..4) do
        1 -> :rand.bytes(bytes)
        2 -> :binary.copy(<<0>>, bytes)
        3 -> :binary.copy(<<255>>, bytes)
        4 -> for i <- 1..bytes//1, into: <<>>, do: <<rem(i, 3)>>
      end

    Native.from_binary(worker, type, shape, binary)
  end

  defp shape, do: List.to_tuple(for _ <- 1..Enum.random([1, 2, 2, 3]), do: Enum.random(1..4))

  defp attribute("dtype", types), do: Enum.random(types)
  defp attribute(name, _types) when name in @flags, do: Enum.random([true, false])
  defp attribute("bytes", _types), do: Enum.random([<<1>>, <<1, 0, 0, 0>>, <<0::64>>, ""])
  defp attribute("offset", _types), do: Enum.random([0, 1, 5, 1_000_000])

  defp attribute("dims", _types),
    do: Enum.random([shape(), shape(), {}, {1_000_000, 1_000_000}, {0}])

  defp attribute(name, _types) when name in ["n", "rows", "cols"],
    do: Enum.random([0, 1, 3, 100, 4_294_967_295])

  defp attribute(name, _types) when name in ["axis", "diagonal", "groups"],
    do: Enum.random(@small ++ @numbers)

  defp attribute("axes" <> _, _types) do
    Enum.random([
      Enum.take_random([0, 1, 2], Enum.random(1..2)),
      list(@small),
      list(@numbers),
      []
    ])
  end

  defp attribute(_list, _types), do: list(Enum.random([@small, [1], [1, 2], [1, 2, 3], @numbers]))

  defp list(values), do: for(_ <- 1..Enum.random([1, 1, 2, 2, 3]), do: Enum.random(values))
end
