defmodule Mlx.Flags.BoundsTest do
  @moduledoc """
  `bounds_check: true`. Oracle: `Nx.BinaryBackend`, its results and its messages; without the flag,
  what the same function gives.
  """
  use Mlx.NxCase, async: true

  import Mlx.CompilerCase, only: [jit: 3, messages: 0]

  alias Mlx.{Functions, Generators}

  @on [bounds_check: true]

  defp checked(fun), do: Mlx.with_flags(@on, fun)

  defp outcome(fun) do
    {:ok, fun.() |> Nx.backend_copy(Nx.BinaryBackend) |> Nx.to_binary()}
  rescue
    error in ArgumentError -> {:error, error.message |> String.split("\n\n") |> hd()}
  end

  defp expected(fun, args) do
    outcome(fn -> Nx.with_default_backend(Nx.BinaryBackend, fn -> apply(fun, args) end) end)
  end

  # Some indices outside, most inside.
  defp indices(type, shape, dims) do
    {_kind, size} = type
    least = if elem(type, 0) == :u, do: 0, else: -1
    most = Enum.min([Enum.max(dims), 2 ** (size - if(least < 0, do: 1, else: 0)) - 1])
    Generators.tensor(type, shape, least..most)
  end

  @types [u: 2, u: 4, s: 2, s: 4, u: 8, s: 8, u: 16, s: 16, u: 32, s: 32, u: 64, s: 64]

  defp gathered(t) do
    rank = tuple_size(t.shape)
    axes = 0..(rank - 1) |> Enum.take_random(int(1..rank)) |> Enum.sort()
    {axes, for(axis <- axes, do: elem(t.shape, axis))}
  end

  defp case_of(:gather, t, type) do
    {axes, dims} = gathered(t)
    indices = indices(type, pick([{3, length(dims)}, {2, 2, length(dims)}]), dims)
    {&Nx.gather(&1, &2, axes: axes), [t, indices]}
  end

  defp case_of(:take, t, type) do
    axis = int(0..(tuple_size(t.shape) - 1))
    indices = indices(type, pick([{}, {3}, {2, 2}]), [elem(t.shape, axis)])
    {&Nx.take(&1, &2, axis: axis), [t, indices]}
  end

  defp case_of(:take_along_axis, t, type) do
    axis = int(0..(tuple_size(t.shape) - 1))
    indices = indices(type, put_elem(t.shape, axis, int(1..3)), [elem(t.shape, axis)])
    {&Nx.take_along_axis(&1, &2, axis: axis), [t, indices]}
  end

  defp case_of(name, t, type) when name in [:indexed_add, :indexed_put] do
    {axes, dims} = gathered(t)
    rest = for axis <- 0..(tuple_size(t.shape) - 1)//1, axis not in axes, do: elem(t.shape, axis)
    updates = Generators.tensor({:s, 32}, List.to_tuple([3 | rest]), :small)
    indices = indices(type, {3, length(dims)}, dims)
    {&apply(Nx, name, [&1, &2, &3, [axes: axes]]), [t, indices, updates]}
  end

  for name <- [:gather, :take, :take_along_axis, :indexed_add, :indexed_put] do
    test "#{name} raises as Nx.BinaryBackend does, and else gives the same" do
      for type <- @types, run <- 1..3 do
        Generators.seed(run, {unquote(name), type})
        t = Generators.tensor({:s, 32}, Generators.shape(1..3), :small)
        {fun, args} = case_of(unquote(name), t, type)
        expected = expected(fun, args)
        args = Enum.map(args, &mlx/1)

        assert {type, args, outcome(fn -> checked(fn -> apply(fun, args) end) end)} ==
                 {type, args, expected}

        assert {type, args, outcome(fn -> jit(fun, args, @on) end)} == {type, args, expected}
      end
    end
  end

  test "of several the first in order is named, with its axis" do
    t = Nx.iota({2, 3})

    for {indices, message} <- [
          {[[0, 2], [0, 3], [2, 0]], "index 3 is out of bounds for axis 1 in shape {2, 3}"},
          {[[0, 2], [2, 3]], "index 2 is out of bounds for axis 0 in shape {2, 3}"},
          {[[0, -1]], "index -1 is out of bounds for axis 1 in shape {2, 3}"}
        ] do
      indices = Nx.tensor(indices)
      assert_raise ArgumentError, message, fn -> checked(fn -> Nx.gather(t, indices) end) end
    end

    wide = Nx.tensor([[18_446_744_073_709_551_615]], type: :u64)
    message = "index 18446744073709551615 is out of bounds for axis 0 in shape {2}"

    assert_raise ArgumentError, message, fn ->
      checked(fn -> Nx.gather(Nx.iota({2}), wide) end)
    end

    least = Nx.tensor([-9_223_372_036_854_775_808], type: :s64)
    message = ~r/^index -9223372036854775808 is out of bounds/
    assert_raise ArgumentError, message, fn -> checked(fn -> Nx.take(Nx.iota({2}), least) end) end
  end

  test "vectorised tensors and indices, and narrow elements" do
    t = Nx.iota({2, 3}, type: :u4) |> Nx.vectorize(:rows)

    for {indices, out?} <- [{[0, 2], false}, {[0, 3], true}] do
      for fun <- [
            &Nx.take(&1, &2),
            &Nx.gather(&1, Nx.new_axis(&2, -1)),
            &Nx.take(Nx.devectorize(&1), Nx.devectorize(&2), axis: 1)
          ],
          indices <- [Nx.tensor(indices), Nx.vectorize(Nx.tensor([indices, indices]), :rows)] do
        args = [t, indices]
        expected = expected(fun, Enum.map(args, &Nx.backend_copy(&1, Nx.BinaryBackend)))
        assert {fun, indices, match?({:error, _}, expected)} == {fun, indices, out?}
        assert out? == match?({:error, "index 3 is out of bounds for axis " <> _}, expected)
        assert outcome(fn -> checked(fn -> apply(fun, args) end) end) == expected
        assert outcome(fn -> jit(fun, args, @on) end) == expected
      end
    end
  end

  test "slices clamp their starts, as Nx says" do
    t = Nx.tensor([1, 2, 3])

    for slice <- [
          &Nx.slice(&1, [&2], [2]),
          &Nx.put_slice(&1, [&2], Nx.tensor([7, 8])),
          &Nx.slice_along_axis(&1, &2, 2)
        ],
        start <- [-1, 5],
        start = Nx.tensor(start),
        fun = fn -> slice.(t, start) end do
      expected = Nx.to_flat_list(fun.())
      assert Nx.to_flat_list(checked(fun)) == expected
      assert Nx.to_flat_list(jit(slice, [t, start], @on)) == expected
    end
  end

  test "a compiled function raises at the call, and names the operation and itself" do
    t = Nx.iota({3})
    error = catch_error(jit(&Functions.pick/2, [t, Nx.tensor([0, 4])], @on))
    line = Functions.line("pick")

    assert Exception.message(error) ==
             "index 4 is out of bounds for axis 0 in shape {3}\n\nOperation: take\n\n" <>
               "In the compiled function &Mlx.Functions.pick/2 (#{Functions.file()}:#{line})"

    assert Nx.to_flat_list(jit(&Functions.pick/2, [t, Nx.tensor([0, 4])], [])) == [0, 2]
    assert Nx.to_flat_list(jit(&Functions.pick/2, [t, Nx.tensor([0, 2])], @on)) == [0, 2]
  end

  describe "inside of" do
    test "a loop: every iteration is checked, and those that are not run are not" do
      t = Nx.tensor([10, 20, 30])

      for fun <- [&Functions.walk/2, &Functions.walk_five/2, &Functions.walk_hundred/2] do
        assert_raise ArgumentError, ~r/^index 3 is out of bounds for axis 0 in shape \{3\}/, fn ->
          jit(fun, [t, 3], @on)
        end
      end

      assert Nx.to_number(jit(&Functions.walk/2, [t, 2], @on)) == 60
      assert Nx.to_number(jit(&Functions.walk/2, [t, -1], @on)) == 0
      assert Nx.to_number(jit(&Functions.walk/2, [t, 3], [])) == 90
    end

    test "a branch: what is not taken is not looked at" do
      t = Nx.tensor([10, 20, 30])

      assert Nx.to_number(jit(&Functions.either/2, [t, 2], @on)) == 30
      assert Nx.to_number(jit(&Functions.either/2, [t, -1], @on)) == 0
      error = catch_error(jit(&Functions.either/2, [t, 3], @on))
      assert %ArgumentError{message: "index 3 is out of bounds" <> _} = error
    end

    test "the function of a reduction" do
      t = Nx.tensor([0, 1, 2])
      look = &({3} |> Nx.iota() |> Nx.add(5) |> Nx.gather(Nx.reshape(&1, {1})))
      fun = &Nx.reduce(&1, 0, fn i, acc -> Nx.add(acc, look.(i)) end)
      assert Nx.to_number(jit(fun, [t], @on)) == 18
      assert Nx.to_number(jit(fun, [Nx.tensor([0, 3])], [])) == 12
      error = catch_error(jit(fun, [Nx.tensor([0, 3])], @on))

      assert %ArgumentError{message: "index 3 is out of bounds for axis 0 in shape {3}" <> _} =
               error
    end

    test "a run that its caller attends, whose hooks up to there were called" do
      test = self()

      fun = fn t, i ->
        first = Nx.Defn.Kernel.hook(Nx.take(t, 0), &send(test, {:first, Nx.to_number(&1)}))
        called = Nx.runtime_call(first, first, [], fn x, _ -> x end)
        Nx.add(called, Nx.take(t, i))
      end

      assert Nx.to_number(jit(fun, [Nx.tensor([1, 2]), 1], @on)) == 3
      error = catch_error(jit(fun, [Nx.tensor([1, 2]), 2], @on))
      assert %ArgumentError{message: "index 2 is out of bounds" <> _} = error
      assert messages() == [first: 1, first: 1]
      # Nothing is left behind.
      assert Nx.to_number(jit(fun, [Nx.tensor([1, 2]), 1], @on)) == 3
    end
  end

  test "gradients go through checks" do
    t = Nx.tensor([1.0, 2.0, 3.0])
    indices = Nx.tensor([0, 2, 2])

    grad = fn t, indices ->
      Nx.Defn.grad(t, fn t -> Nx.sum(Nx.pow(Nx.take(t, indices), 2)) end)
    end

    assert Nx.to_flat_list(jit(grad, [t, indices], @on)) == [2.0, 0.0, 12.0]

    assert_raise ArgumentError, ~r/^index 3 is out of bounds/, fn ->
      jit(grad, [t, Nx.tensor([0, 3])], @on)
    end
  end
end
