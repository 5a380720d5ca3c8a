defmodule Digits.Data do
  @moduledoc """
  The digits: read, split, and cut into batches. Plain binaries, so it needs neither Nx nor MLX.
  """

  @file_name "digits.csv.gz"
  @seed {1, 2, 3}
  @pixels 64
  @classes 10

  @typedoc "Images as f32 from 0 to 1, labels as u8, and how many they are."
  @type set :: %{images: binary, labels: binary, count: pos_integer}

  @doc "The sizes of the network's layers, from pixels to digits."
  @spec layers() :: [pos_integer]
  def layers, do: [@pixels, 256, 128, @classes]

  @doc """
  The training set and the held-out fifth, shuffled in the same way each time.
  """
  @spec load() :: {train :: set, held_out :: set}
  def load do
    rows = __DIR__ |> Path.join(@file_name) |> File.read!() |> :zlib.gunzip() |> String.split()
    held_out = div(length(rows), 5)

    {test, train} =
      rows |> Enum.map(&parse/1) |> shuffle(:rand.seed_s(:exsss, @seed)) |> Enum.split(held_out)

    {set(train), set(test)}
  end

  @doc """
  The set's images and labels in shuffled batches of `size`; the rest of less than a batch waits for
  another epoch's shuffle.
  """
  @spec batches(set, pos_integer, integer) :: [{images :: binary, labels :: binary}]
  def batches(%{images: images, labels: labels, count: count}, size, epoch) do
    for batch <-
          0..(count - 1)
          |> Enum.to_list()
          |> shuffle(:rand.seed_s(:exsss, {epoch, 5, 7}))
          |> Enum.chunk_every(size, size, :discard) do
      {for(i <- batch, into: <<>>, do: binary_part(images, i * 4 * @pixels, 4 * @pixels)),
       for(i <- batch, into: <<>>, do: binary_part(labels, i, 1))}
    end
  end

  @doc """
  The network's first weights, a `{shape, binary of f32}` per tensor: normally distributed for the
  layers' width, biases zero.
  """
  @spec weights() :: [{tuple, binary}]
  def weights do
    state = :rand.seed_s(:exsss, {11, 13, 17})

    {weights, _state} =
      layers()
      |> Enum.zip(tl(layers()))
      |> Enum.flat_map_reduce(state, fn {inputs, outputs}, state ->
        {matrix, state} = normal(inputs * outputs, :math.sqrt(2 / inputs), state)
        {[{{inputs, outputs}, matrix}, {{outputs}, <<0::size(outputs)-unit(32)>>}], state}
      end)

    weights
  end

  @doc "The image of this index as eight lines of text."
  @spec draw(set, non_neg_integer) :: String.t()
  def draw(%{images: images}, index) do
    pixels = binary_part(images, index * 4 * @pixels, 4 * @pixels)
    shades = {"  ", "░░", "▒▒", "▓▓", "██"}

    for(<<pixel::float-32-native <- pixels>>, do: elem(shades, round(pixel * 4)))
    |> Enum.chunk_every(8)
    |> Enum.map_join("\n", &Enum.join/1)
  end

  @doc "How often each digit was taken for which: a row per digit, a column per answer."
  @spec confusion(binary, binary) :: String.t()
  def confusion(labels, answers) do
    pairs = Enum.zip(:binary.bin_to_list(labels), :binary.bin_to_list(answers))
    counts = Enum.frequencies(pairs)
    digits = 0..(@classes - 1)
    cell = fn value -> String.pad_leading(to_string(value), 4) end
    head = "digit" <> Enum.map_join(digits, cell) <> "   <- answer"

    rows =
      for digit <- digits do
        "    #{digit}" <>
          Enum.map_join(digits, fn answer -> cell.(Map.get(counts, {digit, answer}, ".")) end)
      end

    Enum.join([head | rows], "\n")
  end

  defp parse(row) do
    {pixels, [label]} =
      row |> String.split(",") |> Enum.map(&String.to_integer/1) |> Enum.split(@pixels)

    {for(pixel <- pixels, into: <<>>, do: <<pixel / 16::float-32-native>>), label}
  end

  defp set(rows) do
    {images, labels} = Enum.unzip(rows)

    %{
      images: IO.iodata_to_binary(images),
      labels: :binary.list_to_bin(labels),
      count: length(rows)
    }
  end

  defp shuffle(list, state) do
    {keyed, _state} =
      Enum.map_reduce(list, state, fn item, state ->
        {key, state} = :rand.uniform_s(state)
        {{key, item}, state}
      end)

    keyed |> Enum.sort() |> Enum.map(&elem(&1, 1))
  end

  defp normal(count, deviation, state) do
    {chunks, state} =
      Enum.map_reduce(1..count, state, fn _, state ->
        {value, state} = :rand.normal_s(state)
        {<<value * deviation::float-32-native>>, state}
      end)

    {IO.iodata_to_binary(chunks), state}
  end
end
