defmodule Mlx.Backend.ProgramsTest do
  # Oracle: values computed by hand, at the first, second and third time.
  use ExUnit.Case, async: false

  alias Mlx.Backend.Programs

  setup do
    Nx.default_backend(Mlx.Backend)
    :ets.delete_all_objects(Programs)
    # As it is where nothing is looked at.
    Mlx.put_flags(check_results: false)
    :ok
  end

  defp times, do: 1..3

  test "an operation gives the same however often it is met" do
    for _ <- times() do
      a = Nx.tensor([3.0, 1.0, 2.0])
      assert Nx.to_flat_list(Nx.sort(a)) == [1.0, 2.0, 3.0]
      assert Nx.to_flat_list(Nx.sort(a, direction: :desc)) == [3.0, 2.0, 1.0]
      assert Nx.to_flat_list(Nx.add(a, 1)) == [4.0, 2.0, 3.0]
      assert Nx.to_flat_list(Nx.add(a, Nx.tensor([1, 2, 3]))) == [4.0, 3.0, 5.0]
      assert Nx.to_flat_list(Nx.as_type(a, :u8)) == [3, 1, 2]
      assert Nx.to_flat_list(Nx.as_type(a, :s64)) == [3, 1, 2]
      assert Nx.to_flat_list(Nx.reshape(a, {3, 1})) == [3.0, 1.0, 2.0]
    end
  end

  test "constants are told apart by their bytes" do
    for _ <- times() do
      assert Nx.to_binary(Nx.tensor(0.0)) == <<0.0::float-32-native>>
      assert Nx.to_binary(Nx.tensor(-0.0)) == <<-0.0::float-32-native>>
      assert Nx.to_binary(Nx.tensor(1)) == <<1::32-native>>
      assert Nx.to_binary(Nx.tensor(1, type: :f32)) == <<1.0::float-32-native>>
      assert Nx.to_binary(Nx.tensor(:nan, type: :f32)) == Nx.Type.nan_binary({:f, 32})
    end
  end

  test "the result of an operation that changes nothing is freed on its own" do
    for _ <- times() do
      a = Nx.tensor([1, 2])
      b = Nx.as_type(Nx.reshape(a, {2}), :s32)
      c = Mlx.Backend.reshape(a, a)
      assert Nx.backend_deallocate(a) == :ok
      assert Nx.to_flat_list(c) == [1, 2]
      assert b.data == a.data
    end
  end

  test "what is met once is not kept as a program, and the table does not grow without end" do
    for i <- 1..5000, do: Nx.tensor(i)
    assert :ets.info(Programs, :size) <= 4096
    programs = :ets.select_count(Programs, [{{:_, :"$1"}, [is_reference: :"$1"], [true]}])
    assert programs == 0
    assert Nx.to_number(Nx.tensor(7)) == 7
  end
end
