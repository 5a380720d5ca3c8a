if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Shrink do
    @moduledoc false
    # Makes a chain of calls smaller for as long as it still fails: fewer calls, smaller shapes, plainer
    # values, types and options. Every candidate is smaller than the chain it is made of, by the
    # measure that its rule names, so it comes to an end.

    alias Mlx.Fuzz.Gen.{Ref, Step}
    alias Mlx.Fuzz.{Run, Values}
    alias Mlx.Fuzz.Values.Leaf

    @doc "The smallest chain found for which `fails?` is true, in at most `tries` runs."
    def run(steps, fails?, tries \\ 600), do: shrink(steps, fails?, tries)

    defp shrink(steps, fails?, tries) do
      steps
      |> candidates()
      |> Enum.reduce_while({:stuck, tries}, fn candidate, {:stuck, tries} ->
        cond do
          tries == 0 -> {:halt, {:stuck, 0}}
          fails?.(candidate) -> {:halt, {:smaller, candidate, tries - 1}}
          true -> {:cont, {:stuck, tries - 1}}
        end
      end)
      |> case do
        {:smaller, candidate, tries} -> shrink(candidate, fails?, tries)
        {:stuck, _tries} -> steps
      end
    end

    @doc """
    Smaller chains, those first that leave out most. `run?` is whether the chain may be run, to put its
    results in the place of its calls.
    """
    def candidates(steps, run? \\ true) do
      Stream.concat([
        Stream.flat_map([steps], &alone(&1, run?)),
        Stream.flat_map([steps], &dropped(&1, run?)),
        changed(steps, &plain/1),
        dims(steps),
        changed(steps, &smaller/1),
        options(steps),
        changed(steps, &values/1)
      ])
      |> Stream.reject(&(&1 == steps or dangling?(&1)))
    end

    ## Calls

    # The last call, of what came before it.
    defp alone([_step], _run?), do: []

    defp alone(steps, run?) do
      leaves = leaves(steps, run?)
      count = length(steps) - 1
      for at <- [count], do: [inline(Enum.at(steps, at), leaves, 0)]
    end

    defp dropped([_step], _run?), do: []

    defp dropped(steps, run?) do
      leaves = leaves(steps, run?)

      for at <- (length(steps) - 1)..0//-1 do
        steps
        |> List.delete_at(at)
        |> Enum.map(&inline(&1, Map.take(leaves, for(i <- 0..8, do: {at, i}) ++ [{at, nil}]), at))
      end
    end

    # Refs to calls in `leaves` become what they were; those to later ones than `at` move up.
    defp inline(%Step{args: args} = step, leaves, at) do
      %{
        step
        | args:
            map(args, fn
              %Ref{step: i, elem: e} = ref ->
                cond do
                  leaf = leaves[{i, e}] -> leaf
                  i > at -> %{ref | step: i - 1}
                  true -> ref
                end

              leaf ->
                leaf
            end)
      }
    end

    # Results that could not be put in as operands.
    defp dangling?(steps) do
      steps
      |> Enum.with_index()
      |> Enum.any?(fn {step, i} -> Enum.any?(refs(step.args), &(&1.step >= i)) end)
    end

    defp refs(args) do
      {leaves, _} = Mlx.Fuzz.Gen.leaves(args)
      Enum.filter(leaves, &is_struct(&1, Ref))
    end

    # Results as operands.
    defp leaves(_steps, false), do: %{}

    defp leaves(steps, true) do
      for {{:ok, _, read}, i} <- steps |> Run.eager(%{}) |> Enum.with_index(),
          {{:tensor, type, shape, _names, [], bits}, e} <- Enum.with_index(read),
          key <- if(length(read) == 1, do: [{i, nil}, {i, 0}], else: [{i, e}]),
          into: %{},
          do: {key, %Leaf{type: type, shape: shape, data: bits}}
    end

    ## Operands

    defp map(args, fun) when is_list(args) do
      if Keyword.keyword?(args), do: args, else: Enum.map(args, &map(&1, fun))
    end

    defp map(%Leaf{} = leaf, fun), do: fun.(leaf)
    defp map(%Ref{} = ref, fun), do: fun.(ref)
    defp map(other, _fun), do: other

    # Each leaf replaced by each of what `simpler` makes of it.
    defp changed(steps, simpler) do
      Stream.flat_map(all(steps), fn leaf ->
        for other <- simpler.(leaf), other != leaf, do: put(steps, leaf, other)
      end)
    end

    defp all(steps) do
      steps
      |> Enum.flat_map(fn step -> step.args |> Mlx.Fuzz.Gen.leaves() |> elem(0) end)
      |> Enum.filter(&is_struct(&1, Leaf))
      |> Enum.uniq()
    end

    defp put(steps, leaf, other) do
      for step <- steps, do: %{step | args: map(step.args, &if(&1 == leaf, do: other, else: &1))}
    end

    defp plain(leaf) do
      [%{leaf | on: :mlx, names: nil}, %{leaf | on: :mlx}, %{leaf | names: nil}] ++ types(leaf)
    end

    # Where the numbers are the same.
    defp types(%Leaf{type: type} = leaf) do
      for wanted <- [{:s, 32}, {:f, 32}],
          wanted != type,
          type != {:f, 32} or wanted != {:s, 32} do
        t = leaf |> Values.tensor({Nx.BinaryBackend, []})
        cast = Nx.as_type(t, wanted)

        if Nx.to_binary(Nx.as_type(cast, type)) == leaf.data,
          do: %{leaf | type: wanted, data: Nx.to_binary(cast)},
          else: leaf
      end
    rescue
      _ -> []
    end

    # A size of axes everywhere, for shapes have to match.
    defp dims(steps) do
      leaves = all(steps)

      sizes =
        leaves |> Enum.flat_map(&Tuple.to_list(&1.shape)) |> Enum.uniq() |> Enum.filter(&(&1 > 1))

      for size <- sizes, less <- Enum.uniq([1, div(size, 2), size - 1]), less > 0 do
        Enum.reduce(leaves, steps, fn leaf, steps ->
          put(
            steps,
            leaf,
            cut(leaf, Enum.map(Tuple.to_list(leaf.shape), &if(&1 == size, do: less, else: &1)))
          )
        end)
      end
    end

    defp smaller(%Leaf{shape: shape} = leaf) do
      dims = Tuple.to_list(shape)

      cuts =
        for {dim, axis} <- Enum.with_index(dims),
            dim > 1,
            less <- Enum.uniq([1, div(dim, 2)]),
            do: cut(leaf, List.replace_at(dims, axis, less))

      squeezed =
        for {1, axis} <- Enum.with_index(dims),
            do: %{leaf | shape: Tuple.delete_at(shape, axis), names: nil}

      cuts ++ squeezed
    end

    defp cut(leaf, dims) do
      bits =
        leaf
        |> Values.tensor({Nx.BinaryBackend, []})
        |> Nx.slice(List.duplicate(0, length(dims)), dims)
        |> Nx.to_binary()

      %{leaf | shape: List.to_tuple(dims), data: bits}
    end

    defp options(steps) do
      for {step, at} <- Enum.with_index(steps),
          {[_ | _] = opts, place} <- Enum.with_index(step.args),
          Keyword.keyword?(opts),
          key <- 0..(length(opts) - 1) do
        args = List.replace_at(step.args, place, List.delete_at(opts, key))
        List.replace_at(steps, at, %{step | args: args})
      end
    end

    # Plainer by a weight: 0, then 1, then others.
    defp values(%Leaf{type: {_, size} = type} = leaf) do
      elements = for <<bits::bitstring-size(size) <- leaf.data>>, do: bits
      plain = [Values.encode(0, type), Values.encode(1, type)]
      same = for bits <- plain, do: List.duplicate(bits, length(elements))

      single =
        for {old, at} <- elements |> Enum.with_index() |> Enum.take(24),
            bits <- Enum.take_while(plain, &(&1 != old)),
            do: List.replace_at(elements, at, bits)

      for list <- Enum.reject(same, fn _ -> Enum.all?(elements, &(&1 in plain)) end) ++ single,
          do: %{leaf | data: for(bits <- list, into: <<>>, do: bits)}
    end
  end
end
