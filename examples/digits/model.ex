defmodule Digits.Model do
  @moduledoc """
  A network of three dense layers, and one step of training it: gradient descent with momentum.
  """

  use Mlx.Defn

  @learning_rate 0.05
  @momentum 0.9

  @doc """
  One step on a batch: takes weights and velocities, each `{w1, b1, w2, b2, w3, b3}`, and returns
  them changed, with the batch's mean loss before the step.
  """
  defn step(weights, velocities, images, labels) do
    {loss, gradients} = value_and_grad(weights, &loss(&1, images, labels))
    velocities = descend(velocities, gradients)
    {add(weights, velocities), velocities, loss}
  end

  @doc "The digit that each image is taken for, u8."
  defn predict(weights, images) do
    weights |> scores(images) |> Nx.argmax(axis: 1, type: :u8)
  end

  defnp scores({w1, b1, w2, b2, w3, b3}, images) do
    images
    |> Nx.dot(w1)
    |> Nx.add(b1)
    |> Nx.max(0)
    |> Nx.dot(w2)
    |> Nx.add(b2)
    |> Nx.max(0)
    |> Nx.dot(w3)
    |> Nx.add(b3)
  end

  # Mean cross-entropy of the softmax, by way of logarithms so that nothing overflows.
  defnp loss(weights, images, labels) do
    scores = scores(weights, images)
    highest = stop_grad(Nx.reduce_max(scores, axes: [1], keep_axes: true))
    shifted = scores - highest
    log_sum = shifted |> Nx.exp() |> Nx.sum(axes: [1], keep_axes: true) |> Nx.log()
    chosen = Nx.equal(Nx.new_axis(labels, 1), Nx.iota({1, 10}, type: :u8))
    Nx.mean(Nx.sum(chosen * (log_sum - shifted), axes: [1]))
  end

  defnp descend({v1, v2, v3, v4, v5, v6}, {g1, g2, g3, g4, g5, g6}) do
    {descend1(v1, g1), descend1(v2, g2), descend1(v3, g3), descend1(v4, g4), descend1(v5, g5),
     descend1(v6, g6)}
  end

  defnp descend1(velocity, gradient), do: @momentum * velocity - @learning_rate * gradient

  defnp add({a1, a2, a3, a4, a5, a6}, {b1, b2, b3, b4, b5, b6}) do
    {a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6}
  end
end
