defmodule Mlx.CallsFuzzTest do
  @moduledoc """
  Calls of Nx at random, for some seconds: bin/fuzz does so for longer. MLX_FUZZ sets the number of
  calls, MLX_FUZZ_SEED the seed. And what the fuzzer finds when something is wrong.
  """
  # Alone: it counts memory, and what it plants must not be seen by others.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias Mlx.Fuzz.{Calls, Code, Gen, Report, Run, Session}
  alias Mlx.Fuzz.Gen.Step
  alias Mlx.Fuzz.Run.Finding
  alias Mlx.Fuzz.Values

  @calls String.to_integer(System.get_env("MLX_FUZZ", "2500"))
  @seed String.to_integer(System.get_env("MLX_FUZZ_SEED", "20"))

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  @tag timeout: :infinity
  test "nothing is wrong with some thousand calls" do
    # Nx warns of what it deprecates, and of odd arguments.
    report = run(calls: @calls, processes: 3)
    assert report.calls >= @calls
    assert report.findings == %{}, "seed #{@seed}\n" <> Report.findings(report)
  end

  test "every function of Nx and Nx.LinAlg is in the table, or left out for a reason" do
    # They change the whole process or system, take a block or a file, or are named otherwise here:
    # see Mlx.Fuzz.Control.
    left_out = ~w(default_backend global_default_backend with_default_backend load_numpy!
                  load_numpy_archive! to_heatmap to_batched to_pointer from_pointer from_binary
                  backend_deallocate serialize deserialize)a

    for module <- [Nx, Nx.LinAlg] do
      called = for {^module, name, _} <- Calls.table(), do: name

      names =
        for {name, _} <- module.__info__(:functions),
            not String.starts_with?(Atom.to_string(name), "__"),
            do: name

      missing = Enum.uniq(names) -- (called ++ left_out ++ [:block, :runtime_call])
      assert missing == [], "Nx has functions that are never called: #{inspect(missing)}"
      assert called -- names == []
    end
  end

  test "a chain follows from its seed and number, and its line makes it again" do
    for index <- 1..40 do
      steps = Gen.chain(@seed, index)
      assert steps == Gen.chain(@seed, index)
    end

    x = Values.leaf({:f, 32}, {2, 2}, [1.5, :nan, -0.0])
    steps = [%Step{module: Nx, name: :transpose, args: [%{x | on: :mlx}, [axes: [1, 0]]]}]
    [{:ok, made, _}] = Run.eager(steps, %{})
    {t, _} = Elixir.Code.eval_string(Code.line(steps))
    assert Nx.to_binary(t) == Nx.to_binary(made)
  end

  describe "the fuzzer finds" do
    test "a wrong result, and makes the call small" do
      planted("min: :minimum", "min: :maximum", fn ->
        report = run(calls: 100, only: [:min, :add])
        assert {_, %Finding{}, _, line} = report.findings[{:wrong_value, Nx, :min}]
        assert line =~ ~r/^Nx.default_backend\(Mlx.Backend\); r0 = Nx.min\([^;]*\)$/
        assert String.length(line) < 200
        # Pasted, it shows what is wrong.
        assert {%Nx.Tensor{}, _} = Elixir.Code.eval_string(line)
        assert Report.summary(report) =~ "wrong_value: Nx.min"
      end)

      assert run(calls: 300).findings == %{}
    end

    test "an exception of the wrong kind" do
      planted("lower :abs, _out, [t] do", "lower :abs, _out, [%{type: {:f, _}} = t] do", fn ->
        report = run(calls: 100, only: [:abs])
        assert {_, %Finding{text: text}, _, line} = report.findings[{:raised, Nx, :abs}]
        assert text =~ "FunctionClauseError"
        assert line =~ "Nx.abs("
      end)
    end

    test "a call that hangs" do
      planted("{:abs, [t]}", "(Process.sleep(60_000); {:abs, [t]})", fn ->
        report = run(calls: 4, timeout: 400, only: [:abs])
        assert {_, %Finding{text: text}, _, line} = report.findings[{:hang, Nx, :abs}]
        assert text =~ "killed"
        assert line =~ "Nx.abs("
      end)
    end

    test "a message that is left in the mailbox" do
      send(self(), :left)
      chain = [%Step{module: Nx, name: :iota, args: [{2}]}]
      assert %Finding{kind: :message, text: text} = Run.check(chain, [])
      assert text =~ ":left"
      assert {:ok, _, _} = Run.check(chain, [:compiled, :again])
    end
  end

  defp run(opts) do
    {report, _warnings} =
      with_io(:stderr, fn ->
        [seed: @seed, processes: 2, round: 400, quiet: true]
        |> Keyword.merge(opts)
        |> Session.run()
      end)

    report
  end

  # With other code in the lowering of elementwise operations.
  defp planted(code, other, fun) do
    source = File.read!("lib/nx/lower/elementwise.ex")
    assert source =~ code
    Elixir.Code.put_compiler_option(:ignore_module_conflict, true)
    Elixir.Code.compile_string(String.replace(source, code, other))
    forget()
    fun.()
  after
    :code.purge(Mlx.Lower.Elementwise)
    {:module, _} = :code.load_file(Mlx.Lower.Elementwise)
    Elixir.Code.put_compiler_option(:ignore_module_conflict, false)
    forget()
  end

  # Programs that were lowered before.
  defp forget do
    :ets.delete_all_objects(Mlx.Backend.Programs)
    Mlx.Compiler.clear_cache()
  end
end
