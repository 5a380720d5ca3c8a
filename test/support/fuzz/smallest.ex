if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Smallest do
    @moduledoc false
    # The line of a finding: its chain, made small while the same call fails in the same way.

    alias Mlx.Fuzz.{Code, Run, Shrink}
    alias Mlx.Fuzz.Run.Finding

    @doc "`Mlx.Fuzz.Run.check/3`, of which an exception is a finding too."
    def check(steps, ways, shared) do
      Run.check(steps, ways, shared)
    rescue
      error ->
        text = Exception.format(:error, error, __STACKTRACE__)
        step = List.last(steps)
        %Finding{kind: :fuzzer, step: 0, module: step.module, name: step.name, text: text}
    end

    @doc "The line of the smallest chain in which the same call fails in the same way."
    def line(steps, %Finding{kind: kind, module: module, name: name}) do
      ways = [:compiled, :again]
      same? = &match?(%Finding{kind: ^kind, module: ^module, name: ^name}, check(&1, ways, %{}))
      # In a process of its own: it may hang.
      task =
        Task.async(fn ->
          Nx.default_backend(Mlx.Backend)
          Shrink.run(steps, same?)
        end)

      case Task.yield(task, 30_000) || Task.shutdown(task, :brutal_kill) do
        {:ok, steps} -> Code.line(steps)
        _ -> Code.line(steps)
      end
    end
  end
end
