defmodule Mlx.Ecosystem.AxonTest do
  @moduledoc """
  Networks of Axon, built, trained and used with `Mlx.Compiler`. Oracle: the same with
  `Nx.Defn.Evaluator` on `Nx.BinaryBackend`.
  """
  # A test sets the defaults of the whole VM.
  use Mlx.NxCase, async: false

  import ExUnit.CaptureIO

  @moduletag :axon
  @moduletag capture_log: true
  @compile {:no_warn_undefined,
            [Axon, Axon.Loop, Axon.MixedPrecision, Axon.ModelState, Polaris.Optimizers]}

  # Absolute for numbers below 1, as everywhere here; training adds up the roundings of its steps.
  @tolerance 1.0e-4

  @mlx [compiler: Mlx.Compiler]
  @reference [compiler: Nx.Defn.Evaluator]

  defp reference(fun), do: Nx.with_default_backend(Nx.BinaryBackend, fun)

  defp assert_close(actual, expected, tolerance \\ @tolerance)

  defp assert_close(%Nx.Tensor{} = actual, %Nx.Tensor{} = expected, tolerance) do
    assert %Mlx.Backend{} = actual.data
    assert {actual.type, actual.shape} == {expected.type, expected.shape}
    actual = Nx.backend_copy(actual, Nx.BinaryBackend)

    unless Nx.to_number(Nx.all_close(actual, expected, atol: tolerance, rtol: tolerance)) == 1 do
      flunk("got: #{inspect(actual)}\ninstead of: #{inspect(expected)}")
    end
  end

  defp assert_close(%{} = actual, %{} = expected, tolerance) do
    assert Map.keys(actual) == Map.keys(expected)
    for {key, value} <- expected, do: assert_close(actual[key], value, tolerance)
  end

  ## Training

  defp mlp do
    Axon.input("x", shape: {nil, 4})
    |> Axon.dense(8, activation: :tanh)
    |> Axon.dropout(rate: 0.25, seed: 7)
    |> Axon.dense(3, activation: :softmax)
  end

  defp cnn do
    Axon.input("x", shape: {nil, 6, 6, 1})
    # A bias before a batch norm has no gradient, of which Adam makes one out of rounding errors.
    |> Axon.conv(4, kernel_size: 3, padding: :same, use_bias: false)
    |> Axon.batch_norm()
    |> Axon.relu()
    |> Axon.max_pool(kernel_size: 2)
    |> Axon.depthwise_conv(1, kernel_size: 2)
    |> Axon.avg_pool(kernel_size: 2)
    |> Axon.flatten()
    |> Axon.dropout(rate: 0.1, seed: 7)
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

  # Three classes that can be told apart, the same numbers every time.
  defp images(shape, count, size) do
    labels = Nx.remainder(Nx.iota({size}), 3)
    column = List.to_tuple([size | List.duplicate(1, tuple_size(shape))])

    for k <- 1..count do
      noise = Nx.sin(Nx.multiply(Nx.iota(Tuple.insert_at(shape, 0, size)), 1.7 * k))
      x = Nx.add(Nx.multiply(noise, 0.3), Nx.reshape(Nx.subtract(labels, 1), column))
      {x, one_hot(labels)}
    end
  end

  defp sequences(count, size) do
    labels = Nx.remainder(Nx.iota({size}), 3)

    for k <- 1..count do
      steps = Nx.add(Nx.new_axis(labels, -1), Nx.multiply(Nx.iota({1, 4}), k))
      {Nx.remainder(steps, 6), one_hot(labels)}
    end
  end

  defp one_hot(labels), do: Nx.equal(Nx.new_axis(labels, -1), Nx.iota({1, 3}))

  # The trained state, and the loss after each epoch.
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

  defp assert_trains(model, data, optimizer, epochs) do
    {actual, losses} = train(model, data.(), optimizer, [epochs: epochs] ++ @mlx)

    {expected, expected_losses} =
      reference(fn -> train(model, data.(), optimizer, [epochs: epochs] ++ @reference) end)

    assert_close(actual.data, expected.data)
    for {a, e} <- Enum.zip(losses, expected_losses), do: assert_in_delta(a, e, @tolerance)
    assert length(losses) == epochs and List.last(losses) < hd(losses)
  end

  describe "trains" do
    test "a perceptron with dropout" do
      data = fn -> images({4}, 3, 6) end
      assert_trains(mlp(), data, Polaris.Optimizers.adam(learning_rate: 0.01), 3)
    end

    test "a convolutional network with batch norm and dropout" do
      data = fn -> images({6, 6, 1}, 2, 3) end
      assert_trains(cnn(), data, Polaris.Optimizers.adam(learning_rate: 0.02), 3)
    end

    for layer <- [:lstm, :gru] do
      test "a recurrent network, #{layer}" do
        model = recurrent(&apply(Axon, unquote(layer), [&1, 4, [seed: 3]]))
        data = fn -> sequences(2, 3) end
        assert_trains(model, data, Polaris.Optimizers.adam(learning_rate: 0.05), 3)
      end
    end

    for optimizer <- ~w(adabelief adagrad adam adamw lamb noisy_sgd radam rmsprop sgd yogi)a do
      test "with #{optimizer}" do
        model = Axon.input("x", shape: {nil, 4}) |> Axon.dense(3, activation: :softmax)

        opts =
          [learning_rate: 0.02] ++
            unquote(if optimizer == :noisy_sgd, do: [seed: 3, eta: 0.001], else: [])

        optimizer = apply(Polaris.Optimizers, unquote(optimizer), [opts])
        assert_trains(model, fn -> images({4}, 2, 3) end, optimizer, 2)
      end
    end

    test "A1-51: and validates, compiling nothing twice" do
      count = :counters.new(1, [])
      id = {__MODULE__, self()}
      :telemetry.attach(id, [:mlx, :compile, :stop], &__MODULE__.count/4, count)
      data = images({4}, 2, 6)

      run = fn ->
        mlp()
        |> Axon.Loop.trainer(:categorical_cross_entropy, :adam, log: 0, seed: 5)
        |> Axon.Loop.validate(mlp(), data)
        |> Axon.Loop.handle_event(:epoch_completed, fn state ->
          send(self(), {:compiled, :counters.get(count, 1)})
          {:continue, state}
        end)
        |> Axon.Loop.run(data, Axon.ModelState.empty(), [epochs: 4] ++ @mlx)
      end

      trained = capture(run)

      :telemetry.detach(id)
      assert is_map_key(trained.data, "dense_1")
      compiled = for _ <- 1..4, do: assert_received({:compiled, _}) |> elem(1)
      assert Enum.uniq(tl(compiled)) == [List.last(compiled)]

      # The evaluation is that of the reference.
      evaluate = fn state, data, opts ->
        %{0 => %{"accuracy" => accuracy}} =
          mlp()
          |> Axon.Loop.evaluator()
          |> Axon.Loop.metric(:accuracy, "accuracy")
          |> Axon.Loop.run(data, state, opts)

        Nx.to_number(accuracy)
      end

      state = Nx.backend_copy(trained, Nx.BinaryBackend)

      expected =
        capture(fn -> reference(fn -> evaluate.(state, images({4}, 2, 6), @reference) end) end)

      assert_in_delta capture(fn -> evaluate.(trained, data, @mlx) end), expected, @tolerance
    end

    test "in mixed precision" do
      policy = Axon.MixedPrecision.create_policy(compute: {:bf, 16}, params: {:f, 32})
      model = Axon.MixedPrecision.apply_policy(mlp(), policy, except: [:softmax])
      data = fn -> images({4}, 2, 6) end
      optimizer = Polaris.Optimizers.adam(learning_rate: 0.01)
      {state, losses} = train(model, data.(), optimizer, [epochs: 3] ++ @mlx)

      {_, expected} =
        reference(fn -> train(model, data.(), optimizer, [epochs: 3] ++ @reference) end)

      # Which rounds to 8 bits.
      for {loss, e} <- Enum.zip(losses, expected), do: assert_in_delta(loss, e, 0.02)
      assert List.last(losses) < hd(losses)
      for {_, %{"kernel" => kernel}} <- state.data, do: assert(Nx.type(kernel) == {:f, 32})
    end
  end

  def count(_event, _measurements, _metadata, count), do: :counters.add(count, 1, 1)

  # The result of a function that prints as well.
  defp capture(fun) do
    me = self()
    capture_io(fn -> send(me, {:result, fun.()}) end)
    assert_received {:result, result}
    result
  end

  ## Layers, forward and backward

  @image {1, 6, 6, 2}
  @sequence {2, 3, 4}

  @layers [
    dense: {{2, 4}, :dense, [3]},
    conv: {@image, :conv, [3, [kernel_size: 3, strides: 2, padding: :same]]},
    dilated: {@image, :conv, [3, [kernel_size: 2, kernel_dilation: 2]]},
    grouped: {@image, :conv, [4, [kernel_size: 3, feature_group_size: 2]]},
    channels_first: {{1, 2, 6, 6}, :conv, [3, [kernel_size: 3, channels: :first]]},
    conv_transpose: {@image, :conv_transpose, [3, [kernel_size: 2, strides: 2]]},
    depthwise: {@image, :depthwise_conv, [2, [kernel_size: 3]]},
    separable: {@image, :separable_conv2d, [2, [kernel_size: 2]]},
    max_pool: {@image, :max_pool, [[kernel_size: 2, strides: 1, padding: :same]]},
    avg_pool: {@image, :avg_pool, [[kernel_size: 2]]},
    lp_pool: {@image, :lp_pool, [[kernel_size: 2, norm: 2]]},
    adaptive_max: {@image, :adaptive_max_pool, [[output_size: {2, 3}]]},
    adaptive_avg: {@image, :adaptive_avg_pool, [[output_size: {2, 3}]]},
    global_max: {@image, :global_max_pool, []},
    batch_norm: {@image, :batch_norm, []},
    layer_norm: {@image, :layer_norm, []},
    group_norm: {@image, :group_norm, [2]},
    instance_norm: {@image, :instance_norm, []},
    rms_norm: {@image, :rms_norm, []},
    nearest: {@image, :resize, [{9, 4}, [method: :nearest]]},
    bilinear: {@image, :resize, [{9, 4}, [method: :bilinear]]},
    bicubic: {@image, :resize, [{9, 4}, [method: :bicubic]]},
    lstm: {@sequence, :lstm, [3, [seed: 3]]},
    unrolled: {@sequence, :gru, [3, [seed: 3, unroll: :static]]},
    conv_lstm: {{1, 2, 4, 4, 1}, :conv_lstm, [2, [kernel_size: 2, seed: 3]]}
  ]

  for {name, {shape, layer, args}} <- @layers do
    test "the layer #{name}, forward and backward" do
      layer = Axon.input("x", shape: unquote(Macro.escape(shape)))
      made = apply(Axon, unquote(layer), [layer | unquote(Macro.escape(args))])
      assert_layer(first(made), unquote(Macro.escape(shape)))
    end
  end

  for name <- ~w(celu elu exp gelu hard_sigmoid hard_silu hard_tanh leaky_relu log_sigmoid
                 log_softmax log_sumexp mish relu relu6 selu sigmoid silu softmax softplus
                 softsign tanh)a do
    test "the activation #{name}, forward and backward" do
      layer = Axon.activation(Axon.input("x", shape: {2, 5}), unquote(name))
      assert_layer(layer, {2, 5})
    end
  end

  defp first({output, _state}), do: output
  defp first(output), do: output

  defp assert_layer(model, shape) do
    {init, _} = Axon.build(model, [mode: :train, seed: 3] ++ @mlx)
    state = init.(Nx.template(shape, :f32), Axon.ModelState.empty())
    {actual_state, actual} = step(model, state, input(shape), @mlx)

    {expected_state, expected} =
      reference(fn ->
        step(model, Nx.backend_copy(state, Nx.BinaryBackend), input(shape), @reference)
      end)

    assert_close(actual_state, expected_state)
    assert_close(actual, expected)
  end

  defp input(shape), do: Nx.iota(shape) |> Nx.multiply(0.7) |> Nx.sin() |> Nx.multiply(2)

  defp step(model, state, x, opts) do
    {_, predict} = Axon.build(model, mode: :train)

    fun = fn state, x ->
      wanted = Axon.ModelState.trainable_parameters(state)

      {out, {by_parameters, by_input}} =
        Nx.Defn.value_and_grad(
          {wanted, x},
          fn {parameters, x} -> predict.(merged(state, parameters), x) end,
          # Every output counts, and differently.
          fn %{prediction: out} ->
            weights = Nx.cos(Nx.iota(Nx.shape(out)))
            Nx.sum(Nx.multiply(out, weights))
          end
        )

      {out.state, %{out: out.prediction, parameters: by_parameters, input: by_input}}
    end

    Nx.Defn.jit_apply(fun, [state, x], opts)
  end

  defp merged(state, parameters), do: %{state | data: deep_merge(state.data, parameters)}

  defp deep_merge(left, right) do
    Map.merge(left, right, fn
      _key, %Nx.Tensor{}, tensor -> tensor
      _key, left, right -> deep_merge(left, right)
    end)
  end

  ## Using a network

  test "predicts by the defaults of the VM" do
    x = input({2, 4})
    {init, _} = Axon.build(mlp(), [seed: 3] ++ @mlx)
    state = init.(Nx.template({2, 4}, :f32), Axon.ModelState.empty())

    expected =
      reference(fn ->
        Axon.predict(mlp(), Nx.backend_copy(state, Nx.BinaryBackend), input({2, 4}), @reference)
      end)

    assert_close(Axon.predict(mlp(), state, x, @mlx), expected)
    compiler = Nx.Defn.global_default_options(compiler: Mlx.Compiler)
    backend = Nx.global_default_backend(backend())

    on_exit(fn ->
      Nx.Defn.global_default_options(compiler)
      Nx.global_default_backend(backend)
    end)

    # A process without defaults of its own.
    predicted =
      Task.await(
        Task.async(fn ->
          {_init, predict} = Axon.build(mlp())
          {predict.(state, input({2, 4})), Axon.predict(mlp(), state, input({2, 4}))}
        end)
      )

    for actual <- Tuple.to_list(predicted), do: assert_close(actual, expected)
  end

  test "compiles ahead" do
    {state, predict} =
      Axon.compile(mlp(), Nx.template({2, 4}, :f32), Axon.ModelState.empty(), @mlx)

    assert {2, 3} = Nx.shape(predict.(state, input({2, 4})))
  end

  test "serves" do
    {init, predict} = Axon.build(mlp(), [seed: 3] ++ @mlx)
    state = init.(Nx.template({2, 4}, :f32), Axon.ModelState.empty())

    serving =
      Nx.Serving.new(
        fn opts ->
          {_init, predict} = Axon.build(mlp(), opts)
          &predict.(state, &1)
        end,
        @mlx
      )

    x = input({2, 4})
    result = Nx.Serving.run(serving, Nx.Batch.concatenate([x]))
    assert_equal(result, predict.(state, x))
  end

  test "hooks see what passes, in the forward and in the backward pass" do
    me = self()

    model =
      Axon.input("x", shape: {nil, 2})
      |> Axon.dense(2, kernel_initializer: :ones, name: "first")
      |> Axon.attach_hook(&send(me, {:forward, Nx.to_flat_list(&1)}), on: :forward)
      |> Axon.dense(1, kernel_initializer: :ones, name: "second")
      |> Axon.attach_hook(&send(me, {:backward, Nx.to_flat_list(&1)}), on: :backward)

    x = Nx.tensor([[1.0, 2.0]])
    {init, predict} = Axon.build(model, @mlx)
    state = init.(x, Axon.ModelState.empty())
    assert_equal(predict.(state, x), [[6.0]])
    assert_received {:forward, [3.0, 3.0]}
    refute_received {:backward, _}

    step(model, state, x, @mlx)
    assert_received {:forward, [3.0, 3.0]}
    assert_received {:backward, [1.0]}
  end

  test "prints the values of its layers" do
    x = input({1, 4})
    {init, predict} = Axon.build(mlp(), [print_values: true, seed: 3] ++ @mlx)
    text = capture_io(fn -> predict.(init.(x, Axon.ModelState.empty()), x) end)

    for layer <- ["x", "dense_0", "tanh_0", "dense_1", "softmax_0"],
        do: assert(text =~ layer <> ": ")
  end
end
