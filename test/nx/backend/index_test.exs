defmodule Mlx.Backend.IndexTest do
  # Oracle: Nx.BinaryBackend, and values worked out by hand where it raises.
  use Mlx.NxCase, async: true

  describe "slice" do
    test "static and dynamic starts of any integer type" do
      for_all(60, fn ->
        shape = shape(1..4)
        lengths = for d <- Tuple.to_list(shape), do: int(1..d)
        strides = for _ <- lengths, do: int(1..2)
        starts = for _ <- lengths, do: int(-1..5)
        t = tensor(pick(types()), shape)

        assert_same(
          [t],
          &Nx.slice(&1, Enum.map(starts, fn s -> max(s, 0) end), lengths, strides: strides)
        )

        moving =
          for s <- starts,
              do: pick([max(s, 0), Nx.tensor(s, type: pick([{:s, 8}, {:s, 32}, {:s, 64}]))])

        moving_binary =
          for s <- moving,
              do: if(is_integer(s), do: s, else: Nx.backend_copy(s, Nx.BinaryBackend))

        expected =
          Nx.with_default_backend(Nx.BinaryBackend, fn ->
            Nx.slice(t, moving_binary, lengths, strides: strides)
          end)

        assert_equal(Nx.slice(mlx(t), moving, lengths, strides: strides), expected)
        # Starts may be on the binary backend too.
        assert_equal(Nx.slice(mlx(t), moving_binary, lengths, strides: strides), expected)
      end)
    end

    test "starts clamp so that the slice fits" do
      t = Nx.iota({5})
      assert_equal(Nx.slice(t, [10], [2]), [3, 4])
      assert_equal(Nx.slice(t, [Nx.tensor(-3)], [2]), [0, 1])
      assert_equal(Nx.slice(t, [Nx.tensor(18_446_744_073_709_551_615, type: :u64)], [2]), [3, 4])

      assert_equal(Nx.slice(Nx.iota({3, 3}), [Nx.tensor(-1, type: :u64), Nx.tensor(9)], [1, 1]), [
        [8]
      ])

      eye = Nx.eye({4, 4})
      assert_equal(eye[[Nx.u32(2), Nx.s64(0)]], 0)
      assert_equal(eye[[0, Nx.s64(0)]], 1)
    end
  end

  test "put_slice" do
    for_all(60, fn ->
      shape = shape(1..3)
      lengths = for d <- Tuple.to_list(shape), do: int(1..d)
      starts = for _ <- lengths, do: int(0..5)

      {a, b} =
        {tensor(pick(real_types()), shape, :small),
         tensor(pick(real_types()), List.to_tuple(lengths), :small)}

      assert_same([a, b], &Nx.put_slice(&1, starts, &2))

      moving = for s <- starts, do: pick([s, Nx.tensor(s)])
      expected = Nx.put_slice(a, starts, b)
      assert_equal(Nx.put_slice(mlx(a), moving, mlx(b)), expected)
    end)

    assert_equal(Nx.put_slice(Nx.tensor([0.0, 0.0]), [0], Nx.tensor([1])), [1.0, 0.0])
    assert_equal(Nx.put_slice(Nx.iota({3}), [Nx.tensor(-4)], Nx.tensor([7, 8])), [7, 8, 2])
  end

  describe "gather" do
    test "over ranks, axes and index types" do
      for_all(60, fn ->
        t = tensor(pick(types()), shape(1..4))
        axes = t |> Nx.axes() |> Enum.take_random(int(1..Nx.rank(t))) |> Enum.sort()
        batch = shape(1..2)
        indices = indices(batch, t.shape, axes)
        assert_same([t, indices], &Nx.gather(&1, &2, axes: axes))
      end)
    end

    test "take and take_along_axis" do
      for_all(40, fn ->
        t = tensor(pick(types()), shape(1..3))
        axis = int(0..(Nx.rank(t) - 1))
        dim = elem(t.shape, axis)
        type = pick(int_types())
        assert_same([t, tensor(type, shape(0..2), 0..(dim - 1))], &Nx.take(&1, &2, axis: axis))

        along = put_elem(t.shape, axis, int(1..3))

        assert_same(
          [t, tensor(type, along, 0..(dim - 1))],
          &Nx.take_along_axis(&1, &2, axis: axis)
        )
      end)
    end

    test "reads the nearest element for a position outside" do
      t = Nx.tensor([1.0, 2.0, 3.0])
      assert_equal(Nx.gather(t, Nx.tensor([[4_294_967_295]], type: :u32)), [3.0])
      assert_equal(Nx.gather(t, Nx.tensor([[-1], [7]])), [1.0, 3.0])
      assert_equal(Nx.take(t, Nx.tensor([7, -2])), [3.0, 1.0])
    end
  end

  describe "indexed_add and indexed_put" do
    test "over ranks, axes and types" do
      for_all(80, fn ->
        t = tensor(pick(real_types()), shape(1..3), :small)
        axes = t |> Nx.axes() |> Enum.take_random(int(1..Nx.rank(t))) |> Enum.sort()
        rows = int(1..4)
        rest = for a <- Nx.axes(t), a not in axes, do: elem(t.shape, a)
        updates = tensor(pick(real_types()), List.to_tuple([rows | rest]), :small)
        indices = indices({rows}, t.shape, axes)
        op = pick([:indexed_add, :indexed_put])
        assert_same([t, indices, updates], &apply(Nx, op, [&1, &2, &3, [axes: axes]]))
      end)
    end

    test "drop what is outside" do
      t = Nx.iota({3})
      indices = Nx.tensor([[1], [3], [-1], [100]])
      updates = Nx.tensor([10, 20, 30, 40])
      assert_equal(Nx.indexed_add(t, indices, updates), [0, 11, 2])
      assert_equal(Nx.indexed_put(t, indices, updates), [0, 10, 2])

      square = Nx.iota({2, 2})
      indices = Nx.tensor([[0, 5], [1, 1], [-1, 0]], type: :s8)
      assert_equal(Nx.indexed_add(square, indices, Nx.tensor([9, 1, 9])), [[0, 1], [2, 4]])
      assert_equal(Nx.indexed_put(square, indices, Nx.tensor([9, 1, 9])), [[0, 1], [2, 1]])
    end

    test "of several updates of one element the last is kept" do
      indices = Nx.tensor([[0], [0], [1], [0]])
      assert_equal(Nx.indexed_put(Nx.iota({2}), indices, Nx.tensor([1, 2, 3, 4])), [4, 3])
      assert_equal(Nx.indexed_add(Nx.iota({2}), indices, Nx.tensor([1, 2, 3, 4])), [7, 4])
    end

    test "64-bit elements" do
      t = Nx.tensor([2 ** 60, 1], type: :s64)

      assert_equal(Nx.indexed_add(t, Nx.tensor([[0]]), Nx.tensor([1], type: :s64)), [
        2 ** 60 + 1,
        1
      ])
    end
  end

  defp indices(batch, shape, axes) do
    columns = for axis <- axes, do: tensor({:s, 32}, batch, 0..(elem(shape, axis) - 1))
    type = pick(int_types())

    Nx.with_default_backend(Nx.BinaryBackend, fn ->
      columns |> Nx.stack(axis: -1) |> Nx.as_type(type)
    end)
  end
end
