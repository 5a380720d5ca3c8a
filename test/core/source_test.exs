defmodule Mlx.SourceTest do
  # Oracle: the source files.
  use ExUnit.Case, async: true

  alias Mlx.{Native, Source}

  defp named(fun), do: fun |> Source.entry() |> Source.format()

  defp line(path, text) do
    lines = path |> File.read!() |> String.split("\n")
    1 + Enum.find_index(lines, &String.contains?(&1, text))
  end

  test "captures are named by their module, with file and line" do
    path = "lib/core/memory.ex"

    assert named(&Mlx.Memory.info/0) ==
             "&Mlx.Memory.info/0 (#{path}:#{line(path, "def info do")})"
  end

  test "functions without a name are named by where they are" do
    assert named(fn x -> x end) ==
             ~s[anonymous fn/1 in Mlx.SourceTest."test functions without a name are named by where they are"/1 ] <>
               "(test/core/source_test.exs)"
  end

  test "what is evaluated has a line" do
    {fun, _} = Code.eval_string("\n\nfn x -> x end")
    assert named(fun) == "anonymous fn/1 (line 3)"
  end

  test "functions of Erlang, and of no module at all" do
    assert named(&:lists.reverse/1) =~ ~r/\A&:lists.reverse\/1( \(.*\))?\z/
    assert Source.format({Nowhere.AtAll, :f, 1, []}) == "&Nowhere.AtAll.f/1"
    assert Source.format({:erl_eval, :"-expr/6-fun-1-", 1, []}) == "anonymous fn/1"
    assert Source.entry(:not_a_function) == nil
    assert Source.arguments(nil) == nil
  end

  test "entries survive the native side" do
    for entry <- [Source.entry(&Mlx.Memory.info/0), nil],
        do: assert(entry |> Source.label() |> Source.from_label() == entry)
  end

  test "a program with an entry names it in its failures, and one without does not" do
    entry = Source.entry(&Mlx.Memory.info/0)
    x = Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2})

    failure = fn program ->
      [result] = Native.run_program(program, [x.ref])
      catch_error(Native.to_binary(result))
    end

    instructions = [{{:squeeze_axes, [7]}, [0]}]
    error = failure.(Native.build(1, instructions, [1], entry))
    assert %Mlx.Error{function: ^entry, stage: :run, op: "squeeze_axes"} = error
    path = "lib/core/memory.ex"

    assert Exception.message(error) =~
             "\n\nIn the compiled function &Mlx.Memory.info/0 (#{path}:#{line(path, "def info do")})"

    error = failure.(Native.build(1, instructions, [1]))
    assert %Mlx.Error{function: nil, stage: nil} = error
    refute Exception.message(error) =~ "compiled function"
  end
end
