defmodule Mlx.Backend.ConvTest do
  # Oracle: Nx.BinaryBackend.
  use Mlx.NxCase, async: true

  property :conv,
           "over every option, in one to three dimensions",
           [over: types(), runs: 4],
           fn _op, type ->
             spatial = int(1..3)
             {input, kernel, opts} = convolution(type, spatial)
             assert_same([input, kernel], &Nx.conv(&1, &2, opts), tolerance: 16)
           end

  property :conv, "in four dimensions", [over: [{:f, 32}, {:f, 64}, {:c, 64}], runs: 1], fn _op,
                                                                                            type ->
    {input, kernel, opts} = convolution(type, 4, 3..3)
    assert_same([input, kernel], &Nx.conv(&1, &2, opts), tolerance: 16)
  end

  property :conv, "of mixed types", [runs: 10], fn _op ->
    args = [
      tensor(pick(types() -- [f: 64]), {1, 2, 4}, 0..3),
      tensor(pick(real_types() -- [f: 64]), {2, 2, 2}, 0..3)
    ]

    assert_same(args, &Nx.conv/2, tolerance: 16)
  end

  test "integers become f32" do
    ones = Nx.broadcast(Nx.tensor(1, type: :u8), {1, 1, 2, 2})
    result = Nx.conv(Nx.iota({1, 1, 3, 3}, type: :u8), ones)
    assert_equal(result, [[[[8.0, 12.0], [20.0, 24.0]]]])
  end

  test "half precision accumulates in single" do
    for type <- [:bf16, :f16] do
      input = Nx.broadcast(Nx.tensor(1, type: type), {1, 1000, 3})
      kernel = Nx.broadcast(Nx.tensor(1, type: type), {1, 1000, 3})
      assert_equal(Nx.conv(input, kernel), [[[3000.0]]], tolerance: 1)
    end
  end

  # Operands and options of a convolution whose axes are anywhere.
  defp convolution(type, spatial, sizes \\ 3..5) do
    groups = pick([1, 1, 2])
    # Groups of batches and of features exclude each other.
    batch_groups = if groups == 1, do: pick([1, 1, 2]), else: 1
    channels = groups * int(1..2)
    filters = groups * batch_groups * int(1..2)
    {permutation, kernel_permutation} = {permutation(spatial), permutation(spatial)}
    batch = batch_groups * int(1..2)

    input = [batch, channels | for(_ <- 1..spatial, do: int(sizes))]
    kernel = [filters, div(channels, groups) | for(_ <- 1..spatial, do: int(1..2))]

    opts = [
      padding:
        pick([
          :valid,
          :same,
          for(_ <- 1..spatial, do: {int(0..2), int(1..2)}),
          for(_ <- 1..spatial, do: {-1, int(1..2)})
        ]),
      strides: for(_ <- 1..spatial, do: int(1..2)),
      input_dilation: for(_ <- 1..spatial, do: int(1..2)),
      kernel_dilation: for(_ <- 1..spatial, do: int(1..2)),
      feature_group_size: groups,
      batch_group_size: batch_groups,
      input_permutation: permutation,
      kernel_permutation: kernel_permutation,
      output_permutation: permutation(spatial)
    ]

    {tensor(type, unpermuted(input, permutation), 0..3),
     tensor(type, unpermuted(kernel, kernel_permutation), 0..3), opts}
  end

  defp permutation(spatial),
    do: pick([Enum.to_list(0..(spatial + 1)), Enum.shuffle(0..(spatial + 1))])

  # The dimensions whose permutation is `dims`.
  defp unpermuted(dims, permutation) do
    permutation |> Enum.zip(dims) |> Enum.sort() |> Enum.map(&elem(&1, 1)) |> List.to_tuple()
  end
end
