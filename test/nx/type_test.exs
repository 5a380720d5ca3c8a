defmodule Mlx.TypeTest do
  use ExUnit.Case, async: true

  alias Mlx.Type

  test "integers keep every bit and wrap" do
    assert Type.scalar(-1, {:u, 8}) == <<255>>
    assert Type.scalar(300, {:u, 8}) == <<44>>
    assert Type.scalar(9_007_199_254_740_993, {:s, 64}) == <<9_007_199_254_740_993::64-native>>
    assert Type.scalar(18_446_744_073_709_551_615, {:u, 64}) == <<-1::64>>
    assert Type.scalar(-128, {:s, 8}) == <<128>>
    assert Type.scalar(2.9, {:s, 32}) == <<2::32-native>>
  end

  test "floats overflow to infinity and take non-finite names" do
    assert Type.scalar(1, {:f, 32}) == <<1.0::float-32-native>>
    assert Type.scalar(1.0e39, {:f, 32}) == Nx.Type.infinity_binary({:f, 32})
    assert Type.scalar(-70_000, {:f, 16}) == Nx.Type.neg_infinity_binary({:f, 16})

    for type <- [f: 16, bf: 16, f: 32, f: 64] do
      assert Type.scalar(:nan, type) == Nx.Type.nan_binary(type)
      assert Type.scalar(:infinity, type) == Nx.Type.infinity_binary(type)
      assert Type.scalar(:neg_infinity, type) == Nx.Type.neg_infinity_binary(type)
    end
  end

  test "every scalar equals the element that Nx makes" do
    for type <- Type.held(), number <- [0, 1, 3, 100] do
      assert Type.scalar(number, type) ==
               Nx.to_binary(Nx.tensor([number], type: type, backend: Nx.BinaryBackend))
    end

    for type <- [f: 16, bf: 16, f: 32, f: 64, c: 64], number <- [0.1, -3.14, 1.0e-3] do
      assert Type.scalar(number, type) ==
               Nx.to_binary(Nx.tensor([number], type: type, backend: Nx.BinaryBackend))
    end
  end

  test "complex numbers" do
    assert Type.scalar(Complex.new(1, -2.5), {:c, 64}) ==
             <<1.0::float-32-native, -2.5::float-32-native>>

    assert Type.scalar(:nan, {:c, 64}) == Nx.Type.nan_binary({:f, 32}) <> <<0::32>>
    assert Type.scalar(3, {:c, 64}) == <<3.0::float-32-native, 0::32>>
  end

  test "integers have no names for what they cannot hold" do
    assert_raise ArgumentError, ~r/cannot make a constant of type s32 from :nan/, fn ->
      Type.scalar(:nan, {:s, 32})
    end
  end

  test "types that MLX lacks are refused with a remedy" do
    for type <- [:u2, :u4, :s2, :s4, :f8, :f8_e4m3fn, :c128] do
      refute Type.held?(Nx.Type.normalize!(type))

      assert_raise ArgumentError, ~r/does not support the type #{type} yet.*Use the type/, fn ->
        Type.held!(Nx.Type.normalize!(type))
      end
    end
  end
end
