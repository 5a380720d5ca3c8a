if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Wrong do
    @moduledoc false
    # Arguments made wrong, or at least unusual: another operand, another value of an option, one
    # that is not there.

    alias Mlx.Fuzz.Values
    alias Mlx.Fuzz.Values.Leaf

    @junk [nil, :x, -1, 0, 7, 99, 1.5, "x", [], {}, [1], [-1], [0, 0], {2}, {0}, {-1}, true] ++
            [
              :f32,
              {:f, 32},
              {:s, 3},
              [axes: [9]],
              0..1,
              :infinity,
              %{},
              2 ** 70,
              -(2 ** 63),
              1.0e300
            ]

    # Of numbers these never come to an end in Nx.
    @endless ~w(vectorize revectorize devectorize reshape_vectors broadcast_vectors)a

    @doc "The arguments of `name` with one of them changed."
    def args(name, args) when name in @endless, do: args

    def args(_name, args) do
      at = :rand.uniform(length(args) + 1) - 1
      if at < length(args), do: List.update_at(args, at, &other/1), else: args
    end

    defp other(%Leaf{} = leaf) do
      case :rand.uniform(4) do
        1 -> junk()
        2 -> Values.leaf(leaf.type, Values.shape())
        3 -> Values.leaf(Values.type(), leaf.shape)
        4 -> %{leaf | on: if(leaf.on == :mlx, do: :binary, else: :mlx)}
      end
    end

    defp other([{key, value} | rest] = opts) when is_atom(key) do
      case :rand.uniform(4) do
        1 -> [{key, junk()} | rest]
        2 -> rest
        3 -> opts ++ [axis: junk()]
        4 -> [{key, other(value)} | rest]
      end
    end

    defp other([_ | _] = list),
      do: List.update_at(list, :rand.uniform(length(list)) - 1, &other/1)

    defp other(number) when is_integer(number),
      do: Values.pick([-number, number + 1, number + 40, 0])

    defp other(_term), do: junk()

    defp junk, do: Values.pick(@junk)
  end
end
