defmodule Mlx.Flags.NonFiniteTest do
  @moduledoc """
  `detect_non_finite`. Oracle: which operation makes NaN or infinity, by hand; without the flag, what
  the same function gives.
  """
  use Mlx.NxCase, async: true

  import Mlx.CompilerCase, only: [jit: 3]

  alias Mlx.{Error, Functions}

  # What an operation makes of its operands, eagerly and compiled.
  defp blamed(fun, args, wanted \\ true) do
    on = [detect_non_finite: wanted]
    eager = outcome(fn -> Mlx.with_flags(on, fn -> apply(fun, args) end) end)
    compiled = outcome(fn -> jit(fun, args, on) end)
    assert strip(compiled) == strip(eager)
    assert {eager[:function], eager[:stage]} == {nil, nil}
    if compiled[:op], do: assert({_module, _name, _arity, _} = compiled.function)
    eager[:op]
  end

  defp outcome(fun) do
    %{value: fun.() |> Nx.to_binary()}
  rescue
    error in Error ->
      assert error.kind == :non_finite
      Map.from_struct(error)
  end

  defp strip(outcome), do: Map.drop(outcome, [:function, :stage])

  test "an operation that makes NaN or infinity is named, with its operands" do
    x = Nx.tensor([[1.0, 0.0], [2.0, 3.0]])
    fun = fn x -> x |> Nx.multiply(2) |> Nx.log() |> Nx.sum() end
    error = catch_error(Mlx.with_flags([detect_non_finite: true], fn -> fun.(x) end))
    assert %Error{kind: :non_finite, op: "log", operands: "f32[2][2]"} = error

    assert Exception.message(error) ==
             "log: it made infinity, and its operands are finite\n\nOperands: f32[2][2]"

    error =
      catch_error(Mlx.with_flags([detect_non_finite: :nan], fn -> Nx.divide(x, Nx.tensor(0)) end))

    assert Exception.message(error) ==
             "divide: it made NaN, and no operand has any\n\nOperands: f32[2][2], s32"

    error = catch_error(jit(&Functions.ratio/2, [x, x], detect_non_finite: true))
    assert %Error{op: "divide", function: {Functions, :ratio, 2, []}, stage: :run} = error

    assert Exception.message(error) =~
             ~r/^divide: it made NaN, and its operands are finite\n\nOperands: f32\[2\]\[2\], f32\[2\]\[2\]\n\n/

    place = "#{Functions.file()}:#{Functions.line("ratio")}"
    assert String.ends_with?(Exception.message(error), "&Mlx.Functions.ratio/2 (#{place})")
  end

  test "what an operand has is not the fault of the operation" do
    special = Nx.tensor([:nan, :infinity, :neg_infinity, 1.0], type: :f32)
    one = Nx.tensor([1.0, 2.0, 3.0, 4.0])

    for fun <- [&Nx.add(&1, &2), &Nx.multiply(&2, &1), &Nx.sum(Nx.add(&1, &2)), &Nx.max(&1, &2)],
        do: assert(blamed(fun, [special, one]) == nil)

    # It is in the other one.
    assert blamed(&Nx.subtract(&1, Nx.log(Nx.subtract(&2, 1))), [special, one]) == "log"
  end

  test "numbers that a function writes down are nobody's fault" do
    mask = Nx.tensor([1, 0])
    x = Nx.tensor([1.0, 2.0])
    fun = &Nx.select(&1, &2, Nx.Constants.neg_infinity(:f32))
    assert blamed(fun, [mask, x]) == nil
    assert blamed(&Nx.sum(Nx.exp(fun.(&1, &2))), [mask, x]) == nil
    assert blamed(fn x -> Nx.add(x, Nx.Constants.nan(:f32)) end, [x]) == nil
    assert blamed(fn x -> Nx.pad(x, Nx.Constants.infinity(:f32), [{1, 1, 0}]) end, [x]) == nil
  end

  test ":nan and :infinity look for one of them" do
    zero = Nx.tensor([0.0, 1.0])
    infinite = &Nx.log/1
    # 0 times infinity.
    both = fn x -> Nx.multiply(x, infinite.(x)) end
    assert blamed(infinite, [zero], true) == "log"
    assert blamed(infinite, [zero], :infinity) == "log"
    assert blamed(infinite, [zero], :nan) == nil
    assert blamed(both, [zero], :nan) == "multiply"
    assert blamed(&Nx.divide(&1, &1), [zero], :infinity) == nil
    assert blamed(&Nx.divide(&1, &1), [zero], :nan) == "divide"
    assert blamed(both, [zero], false) == nil
  end

  test "every float type, complex numbers by their parts, and what integers become" do
    for type <- [:f16, :bf16, :f32, :f64, :f8, :f8_e4m3fn, :c64] do
      x = Nx.tensor([0.0, 1.0], type: type)
      assert {type, blamed(&Nx.divide(&1, &1), [x])} == {type, "divide"}
      assert {type, blamed(&Nx.add(&1, &1), [x])} == {type, nil}
      assert {type, blamed(&Nx.add(&1, Nx.divide(&1, &1)), [x], :nan)} == {type, "divide"}
    end

    # Only the imaginary part.
    x = Nx.tensor([Complex.new(1.0, 3.0e38)])
    assert blamed(&Nx.add(&1, &1), [x]) == "add"
    assert blamed(&Nx.add(&1, &1), [x], :nan) == nil
    assert blamed(&Nx.as_type(&1, :f16), [Nx.tensor([70_000.0])]) == "as_type"
    assert blamed(&Nx.as_type(&1, :f8), [Nx.tensor([1, 100_000])]) == "as_type"
    assert blamed(&Nx.divide(&1, 0), [Nx.tensor([1, 2])]) == "divide"
    assert blamed(&Nx.bitcast(&1, :f32), [Nx.tensor([0x7FC00000], type: :u32)]) == "bitcast"
    assert blamed(&Nx.as_type(&1, :s32), [Nx.tensor([:nan, 1.0], type: :f32)]) == nil
  end

  test "vectorised tensors, blocks, several results" do
    x = Nx.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert blamed(&Nx.log(Nx.vectorize(&1, :rows)), [x]) == "log"
    assert blamed(&Nx.cumulative_sum/1, [Nx.tensor([3.0e38, 3.0e38])]) == "cumulative_sum"
    assert blamed(&Nx.window_sum(&1, {2}), [Nx.tensor([3.0e38, 3.0e38])]) == "window_sum"
    assert blamed(&(&1 |> Nx.top_k(k: 1) |> elem(0)), [x]) == nil
    assert blamed(&(&1 |> Nx.LinAlg.qr() |> elem(1)), [x]) == nil
    assert blamed(&Nx.dot(&1, &1), [Nx.multiply(x, 2.0e19)]) == "dot"
  end

  test "what Nx raises comes first" do
    singular = Nx.tensor([[1.0, 0.0], [1.0, 0.0]])
    one = Nx.tensor([1.0, 1.0])

    Mlx.with_flags([detect_non_finite: true], fn ->
      assert_raise ArgumentError, "can't solve for singular matrix", fn ->
        Nx.LinAlg.triangular_solve(singular, one)
      end

      assert_raise ArgumentError, ~r/positive-definite/, fn ->
        Nx.LinAlg.cholesky(Nx.tensor([[1.0, 2.0], [2.0, 1.0]]))
      end

      tiny = Nx.tensor([[1.0e-38, 0.0], [0.0, 1.0]])
      error = catch_error(Nx.LinAlg.triangular_solve(tiny, Nx.multiply(one, 1.0e38)))
      assert %Error{kind: :non_finite, op: "triangular_solve"} = error
    end)
  end

  test "a result that fails does so for everybody who reads it" do
    x = Nx.tensor([0.0, 1.0])
    error = catch_error(jit(&Functions.ratio/2, [x, x], detect_non_finite: true))
    # Eager operations go on from there as ever.
    assert Nx.to_number(Nx.sum(Nx.tensor([1, 2]))) == 3
    assert error.op == "divide"
  end

  describe "inside of" do
    @on [detect_non_finite: true]

    test "a loop: the iteration that makes it" do
      x = Nx.tensor(3.0)
      # log(log(log(3))) = log(0.094) = -2.36, whose logarithm is NaN.
      assert_in_delta Nx.to_number(jit(&Functions.logs/2, [x, 3], @on)), -2.36395, 0.0001
      assert %Error{op: "log", operands: "f32"} = catch_error(jit(&Functions.logs/2, [x, 4], @on))
      assert Nx.to_number(jit(&Functions.logs/2, [x, 0], @on)) == 3.0
      assert Nx.to_number(jit(&Functions.logs/2, [x, 4], [])) == :nan
    end

    test "a branch: what is not taken is not looked at" do
      assert Nx.to_number(jit(&Functions.reciprocal/1, [0.0], @on)) == 0.0
      assert Nx.to_number(jit(&Functions.reciprocal/1, [2.0], @on)) == 0.5
      assert %Error{op: "divide"} = catch_error(jit(&Functions.reciprocal/1, [1.0e-39], @on))
    end

    test "the function of a reduction, eagerly and compiled" do
      harmonic = &Nx.reduce(&1, 0.0, fn x, acc -> Nx.add(acc, Nx.divide(1, x)) end)
      product = &Nx.reduce(&1, 1.0, fn x, acc -> Nx.multiply(x, acc) end)
      assert blamed(harmonic, [Nx.tensor([1.0, 2.0])]) == nil
      assert blamed(harmonic, [Nx.tensor([1.0, 0.0])]) == "divide"
      assert blamed(product, [Nx.tensor([1.0e30, 1.0e30])]) == "reduce"
      many = Nx.iota({4, 3}, type: :f32)
      rows = &Nx.reduce(&1, 0.0, [axes: [1]], fn x, acc -> Nx.add(acc, Nx.log(x)) end)
      assert blamed(rows, [many]) == "log"
      assert blamed(rows, [Nx.add(many, 1)]) == nil

      windows =
        &Nx.window_reduce(&1, 0.0, {2}, fn x, acc -> Nx.subtract(acc, Nx.sqrt(x)) end)

      assert blamed(windows, [Nx.tensor([1.0, 2.0, 4.0])]) == nil
      assert blamed(windows, [Nx.tensor([1.0, -2.0, 4.0])]) == "sqrt"
    end

    test "a gradient" do
      grad = fn x -> Nx.Defn.grad(x, &Nx.sum(Nx.sqrt(&1))) end
      error = catch_error(jit(grad, [Nx.tensor([0.0, 1.0])], @on))
      assert %Error{kind: :non_finite, op: "divide"} = error
      assert Nx.to_flat_list(jit(grad, [Nx.tensor([0.25, 1.0])], @on)) == [1.0, 0.5]
    end

    test "what others compute at the same time" do
      x = Nx.tensor([0.0, 1.0])

      tasks =
        for i <- 1..8 do
          Task.async(fn ->
            Nx.default_backend(backend())
            opts = if rem(i, 2) == 0, do: @on, else: []
            outcome = outcome(fn -> jit(&Functions.ratio/2, [x, x], opts) end)
            {rem(i, 2) == 0, outcome[:op]}
          end)
        end

      for {on?, op} <- Task.await_many(tasks), do: assert(op == if(on?, do: "divide"))
    end
  end
end
