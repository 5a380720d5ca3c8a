defmodule Mlx.CompilerTest do
  @moduledoc """
  Oracle: the same expression evaluated operation by operation on `Mlx.Backend`, bit for bit.
  """
  use Mlx.CompilerCase, async: true
  doctest Mlx.Compiler

  alias Mlx.Containers.{Lazy, Pair}
  alias Nx.Defn.{Composite, Evaluator}

  defmodule Options do
    import Nx.Defn

    defn scale(t, opts \\ []) do
      opts = keyword!(opts, by: 2)
      t * opts[:by]
    end
  end

  defp eager(fun, args), do: Nx.Defn.jit_apply(fun, args, compiler: Evaluator)

  defp bits(container) do
    Composite.traverse(container, fn t ->
      {t.type, t.shape, t.names, t.vectorized_axes, Nx.to_binary(t)}
    end)
  end

  defp assert_same(fun, args) do
    result = jit(fun, args)
    Composite.reduce(result, nil, fn t, _ -> assert %Mlx.Backend{} = t.data end)
    assert bits(result) == bits(eager(fun, args))
    result
  end

  defp iota(shape, opts \\ []), do: Nx.iota(shape, [type: :f32] ++ opts)

  defp wave(shape, type \\ :f32) do
    shape
    |> Nx.iota(type: :f32)
    |> Nx.multiply(0.37)
    |> Nx.sin()
    |> Nx.multiply(3)
    |> Nx.as_type(type)
  end

  describe "operations" do
    @unary [:exp, :log1p, :sigmoid, :tanh, :sqrt, :abs, :negate, :sign, :floor, :round, :is_nan]
    for op <- @unary do
      test "#{op}" do
        assert_same(&apply(Nx, unquote(op), [&1]), [wave({2, 3})])
      end
    end

    @binary [:add, :subtract, :multiply, :divide, :pow, :atan2, :min, :less, :not_equal] ++
              [:logical_xor, :remainder]
    for op <- @binary do
      test "#{op} of different types and shapes" do
        assert_same(&apply(Nx, unquote(op), [&1, &2]), [wave({2, 3}), Nx.tensor([1, 2, 3])])
      end
    end

    test "integers wrap" do
      a = Nx.tensor([250, 7, 0], type: :u8)
      assert_same(&{Nx.add(&1, &2), Nx.multiply(&1, &2), Nx.quotient(&1, 2)}, [a, a])
    end

    test "shapes" do
      assert_same(
        fn t ->
          {Nx.reshape(t, {3, 4}), Nx.transpose(t), Nx.reverse(t, axes: [0]), Nx.new_axis(t, 0),
           Nx.broadcast(t, {2, 2, 6}), Nx.pad(t, -1, [{1, 0, 0}, {0, 2, 1}]),
           Nx.squeeze(Nx.reshape(t, {1, 12, 1}))}
        end,
        [wave({2, 6})]
      )
    end

    test "reductions" do
      assert_same(
        fn t ->
          {Nx.sum(t), Nx.sum(t, axes: [1], keep_axes: true), Nx.product(t, axes: [0]), Nx.all(t),
           Nx.any(Nx.greater(t, 2)), Nx.argmax(t, axis: 1), Nx.argmin(t, tie_break: :high),
           Nx.reduce_max(t, axes: [0]), Nx.mean(t), Nx.standard_deviation(t)}
        end,
        [wave({3, 5})]
      )
    end

    test "indexing" do
      assert_same(
        fn t, i ->
          {t[0], t[[1..2, 0]], Nx.slice(t, [i, 1], [2, 3]),
           Nx.put_slice(t, [1, i], Nx.slice(t, [0, 0], [2, 2])),
           Nx.put_slice(t, [1, 2], Nx.slice(t, [0, 0], [2, 2])), Nx.take(t, Nx.stack([i, i])),
           Nx.gather(t, Nx.tensor([[0, 1], [2, 3]])),
           Nx.indexed_add(t, Nx.tensor([[0, 0], [0, 0]]), Nx.tensor([1.5, 2.5])),
           Nx.select(Nx.greater(t, 0), t, 0), Nx.clip(t, -1, 1)}
        end,
        [wave({4, 5}), Nx.tensor(1)]
      )
    end

    test "concatenation takes lists" do
      assert_same(
        fn a, b -> {Nx.concatenate([a, b, a], axis: 1), Nx.stack([a, b])} end,
        [wave({2, 3}), Nx.iota({2, 3})]
      )
    end

    test "products, sorting and windows" do
      assert_same(
        fn a, b ->
          {Nx.dot(a, b), Nx.dot(a, [1], b, [0]), Nx.outer(a[0], b[0]), Nx.sort(a, axis: 0),
           Nx.argsort(a, direction: :desc), Nx.window_sum(a, {2, 2}),
           Nx.window_max(a, {1, 2}, padding: :same), Nx.cumulative_sum(a, axis: 1)}
        end,
        [wave({4, 3}), wave({3, 4})]
      )
    end

    test "creation and constants" do
      assert_same(
        fn t ->
          {Nx.iota({2, 3}, axis: 1), Nx.eye(3), Nx.tensor(1.5), Nx.tensor([[1, 2], [3, 4]]),
           Nx.add(t, Nx.Constants.infinity()), Nx.broadcast(Nx.Constants.nan(), {2}),
           Nx.tensor(-0.0), Nx.tensor(0.0), Nx.as_type(3, :u8)}
        end,
        [Nx.tensor(1.0)]
      )
    end

    test "a chain that shares subexpressions" do
      assert_same(
        fn x ->
          y = Nx.exp(Nx.sin(x))
          Nx.add(Nx.multiply(y, y), Nx.subtract(y, Nx.sum(y)))
        end,
        [wave({7})]
      )
    end

    for type <- [:u8, :u16, :u32, :u64, :s8, :s16, :s32, :s64, :f16, :bf16, :f32, :f64, :c64] do
      test "#{type} goes in and comes out" do
        type = unquote(type)
        assert_same(&{&1, Nx.add(&1, 1)}, [Nx.as_type(Nx.tensor([1, 2, 3]), type)])
      end
    end

    test "blocks: native ones and those of the user" do
      assert_same(
        fn t -> {Nx.logical_not(t), Nx.phase(t), Nx.top_k(t, k: 2), Nx.all_close(t, t)} end,
        [wave({2, 4})]
      )

      hypotenuse = fn _struct, a, b -> Nx.sqrt(Nx.add(Nx.multiply(a, a), Nx.multiply(b, b))) end

      assert_same(
        fn a, b ->
          inner = Nx.block(%Pair{}, [b, Nx.add(a, 1)], a, hypotenuse)
          Nx.add(Nx.block(%Pair{}, [inner, a], a, hypotenuse), b)
        end,
        [wave({3}), iota({3})]
      )
    end
  end

  describe "arguments" do
    test "only used ones are fetched" do
      values = %{a: wave({2}), b: wave({3}), c: wave({2})}
      lazy = %Lazy{test: self(), values: values}
      assert bits(jit(&Nx.add(&1.a, &1.c), [lazy])) == bits(Nx.add(values.a, values.c))
      assert_received {:loaded, :a}
      assert_received {:loaded, :c}
      refute_received {:loaded, :b}
    end

    test "come from other backends and from numbers" do
      binary = Nx.tensor([1, 2, 3], backend: Nx.BinaryBackend)
      result = jit(&Nx.add/2, [binary, 2])
      assert %Mlx.Backend{} = result.data
      assert Nx.to_flat_list(result) == [3, 4, 5]
    end

    test "containers, maps, tuples and structs" do
      args = [{wave({2}), %{x: iota({2}), y: {wave({2}), 3}}}, %Pair{left: 1, right: wave({2})}]

      result =
        assert_same(
          fn {a, %{x: b, y: {c, d}}}, %Pair{} = pair ->
            %{sum: Nx.add(Nx.add(a, b), Nx.add(c, d)), pair: %{pair | left: {a, pair.right}}}
          end,
          args
        )

      assert %{sum: %Nx.Tensor{}, pair: %Pair{left: {_, _}, label: nil}} = result
    end

    test "the same argument twice, and reversed" do
      t = wave({2, 2})
      assert_same(&Nx.subtract/2, [t, t])
      assert_same(fn a, b, _c, d -> {d, Nx.subtract(b, a)} end, [t, 1, 2, iota({2})])
    end

    test "options are part of the function" do
      t = wave({2})
      assert bits(jit(&Options.scale/2, [t, [by: 3]])) == bits(Nx.multiply(t, 3))
      assert bits(jit(&Options.scale/2, [t, [by: 4]])) == bits(Nx.multiply(t, 4))
      assert bits(jit(&Options.scale/1, [t])) == bits(Nx.multiply(t, 2))
      assert bits(jit(fn f, t -> f.(t) end, [&Nx.exp/1, t])) == bits(Nx.exp(t))
      assert bits(jit(fn f, t -> f.(t) end, [&Nx.sin/1, t])) == bits(Nx.sin(t))
    end

    test "stand for the parameters of an expression made before" do
      args = [wave({2}), iota({2})]
      expr = Nx.Defn.debug_expr(fn a, b -> Nx.subtract(Nx.exp(b), a) end)
      expr = apply(expr, args)
      assert_same(fn _, _ -> expr end, args)

      {stages, args} =
        {Nx.Defn.Graph.split(expr, fn t -> if t.data.op == :exp, do: :before, else: :none end),
         args}

      graph = Nx.Defn.Graph.run(stages, args, compiler: Mlx.Compiler)
      assert bits(graph) == bits(jit(fn _, _ -> expr end, args))
    end

    test "that are not what they were announced to be fail when the result is read" do
      vars = [Nx.Defn.Expr.parameter(Nx.template({2}, :f32), :root, 0)]

      for t <- [wave({3}), Nx.tensor([1, 2])] do
        args = [[fn -> t end]]
        [result] = Mlx.Compiler.__jit__(&Nx.exp/1, vars, fn [x] -> Nx.exp(x) end, args, [])
        assert_raise Mlx.Error, ~r"input 0 is a", fn -> Nx.to_binary(result) end
      end
    end

    test "an expression is refused" do
      assert_raise ArgumentError, ~r"cannot pass a tensor expression as argument to defn", fn ->
        jit(
          fn t -> jit(&Nx.exp/1, [t], on_conflict: :force) end,
          [wave({2})]
        )
      end
    end

    test "a template is refused" do
      assert_raise RuntimeError, ~r"Nx.TemplateBackend", fn ->
        jit(&Nx.exp/1, [Nx.template({2}, :f32)])
      end
    end
  end

  describe "results" do
    test "are arguments or constants as they are" do
      t = wave({2})
      assert_same(& &1, [t])
      assert_same(&{&1, &1, &2}, [t, iota({2})])
      assert_same(fn _ -> 1 end, [t])
      assert_same(fn _ -> {1.5, Nx.tensor([1, 2])} end, [t])
      assert bits(jit(fn -> Nx.iota({3}) end, [])) == bits(Nx.iota({3}))
      assert jit(fn _ -> {} end, [t]) == {}
    end

    test "may be the same value several times" do
      result = assert_same(fn t -> (e = Nx.exp(t)) && {e, e, %{again: e}} end, [wave({3})])
      assert {%{}, %{}, %{again: %{}}} = result
    end

    test "keep names" do
      t = Nx.iota({2, 3}, names: [:x, nil], type: :f32)
      result = assert_same(&{&1, Nx.sum(&1, axes: [:x]), Nx.transpose(&1)}, [t])
      assert elem(result, 2).names == [nil, :x]
    end

    test "keep vectorized axes" do
      x = Nx.vectorize(wave({2, 3}), :x)
      y = Nx.vectorize(wave({4, 3}), :y)
      result = assert_same(fn x, y -> {x, Nx.add(x, y), Nx.sum(y), Nx.dot(x, y)} end, [x, y])
      assert elem(result, 1).vectorized_axes == [x: 2, y: 4]
      assert_same(fn x -> Nx.vectorize(Nx.tensor([1, 2]), :z) |> Nx.add(x) end, [x])
      assert_same(&Nx.devectorize/1, [x])
    end
  end

  describe "captured tensors" do
    test "become inputs that are uploaded once" do
      table = Nx.tensor([1.5, 2.5, 3.5], backend: Nx.BinaryBackend)
      fun = fn t -> Nx.multiply(Nx.add(t, table), Nx.tensor([1, 2, 3])) end
      assert_same(fun, [wave({3})])
      assert_same(fun, [iota({3})])
    end

    test "tell functions apart by value" do
      add = fn table -> fn t -> Nx.add(t, table) end end
      one = add.(Nx.tensor([1, 1], backend: Nx.BinaryBackend))
      two = add.(Nx.tensor([2, 2], backend: Nx.BinaryBackend))
      t = Nx.tensor([1, 2])
      assert Nx.to_flat_list(jit(one, [t])) == [2, 3]
      assert Nx.to_flat_list(jit(two, [t])) == [3, 4]
    end

    test "on another backend raise as Nx does" do
      table = Nx.tensor([1, 2])

      assert_raise Nx.Defn.IncompatibleBackendsError, ~r"Nx.Defn.Expr and Mlx.Backend", fn ->
        jit(&Nx.add(&1, table), [wave({2})])
      end

      assert_raise ArgumentError, ~r"cannot convert tensor allocated on Mlx.Backend", fn ->
        jit(fn _ -> table end, [wave({2})])
      end
    end
  end

  describe "Nx.Defn.compile/3" do
    test "traces once, up front, and runs on any compatible arguments" do
      test = self()

      fun = fn t, opts ->
        send(test, :traced)
        Nx.sum(t, opts)
      end

      compiled =
        Nx.Defn.compile(fun, [Nx.template({2, 3}, :f32), [axes: [1]]], compiler: Mlx.Compiler)

      assert_received :traced
      assert bits(compiled.(wave({2, 3}))) == bits(Nx.sum(wave({2, 3}), axes: [1]))
      assert bits(compiled.(iota({2, 3}))) == bits(Nx.sum(iota({2, 3}), axes: [1]))
      refute_received :traced

      assert_raise ArgumentError, ~r"not compatible", fn -> compiled.(wave({3, 2})) end
    end

    test "takes containers" do
      template = %{a: Nx.template({2}, :f32), b: {Nx.template({}, :s32)}}

      fun =
        Nx.Defn.compile(fn %{a: a, b: {b}} -> {Nx.add(a, b)} end, [template],
          compiler: Mlx.Compiler
        )

      assert {t} = fun.(%{a: wave({2}), b: {Nx.tensor(2)}})
      assert bits(t) == bits(Nx.add(wave({2}), 2))
    end
  end

  describe "options" do
    test "of others are ignored" do
      opts = [
        batch_keys: [:default],
        cache: "path",
        debug: true,
        garbage_collect: true,
        hooks: %{}
      ]

      ExUnit.CaptureIO.capture_io(fn ->
        assert bits(jit(&Nx.exp/1, [wave({2})], opts)) == bits(Nx.exp(wave({2})))
      end)
    end

    test ":device is checked" do
      assert %Mlx.Backend{} = jit(&Nx.exp/1, [wave({2})], device: :cpu).data
      assert_raise ArgumentError, fn -> jit(&Nx.exp/1, [wave({2})], device: :tpu) end
    end

    test "become partitions" do
      opts = [device: :cpu, batch_keys: [:default], max_concurrency: 2]

      # All but the first have a stream of their own.
      for partition <- Mlx.Compiler.__partitions_options__(opts),
          do: assert(partition |> Keyword.delete(:stream) |> Enum.sort() == Enum.sort(opts))

      assert [[device: :cpu]] = Mlx.Compiler.__partitions_options__(device: :cpu)

      assert_raise ArgumentError, ~r":max_concurrency must be a positive integer", fn ->
        Mlx.Compiler.__partitions_options__(max_concurrency: 0)
      end
    end

    test "name the backend of results" do
      assert Nx.Defn.to_backend(compiler: Mlx.Compiler, device: :cpu) ==
               {Mlx.Backend, [device: :cpu]}
    end
  end

  describe "Nx.Serving" do
    test "jits functions of one argument, which are handed batch_keys" do
      serving = Nx.Serving.jit(&Nx.multiply(&1, 2), compiler: Mlx.Compiler)
      batch = Nx.Batch.stack([Nx.tensor([1, 2]), Nx.tensor([3, 4])])
      assert Nx.to_flat_list(Nx.Serving.run(serving, batch)) == [2, 4, 6, 8]
    end

    test "runs in a process with several partitions" do
      serving = Nx.Serving.jit(&Nx.exp/1, compiler: Mlx.Compiler, max_concurrency: 2)
      name = :"serving_#{System.unique_integer([:positive])}"

      start_supervised!(
        {Nx.Serving, serving: serving, name: name, partitions: true, batch_timeout: 5}
      )

      expected = bits(Nx.exp(Nx.reshape(wave({2}), {1, 2})))

      1..8
      |> Enum.map(fn _ ->
        Task.async(fn ->
          Nx.default_backend(Mlx.Backend)
          bits(Nx.Serving.batched_run(name, Nx.Batch.stack([wave({2})])))
        end)
      end)
      |> Task.await_many()
      |> Enum.each(&assert(&1 == expected))
    end
  end

  describe "defaults" do
    test "of the process" do
      Nx.Defn.default_options(compiler: Mlx.Compiler)
      t = wave({2})
      assert bits(Options.scale(t)) == bits(Nx.multiply(t, 2))
      assert bits(Nx.Defn.jit(&Nx.exp/1).(t)) == bits(Nx.exp(t))
    after
      Process.delete({Nx.Defn, :default_compiler})
    end
  end

  describe "what is not compiled" do
    test "names the construct and the way out" do
      t = wave({2})
      mystery = fn t -> %{t | data: %{t.data | id: make_ref(), op: :mystery, args: [t]}} end

      message = ~r"mystery: it is not an operation of this version of Nx"
      error = assert_raise Mlx.Error, message, fn -> jit(mystery, [t]) end
      assert error.kind == :unsupported
    end
  end

  describe "large graphs" do
    test "a chain of 20,000 operations is traced and built in seconds" do
      deep = fn t -> Enum.reduce(1..20_000, t, fn _, t -> Nx.sin(Nx.cos(t)) end) end
      fun = Nx.Defn.compile(deep, [Nx.template({2}, :f32)], compiler: Mlx.Compiler)
      assert [x, y] = Nx.to_flat_list(fun.(Nx.tensor([0.0, 1.0])))
      assert_in_delta x, 0.69, 0.01
      assert_in_delta x, y, 1.0e-6
    end

    test "thousands of results" do
      many = fn t -> Map.new(1..5_000, &{&1, Nx.add(t, &1)}) end
      results = jit(many, [Nx.tensor(1)])
      assert map_size(results) == 5_000
      assert Nx.to_number(results[4_999]) == 5_000
    end
  end
end
