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
    for type <- Type.own() ++ Type.narrow(), number <- [0, 1, 3, 100, -3] do
      assert Type.scalar(number, type) == element(number, type)
    end

    for type <- [f: 8, f8_e4m3fn: 8, f: 16, bf: 16, f: 32, f: 64, c: 64],
        number <- [0.1, -3.14, 1.0e-3, -0.0, 1.97, 1.0e6] do
      assert Type.scalar(number, type) == element(number, type)
    end
  end

  defp element(number, type) do
    [number]
    |> Nx.tensor(type: type, backend: Nx.BinaryBackend)
    |> Nx.to_binary()
    |> Type.element(type)
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

  test "integers below 8 bits take a byte, with their sign" do
    assert Type.element(<<3::4>>, {:u, 4}) == <<3>>
    assert Type.element(<<-3::4>>, {:s, 4}) == <<-3>>
    assert Type.elements(<<1::2, -1::2, -2::2>>, {:s, 2}) == [<<1>>, <<-1>>, <<-2>>]
    assert Type.elements(<<1::2, -1::2, -2::2>>, {:u, 2}) == [<<1>>, <<3>>, <<2>>]
    assert Type.elements(<<1, 2>>, {:f, 8}) == [<<1>>, <<2>>]
    assert Type.scalar(17, {:u, 4}) == <<1>>
    assert Type.scalar(9, {:s, 4}) == <<-7>>
  end

  test "8-bit floats take names, and those without infinity their greatest number" do
    assert Type.scalar(:nan, {:f, 8}) == <<0x7E>>
    assert Type.scalar(:neg_infinity, {:f, 8}) == <<0xFC>>
    assert Type.scalar(:infinity, {:f8_e4m3fn, 8}) == <<0x7E>>
    assert Type.scalar(:nan, {:f8_e4m3fn, 8}) == <<0x7F>>
  end

  test "every type has arrays that hold it, but for one, which is refused with a remedy" do
    for type <- Type.own(), do: assert(Type.held!(type) == type and Type.wide(type) == type)

    for type <- Type.narrow() do
      assert Type.held!(type) in [u: 8, s: 8]
      assert Type.wide(type) in Type.own()
    end

    assert length(Type.own() ++ Type.narrow()) == 19
    assert_raise ArgumentError, ~r/c128.*Use the type :c64/, fn -> Type.held!({:c, 128}) end
  end
end
