defmodule Mlx.Compiler.ProgressTest do
  @moduledoc """
  What the log says of a compilation that takes its time, made slow on purpose.
  """
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog

  alias Mlx.Compiler.Progress

  setup do
    Nx.default_backend(Mlx.Backend)
    # As it is where nothing is configured.
    configured = Application.fetch_env!(:mlx, :compile_log)
    Application.delete_env(:mlx, :compile_log)
    on_exit(fn -> Application.put_env(:mlx, :compile_log, configured) end)
  end

  # A reference makes it another function each time.
  defp slow(time, ref \\ make_ref()) do
    fn t ->
      if is_reference(ref), do: Process.sleep(time)
      Nx.add(t, 1)
    end
  end

  defp compile(fun), do: Nx.Defn.compile(fun, [Nx.template({}, :s32)], compiler: Mlx.Compiler)

  # The processes that watch a compilation of `compiler`.
  defp watchers(compiler \\ self()) do
    for pid <- Process.list(),
        [current_function: {Progress, :wait, 2}, monitors: monitors] <- [
          Process.info(pid, [:current_function, :monitors])
        ],
        {:process, compiler} in monitors,
        do: pid
  end

  test "from the first second on, in doubling intervals, and at the end" do
    log = capture_log([level: :info], fn -> compile(slow(3_500)) end)

    name =
      ~s|anonymous fn/1 in Mlx.Compiler.ProgressTest.slow/2 (test/nx/compiler/progress_test.exs)|

    lines =
      for [line] <- Regex.scan(~r/Mlx\.Compiler (?:is compiling|compiled) .*/, log), do: line

    assert [first, second, last] = lines

    assert first =~
             ~r/is compiling #{Regex.escape(name)}, for [12]\.\d s so far: tracing, now in /

    sleeping = __ENV__.file |> File.read!() |> String.split("\n")
    line = 1 + Enum.find_index(sleeping, &(&1 =~ "Process.sleep(time)"))

    assert second =~
             ~r/, for [23]\.\d s so far: tracing, now in &Mlx.Compiler.ProgressTest.slow\/2 /

    assert second =~ "(test/nx/compiler/progress_test.exs:#{line})"

    assert last =~ ~r/compiled #{Regex.escape(name)} after [3-9]\.\d s, 1 operations lowered/
    assert_eventually(fn -> watchers() == [] end)
  end

  test "says how many operations are lowered" do
    log =
      capture_log([level: :info], fn ->
        Progress.watch({Nx, :add, 2, []}, fn progress ->
          Progress.phase(progress, :lower, fn ->
            for _ <- 1..7, do: Progress.tick(progress.counters)
            Process.sleep(1_200)
          end)
        end)
      end)

    assert log =~
             ~r/compiling &Nx.add\/2 \(.*nx.ex:\d+\), for 1.\d s so far: lowering, 7 operations lowered/
  end

  test "nothing where it is fast, or switched off" do
    assert capture_log(fn -> compile(slow(1)) end) == ""
    Application.put_env(:mlx, :compile_log, false)
    assert capture_log(fn -> compile(slow(1_200)) end) == ""
    assert watchers() == []
  end

  test "the switch is checked" do
    Application.put_env(:mlx, :compile_log, :quiet)

    assert_raise ArgumentError,
                 "config :mlx, compile_log: must be true or false, got: :quiet",
                 fn ->
                   compile(slow(1))
                 end
  end

  test "no watcher stays behind a compilation that raises" do
    fails = fn _ -> raise "no" end
    assert_raise RuntimeError, "no", fn -> compile(fails) end
    assert_eventually(fn -> watchers() == [] end)

    log =
      capture_log([level: :info], fn ->
        assert_raise RuntimeError, fn ->
          compile(fn _ -> Process.sleep(1_200) && raise("no") end)
        end
      end)

    assert log =~ ~r/gave up on anonymous .* after \d+\.\d s/
  end

  test "no watcher stays behind a compilation that is killed" do
    test = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        compile(fn t ->
          send(test, :tracing)
          Process.sleep(:infinity)
          t
        end)
      end)

    assert_receive :tracing
    assert_eventually(fn -> length(watchers(pid)) == 1 end)
    [watcher] = watchers(pid)
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}
    assert_eventually(fn -> not Process.alive?(watcher) end)
  end

  defp assert_eventually(fun, left \\ 100) do
    cond do
      fun.() -> :ok
      left == 0 -> flunk("it did not come true")
      true -> Process.sleep(10) && assert_eventually(fun, left - 1)
    end
  end
end
