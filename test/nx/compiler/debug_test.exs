defmodule Mlx.Compiler.DebugTest do
  # Oracle: by hand.
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  defmodule Flow do
    import Nx.Defn

    defn until(x) do
      while x, Nx.sum(x) < 100 do
        x * 2
      end
    end
  end

  defp printed(fun, args) do
    capture_io(fn -> Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler, debug: true) end)
  end

  test "prints a line per instruction" do
    assert [key, input, sum, negative, result | _] =
             printed(&Nx.negate(Nx.sum(&1, axes: [0])), [Nx.iota({2, 3}, type: :s64)])
             |> String.split("\n")

    assert key =~ "#Function"
    assert input == "  %0 = input s64[2][3]"
    assert sum == "  %1 = sum_axes %0 [0] false"
    assert negative == "  %2 = negative %1"
    assert result == "  return %2"
  end

  test "prints the programs of loops beneath them" do
    text = printed(&Flow.until/1, [Nx.tensor([1, 2])])
    assert text =~ ~r/  %1 = while %0\n    program %0\n      %1 = .*\n/

    assert text =~
             ~r/    program %0\n      %1 = constant.*\n      %2 = multiply .*\n      return %2\n/
  end

  test "prints nothing unasked" do
    assert capture_io(fn -> Nx.Defn.jit_apply(&Nx.negate/1, [1], compiler: Mlx.Compiler) end) ==
             ""
  end
end
