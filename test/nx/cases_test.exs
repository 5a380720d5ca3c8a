defmodule Mlx.CasesTest do
  # Oracle: guides/cases.md for the tests, and the tests for guides/cases.md.
  use ExUnit.Case, async: true

  @root Path.expand("../..", __DIR__)
  @page Path.join(@root, "guides/cases.md")

  # Case => the files of its row.
  defp page do
    rows = Regex.scan(~r/^\| (A1-\d\d|row \d+) \|(.*)\|$/m, File.read!(@page))
    assert Enum.uniq_by(rows, &Enum.at(&1, 1)) == rows

    for [_, name, rest] <- rows, into: %{} do
      cells = String.split(rest, "|")
      assert length(cells) in [2, 3]
      assert Enum.all?(cells, &(String.trim(&1) != ""))

      {name,
       Regex.scan(~r/`([^`\s]+\.(?:exs|py|rs))`/, List.last(cells), capture: :all_but_first)}
    end
  end

  # Case => the files with a test that has it in its name.
  defp tests do
    for path <- Path.wildcard(Path.join(@root, "test/**/*_test.exs")),
        [_, name] <- Regex.scan(~r/test "((?:A1-|rows? )[^"]*)"/, File.read!(path)),
        named <- names(name),
        do: {named, Path.relative_to(path, @root)}
  end

  defp names("A1-" <> _ = name), do: [binary_part(name, 0, 5)]

  defp names(name) do
    [head | _] = String.split(name, ":")
    for [number] <- Regex.scan(~r/\d+/, head), do: "row #{number}"
  end

  test "every case of the page has a test, where the page says" do
    tests = tests()

    for {name, files} <- page() do
      assert files != [], "#{name} names no file"

      for [file] <- files do
        text = File.read!(Path.join(@root, file))

        assert {name, file} in tests or (Path.extname(file) != ".exs" and text =~ name),
               "there is no test of #{name} in #{file}"
      end
    end
  end

  test "every test of a case is on the page" do
    page = page()
    for {name, file} <- tests(), do: assert([file] in Map.get(page, name, []), "#{name}, #{file}")
  end

  test "no case is left out" do
    cases = for n <- 1..80, do: "A1-" <> String.pad_leading("#{n}", 2, "0")
    rows = for n <- 1..32, do: "row #{n}"
    assert Enum.sort(Map.keys(page())) == Enum.sort(cases ++ rows)
  end

  # The one that is loaded last would replace the other, and run with what that one asked for.
  test "no two files of tests define the same module" do
    modules =
      for path <- Path.wildcard(Path.join(@root, "test/**/*_test.exs")),
          [_, module] <- Regex.scan(~r/^defmodule (\S+) do$/m, File.read!(path)),
          do: module

    assert modules -- Enum.uniq(modules) == []
  end
end
