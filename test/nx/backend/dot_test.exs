defmodule Mlx.Backend.DotTest do
  # Oracle: Nx.BinaryBackend.
  use Mlx.NxCase, async: true

  test "contractions over any axes in any order, with batches" do
    for_all(80, fn ->
      batch = for _ <- 1..int(0..2)//1, do: int(1..3)
      contract = for _ <- 1..int(0..2)//1, do: int(1..3)
      {l, l_axes} = operand(batch, contract)
      {r, r_axes} = operand(batch, contract)
      batch_axes = Enum.to_list(0..(length(batch) - 1)//1)

      assert_same([l, r], &Nx.dot(&1, l_axes, batch_axes, &2, r_axes, batch_axes), tolerance: 16)
    end)
  end

  test "contraction axes pair up in their order" do
    l = Nx.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    r = Nx.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    assert_equal(Nx.dot(l, [0, 1], r, [1, 0]), 50.0)
  end

  test "integers are exact and wrap, short and long" do
    for type <- int_types(), {m, k, n} <- [{2, 3, 2}, {20, 30, 20}] do
      for_all(2, fn -> assert_same([tensor(type, {m, k}), tensor(type, {k, n})], &Nx.dot/2) end)
    end

    assert_equal(Nx.dot(Nx.tensor([16_777_217]), Nx.tensor([1])), 16_777_217)
    assert_equal(Nx.dot(Nx.tensor([16, 8], type: :u8), Nx.tensor([16, 16], type: :u8)), 128)
  end

  test "complex numbers" do
    for_all(5, fn ->
      assert_same([tensor({:c, 64}, {3, 4}, 0..3), tensor({:c, 64}, {4, 2}, 0..3)], &Nx.dot/2)
    end)
  end

  describe "conv" do
    test "over paddings, strides, dilations, groups and types" do
      for_all(60, fn ->
        spatial = int(1..3)
        groups = if spatial < 3, do: pick([1, 1, 2]), else: pick([1, 2])
        channels = groups * int(1..2)
        filters = groups * int(1..2)
        type = pick([{:f, 32}, {:f, 64}, {:s, 32}, {:u, 8}])

        input =
          tensor(
            type,
            List.to_tuple([int(1..2), channels | for(_ <- 1..spatial, do: int(3..5))]),
            0..3
          )

        kernel =
          tensor(
            type,
            List.to_tuple([filters, div(channels, groups) | for(_ <- 1..spatial, do: int(1..2))]),
            0..3
          )

        opts = [
          padding: pick([:valid, :same, for(_ <- 1..spatial, do: {int(0..1), int(0..2)})]),
          strides: for(_ <- 1..spatial, do: int(1..2)),
          input_dilation: for(_ <- 1..spatial, do: int(1..2)),
          kernel_dilation: for(_ <- 1..spatial, do: int(1..2)),
          feature_group_size: groups
        ]

        assert_same([input, kernel], &Nx.conv(&1, &2, opts), tolerance: 16)
      end)
    end

    test "with groups of batches" do
      for_all(10, fn ->
        input = tensor({:f, 32}, {4, 2, 4, 4}, 0..3)
        kernel = tensor({:f, 32}, {4, 2, 2, 2}, 0..3)
        assert_same([input, kernel], &Nx.conv(&1, &2, batch_group_size: 2), tolerance: 16)
      end)
    end

    test "with permutations and cropping" do
      for_all(10, fn ->
        input = tensor({:f, 32}, {2, 5, 6, 3}, 0..3)
        kernel = tensor({:f, 32}, {2, 2, 3, 4}, 0..3)

        opts = [
          input_permutation: [0, 3, 1, 2],
          kernel_permutation: [3, 2, 0, 1],
          output_permutation: [0, 3, 1, 2],
          padding: [{-1, 1}, {0, -1}]
        ]

        assert_same([input, kernel], &Nx.conv(&1, &2, opts), tolerance: 16)
      end)
    end

    test "of complex numbers" do
      for_all(5, fn ->
        args = [tensor({:c, 64}, {1, 2, 4}, 0..3), tensor({:c, 64}, {2, 2, 2}, 0..3)]
        assert_same(args, &Nx.conv/2, tolerance: 16)
      end)
    end

    test "integers become f32" do
      ones = Nx.broadcast(Nx.tensor(1, type: :u8), {1, 1, 2, 2})
      result = Nx.conv(Nx.iota({1, 1, 3, 3}, type: :u8), ones)
      assert_equal(result, [[[[8.0, 12.0], [20.0, 24.0]]]])
    end
  end

  describe "fft" do
    test "along any axis and length" do
      for_all(30, fn ->
        t = tensor(pick([{:f, 32}, {:s, 32}, {:c, 64}]), shape(1..3), 0..4)
        {axis, length} = {int(0..(Nx.rank(t) - 1)), int(2..6)}

        for op <- [:fft, :ifft] do
          actual = apply(Nx, op, [mlx(t), [axis: axis, length: length]])

          assert_equal(actual, last_axis(t, axis, &apply(Nx, op, [&1, [length: length]])),
            tolerance: 64
          )
        end
      end)
    end

    test "in two dimensions and of real signals" do
      for_all(10, fn ->
        # The binary backend transforms no axis of length 1.
        t = tensor(pick([{:f, 32}, {:c, 64}]), {int(1..2), int(2..4), int(2..4)}, 0..4)
        assert_same([t], &Nx.fft2/1, tolerance: 64)
        assert_same([t], &Nx.ifft2/1, tolerance: 64)

        signal = tensor({:f, 32}, {2, int(3..6)}, 0..4)
        assert_same([signal], &Nx.rfft/1, tolerance: 64)
        {spectrum, length} = {tensor({:c, 64}, {2, int(3..5)}, 0..4), int(4..8)}
        assert_same([spectrum], &Nx.irfft(&1, length: length), tolerance: 64)
      end)
    end
  end

  # The binary backend is right along the last axis only.
  defp last_axis(t, axis, fun) do
    swap = t |> Nx.axes() |> List.replace_at(axis, Nx.rank(t) - 1) |> List.replace_at(-1, axis)
    t |> Nx.transpose(axes: swap) |> fun.() |> Nx.transpose(axes: swap)
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

    {tensor(pick([{:f, 32}, {:f, 64}, {:s, 32}, {:u, 8}]), shape, 0..3), axes}
  end
end
