defmodule Mlx.Property do
  @moduledoc false
  # Properties of the callbacks of `Nx.Backend` and of the blocks of Nx: a property names those
  # that it is about, runs many times on random operands, and fails when it never came to
  # `Mlx.Backend`'s function of that name. So the names under which properties stand are what is
  # tested, and `Mlx.Backend.CoverageTest` can read them off the sources.

  import ExUnit.Assertions

  alias Mlx.Generators

  @runs 25
  @runs_each 3

  @doc """
  A test for each of `names`, callbacks or structs of blocks:

      property [:add, :subtract], "wrap", [over: int_types()], fn op, type -> ... end

  Options: `:runs`, how often; `:over`, a list whose members are passed as a second argument, each
  for `:runs` runs. A failure prints the line that repeats it.
  """
  defmacro property(names, text, opts \\ [], fun) do
    at = "#{Path.relative_to_cwd(__CALLER__.file)}:#{__CALLER__.line}"

    for name <- names |> Macro.expand(__CALLER__) |> List.wrap() do
      quote do
        test "#{inspect(unquote(name))} #{unquote(text)}" do
          Mlx.Property.run(unquote(name), unquote(at), unquote(opts), unquote(fun))
        end
      end
    end
  end

  @doc "What `property/4` expands to."
  def run(name, at, opts, fun) do
    over = Keyword.get(opts, :over, [nil])
    each = Keyword.get(opts, :runs, if(opts[:over], do: @runs_each, else: @runs))
    runs = for(item <- over, _ <- 1..each, do: item) |> Enum.with_index(1)
    runs = if only(), do: Enum.filter(runs, fn {_, run} -> run == only() end), else: runs

    calls = count_calls(name, fn -> for run <- runs, do: once(run, name, at, fun) end)
    assert calls > 0, "the property never came to Mlx.Backend's #{inspect(name)}"
  end

  defp once({item, run}, name, at, fun) do
    Generators.seed(run, name)
    if is_function(fun, 2), do: fun.(name, item), else: fun.(name)
  rescue
    error ->
      IO.puts("""

      repeat with: MLX_RUN=#{run} mix test #{at} --seed #{ExUnit.configuration()[:seed]}
      """)

      reraise error, __STACKTRACE__
  end

  defp only do
    if run = System.get_env("MLX_RUN"), do: String.to_integer(run)
  end

  # The first argument of a block's callback is its struct; arguments as such are not copied.
  @struct [{[:"$1", :_, :_, :_], [], [{:message, {:map_get, :__struct__, :"$1"}}]}]

  @doc "How often this process calls the callback or block `name` of `Mlx.Backend` in `fun`."
  def count_calls(name, fun) do
    {function, spec} = if block?(name), do: {:block, @struct}, else: {name, true}
    Code.ensure_loaded!(Mlx.Backend)
    :erlang.trace_pattern({Mlx.Backend, function, :_}, spec, [])
    called = if block?(name), do: name, else: {Mlx.Backend, name}
    fun |> calls() |> Enum.count(&(&1 == called))
  end

  @doc """
  The calls that `fun` makes of functions with a trace pattern, in order: `{module, name}`, or what
  the pattern says.
  """
  def calls(fun) do
    test = self()
    tracer = spawn_link(fn -> collect([]) end)
    :erlang.trace(test, true, [:call, :arity, {:tracer, tracer}])
    fun.()
    :erlang.trace(test, false, [:call])
    delivered = :erlang.trace_delivered(test)
    assert_receive {:trace_delivered, ^test, ^delivered}, 10_000
    send(tracer, {:calls, test})
    assert_receive {^tracer, calls}, 10_000
    calls
  end

  defp collect(calls) do
    receive do
      {:trace, _pid, :call, {module, name, _arity}} -> collect([{module, name} | calls])
      {:trace, _pid, :call, _function, struct} -> collect([struct | calls])
      {:calls, pid} -> send(pid, {self(), Enum.reverse(calls)})
    end
  end

  defp block?(name), do: match?("Elixir." <> _, Atom.to_string(name))
end
