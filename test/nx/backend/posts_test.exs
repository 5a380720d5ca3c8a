defmodule Mlx.Backend.PostsTest do
  # One operation of Nx is one post to the worker, however many instructions it takes: the first
  # time as it is (`run`), from the third on as a program that was kept (`program_run`).
  use Mlx.NxCase, async: false

  import Mlx.Property, only: [calls: 1]

  @posts [run: 4, program_run: 3, from_binary: 4]

  setup_all do
    Code.ensure_loaded!(Mlx.NIF)

    for {name, arity} <- @posts,
        do: 1 = :erlang.trace_pattern({Mlx.NIF, name, arity}, true, [])

    :ok
  end

  # As it is where nothing is looked at.
  setup do
    Mlx.put_flags(check_results: false)
    :ok
  end

  test "one post each" do
    t = Nx.tensor([[3.0, 1.0, 2.0], [0.5, 0.25, 0.125]])
    ints = Nx.tensor([[3, 1, 2], [5, 4, 6]])
    two = Nx.tensor(2)
    index = Nx.tensor([[0, 1], [1, 2]])
    pair = Nx.tensor([7, 8])
    source = Nx.tensor([[1, 2, 3]])
    {cell, image} = {Nx.tensor([[1]]), Nx.iota({1, 2, 5, 5}, type: :f32)}

    for {name, fun} <- [
          add: fn -> Nx.add(t, ints) end,
          multiply: fn -> Nx.multiply(t, two) end,
          remainder: fn -> Nx.remainder(ints, two) end,
          quotient: fn -> Nx.quotient(ints, two) end,
          pow: fn -> Nx.pow(ints, two) end,
          max: fn -> Nx.max(t, ints) end,
          less: fn -> Nx.less(t, ints) end,
          logical_xor: fn -> Nx.logical_xor(t, ints) end,
          left_shift: fn -> Nx.left_shift(ints, two) end,
          population_count: fn -> Nx.population_count(ints) end,
          round: fn -> Nx.round(t) end,
          erfc: fn -> Nx.erfc(t) end,
          cbrt: fn -> Nx.cbrt(t) end,
          as_type: fn -> Nx.as_type(t, :s16) end,
          select: fn -> Nx.select(ints, t, two) end,
          clip: fn -> Nx.clip(t, two, two) end,
          pad: fn -> Nx.pad(t, two, [{1, 0, 1}, {0, -1, 0}]) end,
          sum: fn -> Nx.sum(t) end,
          argmax: fn -> Nx.argmax(t, axis: 1, tie_break: :high) end,
          sort: fn -> Nx.sort(t, direction: :desc) end,
          argsort: fn -> Nx.argsort(t, direction: :desc) end,
          slice: fn -> Nx.slice(t, [0, 1], [2, 2], strides: [1, 2]) end,
          slice_by_tensors: fn -> Nx.slice(t, [two, two], [1, 2]) end,
          put_slice: fn -> Nx.put_slice(t, [two, two], cell) end,
          concatenate: fn -> Nx.concatenate([t, ints], axis: 1) end,
          stack: fn -> Nx.stack([t, ints]) end,
          gather: fn -> Nx.gather(t, index) end,
          take: fn -> Nx.take(t, two, axis: 1) end,
          indexed_put: fn -> Nx.indexed_put(t, index, pair) end,
          dot_of_integers: fn -> Nx.dot(ints, [1], ints, [1]) end,
          window_max: fn -> Nx.window_max(t, {2, 2}, padding: :same) end,
          window_scatter_max: fn ->
            Nx.window_scatter_max(t, source, two, {2, 1})
          end,
          cumulative_sum: fn -> Nx.cumulative_sum(t, axis: 1) end,
          top_k: fn -> Nx.top_k(t, k: 2) end,
          conv: fn -> Nx.conv(image, image, padding: :same, input_dilation: 2) end,
          fft: fn -> Nx.fft(t, axis: 0) end
        ] do
      for time <- 1..3,
          do: assert({name, time, posts(fun)} == {name, time, 1})
    end
  end

  test "a number among the operands is a post of its own" do
    t = Nx.tensor([1.0, 2.0])
    assert posts(fn -> Nx.multiply(t, 3) end) == 2
  end

  # Other tests have patterns of other functions.
  defp posts(fun), do: fun |> calls() |> Enum.count(&match?({Mlx.NIF, _name}, &1))
end
