# Looks for what ended a virtual machine that ran the fuzzer, in the file with the last case of each
# process: `mix run test/fuzz/died.exs LOG`. Cases are run in machines of their own. One that ends its
# machine is made smaller: a machine goes through the smaller chains, noting each before it is run, and
# the one that it dies of is the next to be made smaller.

defmodule Mlx.Fuzz.Died do
  @moduledoc false
  alias Mlx.Fuzz.{Code, Gen, Run, Shrink}

  def main([log]) do
    cases =
      for file <- Path.wildcard(log <> ".*"),
          [seed, index] <- [file |> File.read!() |> numbers()],
          do: {seed, index}

    lines = for {seed, index} <- cases, line = deadly(seed, index), do: line

    if lines == [] do
      IO.puts("none of the last cases ends a machine alone; they were, as SEED NUMBER:")
      for {seed, index} <- cases, do: IO.puts("  #{seed} #{index}  #{line(seed, index)}")
    else
      for line <- lines, do: IO.puts("ends the virtual machine: " <> line)
    end
  end

  # In a machine of its own: runs the chain of the file, or the smaller ones.
  def main([what, file]) do
    steps = file |> File.read!() |> :erlang.binary_to_term()
    Nx.default_backend(Mlx.Backend)

    for chain <- if(what == "--chain", do: [steps], else: Shrink.candidates(steps, false)) do
      File.write!(file, :erlang.term_to_binary(chain))
      Run.check(chain, [:compiled, :again])
    end
  end

  defp numbers(line) do
    for word <- String.split(line), do: String.to_integer(word)
  end

  defp line(seed, index), do: seed |> Gen.chain(index) |> Code.line()

  defp deadly(seed, index) do
    file = Path.join(System.tmp_dir!(), "mlx-fuzz-#{System.pid()}-#{index}")
    File.write!(file, :erlang.term_to_binary(Gen.chain(seed, index)))
    line = if ended?("--chain", file), do: file |> smallest(40) |> Code.line()
    File.rm(file)
    line
  end

  # The chain in the file is one that a machine ended with.
  defp smallest(file, tries) do
    chain = File.read!(file)

    # None smaller may have been noted.
    if tries > 0 and ended?("--smaller", file) and File.read!(file) != chain,
      do: smallest(file, tries - 1),
      else: :erlang.binary_to_term(chain)
  end

  defp ended?(what, file) do
    args = ~w(run --no-compile --no-deps-check test/fuzz/died.exs) ++ [what, file]
    {_, status} = System.cmd("mix", args, stderr_to_stdout: true)
    status not in [0, 1]
  end
end

Mlx.Fuzz.Died.main(System.argv())
