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

    # Indices, for flags that look at them.
    defn pick(t, indices), do: Nx.take(t, indices)

    # How often it runs depends on a value.
    defn walk(t, last) do
      {_i, _t, _last, sum} =
        while {i = 0, t, last, sum = 0}, i <= last do
          {i + 1, t, last, sum + Nx.take(t, i)}
        end

      sum
    end

    # Short enough to be written out, and not.
    defn walk_five(t, _last), do: walk(t, 4)
    defn walk_hundred(t, _last), do: walk(t, 299)

    defn either(t, i) do
      if i >= 0, do: Nx.take(t, i), else: 0
    end

    # Cheap branches, of which all are computed where nothing is to be looked at.
    defn reciprocal(x) do
      if x == 0, do: 0.0, else: 1 / x
    end

    defn logs(x, times) do
      {_i, _times, x} =
        while {i = 0, times, x}, i < times do
          {i + 1, times, Nx.log(x)}
        end

      x
    end

    defn ratio(a, b), do: Nx.sum(a / b)

    # Says of a result in its middle that it has another shape.
    defn misannounced(x), do: x |> misannounced_here() |> Nx.sum()

    deftransform misannounced_here(x) do
      negated = x |> Nx.reshape({2, 2}) |> Nx.negate()
      Nx.reshape(%{negated | shape: x.shape, names: x.names}, {4, 1})
    end

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
