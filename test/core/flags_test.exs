defmodule Mlx.FlagsTest do
  @moduledoc """
  Flags without Nx: what is in force, and what waits. Oracle: the documentation of `Mlx`.
  """
  # The configuration is everybody's.
  use ExUnit.Case, async: false

  alias Mlx.{Array, Error, Flags, Native, Stream}

  @off [dispatch: :async, bounds_check: false, detect_non_finite: false, check_results: false]

  setup do
    # Whatever the suite has.
    Mlx.put_flags(@off)
    :ok
  end

  defp array(values),
    do: Array.from_binary(for(v <- values, into: <<>>, do: <<v::float-32-native>>), {:f, 32}, {2})

  defp misshapen(array), do: Native.run([{{:reshape, {3}}, [0]}], [1], [array.ref])

  test "nothing being on is an atom, and so is what is turned off again" do
    assert Flags.current() == :off
    assert Mlx.put_flags(bounds_check: true) == [bounds_check: false]
    assert %Flags{bounds_check: true, dispatch: :async} = Flags.current()
    assert Mlx.put_flags(bounds_check: false) == [bounds_check: true]
    assert Flags.current() == :off
  end

  test "a process sets those that it names; others and other processes are left alone" do
    Mlx.put_flags(dispatch: :sync)
    Mlx.put_flags(detect_non_finite: :nan)
    assert %Flags{dispatch: :sync, detect_non_finite: :nan} = Flags.current()
    assert Task.await(Task.async(fn -> Flags.get(Flags.current(), :dispatch) end)) == :async
  end

  test "with_flags/2 puts back what was there, also where the function raises" do
    Mlx.put_flags(dispatch: :sync)

    assert Mlx.with_flags([bounds_check: true], fn -> Flags.current() end) ==
             %Flags{dispatch: :sync, bounds_check: true}

    catch_error(Mlx.with_flags([bounds_check: true], fn -> raise "from inside" end))
    assert Flags.current() == %Flags{dispatch: :sync}
  end

  test "a wrong name or value raises, and says what is right" do
    for {flags, message} <- [
          {[dispatch: :later], "the flag :dispatch must be :async or :sync, got: :later"},
          {[bounds_check: nil], "the flag :bounds_check must be false or true, got: nil"},
          {[detect_non_finite: :inf],
           "the flag :detect_non_finite must be false, true, :nan or :infinity, got: :inf"},
          {[check_results: 1], "the flag :check_results must be false, true or :eager, got: 1"}
        ] do
      assert_raise ArgumentError, message, fn -> Mlx.put_flags(flags) end
      assert_raise ArgumentError, message, fn -> Mlx.with_flags(flags, fn -> :ok end) end
    end

    assert_raise ArgumentError, ~r/unknown keys \[:bound_check\]/, fn ->
      Mlx.put_flags(bound_check: true)
    end

    assert_raise ArgumentError, ~r/:dispatch must be :async or :sync/, fn ->
      Mlx.put_dispatch(:later)
    end

    assert Flags.current() == :off
  end

  test "the configuration is every process's that has none of its own" do
    before = for name <- Flags.names(), do: {name, Application.fetch_env(:mlx, name)}

    on_exit(fn ->
      for {name, value} <- before do
        case value do
          {:ok, value} -> Application.put_env(:mlx, name, value)
          :error -> Application.delete_env(:mlx, name)
        end
      end

      Flags.configure!()
    end)

    for {name, _value} <- before, do: Application.delete_env(:mlx, name)
    Application.put_env(:mlx, :bounds_check, true)
    Application.put_env(:mlx, :detect_non_finite, :infinity)
    Flags.configure!()
    elsewhere = Task.await(Task.async(&Flags.current/0))
    assert elsewhere == %Flags{bounds_check: true, detect_non_finite: :infinity}
    assert Flags.current() == :off

    Application.put_env(:mlx, :bounds_check, :yes)

    assert_raise ArgumentError,
                 "config :mlx, bounds_check: must be false or true, got: :yes",
                 &Flags.configure!/0
  end

  test "what either asks for is the sum of two" do
    on = &struct!(Flags, &1)
    assert Flags.merge(:off, on.(bounds_check: true)) == on.(bounds_check: true)
    assert Flags.merge(on.(dispatch: :sync), :off) == on.(dispatch: :sync)

    assert Flags.merge(on.(dispatch: :sync, check_results: :eager), on.(check_results: true)) ==
             on.(dispatch: :sync, check_results: true)

    assert Flags.merge(on.(detect_non_finite: :nan), on.(detect_non_finite: :infinity)) ==
             on.(detect_non_finite: true)
  end

  test "dispatch: :sync raises at the operation, on a stream as on the device, and at programs" do
    program = Mlx.Program.new([{{:f, 32}, {2}}], [{{:broadcast_to, {300_000_000, 2}}, [0]}], [1])
    limit = Mlx.Memory.set_limit(1_000_000_000)
    on_exit(fn -> Mlx.Memory.set_limit(limit) end)

    for place <- [& &1.(), &Stream.with_default(Stream.new(:cpu), &1)] do
      place.(fn ->
        x = array([1.0, 2.0])
        assert [%{}] = program |> Mlx.Program.run([x]) |> Enum.map(&Map.from_struct/1)
        assert [ref] = misshapen(x)
        assert_raise Error, ~r/reshape/, fn -> Native.eval([ref]) end

        Mlx.with_flags([dispatch: :sync], fn ->
          assert_raise Error, ~r/reshape/, fn -> misshapen(x) end
          assert_raise Error, ~r/memory limit/, fn -> Mlx.Program.run(program, [x]) end
        end)
      end)
    end
  end
end
