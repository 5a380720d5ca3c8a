defmodule Bench.Chart do
  @moduledoc """
  The ratios as an SVG: a line per workload, a dot per peer, on a logarithmic scale.
  """

  # Of figures for those who cannot tell all colours apart.
  @colours %{
    "mlx-python" => "#0072b2",
    "jax" => "#d55e00",
    "torch" => "#cc79a7",
    "numpy" => "#009e73",
    "emlx" => "#e69f00",
    "exla" => "#56b4e9",
    "binary" => "#999999"
  }
  @left 340
  @width 460
  @line 18
  @top 60

  @doc "The chart of some lines. Ratios beyond a hundredfold stand at the edge."
  @spec svg([Bench.Report.line()], String.t()) :: String.t()
  def svg(lines, title) do
    lines = Enum.filter(lines, fn line -> Enum.any?(tl(line.cells), &ratio/1) end)

    peers =
      lines |> Enum.flat_map(&tl(&1.cells)) |> Enum.filter(&ratio/1) |> Enum.map(&elem(&1, 0))

    bottom = @top + @line * length(lines)

    [
      ~s(<svg xmlns="http://www.w3.org/2000/svg" width="#{@left + @width + 20}" ),
      ~s(height="#{bottom + 30}" font-family="sans-serif" font-size="12">\n),
      ~s(<rect width="100%" height="100%" fill="white"/>\n),
      ~s(<text x="10" y="20" font-size="14">#{escape(title)}</text>\n),
      legend(Enum.uniq(peers)),
      scale(bottom),
      for({line, i} <- Enum.with_index(lines), do: row(line, @top + @line * i + 12)),
      "</svg>\n"
    ]
    |> IO.iodata_to_binary()
  end

  defp legend(peers) do
    for {peer, i} <- Enum.with_index(peers) do
      x = @left + 80 * i

      ~s(<circle cx="#{x}" cy="36" r="4" fill="#{@colours[peer]}"/>) <>
        ~s(<text x="#{x + 8}" y="40">#{escape(peer)}</text>\n)
    end
  end

  defp scale(bottom) do
    for factor <- [0.01, 0.1, 1, 10, 100] do
      x = position(factor)
      colour = if factor == 1, do: "black", else: "#dddddd"

      ~s(<line x1="#{x}" y1="#{@top - 8}" x2="#{x}" y2="#{bottom}" stroke="#{colour}"/>) <>
        ~s(<text x="#{x}" y="#{bottom + 16}" text-anchor="middle">#{factor}x</text>\n)
    end
  end

  defp row(line, y) do
    name = escape("#{line.group}: #{line.name}")

    [
      ~s(<text x="#{@left - 12}" y="#{y}" text-anchor="end">#{name}</text>\n),
      for {peer, _} = cell <- tl(line.cells), ratio = ratio(cell) do
        ~s(<circle cx="#{position(ratio)}" cy="#{y - 4}" r="4" fill="#{@colours[peer]}" ) <>
          ~s(fill-opacity="0.8"><title>#{escape(peer)}: #{Float.round(ratio / 1, 2)}x</title></circle>\n)
      end
    ]
  end

  defp ratio({_peer, {_, ratio}}), do: ratio
  defp ratio(_cell), do: nil

  # From a hundredth to a hundred times.
  defp position(ratio) do
    part = (:math.log10(max(ratio, 1.0e-9)) + 2) / 4
    Float.round(@left + @width * min(max(part, 0.0), 1.0), 1)
  end

  defp escape(text),
    do:
      text
      |> String.replace("&", "&amp;")
      |> String.replace("<", "&lt;")
      |> String.replace(">", "&gt;")
end
