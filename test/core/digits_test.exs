# The engine of live Nx, where Nx is there, needs the model.
model = if Code.ensure_loaded?(Nx), do: ["model.ex"], else: []

for file <- ["data.ex"] ++ model ++ ["engines.ex", "train.ex"],
    do: Code.require_file(Path.expand("../../examples/digits/#{file}", __DIR__))

defmodule Mlx.DigitsTest do
  # Oracle: the held-out labels.
  use ExUnit.Case, async: false
  import ExUnit.CaptureIO

  test "the saved programs train a classifier, without Nx" do
    {{accuracy, losses}, output} = with_io(fn -> Digits.Train.run(Digits.Engines.programs()) end)
    assert accuracy >= 0.95
    assert List.last(losses) < 0.1 * hd(losses)
    assert output =~ "epoch 20/20"
    assert output =~ "<- answer"
  end

  test "the split holds a fifth out, and nothing twice" do
    {train, held_out} = Digits.Data.load()
    assert train.count + held_out.count == 1797
    assert held_out.count == 359
    assert byte_size(train.images) == train.count * 64 * 4
    images = fn set -> for <<image::binary-256 <- set.images>>, do: image end
    assert MapSet.disjoint?(MapSet.new(images.(train)), MapSet.new(images.(held_out)))
  end
end
