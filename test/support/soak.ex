defmodule Mlx.Soak do
  @moduledoc false
  # Work of all kinds at once, for as long as one likes, while the VM is watched from outside of it.
  # Oracles: each round of work knows its result, and after a warm-up nothing grows.
  #
  # Three phases, so that latencies can be told apart: nothing but the probes, which shows what the
  # machine adds; products of matrices beside them; and everything.

  alias Mlx.Soak.{Judge, Latency, Loads, Samples}

  @type report :: %{
          samples: [Samples.t()],
          verdicts: [Judge.verdict()],
          latency: [{phase :: atom, Latency.t()}],
          rounds: %{atom => non_neg_integer},
          failures: [String.t()]
        }

  @doc """
  Soaks for so many seconds, at least 5. `:interval` are the milliseconds between samples, and
  `:tell` is called with each sample.
  """
  @spec run(pos_integer, keyword) :: report
  def run(seconds, opts \\ []) when seconds >= 5 do
    opts = Keyword.validate!(opts, interval: 1000, tell: fn _ -> :ok end)
    Process.flag(:trap_exit, true)
    alone = min(max(div(seconds, 10), 1), 30)
    latency = Latency.start()
    rounds = Loads.counters()

    idle = measured(latency, fn -> Process.sleep(alone * 1000) end)
    matmul = Loads.start([:matmul], rounds)
    readers = Loads.start_readers(latency)
    products = measured(latency, fn -> Process.sleep(alone * 1000) end)
    others = Loads.start(Loads.names() -- [:matmul], rounds)
    {mixed, samples} = sampled(latency, (seconds - 2 * alone) * 1000, opts)

    failures = Enum.flat_map(readers ++ matmul ++ others, &Loads.stop/1)
    Latency.stop(latency)

    %{
      samples: samples,
      verdicts: Judge.verdicts(samples),
      latency: [idle: idle, products: products, mixed: mixed],
      rounds: Loads.rounds(rounds),
      failures: failures
    }
  end

  @doc "Whether all of it is as it should be."
  @spec good?(report) :: boolean
  def good?(report) do
    report.failures == [] and Enum.all?(report.verdicts, & &1.flat?) and
      Enum.all?(report.rounds, fn {_, rounds} -> rounds > 0 end)
  end

  defp measured(latency, fun) do
    Latency.reset(latency)
    fun.()
    Latency.read(latency)
  end

  defp sampled(latency, time, opts) do
    Latency.reset(latency)
    start = System.monotonic_time(:millisecond)

    samples =
      Enum.map(1..max(div(time, opts[:interval]), 1), fn index ->
        Process.sleep(
          max(start + index * opts[:interval] - System.monotonic_time(:millisecond), 0)
        )

        sample = Samples.take((System.monotonic_time(:millisecond) - start) / 1000)
        opts[:tell].(sample)
        sample
      end)

    {Latency.read(latency), samples}
  end
end
