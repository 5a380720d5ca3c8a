defmodule Mlx.Soak.Judge do
  @moduledoc false
  # Whether a curve is flat. What fluctuates has a slope by chance, and a step makes one too, so a
  # curve counts as rising where both the line through it and its middle values at either end say so.

  alias Mlx.Soak.Samples

  @type verdict :: %{name: atom, rise: float, bound: float, flat?: boolean}

  # The first share of the time, in which caches fill.
  @warm_up 0.25

  @doc "What is to be judged: the samples after the warm-up."
  @spec warm([Samples.t()]) :: [Samples.t()]
  def warm(samples), do: Enum.drop(samples, ceil(length(samples) * @warm_up))

  @doc "A verdict for each series that was sampled."
  @spec verdicts([Samples.t()]) :: [verdict]
  def verdicts(samples) do
    samples = warm(samples)

    for {name, _, _, most, share} <- Samples.series(),
        is_map_key(hd(samples), name) do
      values = Enum.map(samples, & &1[name])
      rise = min(slope(values) * (length(values) - 1), ends(values))
      bound = max(most / 1, share * median(values))
      %{name: name, rise: Float.round(rise / 1, 1), bound: bound / 1, flat?: rise <= bound}
    end
  end

  # By the least squares, per sample.
  defp slope(values) do
    count = length(values)
    mean = Enum.sum(values) / count
    middle = (count - 1) / 2
    indexed = Enum.with_index(values)
    spread = Enum.sum(for {_, i} <- indexed, do: (i - middle) ** 2)
    together = Enum.sum(for {value, i} <- indexed, do: (i - middle) * (value - mean))
    if spread == 0, do: 0.0, else: together / spread
  end

  defp ends(values) do
    part = max(div(length(values), 4), 1)
    median(Enum.take(values, -part)) - median(Enum.take(values, part))
  end

  defp median(values), do: values |> Enum.sort() |> Enum.at(div(length(values), 2))
end
