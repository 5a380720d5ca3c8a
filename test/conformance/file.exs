# Runs one test file of a checkout: see run.exs, which starts a virtual machine for each.
#
#   mix run test/conformance/file.exs CHECKOUT PART FILE RESULT

for name <- ~w(plain peers), do: Code.require_file("#{name}.exs", __DIR__)

defmodule Mlx.Conformance.File do
  @moduledoc false

  alias Mlx.Conformance.{Peers, Plain}

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

  def run(checkout, part, file, result) do
    # Distributed tests start further nodes, which would have to load this project.
    ExUnit.start(
      autorun: false,
      formatters: [Collector],
      seed: 0,
      timeout: 300_000,
      assert_receive_timeout: 1000,
      exclude: [:distributed, :cuda_required, :multi_device]
    )

    unconsolidate()
    # Errors name files from the folder of their project, and some tests read fixtures there.
    [project | _] = Path.split(file)
    checkout |> Path.join(project) |> File.cd!()
    for path <- support(file), do: compile(checkout, path)
    compile(checkout, file <> ".exs")

    # After compiling: tensors in attributes of the tests cannot hold references.
    device = System.get_env("MLX_TEST_DEVICE", "cpu") |> String.to_existing_atom()
    Nx.global_default_backend({Mlx.Backend, device: device})
    if part == "compiled", do: Nx.Defn.global_default_options(compiler: Mlx.Compiler)
    count_fallbacks()

    ExUnit.run()
    outcome = report(Collector.tests(), part, file)
    File.write!(result, :erlang.term_to_binary(outcome))
  end

  defp support("exla/" <> _), do: ["exla/test/support/container.ex"]
  defp support("torchx/" <> _), do: []

  defp support("nx/" <> _),
    do: for(name <- ~w(helpers container backends), do: "nx/test/support/#{name}.ex")

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

  defp compile(checkout, file) do
    path = Path.join(checkout, file)

    path
    |> File.read!()
    |> Code.string_to_quoted!(file: path)
    |> Peers.rename()
    |> Plain.compare_values()
    |> Plain.fix_keys()
    |> Code.compile_quoted(path)
  end

  defp report(tests, part, file) do
    ran = Enum.reject(tests, &match?({kind, _} when kind in [:skipped, :excluded], &1.state))
    failed = ran |> Enum.filter(& &1.state) |> Enum.sort_by(& &1.name)
    expected = expected(ran, part, file)
    {known, new} = Enum.split_with(failed, &expected[&1.name])
    names = Enum.map(failed, & &1.name)

    for test <- known, do: IO.puts("  listed  #{test.name}: #{expected[test.name]}")

    for test <- new do
      IO.puts("  FAILED  #{test.name}")
      IO.puts(ExUnit.Formatter.format_test_failure(test, reasons(test), 0, 98, &plain/2))
    end

    for {name, _} <- expected,
        name not in names,
        do: IO.puts("  passes although it is listed: #{name}")

    %{
      ran: length(ran),
      left_out: length(tests) - length(ran),
      failed: length(failed),
      listed: length(known),
      fallbacks: :ets.tab2list(:fallbacks)
    }
  end

  # The reason of each listed failure, by name.
  defp expected(tests, part, file) do
    exceptions = Mlx.Doctests.exceptions()

    doctests =
      for module <- Map.keys(exceptions.doctests),
          examples = Enum.filter(tests, &match?(%{doctest: ^module}, &1.tags)),
          examples != [],
          {test, {_, _, kind, reason}} <-
            Mlx.Doctests.excepted(examples, module, functions: :some),
          # What is unsupported falls back here.
          kind != :unsupported,
          do: {test.name, "#{inspect(kind)}, #{reason}"}

    named =
      for {name, reason} <- Map.get(exceptions[String.to_existing_atom(part)], file, []),
          do: {String.to_atom(name), reason}

    Map.new(doctests ++ named)
  end

  defp reasons(%{state: {:failed, reasons}}), do: reasons
  defp reasons(%{state: {:invalid, _}}), do: [{:error, "its setup failed", []}]

  defp plain(:diff_enabled?, _doc), do: false
  defp plain(_key, text), do: text
end

[checkout, part, file, result] = System.argv()
Mlx.Conformance.File.run(checkout, part, file, result)
