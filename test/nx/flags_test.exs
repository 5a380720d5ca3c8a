defmodule Mlx.NxFlagsTest do
  @moduledoc """
  Where flags come from under `Mlx.Backend` and `Mlx.Compiler`, and that they leave nothing behind.
  Oracle: the documentation of both; programs without flags.
  """
  use Mlx.NxCase, async: true

  import Mlx.CompilerCase, only: [jit: 3]

  alias Mlx.{Backend, Error, Flags, Functions, Stream}
  alias Mlx.Compiler.Trace

  @outside ~r/^index 3 is out of bounds for axis 0 in shape \{3\}/

  defp outside, do: Nx.tensor([0, 3])

  describe "as options of the backend" do
    test "they go with the tensors that are made, and with what comes of these" do
      plain = Nx.iota({3})
      backend = {Backend, device: device(), bounds_check: true}

      for t <- [
            Nx.tensor([1, 2, 3], backend: backend),
            Nx.iota({3}, backend: backend),
            Nx.backend_copy(plain, backend),
            Nx.backend_transfer(Nx.iota({3}), backend),
            Nx.add(plain, Nx.tensor(1, backend: backend)),
            Nx.reverse(Nx.negate(Nx.iota({3}, backend: backend))),
            Nx.take(Nx.iota({3}, backend: backend), Nx.tensor([0, 1, 2])),
            Nx.concatenate([Nx.tensor([1, 2]), Nx.tensor([3], backend: backend)])
          ] do
        assert_raise ArgumentError, @outside, fn -> Nx.take(t, outside()) end
        assert_raise ArgumentError, @outside, fn -> Nx.gather(t, Nx.new_axis(outside(), 1)) end
        # A copy to where there are none has none.
        assert Nx.to_flat_list(Nx.take(Nx.backend_copy(t, {Backend, device: device()}), 3)) != []
      end

      assert %Nx.Tensor{} = Nx.take(plain, outside())
    end

    test "as those of the default backend" do
      Nx.default_backend({Backend, device: device(), detect_non_finite: :nan})
      assert_raise Error, ~r/^divide: it made NaN/, fn -> Nx.divide(Nx.tensor([0.0]), 0) end
      Nx.default_backend({Backend, device: device()})
      assert Nx.to_flat_list(Nx.divide(Nx.tensor([0.0]), 0)) == [:nan]
    end

    test "with a number of another backend among the operands" do
      backend = {Backend, device: device(), dispatch: :sync, detect_non_finite: true}
      zero = Nx.tensor([0.0], backend: backend)
      number = Nx.tensor(1, backend: Nx.BinaryBackend)
      assert_raise Error, ~r/^divide: it made infinity/, fn -> Nx.divide(number, zero) end
      sum = Nx.add(number, zero)
      assert sum.data.flags == %Flags{dispatch: :sync, detect_non_finite: true}
      assert Nx.to_flat_list(sum) == [1.0]
    end

    test "compiled functions do not look at them" do
      t = Nx.iota({3}, backend: {Backend, device: device(), bounds_check: true})
      taken = jit(&Functions.pick/2, [t, outside()], [])
      assert Nx.to_flat_list(taken) == [0, 2]
      assert taken.data.flags == nil
    end

    test "wrong ones raise, also where Nx does not have them checked" do
      message = "the option :bounds_check of Mlx.Backend must be false or true, got: 1"
      backend = {Backend, bounds_check: 1}
      assert_raise ArgumentError, message, fn -> Nx.default_backend(backend) end
      assert_raise ArgumentError, message, fn -> Nx.tensor([1], backend: backend) end
      assert_raise ArgumentError, message, fn -> Nx.iota({1}, backend: backend) end

      assert_raise ArgumentError, ~r/unknown keys \[:bounds\]/, fn ->
        Nx.default_backend({Backend, bounds: true})
      end
    end
  end

  def compiled(_event, _times, %{key: fun}, {fun, test}), do: send(test, :compiled)
  def compiled(_event, _times, _of_others, _config), do: :ok

  describe "as options of the compiler" do
    test "each program is of its own, and found again" do
      t = Nx.iota({3})
      fun = fn t, i -> Nx.multiply(Nx.take(t, i), 7) end
      on = [bounds_check: true]
      events = fn -> Enum.count(Mlx.CompilerCase.messages(), &(&1 == :compiled)) end
      id = {__MODULE__, make_ref()}
      test = self()

      :telemetry.attach(
        id,
        [:mlx, :compile, :stop],
        &__MODULE__.compiled/4,
        {fun, test}
      )

      for _ <- 1..2 do
        assert Nx.to_flat_list(jit(fun, [t, outside()], [])) == [0, 14]
        assert_raise ArgumentError, @outside, fn -> jit(fun, [t, outside()], on) end
        jit(fun, [t, outside()], check_results: true)
        # Neither changes a program.
        jit(fun, [t, outside()], dispatch: :sync)
        jit(fun, [t, outside()], check_results: :eager)
        Mlx.with_flags(on, fn -> catch_error(jit(fun, [t, outside()], [])) end)
        Mlx.with_flags(on, fn -> jit(fun, [t, outside()], bounds_check: false) end)
      end

      :telemetry.detach(id)
      assert events.() == 3
    end

    test "the process's count where there is no option" do
      t = Nx.iota({3})
      call = fn opts -> jit(&Functions.pick/2, [t, outside()], opts) end

      Mlx.with_flags([bounds_check: true], fn ->
        assert_raise ArgumentError, @outside, fn -> call.([]) end
        assert Nx.to_flat_list(call.(bounds_check: false)) == [0, 2]
      end)

      assert Nx.to_flat_list(call.([])) == [0, 2]
    end

    test "what is compiled ahead keeps those that it was compiled with" do
      t = Nx.iota({3})
      templates = [Nx.to_template(t), Nx.to_template(outside())]

      compile =
        &Nx.Defn.compile(fn t, i -> Nx.take(t, i) end, templates, [compiler: Mlx.Compiler] ++ &1)

      plain = compile.([])
      by_option = compile.(bounds_check: true)
      by_process = Mlx.with_flags([bounds_check: true], fn -> compile.([]) end)
      assert_raise ArgumentError, @outside, fn -> by_option.(t, outside()) end
      assert_raise ArgumentError, @outside, fn -> by_process.(t, outside()) end
      on = fn -> Nx.to_flat_list(plain.(t, outside())) end
      assert on.() == [0, 2]
      assert Mlx.with_flags([bounds_check: true, dispatch: :sync], on) == [0, 2]
    end

    test "a program that is exported has no checks" do
      args = [Nx.template({3}, :s32), Nx.template({2}, :s32)]
      export = &Mlx.Compiler.to_program(fn t, i -> Nx.take(t, i) end, args, &1).instructions
      assert export.(bounds_check: true) == export.([])
    end

    test "debug: true shows the checks" do
      opts = [debug: true, bounds_check: true, check_results: true]
      call = fn -> jit(&Functions.pick/2, [Nx.iota({3}), Nx.tensor([0, 1])], opts) end
      text = ExUnit.CaptureIO.capture_io(call)
      assert text =~ "%2 = check_bounds %1 of take\n  %3 = take_axis %0, %2 0\n"
      assert text =~ "%4 = check_result %3 of take, s32[2]\n"
    end

    test "wrong ones raise" do
      for {opts, message} <- [
            {[bounds_check: nil],
             ~r/:bounds_check of Mlx.Compiler must be false or true, got: nil/},
            {[detect_non_finite: "nan"], ~r/must be false, true, :nan or :infinity, got: "nan"/},
            {[check_results: :all], ~r/must be false, true or :eager, got: :all/},
            {[dispatch: true], ~r/must be :async or :sync, got: true/}
          ] do
        assert_raise ArgumentError, message, fn -> jit(&Nx.negate/1, [1], opts) end
        assert_raise ArgumentError, message, fn -> Mlx.Compiler.__partitions_options__(opts) end
      end
    end

    test "a function with c128 in it is evaluated with them" do
      wide = Nx.tensor(Complex.new(1, 2), type: :c128, backend: Nx.BinaryBackend)
      fun = fn t, i, wide -> {Nx.take(t, i), Nx.multiply(wide, 2)} end
      args = [Nx.iota({3}), outside(), wide]
      assert_raise Error, ~r/does not support it/, fn -> jit(fun, args, bounds_check: true) end
    end
  end

  describe "dispatch: :sync" do
    # More than any machine has.
    defp large(x), do: Nx.negate(Nx.broadcast(x, {1_000_000, 1_000_000}))

    test "raises where a compiled function is called, on a stream as well" do
      x = Nx.tensor(1.0)
      assert %Nx.Tensor{} = poisoned = jit(&large/1, [x], [])
      assert_raise Error, ~r/memory limit/, fn -> Nx.to_binary(poisoned) end

      for opts <- [[], [stream: Stream.new(device())]] do
        error = catch_error(jit(&large/1, [x], [dispatch: :sync] ++ opts))
        assert %Error{kind: :out_of_memory, function: {__MODULE__, _, 1, _}} = error

        assert_raise Error, fn ->
          Mlx.with_flags([dispatch: :sync], fn -> jit(&large/1, [x], opts) end)
        end
      end

      compiled = Nx.Defn.compile(&large/1, [x], compiler: Mlx.Compiler, dispatch: :sync)
      assert_raise Error, fn -> compiled.(x) end
      compiled = Nx.Defn.compile(&large/1, [x], compiler: Mlx.Compiler)
      assert %Nx.Tensor{} = compiled.(x)
      assert_raise Error, fn -> Mlx.with_flags([dispatch: :sync], fn -> compiled.(x) end) end
    end

    test "waits for the results of a call, also of one that its caller attends" do
      stream = Stream.new(device())
      x = Nx.iota({500_000}, type: :f32)
      long = fn x -> Enum.reduce(1..20, x, fn _, x -> Nx.sin(x) end) end
      called = fn x -> long.(Nx.runtime_call(x, x, [], fn x, _ -> x end)) end

      for fun <- [long, called] do
        y = jit(fun, [x], stream: stream, fuse: false, dispatch: :sync)
        # Only what is known to be computed is lent to another worker without a question.
        assert {lent?(y), Nx.shape(y)} == {true, {500_000}}
        z = jit(fun, [x], stream: stream, fuse: false)
        refute lent?(z)
        Stream.sync(stream)
      end
    end

    defp lent?(%{data: %Backend{ref: ref}}) do
      program = Mlx.Native.build(1, [{:negative, [0]}], [1])
      Mlx.NIF.program_run(Stream.new(device()).worker, program, [ref]) != :scattered
    end
  end

  describe "off" do
    test "programs are what they are without flags, instruction for instruction" do
      Mlx.Generators.seed(1)

      for {_name, samples} <- Mlx.Zoo.table(), {fun, args} <- Enum.take(samples, 2) do
        expr = apply(Nx.Defn.debug_expr(fun), args)
        plain = Trace.run(expr, [])
        assert Trace.run(expr, [], flags: :off) === plain

        # Nothing is left of those that change no program.
        flags = Flags.compiled(%Flags{dispatch: :sync, check_results: :eager})
        assert Trace.run(expr, [], flags: flags) === plain
      end

      assert :erlang.term_to_binary(Mlx.Compiler.Options.variant(Mlx.Compiler.Options.parse!([]))) ==
               :erlang.term_to_binary(true)
    end

    # The rest of the suite compares what it makes with what Nx announced.
    test "every operation gives the same, at the first, second and third time" do
      Mlx.Generators.seed(2)

      for {name, samples} <- Mlx.Zoo.table(),
          {fun, args} <- Enum.take(Enum.shuffle(samples), 3) do
        args = Enum.map(args, &mlx/1)
        expected = parts(apply(fun, args))

        Mlx.with_flags([check_results: false], fn ->
          assert Flags.current() == :off
          for _ <- 1..3, do: assert({name, parts(apply(fun, args))} == {name, expected})
        end)
      end
    end

    defp parts(made) do
      Nx.Defn.Composite.reduce(made, [], fn t, all -> [{t.type, t.shape, bytes(t)} | all] end)
    end

    test "with them a program has checks, and is else the same" do
      expr = Nx.Defn.debug_expr(&Functions.pick/2).(Nx.iota({3}), Nx.iota({2}))
      plain = Trace.run(expr, [])

      for {flags, checks} <- [
            {%Flags{bounds_check: true}, [:check_bounds]},
            {%Flags{check_results: true}, [:check_result]},
            {%Flags{bounds_check: true, check_results: true}, [:check_bounds, :check_result]},
            # Of integers there is nothing to be seen.
            {%Flags{detect_non_finite: true}, []}
          ] do
        trace = Trace.run(expr, [], flags: flags)

        names =
          for {op, _slots} <- trace.instructions, do: if(is_tuple(op), do: elem(op, 0), else: op)

        assert Enum.filter(names, &String.starts_with?(to_string(&1), "check_")) == checks
        assert length(names) == length(plain.instructions) + length(checks)
      end
    end
  end
end
