defmodule Mlx.Faults.VMTest do
  # What happens to a whole VM. Oracle: other VMs, their output and exit status.
  use ExUnit.Case, async: false

  import Mlx.Faults

  alias Mlx.Faults.Child

  @moduletag timeout: :infinity

  defp erl(function, opts \\ []) do
    {wrapper, opts} = Keyword.pop(opts, :wrapper, [])
    [program | args] = wrapper ++ ["erl" | Child.command(function)]
    {output, status} = System.cmd(program, args, [stderr_to_stdout: true] ++ opts)
    {String.trim(output), status}
  end

  for {function, status} <- [halt: 7, stop: 8] do
    test "ends by #{function} with its work in flight" do
      1..rounds(9)
      |> Task.async_stream(fn _ -> erl(unquote(function)) end,
        max_concurrency: 3,
        timeout: :infinity
      )
      |> Enum.each(fn {:ok, ended} ->
        inject(:"vm_ended_by_#{unquote(function)}")
        assert ended == {"", unquote(status)}
      end)
    end
  end

  @tag :linux
  test "ends by SIGTERM with its work in flight" do
    erl = System.find_executable("erl")

    for _ <- 1..rounds(9) do
      opts = [:binary, :exit_status, :stderr_to_stdout, args: Child.command(:wait)]
      port = Port.open({:spawn_executable, erl}, opts)
      assert_receive {^port, {:data, "busy" <> _}}, 60_000
      {:os_pid, pid} = Port.info(port, :os_pid)
      inject(:vm_ended_by_sigterm)
      {_, 0} = System.cmd("kill", ["-TERM", to_string(pid)])
      assert_receive {^port, {:exit_status, 0}}, 60_000
    end

    # The BEAM tells of the signal, and nobody of anything else.
    for {_, {:data, text}} <- flushed(), do: assert(text =~ "SIGTERM")
  end

  defp flushed do
    receive do
      message -> [message | flushed()]
    after
      0 -> []
    end
  end

  test "loads the library's module again, which stays, and once it is gone, anew" do
    {output, status} = erl(:reload)
    inject(:module_reloaded, 21)
    assert {status, output =~ "refused"} == {0, true}, output
    assert output =~ "loaded again", output
  end

  @tag :linux
  test "keeps what its host does about SIGCHLD" do
    assert {output, 0} = erl(:signals)
    {{before, later}, _} = Code.eval_string(output)
    assert before == later
  end

  @tag :linux
  test "is refused memory by the system and goes on" do
    assert {output, status} = erl(:malloc, wrapper: ["prlimit", "--as=#{12_000_000_000}", "--"])
    inject(:malloc_failed, 20)
    assert {output, status} == {"refused", 0}
  end

  test "starts programs while others compute" do
    work = fn number ->
      x = Nx.tensor([number, 1], type: :f32, backend: {Mlx.Backend, device: :cpu})
      {x |> Nx.add(1) |> Nx.to_flat_list(), [number + 1.0, 2.0]}
    end

    leaves_nothing([threads: 8], fn ->
      with_survivors(work, fn ->
        for number <- 1..rounds(300) do
          inject(:program_started)
          assert System.cmd("echo", ["#{number}"]) == {"#{number}\n", 0}
        end
      end)
    end)
  end
end
