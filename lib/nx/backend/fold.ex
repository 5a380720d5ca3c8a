defmodule Mlx.Backend.Fold do
  @moduledoc false
  # Reductions by a function of the caller's. The function is traced, as the body of a defn is, and
  # folded on the device. One that cannot be traced runs on Nx.BinaryBackend, by the fallback
  # policy.

  alias Mlx.Backend.{Fallback, Operands}
  alias Mlx.Flags
  alias Mlx.Compiler.Function

  @doc "The callback `reduce`."
  def reduce(out, t, acc, opts, fun), do: fold(:reduce, out, [t, acc, opts], fun)

  @doc "The callback `window_reduce`."
  def window_reduce(out, t, acc, dims, opts, fun),
    do: fold(:window_reduce, out, [t, acc, dims, opts], fun)

  defp fold(name, out, [t, acc | _] = args, fun) do
    {flags, _own} = Operands.flags([t, acc])

    case Function.trace(fun, t.type, acc.type, Flags.eager(flags)) do
      {:ok, body} ->
        kinds = Operands.kinds(name, length(args) + 1)
        Operands.import_and_run(name, out, args ++ [body], kinds)

      {:error, exception} ->
        reason = "its function cannot be traced (#{Exception.message(exception)})"
        Fallback.run(name, out, args ++ [fun], reason)
    end
  end
end
