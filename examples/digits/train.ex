defmodule Digits.Train do
  @moduledoc """
  Trains the classifier and prints how it goes. What computes is handed in, so that live Nx and
  saved programs go through the same epochs.
  """

  alias Digits.Data

  @batch 64
  @epochs 20
  @wanted 0.95

  @doc "Images in a batch, and in the held-out set: the shapes that the programs are made for."
  @spec sizes() :: {batch :: pos_integer, held_out :: pos_integer}
  def sizes do
    {_train, held_out} = Data.load()
    {@batch, held_out.count}
  end

  @doc """
  Runs all epochs. `engine` has

    * `tensor.(binary, type, shape)` - a value that the other functions take
    * `step.(state, images, labels)` - the next state and the loss, a value
    * `predict.(state, images)` - the answers, a value
    * `read.(value)` - a value's binary

  A state is a list of values: the weights and then their velocities. Returns the accuracy on the
  held-out digits, and the losses of the epochs.
  """
  @spec run(map) :: {accuracy :: float, losses :: [float]}
  def run(engine) do
    {train, held_out} = Data.load()
    weights = Data.weights()
    zeros = for {shape, binary} <- weights, do: {shape, :binary.copy(<<0>>, byte_size(binary))}
    state = for {shape, binary} <- weights ++ zeros, do: engine.tensor.(binary, {:f, 32}, shape)
    images = engine.tensor.(held_out.images, {:f, 32}, {held_out.count, 64})

    IO.puts("#{train.count} digits to learn from, #{held_out.count} held out\n")

    {state, losses} =
      Enum.reduce(1..@epochs, {state, []}, fn epoch, {state, losses} ->
        started = System.monotonic_time()
        {state, loss, seen} = epoch(engine, state, train, epoch)

        seconds =
          (System.monotonic_time() - started) / System.convert_time_unit(1, :second, :native)

        accuracy = accuracy(held_out.labels, engine.read.(engine.predict.(state, images)))
        report(epoch, loss, accuracy, seen / seconds)
        {state, [loss | losses]}
      end)

    answers = engine.read.(engine.predict.(state, images))
    accuracy = accuracy(held_out.labels, answers)
    conclude(held_out, answers, accuracy)
    {accuracy, Enum.reverse(losses)}
  end

  @doc "Ends the VM with an error if the accuracy is below 0.95."
  @spec check!(float) :: :ok
  def check!(accuracy) when accuracy >= @wanted, do: :ok

  def check!(accuracy) do
    IO.puts(:stderr, "the accuracy #{accuracy} is below #{@wanted}: something is wrong")
    System.halt(1)
  end

  # The losses are read once all steps are posted, so that posting runs ahead of computing.
  defp epoch(engine, state, train, epoch) do
    batches = Data.batches(train, @batch, epoch)

    {losses, state} =
      Enum.map_reduce(batches, state, fn {images, labels}, state ->
        images = engine.tensor.(images, {:f, 32}, {@batch, 64})
        labels = engine.tensor.(labels, {:u, 8}, {@batch})
        {state, loss} = engine.step.(state, images, labels)
        {loss, state}
      end)

    losses =
      for loss <- losses do
        <<value::float-32-native>> = engine.read.(loss)
        value
      end

    {state, Enum.sum(losses) / length(losses), length(losses) * @batch}
  end

  defp accuracy(labels, answers) do
    pairs = Enum.zip(:binary.bin_to_list(labels), :binary.bin_to_list(answers))
    Enum.count(pairs, fn {label, answer} -> label == answer end) / length(pairs)
  end

  defp report(epoch, loss, accuracy, rate) do
    :io.format("epoch ~2b/~b   loss ~.4f   accuracy ~.3f   ~b samples/s~n", [
      epoch,
      @epochs,
      loss,
      accuracy,
      round(rate)
    ])
  end

  defp conclude(held_out, answers, accuracy) do
    :io.format("~nAccuracy on the held-out digits: ~.3f~n~n", [accuracy])
    IO.puts(Data.confusion(held_out.labels, answers))

    wrong =
      Enum.find(
        0..(held_out.count - 1),
        &(:binary.at(held_out.labels, &1) != :binary.at(answers, &1))
      )

    if wrong do
      {label, answer} = {:binary.at(held_out.labels, wrong), :binary.at(answers, wrong)}
      IO.puts("\nThis #{label} was taken for a #{answer}:\n\n#{Data.draw(held_out, wrong)}\n")
    end
  end
end
