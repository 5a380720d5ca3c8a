# Runs test files of an Nx checkout by reference: `mix run test/conformance/run.exs CHECKOUT`, in
# the test environment. bin/conformance does that. Nothing of the checkout is copied.
#
# Two parts: `eager`, with Mlx.Backend as the global default backend, and `compiled`, with
# Mlx.Compiler as the default compiler besides. Each file has a virtual machine of its own.

defmodule Mlx.Conformance do
  @moduledoc false

  @eager ~w(nx_test nx/non_finite_test nx/complex_test nx/vectorize_test nx/lin_alg_test
            nx/random_test nx/constants_test nx/doctest_test)
  @nx ~w(nx/defn_test nx/defn/grad_test nx/defn/evaluator_test nx/defn/kernel_test
         nx/defn/graph_test nx/defn/composite_test nx/defn/runtime_call_evaluator_test
         nx/serving_test nx/vectorize_test nx/lin_alg_test nx/random_test)
  @exla ~w(defn/expr_test defn/api_test defn/vectorize_test defn/runtime_call_test random_test
           nx_linalg_doctest_test)
  @torchx ~w(nx_test complex_test nx_linalg_test nx_block_test)

  @files for(file <- @eager, do: {:eager, "nx/test/" <> file}) ++
           for(file <- @nx, do: {:compiled, "nx/test/" <> file}) ++
           for(file <- @exla, do: {:compiled, "exla/test/exla/" <> file}) ++
           for(file <- @torchx, do: {:compiled, "torchx/test/torchx/" <> file})

  @doc "Answers the exit status. `only` are words, of which a file's part or path has to hold one."
  def run(checkout, only) do
    # The expected texts of doctests are those of the sources that were compiled.
    loaded = Nx.module_info(:compile)[:source] |> Path.dirname() |> Path.join("nx.ex")
    same? = File.read(loaded) == File.read(Path.join(checkout, "nx/lib/nx.ex"))

    IO.puts("""

    Tests of Nx, EXLA and Torchx on Mlx, #{System.get_env("MLX_TEST_DEVICE", "cpu")}
    tests and examples: #{checkout}, commit #{commit(checkout)}
    Nx that ran: #{Application.spec(:nx, :vsn)}#{unless same?, do: ", NOT the checkout's sources"}
    """)

    wanted =
      for {part, file} <- @files,
          only == [] or Enum.any?(only, &String.contains?("#{part} #{file}", &1)),
          do: {part, file}

    {there, missing} =
      Enum.split_with(wanted, fn {_, file} ->
        checkout |> Path.join(file <> ".exs") |> File.exists?()
      end)

    for {_part, file} <- missing, do: IO.puts("not in the checkout: #{file}.exs")

    there
    |> Enum.map(fn {part, file} -> {part, file, file(checkout, part, file)} end)
    |> summary()
  end

  defp file(checkout, part, file) do
    IO.puts("\n#{part} #{file}.exs")
    result = Path.join(System.tmp_dir!(), "mlx-conformance-#{System.pid()}")
    File.rm(result)

    args = ~w(run --no-compile --no-deps-check test/conformance/file.exs)

    {_, status} =
      System.cmd("mix", args ++ [checkout, "#{part}", file, result], into: IO.stream())

    case File.read(result) do
      {:ok, binary} ->
        File.rm(result)
        :erlang.binary_to_term(binary)

      {:error, _} ->
        IO.puts("  FAILED  the file: its virtual machine ended with #{status}")
        %{ran: 0, left_out: 0, failed: 1, listed: 0, fallbacks: []}
    end
  end

  defp summary(outcomes) do
    IO.puts("\n" <> row(["file", "tests", "failures", "listed", "left out"]))

    for {part, file, %{ran: ran, failed: failed, listed: listed, left_out: left_out}} <- outcomes,
        do: IO.puts(row(["#{part} #{file}", ran, failed, listed, left_out]))

    [ran, failed, listed, left_out] =
      for key <- [:ran, :failed, :listed, :left_out],
          do: Enum.sum_by(outcomes, fn {_, _, outcome} -> outcome[key] end)

    IO.puts(row(["all", ran, failed, listed, left_out]))
    IO.puts("\nfell back to Nx.BinaryBackend: #{fallbacks(outcomes)}")
    IO.puts("#{failed - listed} failures are not listed")
    if ran == 0 or failed > listed, do: 1, else: 0
  end

  defp row([name | numbers]) do
    String.pad_trailing(name, 50) <> Enum.map_join(numbers, &String.pad_leading("#{&1}", 10))
  end

  defp fallbacks(outcomes) do
    counts =
      for {_, _, outcome} <- outcomes, {op, count} <- outcome.fallbacks, reduce: %{} do
        counts -> Map.update(counts, op, count, &(&1 + count))
      end

    if counts == %{},
      do: "nothing",
      else: counts |> Enum.sort() |> Enum.map_join(", ", fn {op, n} -> "#{op} #{n} times" end)
  end

  defp commit(checkout) do
    case System.cmd("git", ["-C", checkout, "rev-parse", "--short", "HEAD"],
           stderr_to_stdout: true
         ) do
      {commit, 0} -> String.trim(commit)
      _ -> "unknown"
    end
  end
end

[checkout | only] = System.argv()
checkout |> Path.expand() |> Mlx.Conformance.run(only) |> System.halt()
