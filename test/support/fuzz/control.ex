if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Control.Twice do
    @moduledoc false
    defstruct []
  end

  defmodule Mlx.Fuzz.Control do
    @moduledoc false
    # What a call of Nx cannot say by itself, as functions for the fuzzer to call and for a finding's
    # line to name: control flow, functions as arguments, and what answers other than tensors.

    import Nx.Defn

    # Of infinity, an s32 is the largest: a loop of that many iterations takes minutes, as it should.
    @doc "`fun` applied `count` times to `x`, seven times at most."
    defn repeat(x, count, opts \\ []) do
      {x, _} =
        while {x, i = Nx.as_type(Nx.min(count, 7), :s32)}, i > 0 do
          {keep(x, opts), i - 1}
        end

      x
    end

    @doc "A loop whose trip count the function fixes."
    defn steps(x, opts \\ []) do
      opts = keyword!(opts, [:op, times: 3])

      {x, _} =
        while {x, i = 0}, i < opts[:times] do
          {keep(x, op: opts[:op]), i + 1}
        end

      x
    end

    @doc "A loop with two accumulators, which leaves when their sums say so."
    defn pair(x, y) do
      {x, y, _} =
        while {x, y, i = 0}, i < 5 and Nx.sum(x) >= Nx.sum(y) do
          {Nx.as_type(Nx.multiply(x, 2), Nx.type(x)), Nx.as_type(Nx.add(y, 1), Nx.type(y)), i + 1}
        end

      {x, y}
    end

    @doc "One branch of two."
    defn choose(pred, x, y) do
      type = Nx.Type.merge(Nx.type(x), Nx.type(y))

      if pred do
        Nx.as_type(Nx.multiply(x, 2), type)
      else
        Nx.as_type(Nx.add(x, y), type)
      end
    end

    @doc "Branches that share what is computed, and one inside of another."
    defn branches(x) do
      sum = Nx.sum(x)

      cond do
        sum > 3 -> {x, sum}
        sum < -3 -> {Nx.as_type(-x, Nx.type(x)), sum + 1}
        Nx.all(x) -> if(sum > 0, do: {x * 0, sum}, else: {x, sum * 2})
        true -> {Nx.reverse(x), -sum}
      end
      |> same(x, sum)
    end

    deftransformp same({a, b}, x, sum), do: {Nx.as_type(a, x.type), Nx.as_type(b, sum.type)}

    @doc "An operation that keeps type and shape."
    deftransform keep(x, opts) do
      apply(Nx, opts[:op] || :negate, [x]) |> Nx.as_type(x.type) |> Nx.reshape(x)
    end

    @doc "The slope of the sum of `name`'s values."
    def slope(name, x), do: Nx.Defn.grad(x, fn x -> Nx.sum(apply(Nx, name, [x])) end)

    @doc "A block of the caller's own."
    def block(x) do
      Nx.block(%Mlx.Fuzz.Control.Twice{}, [x], x, fn _struct, x ->
        Nx.add(x, x) |> Nx.as_type(x.type)
      end)
    end

    @doc "A function of Elixir in the middle."
    def runtime_call(x),
      do: Nx.runtime_call(x, x, fn x, _opts -> Nx.negate(x) |> Nx.as_type(x.type) end)

    @doc "All batches."
    def batches(x, size, opts),
      do: x |> Nx.to_batched(size, opts) |> Enum.to_list() |> List.to_tuple()

    @doc "There and back in Nx's own format."
    def serialized(x), do: x |> Nx.serialize() |> IO.iodata_to_binary() |> Nx.deserialize()

    @doc "There and back as bits."
    def bits(x, type), do: x |> Nx.to_binary() |> Nx.from_binary(type)

    @doc "There and back by an address."
    def pointer(x, shape) do
      %{data: %module{}} = x
      backend = if module == Nx.BinaryBackend, do: module, else: {module, []}
      Nx.from_pointer(backend, Nx.to_pointer(x), Nx.type(x), shape)
    end

    @doc "What is left after a copy was freed, twice."
    def freed(x) do
      copy = Nx.backend_copy(x)
      Nx.backend_deallocate(copy)
      Nx.backend_deallocate(copy)
      x
    end

    @doc "The text of a tensor."
    def text(x), do: inspect(x, limit: 20)

    @doc "The text of a heatmap."
    def heatmap(x, opts), do: inspect(Nx.to_heatmap(x, opts))

    @functions %{
      add: {&Nx.add/2, "&Nx.add/2"},
      subtract: {&Nx.subtract/2, "&Nx.subtract/2"},
      multiply: {&Nx.multiply/2, "&Nx.multiply/2"},
      max: {&Nx.max/2, "&Nx.max/2"},
      min: {&Nx.min/2, "&Nx.min/2"}
    }

    @doc "Functions of two numbers, with their code."
    def functions, do: @functions
  end
end
