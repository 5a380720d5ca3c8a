defmodule Mlx.Ecosystem.AxonTest do
  @moduledoc """
  Networks of Axon, built, trained and used with `Mlx.Compiler`. Oracle: the same with
  `Nx.Defn.Evaluator` on `Nx.BinaryBackend`.
  """
  # The defaults that a test sets are those of the whole VM.
  use Mlx.NxCase, async: false

  import ExUnit.CaptureIO

  @moduletag :axon
  @compile {:no_warn_undefined, [Axon, Axon.Loop, Axon.MixedPrecision, Polaris.Optimizers]}

  # Training adds up the roundings of all its steps.
  @tolerance 1.0e-4

  ## Networks

  defp mlp do
    Axon.input("x", shape: {nil, 4})
    |> Axon.dense(8, activation: :tanh)
    |> Axon.dropout(rate: 0.25, seed: 7)
    |> Axon.dense(3, activation: :softmax)
  end

  defp cnn do
    Axon.input("x", shape: {nil, 6, 6, 1})
    |> Axon.conv(4, kernel_size: 3, padding: :same)
    |> Axon.batch_norm()
    |> Axon.relu()
    |> Axon.max_pool(kernel_size: 2)
    |> Axon.depthwise_conv(1, kernel_size: 2)
    |> Axon.avg_pool(kernel_size: 2)
    |> Axon.flatten()
    |> Axon.dropout(rate: 0.25, seed: 7)
    |> Axon.dense(3, activation: :softmax)
  end

  defp recurrent(layer) do
    {sequence, _state} =
      Axon.input("x", shape: {nil, 4})
      |> Axon.embedding(6, 3)
      |> layer.()

    sequence
    |> Axon.nx(& &1[[.., -1]])
    |> Axon.layer_norm()
    |> Axon.dense(3, activation: :softmax)
  end

  ## Data

  # Three classes that a network can tell apart, the same numbers every time.
  defp batches(shape, count, size) do
    for k <- 1..count do
      labels = Nx.remainder(Nx.iota({size}), 3)
      noise = Nx.sin(Nx.multiply(Nx.iota(Tuple.insert_at(shape, 0, size)), 1.7 * k))
      ones = for _ <- 1..Nx.rank(noise)//1, do: 1
      ones = ones |> tl() |> List.to_tuple() |> Tuple.insert_at(0, size)
      x = Nx.add(Nx.multiply(noise, 0.3), Nx.reshape(Nx.subtract(labels, 1), ones))
      {x, Nx.equal(Nx.new_axis(labels, -1), Nx.iota({1, 3}))}
    end
  end

  defp tokens(count, size) do
    for k <- 1..count do
      labels = Nx.remainder(Nx.iota({size}), 3)
      steps = Nx.add(Nx.new_axis(labels, -1), Nx.multiply(Nx.iota({1, 4}), k))
      {Nx.remainder(steps, 6), Nx.equal(Nx.new_axis(labels, -1), Nx.iota({1, 3}))}
    end
  end

  ## Training

  @mlx [compiler: Mlx.Compiler]
  @reference [compiler: Nx.Defn.Evaluator]

  defp on(backend, fun), do: Nx.with_default_backend(backend, fun)

  # The trained parameters and the loss after each epoch.
  defp train(model, data, optimizer, opts) do
    me = self()

    state =
      model
      |> Axon.Loop.trainer(:categorical_cross_entropy, optimizer, log: 0, seed: 5)
      |> Axon.Loop.metric(:accuracy)
      |> Axon.Loop.handle_event(:epoch_completed, fn state ->
        send(me, {:loss, Nx.to_number(state.step_state.loss)})
        {:continue, state}
      end)
      |> Axon.Loop.run(data, Axon.ModelState.empty(), opts)

    {state, losses()}
  end

  defp losses do
    receive do
      {:loss, loss} -> [loss | losses()]
    after
      0 -> []
    end
  end

  defp assert_trains_alike(model, data, optimizer, epochs) do
    opts = [epochs: epochs]

    time = fn f ->
      {t, r} = :timer.tc(f)
      IO.puts("#{div(t, 1000)} ms")
      r
    end

    {actual, losses} = time.(fn -> train(model, data.(), optimizer, opts ++ @mlx) end)

    {expected, reference} =
      time.(fn ->
        on(Nx.BinaryBackend, fn -> train(model, data.(), optimizer, opts ++ @reference) end)
      end)

    IO.inspect({losses, reference})

    assert_close(actual.data, expected.data)
    assert List.last(losses) < hd(losses)
    for {a, e} <- Enum.zip(losses, reference), do: assert_in_delta(a, e, @tolerance)
    actual
  end

  defp assert_close(actual, expected, tolerance \\ @tolerance)

  defp assert_close(%Nx.Tensor{} = actual, %Nx.Tensor{} = expected, tolerance) do
    assert {actual.type, actual.shape, actual.names} ==
             {expected.type, expected.shape, expected.names}

    actual = Nx.backend_copy(actual, Nx.BinaryBackend)
    assert Nx.to_number(Nx.all_close(actual, expected, atol: tolerance, rtol: tolerance)) == 1
  end

  defp assert_close(%{} = actual, %{} = expected, tolerance) do
    assert Map.keys(actual) == Map.keys(expected)
    for {key, value} <- expected, do: assert_close(actual[key], value, tolerance)
  end

  test "a perceptron trains" do
    data = fn -> batches({4}, 3, 6) end
    assert_trains_alike(mlp(), data, Polaris.Optimizers.adam(learning_rate: 0.01), 3)
  end

  test "a convolutional network trains" do
    data = fn -> batches({6, 6, 1}, 2, 3) end
    assert_trains_alike(cnn(), data, Polaris.Optimizers.sgd(learning_rate: 0.05), 2)
  end

  for layer <- [:lstm, :gru] do
    test "a recurrent network of #{layer} trains" do
      model = recurrent(&apply(Axon, unquote(layer), [&1, 4]))
      data = fn -> tokens(2, 3) end
      assert_trains_alike(model, data, Polaris.Optimizers.adam(learning_rate: 0.05), 3)
    end
  end
end
