# Runs test files of an Nx checkout against Mlx.Backend as the global default backend, by
# reference: `mix run test/conformance/run.exs CHECKOUT`, in the test environment. bin/conformance
# does that. Nothing of the checkout is copied.

defmodule Mlx.Conformance do
  @moduledoc false

  defmodule Collector do
    @moduledoc false
    # An ExUnit formatter that keeps what was run, for the report.
    use GenServer

    def init(_opts), do: {:ok, Agent.start_link(fn -> [] end, name: __MODULE__) && nil}

    def handle_cast({:test_finished, test}, state) do
      Agent.update(__MODULE__, &[test | &1])
      {:noreply, state}
    end

    def handle_cast(_event, state), do: {:noreply, state}

    def tests, do: Agent.get(__MODULE__, & &1)
  end

  defmodule Plain do
    @moduledoc false
    # Nx's tests compare tensors with `==`, which tells arrays apart and not their values. Before
    # they are compared, all tensors in a term become those of Nx.BinaryBackend, and NaNs the same.

    def plain(%Nx.Tensor{data: %module{}} = t) when module in [Nx.TemplateBackend, Nx.Defn.Expr],
      do: t

    def plain(%Nx.Tensor{} = t) do
      t = Nx.backend_copy(t, Nx.BinaryBackend)
      Nx.with_default_backend(Nx.BinaryBackend, fn -> one_nan(t, t.type) end)
    end

    def plain(%_{} = struct), do: Map.merge(struct, struct |> Map.from_struct() |> plain())
    def plain(%{} = map), do: Map.new(map, fn {key, value} -> {key, plain(value)} end)
    def plain([head | tail]), do: [plain(head) | plain(tail)]

    def plain(tuple) when is_tuple(tuple),
      do: tuple |> Tuple.to_list() |> plain() |> List.to_tuple()

    def plain(other), do: other

    defp one_nan(t, {kind, _} = type) when kind in [:f, :bf],
      do: Nx.select(Nx.is_nan(t), Nx.tensor(:nan, type: type), t)

    defp one_nan(t, _type), do: t

    @doc """
    The syntax tree with each comparison that is asserted, or a condition, by value:
    `plain(left) == plain(right)`.
    """
    def compare_values(ast) do
      Macro.prewalk(ast, fn
        {name, meta, [{:==, at, [left, right]} | rest]} when name in [:assert, :unless] ->
          {name, meta, [{:==, at, [call(left), call(right)]} | rest]}

        other ->
          other
      end)
    end

    defp call(ast), do: {{:., [], [__MODULE__, :plain]}, [], [ast]}
  end

  @files ~w(nx_test nx/non_finite_test nx/complex_test nx/vectorize_test nx/lin_alg_test
            nx/random_test nx/constants_test nx/doctest_test)

  def run(checkout) do
    tests = Path.join(checkout, "nx/test")
    # The expected texts of doctests are those of the sources that were compiled.
    loaded = Nx.module_info(:compile)[:source] |> Path.dirname() |> Path.join("nx.ex")
    here = Path.join(checkout, "nx/lib/nx.ex")
    same? = File.read(loaded) == File.read(here)

    ExUnit.start(autorun: false, formatters: [Collector], seed: 0, timeout: 300_000)

    unconsolidate()

    for file <- ~w(helpers container backends),
        do: compile(Path.join(tests, "support/#{file}.ex"))

    modules =
      for file <- @files,
          {module, _} <- compile(Path.join(tests, file <> ".exs")),
          into: %{},
          do: {module, file}

    # After compiling: tensors in attributes of the tests cannot hold references.
    device = System.get_env("MLX_TEST_DEVICE", "cpu")
    Nx.global_default_backend({Mlx.Backend, device: String.to_existing_atom(device)})
    count_fallbacks()
    # Some of them read fixtures.
    File.cd!(Path.join(checkout, "nx"), fn -> ExUnit.run() end)
    report(Collector.tests(), modules, checkout, same?)
  end

  # What falls back is computed, as it is for users, and counted.
  defp count_fallbacks do
    Application.put_env(:mlx, :fallback, :silent)
    fallbacks = :ets.new(:fallbacks, [:public, :named_table])

    :telemetry.attach("conformance", [:mlx, :fallback], &__MODULE__.count/4, fallbacks)
  end

  def count(_event, _measurements, %{op: op}, fallbacks),
    do: :ets.update_counter(fallbacks, op, 1, {op, 0})

  # The containers of Nx's tests are compiled after protocols were consolidated.
  defp unconsolidate do
    for protocol <- [Nx.Container, Nx.LazyContainer] do
      path = :nx |> :code.lib_dir() |> Path.join("ebin/#{protocol}")
      :code.purge(protocol)
      {:module, ^protocol} = :code.load_abs(String.to_charlist(path))
    end
  end

  defp compile(path) do
    path
    |> File.read!()
    |> Code.string_to_quoted!(file: path)
    |> Plain.compare_values()
    |> Code.compile_quoted(path)
  end

  defp report(tests, modules, checkout, same?) do
    expected = expected(tests, modules)

    IO.puts("""

    Nx's tests on Mlx.Backend, #{inspect(elem(Nx.default_backend(), 1)[:device])}
    tests and examples: #{checkout}/nx, commit #{commit(checkout)}
    Nx that ran: #{Application.spec(:nx, :vsn)}#{unless same?, do: ", NOT the checkout's sources"}
    """)

    outcomes =
      for file <- @files do
        own = Enum.filter(tests, &(modules[&1.module] == file))
        own = Enum.reject(own, &match?({kind, _} when kind in [:skipped, :excluded], &1.state))
        failed = own |> Enum.filter(& &1.state) |> Enum.sort_by(& &1.name)
        {known, new} = Enum.split_with(failed, &expected[{file, &1.name}])

        IO.puts(
          String.pad_trailing("#{file}.exs", 28) <>
            String.pad_leading("#{length(own)} tests", 12) <>
            String.pad_leading("#{length(failed)} failures", 14) <>
            String.pad_leading("#{length(known)} of them listed", 20)
        )

        for test <- known, do: IO.puts("  listed  #{test.name}: #{expected[{file, test.name}]}")

        for test <- new do
          IO.puts("  FAILED  #{test.name}")
          IO.puts(ExUnit.Formatter.format_test_failure(test, reasons(test), 0, 98, &plain/2))
        end

        for {{^file, name}, _} <- expected,
            not Enum.any?(failed, &(&1.name == name)),
            do: IO.puts("  passes although it is listed: #{name}")

        {length(own), length(failed), length(new)}
      end

    {ran, failed, new} =
      Enum.reduce(outcomes, fn {a, b, c}, {x, y, z} -> {a + x, b + y, c + z} end)

    IO.puts("\nfell back to Nx.BinaryBackend: #{fallbacks()}")
    IO.puts("#{ran} tests, #{failed} failures, #{new} of them not listed")
    if ran == 0 or new > 0, do: 1, else: 0
  end

  defp fallbacks do
    case :fallbacks |> :ets.tab2list() |> Enum.sort() do
      [] -> "nothing"
      list -> Enum.map_join(list, ", ", fn {op, count} -> "#{op} #{count} times" end)
    end
  end

  # The reason of each listed failure, by file and name.
  defp expected(tests, modules) do
    doctests =
      for module <- Map.keys(Mlx.Doctests.exceptions().doctests),
          examples = Enum.filter(tests, &match?(%{doctest: ^module}, &1.tags)),
          examples != [],
          {test, {_, _, kind, reason}} <- Mlx.Doctests.excepted(examples, module),
          do: {{modules[test.module], test.name}, "#{inspect(kind)}, #{reason}"}

    named =
      for {file, list} <- Mlx.Doctests.exceptions().tests,
          {name, reason} <- list,
          do: {{file, String.to_atom(name)}, reason}

    Map.new(doctests ++ named)
  end

  defp reasons(%{state: {:failed, reasons}}), do: reasons
  defp reasons(%{state: {:invalid, _}}), do: [{:error, "its setup failed", []}]

  defp plain(:diff_enabled?, _doc), do: false
  defp plain(_key, text), do: text

  defp commit(checkout) do
    case System.cmd("git", ["-C", checkout, "rev-parse", "--short", "HEAD"],
           stderr_to_stdout: true
         ) do
      {commit, 0} -> String.trim(commit)
      _ -> "unknown"
    end
  end
end

[checkout] = System.argv()
checkout |> Path.expand() |> Mlx.Conformance.run() |> System.halt()
