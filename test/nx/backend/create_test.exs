defmodule Mlx.Backend.CreateTest do
  # Oracle: Nx.BinaryBackend. What moves data is compared bit by bit.
  use Mlx.NxCase, async: true

  property :iota, "counts along any axis", [over: types()], fn _op, type ->
    shape = shape()
    axis = if shape == {}, do: nil, else: pick([nil, int(0..(tuple_size(shape) - 1))])
    assert_same([], fn -> Nx.iota(shape, type: type, axis: axis) end)
  end

  property :eye, "of any size and batch", [over: types()], fn _op, type ->
    shape = shape(2..4)
    assert_same([], fn -> Nx.eye(shape, type: type) end)
  end

  property :constant, "of any number its type holds", [over: types()], fn _op, type ->
    number = if type == {:c, 64}, do: value(type, :any), else: value(type, :extreme)
    assert_same([], fn -> Nx.tensor(number, type: type) end)
    shape = shape(1..3)
    assert_same([], fn -> Nx.broadcast(Nx.tensor(number, type: type), shape) end)
  end

  property [:from_binary, :to_binary], "keep every bit", [over: types()], fn _op, type ->
    t = tensor(type, shape(), if(type == {:c, 64}, do: :any, else: :extreme))
    copy = Nx.from_binary(Nx.to_binary(t), t.type) |> Nx.reshape(t.shape)
    assert Nx.to_binary(copy) == Nx.to_binary(t)
    limit = int(1..Nx.size(t))
    assert Nx.to_binary(copy, limit: limit) == Nx.to_binary(t, limit: limit)
  end

  # Nx hands these options over as they are.
  test "options of a call are those of a default backend" do
    for create <- [&Nx.tensor(1, &1), &Nx.iota({2}, &1), &Nx.eye(2, &1), &Nx.tensor([1, 2], &1)] do
      refused = fn opts -> fn -> create.(backend: {Mlx.Backend, opts}) end end
      assert_raise ArgumentError, ~r/a device is :cpu, :gpu or/, refused.(device: "cpu")
      assert_raise ArgumentError, ~r/unknown keys \[:devise\]/, refused.(devise: :cpu)
      assert_raise ArgumentError, ~r/must be an Mlx.Stream/, refused.(stream: self())
      assert %Mlx.Backend{} = create.(backend: {Mlx.Backend, device: :cpu}).data

      if not Mlx.Device.available?(:gpu),
        do: assert_raise(Mlx.Error, ~r/{:gpu, 0} is not there/, refused.(device: :gpu))
    end
  end

  property [:backend_copy, :backend_transfer],
           "keep every bit there and back",
           [over: types()],
           fn op, type ->
             t = tensor(type, shape())
             there = Nx.backend_copy(t, backend())
             same = apply(Nx, op, [there, backend()])
             back = apply(Nx, op, [same, Nx.BinaryBackend])
             assert {back.data.__struct__, back.shape} == {Nx.BinaryBackend, t.shape}
             assert Nx.to_binary(back) == Nx.to_binary(t)
           end

  property :backend_deallocate, "frees once", [over: types(), runs: 1], fn _op, type ->
    t = mlx(tensor(type, shape()))
    assert {Nx.backend_deallocate(t), Nx.backend_deallocate(t)} == {:ok, :already_deallocated}
  end

  property :to_batched, "cuts, and completes the last batch from the start", fn _op ->
    t = tensor(pick(types()), shape(1..3, 7))
    size = int(1..elem(t.shape, 0))
    opts = [leftover: pick([:repeat, :discard])]

    for {actual, expected} <-
          Enum.zip_with(
            [Nx.to_batched(mlx(t), size, opts), Nx.to_batched(t, size, opts)],
            &List.to_tuple/1
          ),
        do: assert_equal(actual, expected)

    assert Enum.count(Nx.to_batched(mlx(t), size, opts)) ==
             Enum.count(Nx.to_batched(t, size, opts))
  end

  property :inspect, "shows what Nx shows", [over: types()], fn _op, type ->
    t = tensor(type, shape())
    assert inspect(mlx(t)) == inspect(t)
    assert inspect(mlx(t), limit: 2) == inspect(t, limit: 2)
  end

  test "short integers count around" do
    assert_same([], fn -> Nx.iota({300}, type: :u8) end)
    assert_same([], fn -> Nx.iota({300}, type: :s8) end)
    assert_equal(Nx.iota({3}, type: :bf16), [0.0, 1.0, 2.0])
  end

  test "constants are exact" do
    for {number, type} <- [
          {9_007_199_254_740_993, :s64},
          {-9_223_372_036_854_775_808, :s64},
          {18_446_744_073_709_551_615, :u64},
          {0.1, :f64},
          {1.0e300, :f64},
          {:infinity, :f32},
          {:neg_infinity, :f16},
          {Complex.new(1, -2), :c64}
        ],
        do: assert_equal(Nx.tensor(number, type: type), number)

    assert_equal(Nx.broadcast(Nx.tensor(:nan, type: :bf16), {2}), [:nan, :nan])
  end

  test "linspace of f64 is as precise as f64" do
    points = Nx.linspace(0.0, 0.5, n: 6, type: :f64)
    assert_equal(points, [0.0, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5], tolerance: 1)
  end
end
