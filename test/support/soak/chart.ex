defmodule Mlx.Soak.Chart do
  @moduledoc false
  # The curves of a soak as a picture, one below the other: plain SVG text.

  alias Mlx.Soak.{Judge, Samples}

  @width 720
  @plot 440
  @row 58
  @top 34

  @spec svg([Samples.t()]) :: iodata
  def svg([first | _] = samples) do
    series =
      for {name, words, unit, _, _} <- Samples.series(),
          is_map_key(first, name),
          do: {name, words, unit}

    height = @top + length(series) * @row + 10
    last = List.last(samples).at
    warm = length(samples) - length(Judge.warm(samples))
    edge = if warm == 0, do: 0.0, else: Enum.at(samples, warm - 1).at / last * @plot

    [
      ~s(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{@width} #{height}" ),
      ~s(font-family="sans-serif" font-size="12">\n),
      ~s(<rect width="100%" height="100%" fill="white"/>\n),
      ~s(<text x="10" y="20">#{round(last)} seconds; the part before the line is the warm-up</text>\n),
      ~s(<path d="M#{10 + r(edge)} #{@top}V#{height - 10}" stroke="#bbb" stroke-dasharray="3 3"/>\n),
      for {{name, words, unit}, index} <- Enum.with_index(series) do
        curve(Enum.map(samples, &{&1.at / last, &1[name]}), words, unit, @top + index * @row)
      end,
      "</svg>\n"
    ]
  end

  # From zero to the most, so that what looks flat is.
  defp curve(points, words, unit, top) do
    values = Enum.map(points, &elem(&1, 1))
    {least, most} = Enum.min_max(values)
    height = @row - 14
    y = fn value -> top + height - if(most == 0, do: 0, else: value / most * height) end
    line = Enum.map_intersperse(points, " ", fn {x, v} -> "#{r(10 + x * @plot)},#{r(y.(v))}" end)

    [
      ~s(<path d="M10 #{top + height}h#{@plot}" stroke="#ddd"/>\n),
      ~s(<polyline fill="none" stroke="#1f5fa8" stroke-width="1.2" points="#{line}"/>\n),
      ~s(<text x="#{@plot + 22}" y="#{top + 20}">#{words}</text>\n),
      ~s(<text x="#{@plot + 22}" y="#{top + 36}" fill="#666">#{least} to #{most} #{unit}</text>\n)
    ]
  end

  defp r(number), do: Float.round(number / 1, 1)
end
