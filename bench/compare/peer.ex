defmodule Bench.Peer do
  @moduledoc """
  A peer as the one who measures sees it: something that answers commands.

  It is a process of the system's that is started for each group of workloads, or, for tests, an
  engine in the calling process. `Bench.Server` has the commands.
  """
  alias Bench.{Engine, Server}

  @enforce_keys [:name, :command]
  defstruct [:name, :command, :log, :port, :engine, :loaded, :info]

  @type t :: %__MODULE__{
          name: String.t(),
          command: [String.t()] | :here,
          log: Path.t() | nil,
          port: port | nil,
          engine: Engine.t() | nil,
          loaded: Server.loaded() | nil,
          info: String.t() | nil
        }

  @doc "A peer that is a process of its own; what it says on standard error goes to the log."
  @spec new(String.t(), [String.t()], Path.t()) :: t
  def new(name, command, log), do: %__MODULE__{name: name, command: command, log: log}

  @doc "A peer in the calling process."
  @spec here(String.t()) :: t
  def here(name), do: %__MODULE__{name: name, command: :here}

  @doc "Starts it, after what was started before is gone. Says why, if it cannot be."
  @spec start(t, timeout) :: {:ok, t} | {:error, String.t()}
  def start(%{command: :here} = peer, timeout) do
    engine = Engine.new(peer.name)
    Engine.configure(engine)
    info(%{peer | engine: engine, loaded: nil}, timeout)
  end

  def start(peer, timeout) do
    stop(peer)
    # A shell turns standard error away, which a port cannot.
    args = ["-c", "exec \"$@\" 2>>\"$0\"", peer.log | peer.command]
    options = [:binary, :exit_status, {:line, 65_536}, args: args]
    port = Port.open({:spawn_executable, System.find_executable("sh")}, options)
    info(%{peer | port: port}, timeout)
  end

  defp info(peer, timeout) do
    case ask(peer, "info", timeout) do
      {["ok" | words], peer} -> {:ok, %{peer | info: Enum.join(words, " ")}}
      {[_failed | words], _peer} -> {:error, Enum.join(words, " ")}
    end
  end

  @doc "Whether it can be asked."
  @spec running?(t) :: boolean
  def running?(%{command: :here, engine: engine}), do: engine != nil
  def running?(%{port: port}), do: port != nil and Port.info(port) != nil

  @doc "Ends it."
  @spec stop(t) :: t
  def stop(%{port: nil} = peer), do: peer

  def stop(%{port: port} = peer) do
    # One that does not read its input any more has to be told otherwise.
    with {:os_pid, pid} <- Port.info(port, :os_pid) do
      Port.close(port)
      System.cmd("kill", ["-KILL", "#{pid}"], stderr_to_stdout: true)
    end

    %{peer | port: nil}
  end

  @doc """
  Asks it, and waits so many milliseconds for the words of its answer. `["failed", ...]` and the
  peer without a process is what a process that ended, or took longer, answers.
  """
  @spec ask(t, String.t(), timeout) :: {[String.t()], t}
  def ask(%{command: :here} = peer, command, _timeout) do
    # Other peers in this process have configured it since.
    Engine.configure(peer.engine)
    {answer, loaded} = Server.answer(String.split(command), peer.engine, peer.loaded)
    {String.split(answer), %{peer | loaded: loaded}}
  end

  def ask(%{port: nil} = peer, _command, _timeout), do: {["failed", "it does not run"], peer}

  def ask(%{port: port} = peer, command, timeout) do
    Port.command(port, command <> "\n")
    answer(peer, System.monotonic_time(:millisecond) + timeout)
  rescue
    # The process ended since the last answer.
    ArgumentError -> {["failed", "its process has ended, see #{peer.log}"], stop(peer)}
  end

  defp answer(%{port: port} = peer, deadline) do
    receive do
      {^port, {:data, {_, "@ " <> words}}} ->
        {String.split(words), peer}

      {^port, {:data, _other}} ->
        answer(peer, deadline)

      {^port, {:exit_status, status}} ->
        words = "its process ended with status #{status}, see #{peer.log}"
        {["failed", words], %{peer | port: nil}}
    after
      max(deadline - System.monotonic_time(:millisecond), 0) ->
        {["failed", "no answer in time"], stop(peer)}
    end
  end
end
