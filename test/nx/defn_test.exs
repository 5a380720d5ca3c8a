defmodule Mlx.DefnTest do
  @moduledoc """
  Oracle: a compiler that tells the test who compiled what, and otherwise is the evaluator.
  """
  use ExUnit.Case, async: true

  defmodule Recorder do
    @behaviour Nx.Defn.Compiler
    alias Nx.Defn.Evaluator

    @impl true
    def __jit__(key, vars, fun, args, opts) do
      send(self(), {:jit, opts[:tag], key})
      Evaluator.__jit__(key, vars, fun, args, opts)
    end

    @impl true
    def __compile__(key, vars, fun, opts), do: Evaluator.__compile__(key, vars, fun, opts)
    @impl true
    def __partitions_options__(opts), do: [opts]
    @impl true
    def __to_backend__(_opts), do: {Nx.BinaryBackend, []}
  end

  defmodule Default do
    use Mlx.Defn

    @doc "Twice a tensor."
    @spec double(Nx.Tensor.t()) :: Nx.Tensor.t()
    defn double(t), do: t * 2

    defn quadruple(t), do: double(double(t))
    defn scaled(t, opts \\ []), do: t * opts[:by]
    defn between(low \\ 0, t, high \\ 10), do: Nx.clip(t, low, high)
    defn pair({a, b}, %{c: c}), do: {a + b, %{d: hidden(c)}}
    defn constant(), do: Nx.tensor([1, 2])
    defn ignores(_a, b), do: b

    deftransform shape(t), do: {:shape, Nx.shape(t)}
    defnp hidden(t), do: t - 1
    def plain(t), do: {:plain, t}
  end

  defmodule Recorded do
    use Mlx.Defn
    @defn_compiler {Mlx.DefnTest.Recorder, tag: :first}

    defn double(t), do: t * 2

    @defn_compiler {Mlx.DefnTest.Recorder, tag: :last}
    defn call_other(t), do: Mlx.DefnTest.Default.double(t) + 1
    defn scaled(t, opts \\ []), do: t * opts[:by]
  end

  defmodule OnCpu do
    import Nx.Defn
    use Mlx.Defn
    @defn_compiler {Mlx.Compiler, device: :cpu}
    defn double(t), do: t * 2
  end

  defmodule Evaluated do
    use Mlx.Defn
    @defn_compiler Nx.Defn.Evaluator
    defn double(t), do: t * 2
  end

  setup do
    Nx.default_backend(Nx.BinaryBackend)
    :ok
  end

  defp mlx?(t), do: match?(%Mlx.Backend{}, t.data)

  test "Mlx.Compiler is the default" do
    t = Default.double(Nx.tensor([1, 2]))
    assert mlx?(t)
    assert Nx.to_flat_list(t) == [2, 4]
  end

  test "the attribute wins over the default options, and its last value counts" do
    Nx.Defn.default_options(compiler: Mlx.Compiler, tag: :process)
    t = Recorded.double(Nx.tensor([1, 2]))
    assert Nx.to_flat_list(t) == [2, 4]
    assert_received {:jit, :last, _}
    refute_received {:jit, _, _}
    refute mlx?(Evaluated.double(Nx.tensor(1)))
  after
    Process.delete({Nx.Defn, :default_compiler})
  end

  test "options reach the compiler" do
    assert mlx?(OnCpu.double(Nx.tensor(1)))
  end

  test "inside another defn it is inlined" do
    assert Nx.to_number(Recorded.call_other(Nx.tensor(3))) == 7
    assert_received {:jit, :last, _}
    refute_received {:jit, _, _}

    assert mlx?(Default.quadruple(Nx.tensor(3)))
  end

  test "an explicit compiler wins, at every entry" do
    t = Nx.tensor([1, 2])
    refute mlx?(Nx.Defn.jit(&Default.double/1, compiler: Nx.Defn.Evaluator).(t))
    assert mlx?(Nx.Defn.jit(&Recorded.double/1, compiler: Mlx.Compiler).(t))
    refute_received {:jit, _, _}

    compiled = Nx.Defn.compile(&Recorded.double/1, [t], compiler: Mlx.Compiler)
    assert mlx?(compiled.(t))
    refute_received {:jit, _, _}
    assert Nx.to_number(Nx.Defn.grad(Nx.tensor(1.0), &Recorded.double/1)) == 2.0
    refute_received {:jit, _, _}
  end

  test "default arguments" do
    t = Nx.tensor([-5, 5, 15])
    assert Nx.to_flat_list(Default.scaled(t, by: 3)) == [-15, 15, 45]
    assert Nx.to_flat_list(Default.between(t)) == [0, 5, 10]
    assert Nx.to_flat_list(Default.between(1, t)) == [1, 5, 10]
    assert Nx.to_flat_list(Default.between(1, t, 7)) == [1, 5, 7]
    assert mlx?(Default.between(t))
  end

  test "containers, no arguments, ignored arguments" do
    assert {a, %{d: d}} = Default.pair({Nx.tensor(1), 2}, %{c: Nx.tensor(5)})
    assert {Nx.to_number(a), Nx.to_number(d)} == {3, 4}
    assert Nx.to_flat_list(Default.constant()) == [1, 2]
    assert Nx.to_number(Default.ignores(1, 2)) == 2
  end

  test "transforms and functions are left alone" do
    assert Default.shape(Nx.tensor([1, 2])) == {:shape, {2}}
    assert Default.plain(1) == {:plain, 1}
    refute function_exported?(Default, :hidden, 1)
  end

  test "the key is the same at every call" do
    for _ <- 1..2, do: Recorded.double(Nx.tensor(1))
    assert_received {:jit, :last, key}
    assert_received {:jit, :last, ^key}
    for _ <- 1..2, do: Recorded.scaled(Nx.tensor(1), by: 2)
    assert_received {:jit, :last, key}
    assert_received {:jit, :last, ^key}
  end

  test "traces once" do
    source = """
    defmodule Mlx.DefnTest.Traced do
      use Mlx.Defn
      defn twice(t), do: announce(t * 2)
      deftransformp announce(t) do
        send(self(), :traced)
        t
      end
    end
    """

    assert compile(source) == []
    twice = Function.capture(Mlx.DefnTest.Traced, :twice, 1)
    for i <- 1..3, do: assert(Nx.to_number(twice.(Nx.tensor(i))) == 2 * i)
    assert_received :traced
    refute_received :traced
  end

  test "docs stay" do
    source = """
    defmodule Mlx.DefnTest.Documented do
      use Mlx.Defn
      @doc "Twice."
      defn twice(t), do: t * 2
    end
    """

    docs? = Code.get_compiler_option(:docs)
    Code.put_compiler_option(:docs, true)
    [{module, binary}] = Code.compile_string(source)
    Code.put_compiler_option(:docs, docs?)
    {:ok, {_, [{~c"Docs", docs}]}} = :beam_lib.chunks(binary, [~c"Docs"])
    {:docs_v1, _, _, _, _, _, entries} = :erlang.binary_to_term(docs)

    assert Enum.any?(
             entries,
             &match?({{:function, :twice, 1}, _, ["twice(t)"], %{"en" => "Twice."}, _}, &1)
           )

    :code.purge(module)
  end

  # What the compiler had to say.
  defp compile(source) do
    {_modules, diagnostics} =
      Code.with_diagnostics(fn -> Code.compile_string(source, "example.ex") end)

    diagnostics
  end

  describe "compiles without a warning" do
    test "with and without a defn, with and without the attribute" do
      for {body, i} <-
            Enum.with_index([
              "",
              "defn f(t), do: t",
              "@defn_compiler {Mlx.Compiler, device: :cpu}\ndefn f(t, opts \\\\ []), do: t * opts[:by]",
              "defnp f(t), do: t\ndefn g(t), do: f(t)",
              "import Nx.Defn\ndeftransformp f(t), do: t\ndefn g(t), do: f(t)",
              "def f(t), do: t",
              "defn f({a, _b}), do: a\ndefn f(a, %{b: b} = _c), do: a + b"
            ]) do
        assert compile("defmodule Mlx.DefnTest.Quiet#{i} do\nuse Mlx.Defn\n#{body}\nend") == []
      end
    end
  end

  describe "an attribute that names no compiler" do
    for {value, message} <- [
          {"\"mlx\"", ~r"such as \{Mlx.Compiler, device: :cpu\}, got: \"mlx\""},
          {":nope", ~r"names :nope, which is not available"},
          {"String", ~r"names String, which is not available or does not implement"},
          {"{Mlx.Compiler, :cpu}", ~r"got: \{Mlx.Compiler, :cpu\}"},
          {"{Mlx.Compiler, [:cpu]}", ~r"got: \{Mlx.Compiler, \[:cpu\]\}"},
          {"{Mlx.Compiler, hooks: %{a: fn x -> x end}}", ~r"got: \{Mlx.Compiler"},
          {"true", ~r"got: true"}
        ] do
      test value do
        source = """
        defmodule Mlx.DefnTest.Bad do
          use Mlx.Defn
          @defn_compiler #{unquote(value)}
          defn f(t), do: t
        end
        """

        error = assert_raise CompileError, fn -> compile(source) end
        assert Exception.message(error) =~ unquote(Macro.escape(message))
      end
    end
  end
end
