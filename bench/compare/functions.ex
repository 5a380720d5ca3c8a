defmodule Bench.Functions do
  @moduledoc """
  The workloads in Nx. `bench/peers` has the same ones, by the same names, as the users of each
  framework write them.
  """
  import Nx.Defn

  # These are called eagerly too, which a `defn` is not: it goes to the compiler.
  def add(a, b), do: Nx.add(a, b)
  def chain(x), do: Nx.exp(Nx.add(Nx.multiply(Nx.sin(x), 2), 1))

  defn gelu(x), do: 0.5 * x * (1 + Nx.erf(x / 1.4142135623730951))
  defn axpy(x, y), do: 2 * x + y

  defn where_cast(x, y) do
    steps = Nx.as_type(x * 10, :s32)
    Nx.select(Nx.remainder(steps, 2) == 0, Nx.as_type(steps, :f32), y) + Nx.as_type(x > y, :f32)
  end

  defn sum_all(x), do: Nx.sum(x)
  defn mean_rows(x), do: Nx.mean(x, axes: [1])
  defn mean_columns(x), do: Nx.mean(x, axes: [0])

  defn softmax(x) do
    e = Nx.exp(x - Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defn layer_norm(x, scale, shift) do
    centred = x - Nx.mean(x, axes: [-1], keep_axes: true)
    variance = Nx.mean(centred * centred, axes: [-1], keep_axes: true)
    centred * Nx.rsqrt(variance + 1.0e-5) * scale + shift
  end

  # What is read is a number that everybody can read, so bf16 leaves as f32.
  defn matmul(x, y) do
    case Nx.type(x) do
      {:bf, 16} -> Nx.as_type(Nx.dot(x, y), :f32)
      _ -> Nx.dot(x, y)
    end
  end

  defn conv(x, kernel), do: Nx.conv(x, kernel, padding: :same)

  defn conv_grad(x, kernel) do
    grad({x, kernel}, fn {x, kernel} ->
      y = conv(x, kernel)
      Nx.sum(y * y)
    end)
  end

  defn max_pool(x), do: Nx.window_max(x, {1, 1, 2, 2}, strides: [1, 1, 2, 2])

  defn max_pool_grad(x) do
    grad(x, fn x ->
      y = max_pool(x)
      Nx.sum(y * y)
    end)
  end

  defn cholesky(x), do: Nx.LinAlg.cholesky(x)
  defn qr(x), do: Nx.LinAlg.qr(x)
  defn svd(x), do: Nx.LinAlg.svd(x)
  defn solve(a, b), do: Nx.LinAlg.solve(a, b)

  defn sort(x), do: Nx.sort(x)
  defn argsort(x), do: Nx.argsort(x)
  defn take(x, places), do: Nx.take(x, places)
  defn scatter_add(x, places, y), do: Nx.indexed_add(x, Nx.new_axis(places, 1), y)

  defn uniform(key, opts \\ []) do
    {numbers, _} = Nx.Random.uniform(key, shape: {opts[:n]})
    numbers
  end

  defn normal(key, opts \\ []) do
    {numbers, _} = Nx.Random.normal(key, shape: {opts[:n]})
    numbers
  end

  defn counted(x, opts \\ []) do
    {_, x} =
      while {i = 0, x}, i < opts[:times] do
        {i + 1, Nx.sin(x) + 1}
      end

    x
  end

  defn mlp_forward({w1, b1, w2, b2, w3, b3}, x) do
    x = Nx.max(Nx.dot(x, w1) + b1, 0)
    x = Nx.max(Nx.dot(x, w2) + b2, 0)
    Nx.dot(x, w3) + b3
  end

  defn mlp_step(params, x, labels) do
    {loss, grads} = value_and_grad(params, &cross_entropy(mlp_forward(&1, x), labels))
    {descend(params, grads), loss}
  end

  defn cnn_forward({k1, k2, w, b}, x) do
    x = max_pool(Nx.max(conv(x, k1), 0))
    x = max_pool(Nx.max(conv(x, k2), 0))
    Nx.dot(Nx.mean(x, axes: [2, 3]), w) + b
  end

  defn cnn_step(params, x, labels) do
    {loss, grads} = value_and_grad(params, &cross_entropy(cnn_forward(&1, x), labels))
    {descend(params, grads), loss}
  end

  defn transformer_forward({s1, b1, qkv, out, s2, b2, up, down}, x) do
    x = x + Nx.dot(attention(Nx.dot(layer_norm(x, s1, b1), qkv)), out)
    x + Nx.dot(gelu(Nx.dot(layer_norm(x, s2, b2), up)), down)
  end

  defn transformer_step(params, x, wanted) do
    {loss, grads} =
      value_and_grad(params, fn params ->
        difference = transformer_forward(params, x) - wanted
        Nx.mean(difference * difference)
      end)

    {descend(params, grads), loss}
  end

  # Four heads, of what the three parts of the last axis say.
  defnp attention(qkv) do
    {batch, length, width} = Nx.shape(qkv)
    {q, k, v} = heads(Nx.reshape(qkv, {batch, length, 3, 4, div(width, 12)}))
    scores = Nx.dot(q, [3], [0, 1], k, [3], [0, 1]) / Nx.sqrt(div(width, 12))
    mixed = Nx.dot(softmax(scores), [3], [0, 1], v, [2], [0, 1])
    Nx.reshape(Nx.transpose(mixed, axes: [0, 2, 1, 3]), {batch, length, div(width, 3)})
  end

  defnp heads(qkv) do
    qkv = Nx.transpose(qkv, axes: [2, 0, 3, 1, 4])
    {qkv[0], qkv[1], qkv[2]}
  end

  defnp cross_entropy(logits, labels) do
    largest = Nx.reduce_max(logits, axes: [1], keep_axes: true)
    all = Nx.log(Nx.sum(Nx.exp(logits - largest), axes: [1])) + Nx.squeeze(largest, axes: [1])
    wanted = Nx.new_axis(labels, 1) == Nx.iota(Nx.shape(logits), axis: 1)
    Nx.mean(all - Nx.sum(Nx.select(wanted, logits, 0.0), axes: [1]))
  end

  deftransformp descend(params, grads) do
    for {p, g} <- Enum.zip(Tuple.to_list(params), Tuple.to_list(grads)) do
      Nx.subtract(p, Nx.multiply(0.01, g))
    end
    |> List.to_tuple()
  end

  @doc "A chain of `2 * pairs` operations, which nobody can have compiled before: `number` is in it."
  def long_chain(x, pairs, number) do
    Enum.reduce(1..pairs, x, fn _, x -> Nx.sin(Nx.add(x, 1 + number * 1.0e-3)) end)
  end
end
