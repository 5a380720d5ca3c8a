if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Code do
    @moduledoc false
    # A chain of calls as a line to paste into iex, where the test environment is.

    alias Mlx.Fuzz.Control
    alias Mlx.Fuzz.Gen.{Fun, Ref}
    alias Mlx.Fuzz.Values
    alias Mlx.Fuzz.Values.Leaf

    @doc "The line."
    def line(steps) do
      calls =
        steps
        |> Enum.with_index()
        |> Enum.map(fn {step, i} -> "r#{i} = #{call(step)}" end)

      Enum.join(["Nx.default_backend(Mlx.Backend)" | calls], "; ")
    end

    @doc "One call."
    def call(%{module: module, name: name, args: args}),
      do: "#{inspect(module)}.#{name}(#{Enum.map_join(args, ", ", &arg/1)})"

    defp arg(%Leaf{} = leaf), do: Values.code(leaf)
    defp arg(%Ref{step: step, elem: nil}), do: "r#{step}"
    defp arg(%Ref{step: step, elem: i}), do: "elem(r#{step}, #{i})"
    defp arg(%Fun{name: name}), do: Control.functions()[name] |> elem(1)

    defp arg(list) when is_list(list) do
      if Keyword.keyword?(list),
        do: inspect(list, limit: :infinity),
        else: "[" <> Enum.map_join(list, ", ", &arg/1) <> "]"
    end

    defp arg(%Complex{re: re, im: im}), do: "Complex.new(#{inspect(re)}, #{inspect(im)})"
    defp arg(other), do: inspect(other, limit: :infinity)
  end
end
