defmodule Mlx.Lower.ElementwiseTest do
  use Mlx.LowerCase, async: true

  @f32 {:f, 32}
  @u8 {:u, 8}

  test "operands of out's type are used as they are" do
    x = t(:f32, {2})
    assert lower(:add, x, [x, x]) == [{:add, [0, 1]}]
    assert lower(:exp, x, [x]) == [{:exp, [0]}]
    assert lower(:acos, x, [x]) == [{:arccos, [0]}]
  end

  test "operands of other types are cast to out's" do
    assert lower(:multiply, t(:f32, {2}), [t(:s32, {2}), t(:f32, {})]) ==
             [{{:astype, @f32}, [0]}, {:multiply, [2, 1]}]

    assert lower(:tanh, t(:f32, {2}), [t(:u8, {2})]) == [{{:astype, @f32}, [0]}, {:tanh, [1]}]
  end

  test "comparisons run in the merged type and give u8" do
    assert lower(:less, t(:u8, {2}), [t(:u8, {2}), t(:s8, {2})]) ==
             [
               {{:astype, {:s, 16}}, [0]},
               {{:astype, {:s, 16}}, [1]},
               {:less, [2, 3]},
               {{:astype, @u8}, [4]}
             ]
  end

  test "u8 is never MLX's bool" do
    assert lower(:logical_and, t(:u8, {2}), [t(:u8, {2}), t(:f32, {2})]) ==
             [
               {{:astype, :bool}, [0]},
               const(0, :f32),
               {:not_equal, [1, 3]},
               {:logical_and, [2, 4]},
               {{:astype, @u8}, [5]}
             ]

    assert lower(:logical_xor, t(:u8, {2}), [t(:u8, {2}), t(:u8, {2})]) ==
             [
               {{:astype, :bool}, [0]},
               {{:astype, :bool}, [1]},
               {:not_equal, [2, 3]},
               {{:astype, @u8}, [4]}
             ]
  end

  test "integers are neither NaN nor infinite" do
    assert lower(:is_nan, t(:u8, {3}), [t(:s32, {3})]) ==
             [const(0, :u8), {{:broadcast_to, {3}}, [1]}]

    assert lower(:is_infinity, t(:u8, {3}), [t(:f16, {3})]) ==
             [{:isinf, [0]}, {{:astype, @u8}, [1]}]
  end

  test "select takes any predicate and casts the branches" do
    assert lower(:select, t(:f32, {2}), [t(:s32, {2}), t(:s32, {}), t(:f32, {})]) ==
             [
               {{:astype, :bool}, [0]},
               {{:astype, @f32}, [1]},
               {:where, [3, 4, 2]}
             ]
  end

  test "atan2 of complex numbers raises as Nx's does" do
    assert_raise ArithmeticError, ~r/Complex.atan2 only accepts real numbers/, fn ->
      lower(:atan2, t(:c64, {}), [t(:c64, {}), t(:c64, {})])
    end
  end

  test "a type that MLX lacks is refused while lowering" do
    assert_raise ArgumentError, ~r/c128.*Use the type :c64/, fn ->
      lower(:add, t(:c128, {}), [t(:c64, {}), t(:f64, {})])
    end
  end

  describe "functions rebuilt from others" do
    test "round goes by the magnitude and keeps what is whole" do
      assert lower(:round, t(:f32, {}), [t(:f32, {})]) ==
               [
                 {:abs, [0]},
                 {:floor, [1]},
                 {:equal, [1, 2]},
                 const(0, :f32),
                 {:less, [0, 4]},
                 {:subtract, [1, 2]},
                 const(0.5, :f32),
                 {:greater_equal, [6, 7]},
                 {{:astype, @f32}, [8]},
                 {:add, [2, 9]},
                 {:negative, [10]},
                 {:where, [5, 11, 10]},
                 {:where, [3, 0, 12]}
               ]
    end

    test "sign of an integer is MLX's" do
      assert lower(:sign, t(:s8, {}), [t(:s8, {})]) == [{:sign, [0]}]
    end

    test "f64 functions of which MLX has single precision use those it computes in full" do
      ops = for {op, _} <- lower(:exp, t(:f64, {}), [t(:f64, {})]), is_atom(op), do: op
      assert :expm1 in ops
      refute :exp in ops

      ops = for {op, _} <- lower(:sin, t(:f64, {}), [t(:f64, {})]), is_atom(op), do: op
      assert :tan in ops
      refute :sin in ops
    end

    test "half precision is composed in f32" do
      instructions = lower(:cbrt, t(:f16, {}), [t(:f16, {})])
      assert hd(instructions) == {{:astype, @f32}, [0]}
      assert {{:astype, {:f, 16}}, [_]} = List.last(instructions)
    end
  end
end
