defmodule Bench.Report do
  @moduledoc """
  What was measured, as lines of a terminal's table and as a Markdown file.

  A line is a figure of a workload. A ratio is what the peer takes in times of what Mlx takes: the
  median of the rounds' ratios, above 1 where Mlx takes less.
  """

  @typedoc "A row with what became of each peer, the first of which is the one compared with."
  @type result :: {Bench.Workloads.row(), [{String.t(), Bench.Rounds.outcome()}]}

  @typedoc "A figure's name and unit; of each peer its median and its ratio, or why there is none."
  @type line :: %{
          group: String.t(),
          name: String.t(),
          unit: String.t(),
          cells: [{String.t(), {float, float | nil} | String.t()}],
          targets: [{String.t(), float}]
        }

  @doc "The lines of a result: one, or one of each of its gauges."
  @spec lines(result) :: [line]
  def lines({row, outcomes}) do
    gauges = if row.gauges == [], do: [{"time", "ns"}], else: row.gauges
    {_, first} = hd(outcomes)

    for {figure, unit} <- gauges do
      %{
        group: row.group,
        name: if(row.gauges == [], do: row.name, else: "#{row.name}, #{figure}"),
        unit: unit,
        cells: for({peer, outcome} <- outcomes, do: {peer, cell(outcome, first, figure)}),
        targets: row.targets
      }
    end
  end

  defp cell({:measured, figures}, first, figure) do
    own = figures[figure]

    # Nothing at all, as growth of memory may be, is no part of anything.
    ratios =
      with {:measured, %{^figure => theirs}} <- first,
           do: for({x, y} when y != 0 <- Enum.zip(own, theirs), do: x / y),
           else: (_ -> [])

    {median(own), if(ratios != [], do: median(ratios))}
  end

  defp cell({:differs, why}, _first, _figure), do: "differs, #{why}"
  defp cell({:failed, why}, _first, _figure), do: "failed, #{why}"
  defp cell({:absent, why}, _first, _figure), do: "absent, #{why}"

  @doc "The middle of some numbers."
  @spec median([number]) :: number
  def median(numbers), do: numbers |> Enum.sort() |> Enum.at(div(length(numbers), 2))

  @doc "The head of the terminal's table."
  @spec head([String.t()]) :: String.t()
  def head([first | others]) do
    titles = [String.pad_leading(first, 10) | Enum.map(others, &String.pad_leading(&1, 18))]
    String.pad_trailing("", 52) <> Enum.join(titles)
  end

  @doc "A line of it, and one for each peer that differs or failed."
  @spec text(line) :: String.t()
  def text(line) do
    [{_, first} | others] = line.cells
    cells = [short(first, line, 10) | Enum.map(others, &short(elem(&1, 1), line, 18))]

    remarks =
      for {peer, why} when is_binary(why) <- line.cells,
          not absent?(why),
          do: "\n    #{peer} #{why}"

    String.pad_trailing("#{line.group}: #{line.name}", 52) <>
      Enum.join(cells) <> Enum.join(remarks)
  end

  defp short({value, _}, line, 10), do: String.pad_leading(quantity(value, line.unit), 10)

  defp short({value, ratio}, line, width) do
    text =
      quantity(value, line.unit) <> if(ratio, do: String.pad_leading(times(ratio), 8), else: "")

    String.pad_leading(text, width)
  end

  defp short(why, _line, width),
    do:
      why
      |> String.split(",")
      |> hd()
      |> String.replace("absent", "-")
      |> String.pad_leading(width)

  defp absent?(why), do: String.starts_with?(why, "absent")

  @doc "A quantity, given in `ns` or `bytes`, with three digits and a unit that suits it."
  @spec quantity(number, String.t()) :: String.t()
  def quantity(value, "ns"), do: scaled(value, ["ns", "us", "ms", "s"])
  def quantity(value, "bytes"), do: scaled(value, ["B", "kB", "MB", "GB"])

  defp scaled(value, [_, next | units]) when abs(value) >= 999.5,
    do: scaled(value / 1000, [next | units])

  defp scaled(value, [unit | _]), do: "#{digits(value)} #{unit}"

  defp times(ratio), do: "#{digits(ratio)}x"

  # Three digits of whatever size.
  defp digits(x) when abs(x) >= 100, do: "#{round(x)}"
  defp digits(x) when abs(x) >= 10, do: "#{Float.round(x / 1, 1)}"
  defp digits(x) when abs(x) < 0.0995 and x != 0, do: :erlang.float_to_binary(x / 1, decimals: 4)
  defp digits(x), do: :erlang.float_to_binary(x / 1, decimals: 2)

  @doc "The report: what was compared, where, a table for each group, targets, and remarks."
  @spec markdown([result], %{
          title: String.t(),
          facts: [{String.t(), String.t()}],
          chart: String.t()
        }) ::
          String.t()
  def markdown(results, about) do
    lines = Enum.flat_map(results, &lines/1)
    facts = for {name, text} <- about.facts, do: "* #{name}: #{text}\n"

    [
      "# #{about.title}\n\n",
      facts,
      "\nA time is the median of the rounds. The factor beside it is what the peer takes in times of ",
      "what Mlx\ntakes, the median of the rounds' ratios: above 1 Mlx takes less. `-` stands for what ",
      "a peer has not.\n\n![Ratios](#{about.chart})\n",
      tables(lines),
      targets(lines),
      remarks(lines)
    ]
    |> IO.iodata_to_binary()
  end

  defp tables(lines) do
    for group <- lines |> Enum.map(& &1.group) |> Enum.uniq() do
      [first | _] = lines = Enum.filter(lines, &(&1.group == group))
      names = Enum.map(first.cells, &elem(&1, 0))

      [
        "\n## #{group}\n\n",
        table(["" | names], [
          "---" | Enum.map(names, fn _ -> "--:" end)
        ]),
        for(
          line <- lines,
          do: table_row([line.name | Enum.map(line.cells, &table_cell(&1, line))])
        )
      ]
    end
  end

  defp table(titles, ruler), do: [table_row(titles), table_row(ruler)]
  defp table_row(cells), do: ["| ", Enum.intersperse(cells, " | "), " |\n"]

  defp table_cell({name, {value, ratio}}, %{cells: [{first, _} | _]} = line)
       when name == first or is_nil(ratio),
       do: quantity(value, line.unit)

  defp table_cell({_, {value, ratio}}, line),
    do: "#{quantity(value, line.unit)} (#{times(ratio)})"

  defp table_cell({_, why}, line), do: why |> short(line, 0) |> String.trim()

  # Mlx's part of the peer's time, beside the most that it is to be.
  defp targets(lines) do
    rows =
      for line <- lines, {peer, most} <- line.targets, {^peer, {_, ratio}} <- line.cells, ratio do
        met = if 1 / ratio <= most, do: "met", else: "missed"
        table_row(["#{line.group}: #{line.name}", "#{peer}", times(most), times(1 / ratio), met])
      end

    if rows == [] do
      []
    else
      titles = ["", "peer", "at most", "Mlx takes", ""]
      ["\n## Targets\n\n", table(titles, ["---", "---", "--:", "--:", "---"]), rows]
    end
  end

  # One remark for all the workloads of which a peer says the same.
  defp remarks(lines) do
    said =
      for line <- lines,
          {peer, why} when is_binary(why) <- line.cells,
          do: {{peer, why}, "#{line.group}: #{line.name}"}

    remarks =
      for {peer, why} = key <- said |> Enum.map(&elem(&1, 0)) |> Enum.uniq() do
        names = for {^key, name} <- said, do: name
        "* #{peer}, #{why}: #{Enum.join(names, "; ")}\n"
      end

    if remarks == [], do: [], else: ["\n## Without figures\n\n", remarks]
  end
end
