defmodule Mlx.Doctests do
  @moduledoc false
  # What becomes of Nx's own examples that print something else here. ExUnit's options leave out
  # whole functions; an exception names a function, which of its examples (counted from 1), what
  # kind of difference it is, and why:
  #
  #   * `:rounding`: the example is run, and the texts must be equal but for numbers with a
  #     fraction, which may differ by 1.0e-4 of themselves or 1.0e-6, whichever is more.
  #   * `{:signs, test}`: the example is run, and the texts must be equal but for numbers with a
  #     fraction. The values are for the property `test` of
  #     test/nx/backend/linalg_test.exs to check.
  #   * `:unsupported`: the example raises.
  #
  # An example that no longer needs its exception fails, so that the list stays true.

  import ExUnit.Assertions

  @relative 1.0e-4
  @absolute 1.0e-6
  @number ~r/[-+]?(?:\d+\.\d+(?:e[-+]?\d+)?)/
  @properties Path.expand("../nx/backend/linalg_test.exs", __DIR__)

  @exceptions Path.expand("../conformance/exceptions.exs", __DIR__)

  @type kind :: :rounding | {:signs, String.t()} | :unsupported
  @type exception :: {String.t(), [pos_integer], kind, String.t()}

  @doc """
  Puts tests of their own in the place of the examples of `module` that have an exception.
  `doctest module, except: [:moduledoc]` must come before.
  """
  defmacro except(module) do
    quote bind_quoted: [module: module] do
      tests = Module.get_attribute(__MODULE__, :ex_unit_tests)
      excepted = Mlx.Doctests.excepted(tests, module)
      names = for {test, _exception} <- excepted, do: test.name
      Module.delete_attribute(__MODULE__, :ex_unit_tests)
      Module.register_attribute(__MODULE__, :ex_unit_tests, accumulate: true)

      for test <- Enum.reverse(tests),
          test.name not in names,
          do: Module.put_attribute(__MODULE__, :ex_unit_tests, test)

      for {test, {function, _positions, kind, reason}} <- excepted do
        @tag example: {module, function, test.tags.doctest_line, kind, reason}
        test "#{test.name}, #{inspect(kind)}", %{example: example} do
          Mlx.Doctests.check(example)
        end
      end
    end
  end

  @doc "The exceptions: see test/conformance/exceptions.exs."
  def exceptions, do: @exceptions |> Code.eval_file() |> elem(0)

  @doc """
  Those of the module's tests that have an exception, with it.

  With `functions: :some` the tests need not have examples of every function that is on the list.
  """
  def excepted(tests, module, opts \\ []) do
    for {function, positions, _, _} = exception <- Map.get(exceptions().doctests, module, []),
        examples = examples(tests, function),
        examples != [] or opts[:functions] != :some,
        position <- positions do
      test = Enum.at(examples, position - 1)
      if !test, do: raise("#{function} has no example #{position}; it has #{length(examples)}")
      {test, exception}
    end
  end

  defp examples(tests, function) do
    tests
    |> Enum.filter(&String.contains?(Atom.to_string(&1.name), ".#{function} ("))
    |> Enum.sort_by(& &1.tags.doctest_line)
  end

  @doc "Runs the example at `line` and asserts that it differs as its exception says."
  def check({module, function, line, kind, reason}) do
    outcomes = module |> expectations(function, line) |> evaluate()

    if Enum.all?(outcomes, fn {made, expected} -> made == expected end),
      do: flunk("the exception (#{reason}) is not needed any more: delete it")

    check(kind, outcomes)
  end

  defp check(:unsupported, outcomes) do
    assert Enum.any?(outcomes, fn {made, _} -> match?({:raised, _}, made) end),
           "nothing was raised: #{inspect(outcomes)}"
  end

  defp check({:signs, test}, outcomes) do
    assert File.read!(@properties) =~ ~s("#{test}", [), "there is no property #{inspect(test)}"
    for {made, expected} <- outcomes, do: same(made, expected, fn _, _ -> true end)
  end

  defp check(:rounding, outcomes),
    do: for({made, expected} <- outcomes, do: same(made, expected, &close?/2))

  defp same(made, expected, close?) when is_binary(made) do
    assert Regex.split(@number, made) == Regex.split(@number, expected)

    for {m, e} <- Enum.zip(numbers(made), numbers(expected)),
        do:
          assert(close?.(m, e), "#{m} is too far from #{e} in\n#{made}\ninstead of\n#{expected}")
  end

  defp same({:raised, error}, expected, _close?),
    do: flunk("instead of #{expected} it raised #{Exception.message(error)}")

  defp numbers(text),
    do: for([number] <- Regex.scan(@number, text), do: number |> Float.parse() |> elem(0))

  defp close?(a, b), do: abs(a - b) <= max(@relative * abs(b), @absolute)

  # The expressions of the example with the text that each is to give, or nil, from the
  # documentation of the loaded module.
  defp expectations(module, function, line) do
    {:docs_v1, _, _, _, _, _, docs} = Code.fetch_docs(module)

    {_, anno, _, %{"en" => doc}, _} =
      Enum.find(docs, fn {{_, name, arity}, _, _, _, _} -> "#{name}/#{arity}" == function end)

    doc
    |> String.split("\n")
    |> Enum.drop(line - :erl_anno.line(anno) - 1)
    |> Enum.map(&String.trim_leading/1)
    |> Enum.take_while(&(&1 != ""))
    |> Enum.chunk_while(nil, &expectation/2, &{:cont, &1, nil})
  end

  defp expectation("iex>" <> code, nil), do: {:cont, {code, nil}}
  defp expectation("iex>" <> code, {before, nil}), do: {:cont, {before <> "\n" <> code, nil}}
  defp expectation("iex>" <> code, done), do: {:cont, done, {code, nil}}
  defp expectation("...>" <> code, {before, nil}), do: {:cont, {before <> "\n" <> code, nil}}
  defp expectation(line, {code, nil}), do: {:cont, {code, line}}
  defp expectation(line, {code, text}), do: {:cont, {code, text <> "\n" <> line}}

  # What each expression gives, as text, with the text that was expected.
  defp evaluate(expectations) do
    {outcomes, _binding} =
      Enum.map_reduce(expectations, [], fn {code, text}, binding ->
        try do
          {value, binding} = Code.eval_string(code, binding)
          {{value |> inspect() |> unindented(), text}, binding}
        rescue
          error -> {{{:raised, error}, text}, binding}
        end
      end)

    for {_, text} = outcome <- outcomes, text != nil, do: outcome
  end

  defp unindented(text),
    do: text |> String.split("\n") |> Enum.map_join("\n", &String.trim_leading/1)
end
