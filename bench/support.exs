defmodule Bench do
  @moduledoc """
  What the benchmarks share: medians of repeated batches in one process, garbage collected between.
  """

  @doc """
  The median time of a call in microseconds, over `rounds` batches of `count` calls each. What is
  not read is computed before the next batch, and outside of the time that is taken.
  """
  def median(name, fun, opts \\ []) do
    count = Keyword.get(opts, :count, 1000)
    rounds = Keyword.get(opts, :rounds, 15)
    between = fn -> Mlx.Device.sync(Mlx.Device.default()) end
    batch(fun, count)
    between.()

    times =
      for _ <- 1..rounds do
        :erlang.garbage_collect()
        {time, _} = :timer.tc(fn -> batch(fun, count) end, :nanosecond)
        between.()
        time / count / 1000
      end

    median = times |> Enum.sort() |> Enum.at(div(rounds, 2))
    report(name, median, "us", Enum.min(times), Enum.max(times))
    median
  end

  def report(name, value, unit, least, most) do
    :io.format("~-44ts ~10.2f ~ts   (~.2f to ~.2f)~n", [
      name,
      value / 1,
      unit,
      least / 1,
      most / 1
    ])
  end

  defp batch(_fun, 0), do: :ok

  defp batch(fun, count) do
    fun.()
    batch(fun, count - 1)
  end
end
