# A training step of the digits classifier: mix run bench/training.exs
Code.require_file("support.exs", __DIR__)

Enum.each(
  ~w(data.ex model.ex engines.ex train.ex),
  &Code.require_file("../examples/digits/#{&1}", __DIR__)
)

{train, _held_out} = Digits.Data.load()
[{images, labels} | _] = Digits.Data.batches(train, 64, 1)

for {name, engine} <- [
      {"live Nx.Defn", Digits.Engines.nx()},
      {"saved program", Digits.Engines.programs()}
    ] do
  weights = Digits.Data.weights()
  zeros = for {shape, binary} <- weights, do: {shape, :binary.copy(<<0>>, byte_size(binary))}
  state = for {shape, binary} <- weights ++ zeros, do: engine.tensor.(binary, {:f, 32}, shape)
  images = engine.tensor.(images, {:f, 32}, {64, 64})
  labels = engine.tensor.(labels, {:u, 8}, {64})

  # Each step starts from the last one's weights, so that reading its loss computes that step whole.
  Process.put(:state, state)

  Bench.median(
    "digits step of 64, #{name}",
    fn ->
      {state, loss} = engine.step.(Process.get(:state), images, labels)
      Process.put(:state, state)
      engine.read.(loss)
    end,
    count: 100
  )
end
