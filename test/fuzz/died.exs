# Looks for what ended a virtual machine that ran the fuzzer, in the file with the last case of each
# process: `mix run test/fuzz/died.exs LOG`. Cases are run in machines of their own. One that ends its
# machine is made smaller: a machine goes through the smaller chains, noting each before it is run, and
# the one that it dies of is the next to be made smaller.

defmodule Mlx.Fuzz.Died do
  @moduledoc false
  alias Mlx.Fuzz.{Code, Gen, Run, Shrink}

  def main([log]) do
    cases =
      for line <- log |> File.read!() |> String.split("\n"),
          [seed, index] <- [numbers(line)],
          do: {seed, index}

    lines = for {seed, index} <- cases, line = deadly(seed, index), do: line

    if lines == [] do
      IO.puts("none of the last cases ends a machine alone; they were, as SEED NUMBER:")
      for {seed, index} <- cases, do: IO.puts("  #{seed} #{index}  #{line(seed, index)}")
    else
      for line <- lines, do: IO.puts("ends the virtual machine: " <> line)
    end
  end

  # In a machine of its own: runs the chain of the file, then the smaller ones.
  def main(["--try", file]) do
    steps = file |> File.read!() |> :erlang.binary_to_term()
    Nx.default_backend(Mlx.Backend)

    for chain <- Stream.concat([steps], Shrink.candidates(steps)) do
      File.write!(file, :erlang.term_to_binary(chain))
      Run.check(chain, [:compiled, :again])
    end
  end

  defp numbers(line) do
    for word <- line |> String.trim(<<0>>) |> String.split(), do: String.to_integer(word)
  end

  defp line(seed, index), do: seed |> Gen.chain(index) |> Code.line()

  defp deadly(seed, index) do
    file = Path.join(System.tmp_dir!(), "mlx-fuzz-#{System.pid()}-#{index}")
    smallest = smaller(Gen.chain(seed, index), nil, file, 60)
    File.rm(file)
    smallest && Code.line(smallest)
  end

  defp smaller(_steps, known, _file, 0), do: known

  defp smaller(steps, known, file, tries) do
    File.write!(file, :erlang.term_to_binary(steps))
    args = ~w(run --no-compile --no-deps-check test/fuzz/died.exs --try) ++ [file]
    {_, status} = System.cmd("mix", args, stderr_to_stdout: true)
    died = file |> File.read!() |> :erlang.binary_to_term()

    cond do
      status in [0, 1] -> known
      # The chain itself ended it: the machine did not come to a smaller one.
      died == known -> known
      true -> smaller(died, died, file, tries - 1)
    end
  end
end

Mlx.Fuzz.Died.main(System.argv())
