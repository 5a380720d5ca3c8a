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

  describe "functions of floats" do
    test "are one operation, whatever the type" do
      for name <- [:exp, :sin, :log, :erf], type <- [:f16, :bf16, :f32, :f64] do
        assert [{_op, [0]}] = lower(name, t(type, {}), [t(type, {})])
      end

      assert lower(:round, t(:f32, {}), [t(:f32, {})]) == [{:round_away, [0]}]
      assert lower(:cbrt, t(:f16, {}), [t(:f16, {})]) == [{:cbrt, [0]}]
    end

    test "integers are cast first" do
      assert lower(:exp, t(:f32, {}), [t(:s32, {})]) == [{{:astype, @f32}, [0]}, {:exp, [1]}]
    end

    test "sign of an integer is MLX's" do
      assert lower(:sign, t(:s8, {}), [t(:s8, {})]) == [{:sign, [0]}]
    end
  end
end
