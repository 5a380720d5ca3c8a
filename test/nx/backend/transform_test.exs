defmodule Mlx.Backend.TransformTest do
  # Oracle: Nx.BinaryBackend along the last axis, which is the only one where it is right and where
  # it transforms an axis of length 1.
  use Mlx.NxCase, async: true

  property [:fft, :ifft], "along any axis and length", [over: types() -- [f: 64]], fn op, type ->
    t = tensor(type, shape(1..4), 0..4)
    {axis, length} = {int(0..(Nx.rank(t) - 1)), int(2..9)}
    actual = apply(Nx, op, [mlx(t), [axis: axis, length: length]])
    expected = last_axis(t, axis, &apply(Nx, op, [&1, [length: length]]))
    assert_equal(actual, expected, tolerance: 64, args: [t, axis, length])
  end

  property [Nx.Block.FFT2, Nx.Block.IFFT2], "over any two axes and lengths", fn block ->
    function = if block == Nx.Block.FFT2, do: :fft2, else: :ifft2
    t = tensor(pick([{:f, 32}, {:c, 64}, {:s, 32}]), {int(2..4), int(2..4), int(2..4)}, 0..4)
    assert_same([t], &apply(Nx, function, [&1]), tolerance: 64)
    lengths = [int(2..5), int(2..5)]
    [a, b] = axes = Enum.take_random(0..2, 2)
    actual = apply(Nx, function, [mlx(t), [axes: axes, lengths: lengths]])
    one = if block == Nx.Block.FFT2, do: :fft, else: :ifft
    [la, lb] = lengths

    expected =
      t
      |> last_axis(a, &apply(Nx, one, [&1, [length: la]]))
      |> last_axis(b, &apply(Nx, one, [&1, [length: lb]]))

    assert_equal(actual, expected, tolerance: 256)
  end

  property Nx.Block.RFFT, "of real signals of any length", fn _block ->
    signal = tensor(pick([{:f, 32}, {:s, 32}, {:u, 8}]), {2, int(3..6)}, 0..4)
    assert_same([signal], &Nx.rfft/1, tolerance: 64)
    length = int(3..8)
    assert_same([signal], &Nx.rfft(&1, length: length), tolerance: 64)
  end

  property Nx.Block.IRFFT, "to any length", fn _block ->
    {spectrum, length} = {tensor({:c, 64}, {2, int(3..5)}, 0..4), int(4..8)}
    assert_same([spectrum], &Nx.irfft(&1, length: length), tolerance: 64)
  end

  test "there and back, along the first axis" do
    t = tensor({:f, 32}, {12, 3}, :small)
    back = t |> mlx() |> Nx.fft(axis: 0) |> Nx.ifft(axis: 0)
    assert_equal(Nx.real(back), t, tolerance: 64)
  end

  # MLX's GPU kernels fail for the point of a view.
  test "a single point, of views too" do
    t = tensor({:c, 64}, {3, 4}, :small)
    views = [& &1, &Nx.transpose/1, & &1[[.., 1..1]], & &1[[1..1]], &Nx.reverse/1]

    for view <- views, length <- [1, 2], axis <- [0, 1] do
      assert_same([t], &(&1 |> view.() |> Nx.fft(length: length, axis: axis)), tolerance: 64)
      assert_same([t], &(&1 |> view.() |> Nx.ifft(length: length, axis: axis)), tolerance: 64)
      assert_same([t], &(&1 |> view.() |> Nx.fft2(lengths: [3, length])), tolerance: 64)
    end

    for view <- views do
      # Nx.BinaryBackend gives no element. What one point adds up to is the point.
      point = Nx.real(view.(t))[[.., 0..0]]
      assert_equal(Nx.rfft(view.(mlx(Nx.real(t))), length: 1), Nx.as_type(point, {:c, 64}))
      assert_equal(Nx.irfft(view.(mlx(t)), length: 1), point)
    end
  end

  defp last_axis(t, axis, fun) do
    swap = t |> Nx.axes() |> List.replace_at(axis, Nx.rank(t) - 1) |> List.replace_at(-1, axis)
    t |> Nx.transpose(axes: swap) |> fun.() |> Nx.transpose(axes: swap)
  end
end
