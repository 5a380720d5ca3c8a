defmodule Mlx.Compiler.DebugTest do
  # Oracle: by hand.
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  alias Mlx.Functions

  defmodule Flow do
    import Nx.Defn

    defn until(x) do
      while x, Nx.sum(x) < 100 do
        x * 2
      end
    end

    defn choose(p, x) do
      if p, do: hook(x, :taken), else: Nx.sort(x)
    end
  end

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  defp printed(fun, args, opts \\ []) do
    opts = [compiler: Mlx.Compiler, debug: true] ++ opts
    capture_io(fn -> Nx.Defn.jit_apply(fun, args, opts) end)
  end

  # The times differ.
  defp program(text), do: String.replace(text, ~r/\n  traced in .*/s, "")

  test "prints a line per instruction, and what there is of it" do
    text = printed(&Nx.negate(Nx.sum(&1, axes: [0])), [Nx.iota({2, 3}, type: :s64)])

    assert program(text) == """
           anonymous fn/1 in Mlx.Compiler.DebugTest."test prints a line per instruction, and what there is of it"/1 (test/nx/compiler/debug_test.exs)
             %0 = input arg1 s64[2][3], 48 bytes
             %1 = sum_axes %0 [0] false
             %2 = negative %1
             return %2 s64[3], 24 bytes
             2 instructions; constants of 0 bytes\
           """

    assert text =~ ~r/\n  traced in \d+\.\d ms, lowered in \d+\.\d ms, built in \d+\.\d ms\n\z/
  end

  test "names arguments as the function does, and containers by the way to what they hold" do
    params = %{kernel: Nx.iota({2, 2}, type: :f32), bias: Nx.tensor([1, 2], type: :s64)}
    text = printed(&Functions.predict/3, [params, {Nx.iota({2}), 2.0}, %{shift: 1}])

    assert program(text) == """
           &Mlx.Functions.predict/3 (#{Functions.file()}:#{Functions.line("predict")})
             %0 = input params.bias s64[2], 16 bytes
             %1 = input params.kernel f32[2][2], 16 bytes
             %2 = input x s32[2], 8 bytes
             %3 = input scale f32, 4 bytes
             %4 = input arg3.shift s32, 4 bytes
             %5 = astype %2 {:f, 32}
             %6 = reshape %5 {1, 2}
             %7 = matmul %6, %1
             %8 = reshape %7 {2}
             %9 = multiply %8, %3
             %10 = astype %0 {:f, 32}
             %11 = add %9, %10
             %12 = astype %4 {:f, 32}
             %13 = add %11, %12
             return %13 f32[2], 8 bytes
             9 instructions; constants of 0 bytes\
           """
  end

  test "prints the programs of loops beneath them, and what they take" do
    assert printed(&Flow.until/1, [Nx.tensor([1, 2])]) |> program() == """
           &Mlx.Compiler.DebugTest.Flow.until/1 (test/nx/compiler/debug_test.exs)
             %0 = input arg1 s32[2], 8 bytes
             %1 = while %0
               condition %0 <- %0
                 %1 = sum_axes %0 [0] false
                 %2 = constant s32 100
                 %3 = less %1, %2
                 %4 = astype %3 {:u, 8}
                 return %4
               body %0 <- %0
                 %1 = constant s32 2
                 %2 = multiply %1, %0
                 return %2
             return %1 s32[2], 8 bytes
             1 instruction, 6 more in 2 nested programs; constants of 8 bytes\
           """
  end

  test "prints branches, and the hooks in them by name" do
    text = printed(&Flow.choose/2, [Nx.u8(1), Nx.tensor([1.0])], hooks: %{taken: & &1})

    assert program(text) == """
           &Mlx.Compiler.DebugTest.Flow.choose/2 (test/nx/compiler/debug_test.exs)
             %0 = input arg1 u8, 1 byte
             %1 = input arg2 f32[1], 4 bytes
             %2 = if %0, %1
               then %0 <- %1
                 hook %0 :taken
                 return %0
               else %0 <- %1
                 %1 = sort_axis %0 0
                 return %1
             return %2 f32[1], 4 bytes
             1 instruction, 2 more in 2 nested programs; constants of 0 bytes\
           """
  end

  test "prints captured tensors, results by their place, and calls" do
    table = Nx.tensor([1.5, 2.5], backend: Nx.BinaryBackend)

    fun = fn t ->
      sum = Nx.Defn.Kernel.hook(Nx.add(t, table), :sum)
      {sum, %{nan: Nx.Constants.nan(), half: Nx.multiply(t, 0.5)}}
    end

    text = printed(fun, [Nx.vectorize(Nx.tensor([[1, 2]], type: :u4), :v)], hooks: %{sum: & &1})

    assert text =~
             "  %0 = input arg1 u4[1][2], 2 bytes\n  %1 = input captured f32[1][2], 8 bytes\n"

    assert text =~ ~r/  %\d+ = constant f32 0.5\n/

    assert text =~
             ~r/  %(\d+) = add .*  hook %\1 :sum\n  return \[0\] = %\1 f32\[1\]\[2\], 8 bytes\n/s

    assert text =~ ~r/  return \[1\].half = %\d+ f32\[1\]\[2\], 8 bytes\n/
    assert text =~ ~r/ = constant f32 nan\n/
    assert text =~ ~r/  return \[1\].nan = %\d+ f32, 4 bytes\n/
    assert text =~ "; constants of 8 bytes, 1 captured tensor of 8 bytes\n"

    call = &Nx.runtime_call(&1, &1, [], fn t, _ -> t end)
    assert printed(call, [1]) =~ ~r/  %1 = call %0 anonymous fn\/2 in .* for s32\n/
  end

  test "prints what the guide says" do
    text = printed(&Nx.add/2, [Nx.tensor([1, 2]), Nx.tensor(0.5)])
    ["&Nx.add/2 (" <> _ | lines] = text |> program() |> String.split("\n")
    assert File.read!("guides/getting_started.md") =~ Enum.map_join(lines, &"    #{&1}\n")
  end

  test "says of a function that is no program why" do
    wide = Nx.tensor(Complex.new(1, 2), type: :c128, backend: Nx.BinaryBackend)

    text =
      capture_io(fn ->
        opts = [compiler: Mlx.Compiler, debug: true]
        catch_error(Nx.Defn.jit_apply(&Nx.multiply(&1, 2), [wide], opts))
      end)

    assert text =~ "has complex numbers of type c128"
  end

  test "prints nothing unasked" do
    assert capture_io(fn -> Nx.Defn.jit_apply(&Nx.negate/1, [1], compiler: Mlx.Compiler) end) ==
             ""
  end
end
