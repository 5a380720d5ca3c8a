defmodule Mlx.Doctests do
  @moduledoc false
  # Leaves single doctests out of a module, which ExUnit's options do by whole functions only.
  # An exception names a function, which of its examples (counted from 1), and why.

  @doc "Drops a list of `{function, positions, reason}` from the module's tests."
  defmacro except(exceptions) do
    quote do
      tests = Module.get_attribute(__MODULE__, :ex_unit_tests)
      kept = Mlx.Doctests.kept(tests, unquote(exceptions))
      Module.delete_attribute(__MODULE__, :ex_unit_tests)
      Module.register_attribute(__MODULE__, :ex_unit_tests, accumulate: true)
      for test <- kept, do: Module.put_attribute(__MODULE__, :ex_unit_tests, test)
    end
  end

  @doc "The tests that stay, in their order."
  def kept(tests, exceptions) do
    left_out = exceptions |> Enum.flat_map(&names(tests, &1)) |> MapSet.new()
    tests |> Enum.reject(&(&1.name in left_out)) |> Enum.reverse()
  end

  defp names(tests, {function, positions, reason}) when is_binary(reason) do
    examples =
      for test <- Enum.sort_by(tests, & &1.tags.doctest_line),
          test.name |> Atom.to_string() |> String.contains?(".#{function} ("),
          do: test.name

    for position <- positions do
      Enum.at(examples, position - 1) ||
        raise "#{function} has no example #{position}; it has #{length(examples)}"
    end
  end
end
