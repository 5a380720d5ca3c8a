defmodule Mlx.Flags.ResultsTest do
  @moduledoc """
  `check_results`: the type and shape of every result. Oracle: operations that are told another
  result than they make; every operation of Nx, which makes what it is told.
  """
  use Mlx.NxCase, async: true

  import Mlx.CompilerCase, only: [jit: 3]

  alias Mlx.{Error, Functions, Generators, Zoo}

  defp announced(t, shape), do: %{Nx.to_template(t) | shape: shape}

  test "an operation that makes something else than Nx announced" do
    x = Nx.iota({2, 3}, type: :f32)

    for {name, fun} <- [
          add: fn -> Mlx.Backend.add(announced(x, {3, 2}), x, x) end,
          add: fn ->
            Mlx.Backend.add(announced(x, {3, 2}), x, Nx.tensor(1, backend: Nx.BinaryBackend))
          end,
          concatenate: fn -> Mlx.Backend.concatenate(announced(x, {2, 3}), [x, x], 0) end,
          log: fn -> Mlx.Backend.log(announced(x, {6}), x) end
        ] do
      # As the suite has it.
      error = catch_error(fun.())
      assert {error.kind, error.op} == {:wrong_result, to_string(name)}
      assert Exception.message(error) =~ "was announced as {{:f, 32}, {"
      assert %Nx.Tensor{} = Mlx.with_flags([check_results: false], fun)
      assert ^error = catch_error(Mlx.with_flags([check_results: true], fun))
    end
  end

  test "one of several results" do
    x = Nx.iota({2, 3}, type: :f32)
    top = %Nx.Block.TopK{k: 2}
    indices = Nx.template({2, 2}, :s32)
    run = &Mlx.Backend.block(top, &1, [x], fn _, _ -> flunk("it is computed by MLX") end)
    assert {_values, _indices} = run.({announced(x, {2, 2}), indices})

    error = catch_error(run.({announced(x, {2, 2}), %{indices | shape: {4}}}))
    assert %Error{kind: :wrong_result, op: "top_k"} = error
    error = catch_error(run.({announced(x, {4}), indices}))
    assert %Error{kind: :wrong_result, op: "top_k"} = error
  end

  test "an operation in the middle of a compiled function" do
    x = Nx.iota({4}, type: :f32)
    on = [check_results: true]
    error = catch_error(jit(&Functions.misannounced/1, [x], on))

    assert %Error{kind: :wrong_result, op: "negate", function: {Functions, :misannounced, 1, []}} =
             error

    assert Exception.message(error) =~
             "negate: it was announced as f32[4], and made f32[2][2]; this is a bug in Mlx"

    # What comes of it fits again.
    assert Nx.to_number(jit(&Functions.misannounced/1, [x], check_results: :eager)) == -6.0
    assert Nx.to_number(jit(&Functions.misannounced/1, [x], check_results: false)) == -6.0
  end

  # As many of each as do not take long.
  test "every operation of Nx makes what it is told, compiled, and the same as without the flag" do
    Generators.seed(1)

    for {name, samples} <- Zoo.table(),
        {fun, args} <- samples |> Enum.shuffle() |> Enum.take(3) do
      args = Enum.map(args, &mlx/1)

      assert {name, parts(jit(fun, args, check_results: true))} ==
               {name, parts(jit(fun, args, []))}
    end
  end

  test "every operation with all checks on gives the same, or says that it makes NaN or infinity" do
    Generators.seed(2)
    on = [bounds_check: true, detect_non_finite: true, check_results: true]

    outcomes =
      for {name, samples} <- Zoo.table(),
          {fun, args} <- samples |> Enum.shuffle() |> Enum.take(3) do
        args = Enum.map(args, &mlx/1)
        eager = kind(fn -> Mlx.with_flags(on, fn -> apply(fun, args) end) end)
        compiled = kind(fn -> jit(fun, args, on) end)
        assert {name, args, compiled} == {name, args, eager}
        if is_list(eager), do: assert({name, eager} == {name, parts(apply(fun, args))})
        is_list(eager)
      end

    assert Enum.count(outcomes, & &1) > 100
    assert Enum.count(outcomes, &(not &1)) > 10
  end

  defp kind(fun) do
    parts(fun.())
  rescue
    error in Error -> {error.kind, error.op}
    error in ArgumentError -> error.message |> String.split("\n\n") |> hd()
  end

  defp parts(made) do
    Nx.Defn.Composite.reduce(made, [], fn t, all -> [{t.type, t.shape, bytes(t)} | all] end)
  end
end
