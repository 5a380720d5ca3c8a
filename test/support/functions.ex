if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Functions do
    @moduledoc false
    # Functions for tests that ask where they are. Compiled with the library, for only what was
    # written to a file is known by its line.
    import Nx.Defn

    def file, do: "test/support/functions.ex"

    @doc "The line on which the function is defined."
    def line(name) do
      lines = __ENV__.file |> File.read!() |> String.split("\n")
      1 + Enum.find_index(lines, &(&1 =~ ~r/defn? #{name}\b/))
    end

    defn predict(params, {x, scale}, %{shift: shift} \\ %{shift: 1}) do
      Nx.dot(x, params.kernel) * scale + params.bias + shift
    end

    defn large(x), do: Nx.broadcast(x, {1024, 1024})

    # What it returns for its argument is not an operation of Nx.
    defn unknown(x), do: mystery(x)

    deftransform(mystery(t), do: %{t | data: %{t.data | id: make_ref(), op: :mystery, args: [t]}})

    defn failing(x), do: failing_here(x)

    deftransform(failing_here(_x), do: raise(ArgumentError, "of the function itself"))

    def plain(x), do: Nx.negate(x)

    def anonymous(by), do: fn x -> Nx.add(x, by) end
  end

  defmodule Mlx.Functions.Governed do
    @moduledoc false
    use Mlx.Defn

    def line, do: __ENV__.line + 1
    defn unknown(x), do: Mlx.Functions.unknown(x)
  end

  defmodule Mlx.Functions.Lying do
    @moduledoc false
    # Hands over another tensor than it announces.
    defstruct [:announced, :held]

    defimpl Nx.LazyContainer do
      def traverse(%{announced: announced, held: held}, acc, fun),
        do: fun.(Nx.to_template(announced), fn -> held end, acc)
    end
  end
end
