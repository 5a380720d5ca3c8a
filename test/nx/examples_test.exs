Enum.each(~w(data.ex model.ex engines.ex train.ex), fn file ->
  Code.require_file(Path.expand("../../examples/digits/#{file}", __DIR__))
end)

defmodule Mlx.ExamplesTest do
  # Oracle: the README's printed output; the committed programs; the programs' own training run.
  use ExUnit.Case, async: false
  import ExUnit.CaptureIO

  @root Path.expand("../..", __DIR__)

  setup do
    backend = Nx.default_backend()
    on_exit(fn -> Nx.default_backend(backend) end)
  end

  test "the quickstart is the README's, and prints what the README says" do
    readme = File.read!(Path.join(@root, "README.md"))
    source = File.read!(Path.join(@root, "examples/quickstart.exs"))
    "# The example of the README.\n" <> example = source
    assert readme =~ "```elixir\n" <> example <> "```"
    output = capture_io(fn -> Code.eval_string(source) end)
    assert readme =~ "```text\n" <> output <> "```"
  end

  test "the committed programs are what the model exports" do
    for {path, program} <- Digits.Engines.export(Digits.Train.sizes()) do
      committed = Mlx.Program.load!(path)

      assert Map.delete(committed, :native) == Map.delete(program, :native),
             "#{path} is stale: run mix run examples/digits/export.exs"
    end
  end

  test "live Nx.Defn trains to the same losses as the saved programs" do
    {live, _} = with_io(fn -> Digits.Train.run(Digits.Engines.nx()) end)
    {saved, _} = with_io(fn -> Digits.Train.run(Digits.Engines.programs()) end)
    assert live == saved
    assert elem(live, 0) >= 0.95
  end
end
