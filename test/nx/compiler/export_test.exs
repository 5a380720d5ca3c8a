defmodule Mlx.Compiler.ExportTest do
  @moduledoc """
  Oracle: the same function run by `Mlx.Compiler`, bit for bit.
  """
  use ExUnit.Case, async: true

  alias Nx.Defn.Composite

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  defp arrays(container) do
    for t <- Composite.flatten_list([container]) do
      t = t |> Nx.to_tensor() |> Nx.devectorize()
      Mlx.Array.from_binary(Nx.to_binary(t), t.type, t.shape)
    end
  end

  defp assert_same(fun, args, opts \\ []) do
    tensors = Enum.reject(args, &(is_list(&1) or is_function(&1)))
    program = Mlx.Compiler.to_program(fun, args, opts)
    results = Mlx.Program.run(program, arrays(List.to_tuple(tensors)))
    expected = Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler)

    assert Enum.map(results, &{Mlx.Array.type(&1), Mlx.Array.shape(&1), Mlx.Array.to_binary(&1)}) ==
             for(
               t <- Composite.flatten_list([expected]),
               t = Nx.devectorize(t),
               do: {t.type, t.shape, Nx.to_binary(t)}
             )

    program
  end

  test "takes every argument and gives every result, in the order of the containers" do
    args = [%{b: Nx.tensor([1.0, 2.0]), a: Nx.tensor(3)}, {Nx.tensor([5, 6]), Nx.tensor(7)}]

    program =
      assert_same(
        fn %{a: a, b: b}, {_unused, d} -> %{y: Nx.add(b, a), x: {d, Nx.sin(b)}} end,
        args
      )

    assert program.inputs ==
             [{{:s, 32}, {}}, {{:f, 32}, {2}}, {{:s, 32}, {2}}, {{:s, 32}, {}}]

    assert length(program.outputs) == 3
  end

  test "takes templates, and options as part of the program" do
    program = Mlx.Compiler.to_program(&Nx.sum/2, [Nx.template({2, 3}, :f32), [axes: [1]]])
    assert program.instructions == [{{:sum_axes, [1], false}, [0]}]
    assert_same(&Nx.sum/2, [Nx.iota({2, 3}, type: :f32), [axes: [0]]])
  end

  test "has what the function captures" do
    for type <- [:u8, :s32, :f32, :bf16, :c64] do
      table = Nx.tensor([[1, 2, 3], [4, 5, 6]], type: type, backend: Nx.BinaryBackend)
      other = Nx.tensor([7], backend: Nx.BinaryBackend)

      assert_same(
        fn a, b -> {Nx.add(Nx.multiply(table, a), b), other, table} end,
        [Nx.tensor([1, 2, 3]), Nx.tensor([[1], [2]])]
      )
    end

    assert_same(fn -> Nx.tensor([[1, 2], [3, 4]]) end, [])
  end

  test "has no large constant" do
    table = Nx.iota({257}, backend: Nx.BinaryBackend)

    assert_raise ArgumentError, ~r"captures a tensor of 257 elements.*as an argument", fn ->
      Mlx.Compiler.to_program(&Nx.add(&1, table), [Nx.template({}, :s32)])
    end
  end

  test "has the axes of vectors" do
    assert_same(&Nx.sum/1, [Nx.vectorize(Nx.iota({2, 3}, type: :f32), :x)])
  end

  test "is saved, and runs after loading" do
    step = fn w, x ->
      {loss, grad} =
        Nx.Defn.value_and_grad(w, fn w -> Nx.mean(Nx.pow(Nx.tanh(Nx.dot(x, w)), 2)) end)

      {loss, Nx.subtract(w, Nx.multiply(0.1, grad))}
    end

    args = [Nx.iota({3, 2}, type: :f32), Nx.iota({4, 3}, type: :f32)]
    program = assert_same(step, args)
    path = Path.join(System.tmp_dir!(), "step_#{System.unique_integer([:positive])}.mlx")
    on_exit(fn -> File.rm(path) end)
    Mlx.Program.save!(program, path)
    loaded = Mlx.Program.load!(path)

    assert Map.take(loaded, [:inputs, :instructions, :outputs]) ==
             Map.take(program, [:inputs, :instructions, :outputs])

    run = fn program ->
      for array <- Mlx.Program.run(program, arrays(List.to_tuple(args))),
          do: Mlx.Array.to_binary(array)
    end

    assert run.(loaded) == run.(program)
  end

  test "refuses what is not a program" do
    hooked = fn t -> Nx.Defn.Kernel.hook(t, & &1) end

    assert_raise Mlx.Error, ~r"hook into a program that is to be saved", fn ->
      Mlx.Compiler.to_program(hooked, [Nx.template({}, :f32)])
    end

    assert_raise Mlx.Error, ~r"c128.*into a program", fn ->
      Mlx.Compiler.to_program(&Nx.add(&1, 1), [Nx.template({}, {:c, 128})])
    end

    assert_raise RuntimeError, ~r"JIT compilation happening", fn ->
      Nx.Defn.jit_apply(
        fn t ->
          Mlx.Compiler.to_program(&Nx.sin/1, [Nx.template({}, :f32)])
          t
        end,
        [Nx.tensor(1)],
        compiler: Mlx.Compiler
      )
    end
  end
end
