defmodule Mlx.Lower.Block do
  @moduledoc false
  # The blocks of Nx that MLX computes as a whole. A block that is not here runs its default
  # function, operation by operation.
  import Mlx.Lower.Tree

  alias Mlx.Lower.{Decompose, Scan, Sort, Transform}
  alias Nx.Block

  @doc "The tree of a block, one per result, or `:default`."
  def lower(%Block.LogicalNot{}, _out, [t]), do: from_bool({:logical_not, [truthy(t)]})

  def lower(%Block.Phase{}, out, [%{type: {:c, _}} = t]),
    do: cast({:arctan2, [{:imag, [t]}, {:real, [t]}]}, {:f, 32}, out.type)

  def lower(%Block.Phase{}, out, [t]),
    do: {:arctan2, [const(0, out.type), cast(t, out.type)]}

  def lower(%Block.CumulativeSum{} = block, out, [t]), do: Scan.scan(:cumsum, block, out, t)
  def lower(%Block.CumulativeProduct{} = block, out, [t]), do: Scan.scan(:cumprod, block, out, t)
  # Nx's own function refuses complex numbers in words.
  def lower(%name{}, _out, [%{type: {:c, _}}])
      when name in [Block.CumulativeMin, Block.CumulativeMax, Block.TopK],
      do: :default

  def lower(%Block.CumulativeMin{} = block, out, [t]), do: Scan.scan(:cummin, block, out, t)
  def lower(%Block.CumulativeMax{} = block, out, [t]), do: Scan.scan(:cummax, block, out, t)

  def lower(%Block.Take{axis: axis}, out, [t, indices]),
    do: {{:take_axis, axis}, [cast(t, out.type), indices]}

  def lower(%Block.TakeAlongAxis{axis: axis}, out, [t, indices]),
    do: {{:take_along_axis, axis}, [cast(t, out.type), indices]}

  def lower(%Block.TopK{k: k}, {_values, indices}, [t]) do
    axis = tuple_size(t.shape) - 1
    order = t |> Sort.order(t.shape, axis, :desc) |> slice_axis(t.shape, axis, 0, k)
    [{{:take_along_axis, axis}, [t, order]}, cast(order, {:u, 32}, indices.type)]
  end

  def lower(%Block.FFT2{} = block, out, [t]), do: transform2(:fft, block, out, t)
  def lower(%Block.IFFT2{} = block, out, [t]), do: transform2(:ifft, block, out, t)

  def lower(%Block.RFFT{} = block, out, [t]) do
    Mlx.Type.held!(out.type)
    real = cast(t, {:f, 32})
    Transform.clear({{:rfft, block.length, block.axis}, [real]}, block.eps)
  end

  # By way of c128, which MLX lacks: Nx's own function has the precision that the type announces.
  def lower(%Block.IRFFT{}, %{type: {:f, 64}}, _args), do: :default

  def lower(%Block.IRFFT{} = block, out, [t]) do
    signal = {{:irfft, block.length, block.axis}, [cast(t, {:c, 64})]}
    cast(Transform.clear_real(signal, block.eps), {:f, 32}, out.type)
  end

  def lower(block, out, args), do: Decompose.lower(block, out, args)

  defp transform2(op, %{lengths: [l1, l2], axes: [ax1, ax2], eps: eps}, out, t) do
    op
    |> Transform.transform(t, out.type, length: l2, axis: ax2, eps: eps)
    |> Transform.step(op, out.type, length: l1, axis: ax1, eps: eps)
  end
end
