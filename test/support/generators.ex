defmodule Mlx.Generators do
  @moduledoc false
  # Random tensors for properties. Everything draws from the process's `:rand` state, which
  # `for_all/2` seeds, so that a failure names the seed that repeats it.

  @ints [u: 8, u: 16, u: 32, u: 64, s: 8, s: 16, s: 32, s: 64]
  @floats [f: 16, bf: 16, f: 32, f: 64]

  def int_types, do: @ints
  def float_types, do: @floats
  def real_types, do: @ints ++ @floats
  def types, do: @ints ++ @floats ++ [c: 64]

  # The largest, the least normal and the least subnormal number of every float type.
  @limits %{
    {:f, 16} => [65_504.0, 6.103515625e-5, 5.9604644775390625e-8],
    {:bf, 16} => [3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41],
    {:f, 32} => [3.4028234663852886e38, 1.1754943508222875e-38, 1.401298464324817e-45],
    {:f, 64} => [1.7976931348623157e308, 2.2250738585072014e-308, 5.0e-324]
  }

  def pick(list), do: Enum.random(list)
  def int(range), do: Enum.random(range)

  @doc "A shape of a rank in `ranks`, every dimension at most `limit`."
  def shape(ranks \\ 0..4, limit \\ 4) do
    case pick(ranks) do
      0 -> {}
      rank -> List.to_tuple(for _ <- 1..rank, do: int(1..limit))
    end
  end

  @doc "A shape that broadcasts to `shape`: axes dropped from the left, others perhaps 1."
  def broadcastable(shape) do
    dims = shape |> Tuple.to_list() |> Enum.drop(int(0..tuple_size(shape)))
    dims |> Enum.map(&pick([&1, &1, 1])) |> List.to_tuple()
  end

  @doc "Some axes of `shape`, at least one, or `nil`."
  def axes({}), do: nil

  def axes(shape) do
    rank = tuple_size(shape)
    pick([nil, 0..(rank - 1) |> Enum.take_random(int(1..rank)) |> Enum.sort()])
  end

  @doc """
  A tensor on Nx.BinaryBackend. `values` is `:any` (special values among them), `:finite`,
  `:small` (integers and halves of few digits, exact in every type), `:extreme` (`:any`, and the
  limits of floats) or a range of integers.
  """
  def tensor(type, shape, values \\ :any) do
    elements = for _ <- 1..Tuple.product(shape), do: value(type, values)

    elements
    |> Nx.tensor(type: type, backend: Nx.BinaryBackend)
    |> then(&%{&1 | shape: shape, names: List.duplicate(nil, tuple_size(shape))})
  end

  @doc "One element."
  def value(_type, %Range{} = range), do: int(range)
  def value({:c, _}, values), do: Complex.new(value({:f, 32}, values), value({:f, 32}, values))
  def value({:u, _}, :small), do: int(0..3)
  def value({:s, _}, :small), do: int(-3..3)
  def value({_, _}, :small), do: int(-6..6) / 2

  def value({:u, size}, _values),
    do: pick([int(0..5), int(0..5), 0, 2 ** size - 1, int(0..(2 ** size - 1))])

  def value({:s, size}, _values) do
    {least, most} = {-(2 ** (size - 1)), 2 ** (size - 1) - 1}
    pick([int(-5..5), int(-5..5), 0, least, most, -1, int(least..most)])
  end

  def value(type, :extreme), do: pick([finite(), special(), pick(@limits[type]) * pick([1, -1])])
  def value(_type, :finite), do: finite()
  def value(_type, :any), do: pick([finite(), finite(), special()])

  defp finite, do: pick([:rand.uniform() * 4 - 2, int(-20..20) / 2, 0.0, -0.0, 1.0, -1.0])
  defp special, do: pick([:nan, :infinity, :neg_infinity, 0.0, -0.0, 0.5, -2.5, 1.0e-3, 1.0e4])

  @doc "Runs `fun` `runs` times, each with a seed of its own."
  def for_all(runs \\ 25, fun) do
    for run <- 1..runs do
      seed(run)

      try do
        fun.()
      rescue
        error ->
          IO.puts("repeat with #{inspect(__MODULE__)}.seed(#{run}) and --seed #{base()}")
          reraise error, __STACKTRACE__
      end
    end
  end

  @doc "Makes what follows in this process the run number `run` of the property `name`."
  def seed(run, name \\ nil), do: :rand.seed(:exsss, :erlang.phash2({base(), name, run}))

  defp base, do: ExUnit.configuration()[:seed]
end
