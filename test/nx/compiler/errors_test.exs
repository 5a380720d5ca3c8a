defmodule Mlx.Compiler.ErrorsTest do
  @moduledoc """
  Which function an error comes from. Oracle: the source file of `Mlx.Functions`.
  """
  use Mlx.CompilerCase, async: false

  alias Mlx.{Functions, Source}

  defp place(name), do: "(#{Functions.file()}:#{Functions.line(name)})"

  describe "at compile time" do
    test "names the function, its file and its line" do
      error = catch_error(jit(&Functions.unknown/1, [Nx.tensor(1)]))
      assert %Mlx.Error{kind: :unsupported, op: "mystery", stage: :compile} = error
      assert error.function == {Functions, :unknown, 1, []}

      assert Exception.message(error) =~
               ~r/\Amystery: .*\n\nWhile compiling &Mlx.Functions.unknown\/1 #{Regex.escape(place("unknown"))}\z/s
    end

    test "as ordinary code calls it, and as Nx wraps it" do
      Nx.Defn.default_options(compiler: Mlx.Compiler)
      by_name = "&Mlx.Functions.unknown/1 #{place("unknown")}"
      assert Exception.message(catch_error(Functions.unknown(1))) =~ by_name

      error = catch_error(Functions.Governed.unknown(1))
      assert error.function == {Functions.Governed, :unknown, 1, []}
      line = Functions.Governed.line()

      assert Exception.message(error) =~
               "&Mlx.Functions.Governed.unknown/1 (#{Functions.file()}:#{line})"

      for wrap <- [&Nx.Defn.grad/1, &Nx.Defn.value_and_grad/1],
          do: assert(Source.entry(wrap.(&Functions.plain/1)) == {Functions, :plain, 1, []})

      with_option = fn -> jit(fn _opts, x -> Functions.unknown(x) end, [[a: 1], 1]) end

      assert Exception.message(catch_error(with_option.())) =~
               "anonymous fn/2 in #{inspect(__MODULE__)}"
    after
      Nx.Defn.default_options([])
    end

    test "also for programs that are saved, and for what is not Mlx's own exception" do
      large = Nx.iota({300}, backend: Nx.BinaryBackend)
      add = Functions.anonymous(large)

      error = assert_raise ArgumentError, fn -> Mlx.Compiler.to_program(add, [large]) end
      place = place("anonymous")
      assert error.message =~ "cannot export a function that captures a tensor of 300 elements"

      assert error.message =~
               "While compiling anonymous fn/1 in Mlx.Functions.anonymous/1 #{place}"
    end

    test "what the function itself raises is raised as it is" do
      error =
        try do
          jit(&Functions.failing/1, [1])
        rescue
          error -> {error, __STACKTRACE__}
        end

      assert {%ArgumentError{message: "of the function itself"}, [{Functions, name, 1, info} | _]} =
               error

      assert Atom.to_string(name) =~ "failing_here"
      assert info[:line] == Functions.line("failing") + 2
    end

    test "c128, where the policy is to raise" do
      wide = Nx.tensor(Complex.new(1, 2), type: :c128, backend: Nx.BinaryBackend)
      error = catch_error(jit(&Nx.multiply(&1, 2), [wide]))
      assert %Mlx.Error{kind: :unsupported, op: "jit", stage: :compile} = error

      assert Exception.message(error) =~
               "While compiling anonymous fn/1 in #{inspect(__MODULE__)}"
    end
  end

  describe "at run time" do
    # Whatever fails, the limit is the machine's.
    setup do
      limit = Mlx.Memory.info().limit
      on_exit(fn -> Mlx.Memory.set_limit(limit) end)
    end

    test "a result beyond the memory limit" do
      fun = Nx.Defn.jit(&Functions.large/1, compiler: Mlx.Compiler)
      assert Nx.to_number(Nx.sum(fun.(1.0))) == 1_048_576.0
      limit = Mlx.Memory.set_limit(1_000_000)
      result = fun.(1.0)
      error = catch_error(Nx.to_binary(result))
      derived = catch_error(Nx.to_binary(Nx.add(jit(&Functions.plain/1, [result]), 1)))

      eager =
        catch_error(Nx.to_binary(jit(&Functions.plain/1, [Nx.broadcast(1.0, {1024, 1024})])))

      Mlx.put_dispatch(:sync)
      at_once = catch_error(fun.(1.0))
      Mlx.put_dispatch(:async)
      Mlx.Memory.set_limit(limit)

      assert %Mlx.Error{kind: :out_of_memory, stage: :run} = error
      assert error.function == {Functions, :large, 1, []}

      assert Exception.message(error) =~
               ~r/work in smaller pieces\n\nIn the compiled function &Mlx.Functions.large\/1 #{Regex.escape(place("large"))}\z/

      # Whoever reads what is computed from it learns where it began, and so for eager operations.
      assert derived == error
      assert at_once == error
      assert %Mlx.Error{kind: :out_of_memory, function: nil} = eager
      assert Nx.to_number(Nx.sum(fun.(1.0))) == 1_048_576.0
    end

    test "a device that is stopped by what a program calls" do
      fun = fn t ->
        t = Nx.runtime_call(t, t, [], fn t, _ -> Mlx.Device.stop(Mlx.Device.default()) && t end)
        Nx.add(t, 1)
      end

      error = catch_error(jit(fun, [1]))
      assert %Mlx.Error{kind: :stopped, function: {__MODULE__, _, 1, []}, stage: :run} = error
    end

    test "an argument that is not what it was announced to be" do
      lying = %Functions.Lying{announced: Nx.iota({2}), held: Nx.iota({3})}
      error = catch_error(Nx.to_binary(jit(&Functions.plain/1, [lying])))
      assert %Mlx.Error{kind: :invalid_argument, function: {Functions, :plain, 1, []}} = error
      assert Exception.message(error) =~ "input 0 is a Int32 array of shape [2]"
      assert Exception.message(error) =~ "In the compiled function &Mlx.Functions.plain/1"
    end

    test "an operation of a program that waits for its caller" do
      fun = fn t ->
        t = Nx.runtime_call(t, t, [], fn t, _ -> t end)
        Nx.broadcast(t, {1024, 1024})
      end

      limit = Mlx.Memory.set_limit(1_000_000)
      error = catch_error(jit(fun, [1.0]))
      Mlx.Memory.set_limit(limit)
      assert %Mlx.Error{kind: :out_of_memory, function: {__MODULE__, _, 1, []}} = error
    end
  end

  describe "what a hook or a call raises" do
    @line __ENV__.line
    def raising(_t), do: raise("from the hook")
    def raising(_t, _opts), do: raise("from the call")

    for {name, line, fun} <- [
          {"a hook", 1, quote(do: &Nx.Defn.Kernel.hook(&1, fn t -> raising(t) end))},
          {"a runtime_call", 2,
           quote(do: &Nx.runtime_call(&1, &1, [], fn t, opts -> raising(t, opts) end))}
        ] do
      test "#{name} keeps its stacktrace" do
        {error, stack} =
          try do
            jit(unquote(fun), [Nx.tensor(1)])
          rescue
            error -> {error, __STACKTRACE__}
          end

        assert %RuntimeError{message: "from the " <> _} = error
        assert [{__MODULE__, :raising, _, info} | _] = stack
        assert info[:line] == @line + unquote(line)
      end
    end
  end
end
