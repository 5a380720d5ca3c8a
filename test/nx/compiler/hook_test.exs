defmodule Mlx.Compiler.HookTest do
  @moduledoc """
  Oracle: the messages that the same hooks send under `Nx.Defn.Evaluator`, in order.
  """
  use Mlx.CompilerCase, async: true

  defmodule Hooked do
    import Nx.Defn

    defn named(x) do
      y = hook(x + 1, :named)
      hook(y * 2, :default, &send(self(), {:default, Nx.to_number(&1)}))
    end

    defn unnamed(x), do: hook(x + 1, :named) * 3

    defn container(x) do
      {a, _b} = hook({x, %{y: x * 2}}, &send(self(), {:container, &1}))
      a
    end

    defn loop(x) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {i + 1, hook(x * 2 + i, &send(self(), {:step, Nx.to_number(&1)}))}
        end

      x
    end

    defn branch(x) do
      if x > 0 do
        if x > 10 do
          hook(x, &send(self(), {:large, Nx.to_number(&1)}))
        else
          x + 1
        end
        |> hook(&send(self(), {:any, Nx.to_number(&1)}))
      else
        x
      end
    end

    defn shared(x) do
      y = hook(x * 2, &send(self(), {:shared, Nx.to_number(&1)}))

      cond do
        x > 10 -> if x > 20, do: y + 1, else: y + y
        x > 0 -> y - 1
        true -> x
      end
    end

    defn shared_outside(x) do
      y = hook(x * 2, &send(self(), {:shared, Nx.to_number(&1)}))
      if(x > 0, do: if(x > 10, do: y + 1, else: x), else: x) + y
    end

    # The branch that is not always taken is met inside of the second cond first.
    defn used_twice(x) do
      y = if x > 0, do: x, else: hook(x * 2, &send(self(), {:negative, Nx.to_number(&1)}))
      if(x > 10, do: y + 1, else: y - 1) + y
    end

    defn loop_branch(x) do
      {_, x} =
        while {i = 0, x}, i < 4 do
          y =
            if Nx.remainder(x, 2) == 0,
              do: hook(x, &send(self(), {:even, Nx.to_number(&1)})),
              else: x

          {i + 1, y * 3 + i}
        end

      x
    end

    defn tokens(x), do: by_tokens(x, x * 3, x - 1)

    # Nx deprecates tokens; what is built with them still has to run.
    deftransformp by_tokens(x, first, second) do
      kernel = Nx.Defn.Kernel
      token = apply(kernel, :create_token, [])

      {token, first} =
        apply(kernel, :hook_token, [
          token,
          first,
          :first,
          &send(self(), {:first, Nx.to_number(&1)})
        ])

      {token, _} =
        apply(kernel, :hook_token, [token, second, &send(self(), {:second, Nx.to_number(&1)})])

      apply(kernel, :attach_token, [token, Nx.add(first, x)])
    end

    defn printed(x), do: print_value(Nx.sum(x))
  end

  # Hands out the trace of a function instead of its results.
  defmodule Traced do
    @behaviour Nx.Defn.Compiler

    @impl true
    def __jit__(_key, vars, fun, [_args], _opts), do: [Mlx.Compiler.Trace.run(fun.(vars), vars)]

    @impl true
    def __compile__(_key, _vars, _fun, _opts), do: raise("unused")
    @impl true
    def __partitions_options__(opts), do: [opts]
    @impl true
    def __to_backend__(_opts), do: {Nx.BinaryBackend, []}
  end

  defp run(fun, args, compiler, opts \\ []) do
    result = Nx.Defn.jit_apply(fun, args, [compiler: compiler] ++ opts)
    {Nx.to_number(result), messages()}
  end

  defp assert_same(fun, args, opts \\ []) do
    result = run(fun, args, Mlx.Compiler, opts)
    assert result == run(fun, args, Nx.Defn.Evaluator, opts)
    result
  end

  test "with a callback, and without one" do
    assert {8, [default: 8]} = assert_same(&Hooked.named/1, [3])
  end

  test "callbacks by name override, and may change without compiling again" do
    for tag <- [:a, :b] do
      hooks = %{
        named: &send(self(), {tag, Nx.to_number(&1)}),
        default: &send(self(), {:other, Nx.to_number(&1)})
      }

      assert {8, [{^tag, 4}, {:other, 8}]} = assert_same(&Hooked.named/1, [3], hooks: hooks)
    end
  end

  test "a hook without a callback adds nothing to the program" do
    outputs = fn hooks ->
      Nx.Defn.compile(&Hooked.unnamed/1, [Nx.template({}, :s32)],
        compiler: Mlx.Compiler,
        hooks: hooks
      )

      assert_received {:stop, %{outputs: outputs}}
      outputs
    end

    id = {__MODULE__, self()}
    :telemetry.attach(id, [:mlx, :compile, :stop], &__MODULE__.forward/4, self())
    assert outputs.(%{}) == 1
    assert outputs.(%{named: & &1}) == 2
  after
    :telemetry.detach({__MODULE__, self()})
  end

  def forward(_event, _measurements, metadata, test) do
    if self() == test, do: send(test, {:stop, metadata})
  end

  test "with containers" do
    assert {3, [container: {a, %{y: y}}]} = run(&Hooked.container/1, [3], Mlx.Compiler)
    assert {Nx.to_number(a), Nx.to_number(y)} == {3, 6}
    assert %Mlx.Backend{} = y.data
  end

  test "with the axes of vectors" do
    fun = fn x -> Nx.Defn.Kernel.hook(x, &send(self(), {:hooked, &1.names, Nx.shape(&1)})) end
    x = Nx.vectorize(Nx.tensor([1, 2, 3]), :x)

    for compiler <- [Mlx.Compiler, Nx.Defn.Evaluator] do
      assert Nx.Defn.jit_apply(fun, [x], compiler: compiler).vectorized_axes == [x: 3]
      assert messages() == [{:hooked, [:x], {3}}]
    end
  end

  test "inside loops" do
    assert {_, [step: _, step: _, step: _]} = assert_same(&Hooked.loop/1, [1])
  end

  # Later versions of Nx have no tokens.
  @tag skip: not function_exported?(Nx.Defn.Kernel, :create_token, 0)
  test "row 8: by tokens" do
    assert {16, [first: 12, second: 3]} = assert_same(&Hooked.tokens/1, [4])
  end

  test "inside Nx.Defn.compile/3" do
    fun =
      Nx.Defn.compile(&Hooked.named/1, [Nx.template({}, :s32)],
        compiler: Mlx.Compiler,
        hooks: %{named: &send(self(), {:named, Nx.to_number(&1)})}
      )

    assert Nx.to_number(fun.(Nx.tensor(3))) == 8
    assert messages() == [named: 4, default: 8]
  end

  test "print_value/1" do
    io =
      ExUnit.CaptureIO.capture_io(fn ->
        run(&Hooked.printed/1, [Nx.tensor([1, 2])], Mlx.Compiler)
      end)

    assert io =~ "3"
  end

  test "that raise raise in the caller" do
    fun = fn x -> Nx.Defn.Kernel.hook(x, fn _ -> raise "from the hook" end) end
    assert_raise RuntimeError, "from the hook", fn -> run(fun, [1], Mlx.Compiler) end
  end

  test "inside branches, when these are taken" do
    for x <- [-3, 3, 30], do: assert_same(&Hooked.branch/1, [x])
    assert {_, [large: 30, any: 30]} = assert_same(&Hooked.branch/1, [30])
    assert {_, []} = assert_same(&Hooked.branch/1, [-3])
  end

  test "that branches share run once" do
    for x <- [-3, 3, 30], fun <- [&Hooked.shared/1, &Hooked.shared_outside/1] do
      {_, messages} = assert_same(fun, [x])
      assert length(messages) <= 1
    end
  end

  test "in a branch whose value serves another are called when it is taken" do
    for x <- [3, 30], do: assert({_, []} = assert_same(&Hooked.used_twice/1, [x]))
    assert {_, [negative: -6]} = assert_same(&Hooked.used_twice/1, [-3])
  end

  test "of a loop that is written out are called as it goes" do
    for {fun, attended?} <- [{&Hooked.loop/1, true}, {&Hooked.named/1, false}] do
      args = [Nx.template({}, :s32)]
      assert %{attended?: ^attended?} = Nx.Defn.jit_apply(fun, args, compiler: Traced)
    end
  end

  test "inside branches inside loops" do
    for x <- [0, 1], do: assert_same(&Hooked.loop_branch/1, [x])
  end

  test "stream from Nx.Serving" do
    serving = Nx.Serving.jit(&Hooked.unnamed/1, compiler: Mlx.Compiler)
    serving = Nx.Serving.streaming(serving, hooks: [:named])
    name = :"hooks_#{System.unique_integer([:positive])}"
    start_supervised!({Nx.Serving, serving: serving, name: name, batch_size: 1})

    events =
      name |> Nx.Serving.batched_run(Nx.Batch.concatenate([Nx.tensor([1])])) |> Enum.to_list()

    assert [{:named, hooked}, {:batch, _, _} | _] = Enum.map(events, &event/1)
    assert Nx.to_flat_list(hooked) == [2]
  end

  defp event({:batch, output}), do: {:batch, output, nil}
  defp event(other), do: other
end
