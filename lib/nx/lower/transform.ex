defmodule Mlx.Lower.Transform do
  @moduledoc false
  # Fourier transforms. MLX cuts or pads to the length itself; Nx then clears what is within `eps`
  # of zero.
  use Mlx.Lower.Family

  lower :fft, out, [t, opts] do
    transform(:fft, t, out.type, opts)
  end

  lower :ifft, out, [t, opts] do
    transform(:ifft, t, out.type, opts)
  end

  @doc "One transform of the tensor `t`; `options` are those of the callback."
  def transform(op, t, type, options),
    do: t |> cast(type) |> step(op, type, options)

  @doc "One transform of a complex tree."
  def step(tree, op, type, options) do
    Mlx.Type.held!(type)
    clear({{op, options[:length], options[:axis]}, [tree]}, options[:eps])
  end

  @doc "The real and imaginary parts that are at most `eps` become zero."
  def clear(tree, nil), do: tree

  def clear(tree, eps),
    do: complex(clear_real({:real, [tree]}, eps), clear_real({:imag, [tree]}, eps))

  @doc "The elements of an f32 tree that are at most `eps` become zero."
  def clear_real(tree, nil), do: tree

  def clear_real(tree, eps) do
    type = {:f, 32}
    where({:less_equal, [{:abs, [tree]}, const(eps, type)]}, const(0, type), tree)
  end
end
