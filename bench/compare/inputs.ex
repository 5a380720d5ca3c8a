defmodule Bench.Inputs do
  @moduledoc """
  Inputs and the description of a workload, written once as files that every peer reads.

  A file of numbers is raw, row-major and little-endian: f32 (also for bf16, whose values it then
  has), s32 or u32. The description has a line each for the function, the mode, options and inputs.
  """

  @type kind ::
          :normal | {:scaled, pos_integer} | :definite | :graded | :integers | :distinct | :key
  @type input :: {kind, tuple, :f32 | :bf16 | :s32 | :u32 | {:s32, pos_integer}}

  # Larger inputs repeat themselves after so many numbers.
  @most 1_048_576

  @doc "Writes the workload's files to a folder, and returns the path of its description."
  @spec write!(Bench.Workloads.row(), Path.t()) :: Path.t()
  def write!(row, folder) do
    # The same numbers in every run.
    :rand.seed(:exsss, {1, 2, 3})

    inputs =
      for {{_, shape, type} = input, i} <- Enum.with_index(row.inputs) do
        path = Path.join(folder, "input-#{i}")
        File.write!(path, numbers(input))
        "input #{path} #{type(type)} #{dims(shape)}"
      end

    options = for {key, value} <- row.options, do: "option #{key} #{value}"

    head = [
      "function #{row.function}",
      "mode #{row.mode}",
      "read #{row.read}",
      "pack #{row.pack}"
    ]

    path = Path.join(folder, "description")
    File.write!(path, Enum.map_join(head ++ options ++ inputs, &(&1 <> "\n")))
    path
  end

  @doc "Reads a description back; its inputs are `{type, shape, binary}`."
  @spec read!(Path.t()) :: map
  def read!(path) do
    lines = for line <- String.split(File.read!(path), "\n", trim: true), do: String.split(line)
    [value] = for ["function", name] <- lines, do: String.to_atom(name)

    %{
      function: value,
      mode: hd(for ["mode", mode] <- lines, do: String.to_atom(mode)),
      read: ["read", "true"] in lines,
      pack: hd(for ["pack", n] <- lines, do: String.to_integer(n)),
      options: for(["option", key, n] <- lines, do: {String.to_atom(key), String.to_integer(n)}),
      inputs:
        for ["input", path, type, dims] <- lines do
          {String.to_atom(type), shape(dims), File.read!(path)}
        end
    }
  end

  defp type({type, _limit}), do: type
  defp type(type), do: type

  defp dims(shape), do: shape |> Tuple.to_list() |> Enum.join("x")

  defp shape(dims),
    do: dims |> String.split("x") |> Enum.map(&String.to_integer/1) |> List.to_tuple()

  defp numbers({:key, _, :u32}), do: <<0::32-little, 42::32-little>>

  defp numbers({:integers, shape, {:s32, limit}}),
    do: repeated(Tuple.product(shape), fn -> <<:rand.uniform(limit) - 1::32-little>> end)

  defp numbers({:distinct, shape, :f32}) do
    numbers = Enum.take_random(1..(Tuple.product(shape) * 2), Tuple.product(shape))
    for x <- Enum.shuffle(numbers), into: <<>>, do: <<x::float-32-little>>
  end

  # Symmetric, and definite because the diagonal outweighs the rest of each row.
  defp numbers({:definite, {n, n}, :f32}) do
    half = Map.new(for(i <- 0..(n - 1), j <- 0..i, do: {{i, j}, :rand.uniform() - 0.5}))

    for i <- 0..(n - 1), j <- 0..(n - 1), into: <<>> do
      x = half[{max(i, j), min(i, j)}] + if(i == j, do: n, else: 0)
      <<x::float-32-little>>
    end
  end

  # Singular values about 1 apart, so that their vectors are known to some digits.
  defp numbers({:graded, {n, n}, :f32}) do
    for i <- 1..n, j <- 1..n, into: <<>> do
      x = 0.02 * :rand.normal() + if(i == j, do: i, else: 0)
      <<x::float-32-little>>
    end
  end

  defp numbers({{:scaled, from}, shape, :f32}) do
    scale = 1 / :math.sqrt(from)
    repeated(Tuple.product(shape), fn -> <<:rand.normal() * scale::float-32-little>> end)
  end

  defp numbers({:normal, shape, :f32}),
    do: repeated(Tuple.product(shape), fn -> <<:rand.normal()::float-32-little>> end)

  # Conversions to bf16 differ in how they round, so nothing is left to round.
  defp numbers({:normal, shape, :bf16}) do
    repeated(Tuple.product(shape), fn ->
      <<_::16, upper::16>> = <<:rand.normal()::float-32-little>>
      <<0::16, upper::16>>
    end)
  end

  defp repeated(count, fun) do
    part = for _ <- 1..min(count, @most), into: <<>>, do: fun.()
    :binary.copy(part, div(count, min(count, @most)))
  end
end
