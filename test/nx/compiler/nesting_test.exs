defmodule Mlx.Compiler.NestingTest do
  @moduledoc """
  Every control form inside of every other. Oracle: `Nx.Defn.Evaluator` on `Mlx.Backend`, bit for
  bit, and the messages of hooks in its order; inside the function of a reduction, where the
  evaluator hands Mlx a function, `Nx.BinaryBackend`.
  """
  use ExUnit.Case, async: true

  defmodule Forms do
    @moduledoc false
    # Each takes a tensor of any shape, and a function that keeps it, to be called inside.
    import Nx.Defn

    # The predicate is there before the branches, which then are cheap enough to be selected.
    defn chosen(x, f) do
      s = Nx.sum(x)
      s + if(s > 0.5, do: f.(x) + 1, else: x * 0.5)
    end

    defn branched(x, f) do
      cond do
        Nx.sum(x) > 100 -> x
        Nx.sum(x) > 0.5 -> f.(x) + Nx.dot(x, x)
        true -> f.(x) - x * Nx.dot(x, x)
      end
    end

    defn unrolled(x, f) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {i + 1, Nx.reverse(f.(x)) * 0.5 + i}
        end

      x
    end

    # Too many iterations in all to be written out, few of the outer loop.
    defn repeated(x, f) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {i + 1, hundred_times(f.(x) * 0.25)}
        end

      x
    end

    defn repeated_by_counter(x, f) do
      {_, x} =
        while {i = 0, x}, i < 3 do
          {i + 1, hundred_times(f.(x) * 0.25 + i)}
        end

      x
    end

    defnp hundred_times(x) do
      {_, x} =
        while {j = 0, x}, j < 100 do
          {j + 1, -x}
        end

      x
    end

    defn counted(x, f) do
      {_, x} =
        while {i = 0, x}, i < 300 do
          {i + 1, f.(x)}
        end

      x
    end

    defn dynamic(x, f) do
      {_, x} =
        while {i = 0, x}, i < 3 and total(x) < 50 do
          {i + 1, f.(x) + 0.5}
        end

      x
    end

    deftransformp total(x), do: x |> Nx.devectorize() |> Nx.sum()

    # The evaluator calls the function of a block with tensors.
    def block(x, f) do
      y = Nx.devectorize(x, keep_names: false)
      opts = [compiler: Nx.Defn.Evaluator, hooks: hooks(), on_conflict: :reuse]

      inside = fn _struct, y ->
        Nx.Defn.jit_apply(fn y -> Nx.multiply(f.(y), 2) end, [y], opts)
      end

      like(Nx.block(%Mlx.Containers.Pair{}, [y], y, inside), x)
    end

    def reduce(x, f), do: Nx.add(x, Nx.reduce(x, 0.5, fn a, b -> Nx.add(f.(a), b) end))

    def window_reduce(x, f) do
      window = Tuple.duplicate(2, Nx.rank(x))
      Nx.window_reduce(x, 0.5, window, [padding: :same], fn a, b -> Nx.add(f.(a), b) end)
    end

    def hook(x, f), do: Nx.Defn.Kernel.hook(f.(x), &tell(:hook, &1))
    def named(x, f), do: Nx.Defn.Kernel.hook(f.(x), :named)
    def around(x, f), do: x |> Nx.Defn.Kernel.hook(&tell(:before, &1)) |> f.() |> Nx.add(x)

    def runtime_call(x, f) do
      y = f.(x)
      Nx.runtime_call(y, y, fn t, _ -> Nx.add(tell(:call, t), 0.5) end)
    end

    def token(x, f) do
      kernel = Nx.Defn.Kernel
      token = apply(kernel, :create_token, [])
      {token, y} = apply(kernel, :hook_token, [token, f.(x), &tell(:token, &1)])
      {token, _} = apply(kernel, :hook_token, [token, Nx.add(x, 1), :named, &tell(:second, &1)])
      apply(kernel, :attach_token, [token, Nx.add(y, x)])
    end

    def stopped(x, f), do: Nx.add(Nx.Defn.Kernel.stop_grad(f.(x)), f.(x))

    def custom(x, f) do
      Nx.Defn.Kernel.custom_grad(f.(x), [x], fn g -> [Nx.multiply(f.(g), 2)] end)
    end

    def vectorized(x, f) do
      name = :"v#{length(x.vectorized_axes)}"
      y = x |> Nx.new_axis(0) |> Nx.vectorize(name) |> then(f)
      y |> Nx.devectorize(keep_names: false) |> Nx.reshape(Nx.devectorize(x).shape) |> like(x)
    end

    def chosen_each(x, f) do
      y = if Nx.rank(x) == 0, do: Nx.new_axis(x, 0), else: x
      names = for i <- 1..Nx.rank(y), do: :"w#{i}_#{length(x.vectorized_axes)}"
      y = y |> Nx.vectorize(names) |> by_sign(f)
      y |> Nx.devectorize(keep_names: false) |> Nx.reshape(Nx.devectorize(x).shape) |> like(x)
    end

    defnp by_sign(x, f), do: if(x > 0, do: f.(x) + 1, else: x * 0.5)

    defp like(flat, x), do: Nx.vectorize(flat, x.vectorized_axes)

    def gradient(x, f), do: Nx.add(x, Nx.Defn.grad(x, fn x -> Nx.sum(f.(x)) end))

    def leaf(x), do: x |> Nx.multiply(1.25) |> Nx.subtract(0.5)

    def plus(x), do: Nx.add(leaf(x), x)
    def called(x), do: Nx.add(leaf(x), 0.5)

    def hooks, do: %{named: &tell(:named, &1)}

    def tell(tag, t) do
      send(self(), {tag, Mlx.NxCase.bytes(t)})
      t
    end
  end

  # Nx has tokens up to 0.13.
  @tokens if Code.ensure_loaded?(Nx.Defn.Kernel) and
               function_exported?(Nx.Defn.Kernel, :create_token, 0),
             do: [:token],
             else: []
  @effects [:hook, :named, :around, :runtime_call] ++ @tokens
  @folds [:reduce, :window_reduce]
  @vectors [:vectorized, :chosen_each]
  # The evaluator takes its time over gradients of loops in loops, on a later Nx above all.
  @moduletag timeout: 300_000

  @forms [:chosen, :branched, :unrolled, :repeated, :repeated_by_counter, :dynamic, :block] ++
           @folds ++
           @effects ++ [:stopped, :custom, :vectorized, :chosen_each, :gradient]

  # The first element, for what no oracle computes.
  @by_hand %{
    # x + (0.5 + the sum of 1.25x)
    {[:reduce, :window_reduce], 0.5} => 3.1875,
    {[:reduce, :window_reduce], -0.5} => -2.1875,
    # 0.5 + 1.25x, of x and its neighbour
    {[:window_reduce, :window_reduce], 0.5} => 3.0,
    {[:window_reduce, :window_reduce], -0.5} => -2.0,
    # (1.25x - 0.5) + x
    {[:token, :custom], 0.5} => 0.625,
    {[:token, :custom], -0.5} => -1.625
  }

  @inputs [[0.5, 1.5, -0.25], [-0.5, -1.5, 0.25]]

  # What forms with effects compute.
  @twins %{
    hook: &Forms.leaf/1,
    named: &Forms.leaf/1,
    around: &Forms.plus/1,
    token: &Forms.plus/1,
    runtime_call: &Forms.called/1
  }

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  defp nested(forms) do
    Enum.reduce(Enum.reverse(forms), &Forms.leaf/1, fn form, inner ->
      fn x -> apply(Forms, form, [x, inner]) end
    end)
  end

  defp run(fun, x, compiler) do
    result = Nx.Defn.jit_apply(fun, [x], compiler: compiler, hooks: Forms.hooks())
    {:ok, {result.type, result.shape, result.names, Mlx.NxCase.bytes(result)}, messages()}
  rescue
    # A construct that Nx itself refuses.
    error in [ArgumentError, RuntimeError, Protocol.UndefinedError, Mlx.Error] ->
      {:refused, Exception.message(error), messages()}
  end

  defp messages do
    receive do
      {tag, _bits} = message when tag in [:hook, :before, :named, :call, :token, :second] ->
        [message | messages()]
    after
      0 -> []
    end
  end

  # Nx 0.13.1's evaluator hands the function of a reduction over as it is, and Mlx.Backend leaves
  # one that reads values to Nx.BinaryBackend.
  defp oracle([outer | _], fun, x) when outer in @folds do
    Nx.with_default_backend(Nx.BinaryBackend, fn ->
      run(fun, Nx.backend_copy(x, Nx.BinaryBackend), Nx.Defn.Evaluator)
    end)
  end

  # It hands a hook's vectorized axes to backends, which know none: the values are those of the
  # form without effects, and the messages those without vectors.
  defp oracle([outer, inner], _fun, x) when outer in @vectors and inner in @effects do
    {:ok, result, []} = run(&apply(Forms, outer, [&1, @twins[inner]]), x, Nx.Defn.Evaluator)
    {:ok, _result, messages} = run(nested([inner]), x, Nx.Defn.Evaluator)
    {:ok, result, messages}
  end

  defp oracle(_forms, fun, x), do: run(fun, x, Nx.Defn.Evaluator)

  # Once more where a value with a hook is used by a branch as well as around it.
  defp right({:ok, result, messages}, [:around, inner]) when inner in [:chosen, :branched],
    do: {:ok, result, Enum.uniq(messages)}

  defp right(expected, _forms), do: expected

  defp assert_same(forms) do
    fun = nested(forms)

    # The evaluator takes its time for hundreds of iterations.
    inputs = if hd(forms) in [:repeated, :repeated_by_counter], do: tl(@inputs), else: @inputs

    for values <- inputs do
      x = Nx.tensor(values)
      assert_run(forms, values, run(fun, x, Mlx.Compiler), right(oracle(forms, fun, x), forms))
    end
  end

  # Nobody can be called from there.
  defp assert_run([outer, inner], _values, found, _expected)
       when outer in @folds and inner in @effects do
    assert {:refused, message, []} = found
    assert message =~ "hook or runtime_call inside the function of a reduction"
  end

  # What Nx.BinaryBackend and the evaluator cannot do: a window over a scalar, and custom_grad
  # before a token.
  defp assert_run(
         forms,
         [first, _, _],
         {:ok, {_type, _shape, _names, <<x::float-32-native, _::binary>>}, _},
         {:refused, _, _}
       )
       when forms in [
              [:reduce, :window_reduce],
              [:window_reduce, :window_reduce],
              [:token, :custom]
            ] do
    assert x == Map.fetch!(@by_hand, {forms, first})
  end

  defp assert_run(forms, values, found, expected) do
    assert found == expected,
           "#{inspect(forms)} of #{inspect(values)}: #{inspect(found)} instead of " <>
             inspect(expected)
  end

  for outer <- @forms do
    test "#{outer}, and every form inside of it" do
      assert_same([unquote(outer)])
      for inner <- @forms, do: assert_same([unquote(outer), inner])
    end
  end

  test "the forms are compiled to what they are here for" do
    ops = fn form ->
      program = Mlx.Compiler.to_program(nested([form]), [Nx.template({3}, :f32)])
      for {op, _slots} <- program.instructions, do: if(is_tuple(op), do: elem(op, 0), else: op)
    end

    for {form, op} <- [
          chosen: :where,
          branched: :if,
          repeated: :repeat,
          repeated_by_counter: :repeat,
          dynamic: :while,
          window_reduce: :fold
        ],
        do: assert(op in ops.(form))

    assert ops.(:unrolled) -- [:repeat, :while] == ops.(:unrolled)
  end

  test "hundreds of iterations inside of hundreds" do
    three_hundred = fn f -> &Mlx.Compiler.NestingTest.Forms.counted(&1, f) end
    fun = three_hundred.(three_hundred.(&Nx.add(&1, 1)))
    assert Nx.to_number(Nx.Defn.jit_apply(fun, [0], compiler: Mlx.Compiler)) == 90_000
  end
end
