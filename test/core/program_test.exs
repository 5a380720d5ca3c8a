defmodule Mlx.ProgramTest do
  # Oracle: values computed by hand; files written and then damaged.
  use ExUnit.Case, async: true
  doctest Mlx.Program

  alias Mlx.{Array, Program}
  alias Mlx.Program.Builder

  @tag :tmp_dir
  test "is the same after save and load", %{tmp_dir: dir} do
    path = Path.join(dir, "a program.mlxp")
    program = program()
    assert Program.save!(program, path) == :ok
    loaded = Program.load!(path)
    assert Map.delete(loaded, :native) == Map.delete(program, :native)
    x = Array.from_binary(<<3.0::float-32-native>>, {:f, 32}, {1})
    assert [y] = Program.run(loaded, [x])
    assert Array.to_binary(y) == <<18.0::float-32-native>>
  end

  @tag :tmp_dir
  test "refuses files that are none, damaged, or of another version", %{tmp_dir: dir} do
    path = Path.join(dir, "p")
    assert_raise File.Error, fn -> Program.load!(path) end
    Program.save!(program(), path)
    good = File.read!(path)

    damaged = binary_part(good, 0, byte_size(good) - 1)
    <<head::binary-12, _version, rest::binary>> = good
    data = :erlang.term_to_binary({fn -> :run_me end, [], []})
    forged = [head, 1, :erlang.md5(data), data]

    atoms =
      String.replace(
        :erlang.term_to_binary({[], [{:aaaaaaaaaaaaaaaaaaa, []}], []}),
        "aaaaaaaaaaaaaaaaaaa",
        "unknown_atom_qwerty"
      )

    unknown = [head, 1, :erlang.md5(atoms), atoms]

    for {bytes, message} <- [
          {"", ~r/is not a program/},
          {"something else altogether", ~r/is not a program/},
          {damaged, ~r/is damaged/},
          {[head, 200, rest], ~r/format version 200.*update Mlx/},
          {forged, ~r/is not a program that this version reads/},
          {unknown, ~r/is not a program that this version reads/}
        ] do
      File.write!(path, bytes)
      assert_raise ArgumentError, message, fn -> Program.load!(path) end
    end
  end

  test "checks the arrays that it is given" do
    wrong = Array.from_binary(<<1, 2>>, {:u, 8}, {2})
    [result] = Program.run(program(), [wrong])

    assert_raise Mlx.Error, ~r/input 0 is a Float32 array of shape \[1\]/, fn ->
      Array.to_binary(result)
    end

    assert_raise Mlx.Error, ~r/takes 1 arrays, and 2 were given/, fn ->
      Program.run(program(), [wrong, wrong])
    end
  end

  test "without inputs runs on the device asked for" do
    program = Program.new([], [{{:arange, 3, {:s, 32}}, []}], [0])
    assert [range] = Program.run(program, [], device: :cpu)
    assert Array.to_binary(range) == <<0::32-native, 1::32-native, 2::32-native>>
  end

  test "refuses options that it does not know, with arrays and without" do
    x = Array.from_binary(<<3.0::float-32-native>>, {:f, 32}, {1})
    range = Program.new([], [{{:arange, 3, {:s, 32}}, []}], [0])

    for {program, arrays} <- [{program(), [x]}, {range, []}] do
      assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, fn ->
        Program.run(program, arrays, devise: :cpu)
      end

      assert_raise ArgumentError, ~r/a device is :cpu/, fn ->
        Program.run(program, arrays, device: :tpu)
      end
    end
  end

  test "runs where its arrays are, and nowhere else" do
    x = Array.from_binary(<<3.0::float-32-native>>, {:f, 32}, {1}, device: :cpu)
    assert [y] = Program.run(program(), [x], device: :cpu)
    assert Array.to_binary(y) == <<18.0::float-32-native>>

    assert_raise ArgumentError, ~r/are on :cpu.*\{:gpu, 0\}.*leave :device out.*copy/, fn ->
      Program.run(program(), [x], device: :gpu)
    end
  end

  test "the builder merges equal subtrees and numbers slots by results" do
    x = %{data: 0}
    square = {:multiply, [x, x]}
    builder = Builder.new(1)
    {slot, builder} = Builder.add(builder, {:add, [square, {:negative, [square]}]})
    assert slot == 3
    {second, builder} = Builder.add(builder, {:elem, {:qr, [x]}, 1})
    assert second == 5
    {third, builder} = Builder.add(builder, square)
    assert third == 1

    assert Builder.instructions(builder) == [
             {:multiply, [0, 0]},
             {:negative, [1]},
             {:add, [1, 2]},
             {:qr, [0]}
           ]
  end

  defp program do
    Program.new([{{:f, 32}, {1}}], [{:add, [0, 0]}, {:multiply, [1, 0]}], [2])
  end
end
