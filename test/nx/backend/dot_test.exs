defmodule Mlx.Backend.DotTest do
  # Oracle: Nx.BinaryBackend.
  use Mlx.NxCase, async: true

  property :dot,
           "over any axes in any order, with batches, over mixed types",
           [runs: 80],
           fn _op ->
             batch = for _ <- 1..int(0..2)//1, do: int(1..3)
             contract = for _ <- 1..int(0..2)//1, do: int(1..3)
             {l, l_axes} = operand(batch, contract)
             {r, r_axes} = operand(batch, contract)
             batch_axes = Enum.to_list(0..(length(batch) - 1)//1)
             dot = &Nx.dot(&1, l_axes, batch_axes, &2, r_axes, batch_axes)

             if Nx.Type.merge(l.type, r.type) != {:c, 128},
               do: assert_same([l, r], dot, tolerance: 16)
           end

  property :dot, "of scalars, vectors and matrices", [over: types()], fn _op, type ->
    {m, k, n} = {int(1..4), int(1..4), int(1..4)}
    {l, r} = pick([{{}, {k}}, {{k}, {k}}, {{m, k}, {k}}, {{m, k}, {k, n}}, {{k}, {m, k, n}}])
    assert_same([tensor(type, l, :small), tensor(type, r, :small)], &Nx.dot/2, tolerance: 16)
  end

  property :dot,
           "of integers is exact and wraps, short and long",
           [over: int_types(), runs: 1],
           fn _op, type ->
             # More than one block of rows, of columns, of what is summed.
             for {m, k, n} <- [{2, 3, 2}, {20, 30, 20}, {67, 5, 70}, {3, 520, 9}, {1, 40, 1}],
                 do: assert_same([tensor(type, {m, k}), tensor(type, {k, n})], &Nx.dot/2)

             batch = &Nx.dot(&1, [2], [0], &2, [1], [0])
             assert_same([tensor(type, {3, 5, 6}), tensor(type, {3, 6, 4})], batch)
             assert_same([tensor(type, {3, 5, 6}), tensor(type, {6})], &Nx.dot/2)
           end

  property :dot,
           "carries NaN and infinity to the sums they are in",
           [over: float_types()],
           fn _op, type ->
             l = tensor(type, {3, 2}, :small)

             r =
               Nx.tensor([[pick([:nan, :infinity]), 1], [1, 2]],
                 type: type,
                 backend: Nx.BinaryBackend
               )

             l = Nx.add(l, Nx.tensor(0.25, type: type))
             assert_same([l, r], &Nx.dot/2, tolerance: 16)
           end

  test "contraction axes pair up in their order" do
    l = Nx.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    r = Nx.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    assert_equal(Nx.dot(l, [0, 1], r, [1, 0]), 50.0)
    l = Nx.tensor([[[1, 1]], [[2, 2]]])
    r = Nx.tensor([[[1, 2]], [[1, 2]]])
    assert_equal(Nx.dot(l, [2], [0, 1], r, [2], [0, 1]), [[3], [6]])
  end

  test "integers keep all their bits" do
    assert_equal(Nx.dot(Nx.tensor([16_777_217]), Nx.tensor([1])), 16_777_217)
    assert_equal(Nx.dot(Nx.tensor([16, 8], type: :u8), Nx.tensor([16, 16], type: :u8)), 128)
    s64 = Nx.tensor([2 ** 62 + 1, 3], type: :s64)
    assert_equal(Nx.dot(s64, Nx.tensor([3, 1], type: :s64)), 3 * 2 ** 62 + 6 - 2 ** 64)
  end

  # Large enough to be shared among cores in tiles, whose edges no tile of another product has.
  # Oracle: the product of integers.
  property :dot,
           "of floats is the integers' where nothing is rounded, however both lie",
           [over: [{:f, 32}, {:f, 64}, {:c, 64}, {:bf, 16}], runs: 1],
           fn _op, type ->
             for {m, k, n} <- [{300, 257, 311}, {1, 3000, 3011}, {3001, 2999, 1}] do
               {l, r} = {Nx.iota({m, k}, backend: backend()), Nx.iota({k, n}, backend: backend())}
               {l, r} = {Nx.remainder(l, 5), Nx.remainder(r, 3)}
               wanted = Nx.dot(l, r)
               # Halves hold no more.
               held = if type == {:bf, 16}, do: Nx.as_type(wanted, type), else: wanted
               [l, r] = for t <- [l, r], do: Nx.as_type(t, type)
               turned = &Nx.backend_copy(Nx.transpose(&1), backend())

               for {l, l_axis} <- [{l, 1}, {turned.(l), 0}],
                   {r, r_axis} <- [{r, 0}, {turned.(r), 1}] do
                 made = Nx.dot(l, [l_axis], r, [r_axis])
                 assert Nx.to_number(Nx.all(Nx.equal(made, held))) == 1
               end
             end
           end

  test "half precision accumulates in single" do
    for type <- [:bf16, :f16] do
      ones = Nx.broadcast(Nx.tensor(1, type: type), {4000})
      assert_equal(Nx.dot(ones, ones), 4000.0, tolerance: 1)
      matrix = Nx.broadcast(Nx.tensor(1, type: type), {3, 4000})
      assert_equal(Nx.dot(matrix, ones), [4000.0, 4000.0, 4000.0], tolerance: 1)
      assert_equal(Nx.dot(matrix, Nx.transpose(matrix))[2][1], 4000.0, tolerance: 1)
    end
  end

  defp operand(batch, contract) do
    free = for _ <- 1..int(0..2)//1, do: {:free, int(1..3)}
    # Contracted axes anywhere after the batch.
    labelled = contract |> Enum.with_index() |> Enum.map(fn {dim, i} -> {i, dim} end)
    rest = Enum.shuffle(free ++ labelled)
    shape = List.to_tuple(batch ++ Enum.map(rest, &elem(&1, 1)))

    axes =
      for {_, i} <- Enum.with_index(contract) do
        length(batch) + Enum.find_index(rest, &match?({^i, _}, &1))
      end

    {tensor(pick(types()), shape, 0..3), axes}
  end
end
