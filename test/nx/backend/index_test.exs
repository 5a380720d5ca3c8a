defmodule Mlx.Backend.IndexTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it raises (positions outside).
  use Mlx.NxCase, async: true

  property :slice, "from numbers", [over: types()], fn _op, type ->
    {shape, lengths, strides} = window()
    starts = for _ <- lengths, do: int(0..5)
    assert_same([tensor(type, shape)], &Nx.slice(&1, starts, lengths, strides: strides))
  end

  property [:slice, :put_slice],
           "from numbers and tensors of any integer type",
           [runs: 40],
           fn op ->
             {shape, lengths, strides} = window()
             starts = for _ <- lengths, do: int(-1..5)

             moving =
               for s <- starts,
                   do: pick([max(s, 0), Nx.tensor(s, type: pick([{:s, 8}, {:s, 32}, {:s, 64}]))])

             # Starts may be on the binary backend too.
             binary =
               for s <- moving,
                   do: if(is_integer(s), do: s, else: Nx.backend_copy(s, Nx.BinaryBackend))

             {a, b} =
               {tensor(pick(types()), shape),
                tensor(pick(real_types() -- [f: 64]), List.to_tuple(lengths), :small)}

             {a, fun} =
               if op == :slice,
                 do: {a, &Nx.slice(&1, &2, lengths, strides: strides)},
                 else: {tensor(a.type, shape, :small), &Nx.put_slice(&1, &2, &3)}

             args = &if(op == :slice, do: [&1, &2], else: [&1, &2, &3])

             expected =
               Nx.with_default_backend(Nx.BinaryBackend, fn -> apply(fun, args.(a, binary, b)) end)

             assert_equal(apply(fun, args.(mlx(a), moving, mlx(b))), expected,
               args: [a, moving, b]
             )

             assert_equal(apply(fun, args.(mlx(a), binary, b)), expected, args: [a, binary, b])
           end

  property :put_slice, "over mixed types", [over: real_types()], fn _op, type ->
    {shape, lengths, _strides} = window()
    starts = for _ <- lengths, do: int(0..5)
    update = tensor(pick(real_types()), List.to_tuple(lengths), :small)
    assert_same([tensor(type, shape, :small), update], &Nx.put_slice(&1, starts, &2))
  end

  property :gather, "over types, axes and index types", [over: types()], fn _op, type ->
    t = tensor(type, shape(1..4))
    axes = some_axes(t)
    assert_same([t, indices(shape(1..2), t.shape, axes)], &Nx.gather(&1, &2, axes: axes))
  end

  property [Nx.Block.Take, Nx.Block.TakeAlongAxis],
           "over types, axes and index types",
           [over: types()],
           fn block, type ->
             t = tensor(type, shape(1..3))
             axis = int(0..(Nx.rank(t) - 1))
             within = 0..(elem(t.shape, axis) - 1)
             along = put_elem(t.shape, axis, int(1..3))

             {shape, fun} =
               if block == Nx.Block.Take,
                 do: {shape(0..2), &Nx.take(&1, &2, axis: axis)},
                 else: {along, &Nx.take_along_axis(&1, &2, axis: axis)}

             assert_same([t, tensor(pick(int_types()), shape, within)], fun)
           end

  property [:indexed_add, :indexed_put],
           "over mixed types and axes, rows more than once",
           [over: real_types()],
           fn op, type ->
             t = tensor(type, shape(1..3), :small)
             axes = some_axes(t)
             rows = int(1..5)
             rest = for a <- Nx.axes(t), a not in axes, do: elem(t.shape, a)
             updates = tensor(pick(real_types()), List.to_tuple([rows | rest]), :small)
             indices = indices({rows}, t.shape, axes)
             assert_same([t, indices, updates], &apply(Nx, op, [&1, &2, &3, [axes: axes]]))
           end

  property [:indexed_add, :indexed_put], "of complex numbers", fn op ->
    t = tensor({:c, 64}, shape(1..2), :small)
    axes = some_axes(t)
    rest = for a <- Nx.axes(t), a not in axes, do: elem(t.shape, a)
    updates = tensor(pick([{:c, 64}, {:f, 32}]), List.to_tuple([3 | rest]), :small)
    args = [t, indices({3}, t.shape, axes), updates]
    assert_same(args, &apply(Nx, op, [&1, &2, &3, [axes: axes]]))
  end

  test "starts clamp so that the slice fits" do
    t = Nx.iota({5})
    assert_equal(Nx.slice(t, [10], [2]), [3, 4])
    assert_equal(Nx.slice(t, [Nx.tensor(-3)], [2]), [0, 1])
    assert_equal(Nx.slice(t, [Nx.tensor(18_446_744_073_709_551_615, type: :u64)], [2]), [3, 4])
    assert_equal(Nx.put_slice(Nx.iota({3}), [Nx.tensor(-4)], Nx.tensor([7, 8])), [7, 8, 2])
    assert_equal(Nx.put_slice(Nx.iota({3}), [9], Nx.tensor([7, 8])), [0, 7, 8])

    corner = Nx.slice(Nx.iota({3, 3}), [Nx.tensor(-1, type: :u64), Nx.tensor(9)], [1, 1])
    assert_equal(corner, [[8]])
  end

  test "reads take the nearest element for a position outside" do
    t = Nx.tensor([1.0, 2.0, 3.0])
    assert_equal(Nx.gather(t, Nx.tensor([[4_294_967_295]], type: :u32)), [3.0])
    assert_equal(Nx.gather(t, Nx.tensor([[-1], [7]])), [1.0, 3.0])
    assert_equal(Nx.take(t, Nx.tensor([7, -2])), [3.0, 1.0])
    assert_equal(Nx.take_along_axis(t, Nx.tensor([7, -2])), [3.0, 1.0])
    u64 = Nx.tensor([[2 ** 63], [2 ** 64 - 1]], type: :u64)
    assert_equal(Nx.gather(t, u64), [3.0, 3.0])
    assert_equal(Nx.gather(t, Nx.tensor([[-(2 ** 63)]], type: :s64)), [1.0])
  end

  test "writes outside are dropped" do
    t = Nx.iota({3})
    {indices, updates} = {Nx.tensor([[1], [3], [-1], [100]]), Nx.tensor([10, 20, 30, 40])}
    assert_equal(Nx.indexed_add(t, indices, updates), [0, 11, 2])
    assert_equal(Nx.indexed_put(t, indices, updates), [0, 10, 2])

    square = Nx.iota({2, 2})
    indices = Nx.tensor([[0, 5], [1, 1], [-1, 0]], type: :s8)
    assert_equal(Nx.indexed_add(square, indices, Nx.tensor([9, 1, 9])), [[0, 1], [2, 4]])
    assert_equal(Nx.indexed_put(square, indices, Nx.tensor([9, 1, 9])), [[0, 1], [2, 1]])

    # Positions far outside, and what is past the range of a narrow index type.
    u64 = Nx.tensor([[2 ** 63], [2 ** 64 - 1], [2]], type: :u64)
    assert_equal(Nx.indexed_put(t, u64, Nx.tensor([7, 8, 9])), [0, 1, 9])
    long = Nx.iota({300}, type: :s32)

    assert_equal(
      Nx.sum(Nx.indexed_put(long, Nx.tensor([[255]], type: :u8), Nx.tensor([0]))),
      44_595
    )
  end

  test "of several updates of one element the last is kept, and all are added" do
    indices = Nx.tensor([[0], [0], [1], [0]])
    assert_equal(Nx.indexed_put(Nx.iota({2}), indices, Nx.tensor([1, 2, 3, 4])), [4, 3])
    assert_equal(Nx.indexed_add(Nx.iota({2}), indices, Nx.tensor([1, 2, 3, 4])), [7, 4])
  end

  test "half precision adds up in single" do
    for type <- [:bf16, :f16] do
      indices = Nx.broadcast(Nx.tensor(0), {3000, 1})
      ones = Nx.broadcast(Nx.tensor(1, type: type), {3000})
      sums = Nx.indexed_add(Nx.tensor([0, 0], type: type), indices, ones)
      assert_equal(sums, [3000.0, 0.0], tolerance: 1)
    end
  end

  test "64-bit elements keep all their bits" do
    t = Nx.tensor([2 ** 60, 1], type: :s64)
    one = Nx.tensor([1], type: :s64)
    assert_equal(Nx.indexed_add(t, Nx.tensor([[0]]), one), [2 ** 60 + 1, 1])
    assert_equal(Nx.take(Nx.add(t, one), Nx.tensor([0])), [2 ** 60 + 1])
  end

  defp window do
    shape = shape(1..4)
    lengths = for d <- Tuple.to_list(shape), do: int(1..d)
    {shape, lengths, for(_ <- lengths, do: int(1..2))}
  end

  defp some_axes(t), do: t |> Nx.axes() |> Enum.take_random(int(1..Nx.rank(t))) |> Enum.sort()

  defp indices(batch, shape, axes) do
    columns = for axis <- axes, do: tensor({:s, 32}, batch, 0..(elem(shape, axis) - 1))
    type = pick(int_types())

    Nx.with_default_backend(Nx.BinaryBackend, fn ->
      columns |> Nx.stack(axis: -1) |> Nx.as_type(type)
    end)
  end
end
