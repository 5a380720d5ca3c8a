if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Compiled do
    @moduledoc false
    # A chain of calls as one program of `Mlx.Compiler`, fused and not, against what came of it
    # operation by operation.

    import Mlx.Fuzz.Outcome
    import Mlx.Fuzz.Run, only: [attempt: 1, built: 3, call: 2, part: 2]

    alias Mlx.Fuzz.{Calls, Compare, Exceptions, Gen, Values}
    alias Mlx.Fuzz.Gen.Ref
    alias Mlx.Fuzz.Values.Leaf

    @doc "`:ok`, or what a program of the calls does otherwise than the calls did."
    def check(counted, shared) do
      steps = Enum.map(counted, &elem(&1, 0))

      if Enum.all?(steps, &Calls.compiled?(&1.name)) do
        leaves = steps |> Enum.flat_map(&elem(Gen.leaves(&1.args), 0)) |> Enum.uniq()

        {constants, inputs} =
          leaves |> Enum.filter(&is_struct(&1, Leaf)) |> Enum.split_with(&(&1.on == :binary))

        # A number is where the operations of Nx and of its expressions differ.
        tensors = inputs |> Enum.map(&built(&1, [], shared)) |> List.to_tuple()
        fun = fn inputs -> program(steps, leaves_map(constants, inputs, tensors)) end
        run_compiled(counted, fun_of(fun, inputs), tensors)
      else
        :ok
      end
    end

    defp leaves_map(constants, inputs, _tensors),
      do: Map.merge(Map.new(constants, &{&1, Values.tensor(&1, {Nx.BinaryBackend, []})}), inputs)

    defp fun_of(fun, inputs) do
      fn tuple -> fun.(inputs |> Enum.zip(Tuple.to_list(tuple)) |> Map.new()) end
    end

    defp program(steps, leaves) do
      steps
      |> Enum.reduce([], fn step, done ->
        value =
          call(step, fn
            %Leaf{} = leaf -> Map.fetch!(leaves, leaf)
            %Ref{} = ref -> done |> Enum.at(length(done) - 1 - ref.step) |> part(ref)
          end)

        [value | done]
      end)
      |> Enum.reverse()
      |> List.to_tuple()
      |> containers()
    end

    # Nx.split and others answer lists.
    defp containers(list) when is_list(list),
      do: list |> Enum.map(&containers/1) |> List.to_tuple()

    defp containers(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> containers()
    defp containers(other), do: other

    defp run_compiled(counted, fun, tensors) do
      raised =
        Enum.find_value(counted, fn {_, outcome} ->
          match?({:raised, _, _}, outcome) && outcome
        end)

      {last, _} = List.last(counted)
      index = length(counted) - 1

      Enum.reduce_while([false, true], :ok, fn fuse, :ok ->
        outcome =
          attempt(fn -> Nx.Defn.jit_apply(fun, [tensors], compiler: Mlx.Compiler, fuse: fuse) end)

        case against(counted, raised, outcome, fuse) do
          :ok ->
            {:cont, :ok}

          {kind, text} ->
            if elsewhere?(counted) or nx?(outcome, fun, tensors) or
                 Exceptions.compiled(kind, counted, outcome),
               do: {:cont, :ok},
               else: {:halt, finding(kind, last, index, text)}
        end
      end)
    end

    defp against(counted, nil, {:ok, _, read}, fuse) do
      wanted = Enum.flat_map(counted, fn {_, {:ok, _, read}} -> read end)

      case Compare.same_bits(read, wanted) do
        :ok -> :ok
        text -> {if(fuse, do: :fused_differs, else: :compiled_differs), text}
      end
    end

    defp against(_counted, nil, {:raised, error, stack}, fuse),
      do: {:compiled_raises, "fuse: #{fuse} raised #{show_error(error)}#{where(stack)}"}

    # What depends on values is raised by operations, and not by programs.
    defp against(_counted, {:raised, error, stack}, {:ok, _, read}, _fuse) do
      if ours?(stack) or opinion?(stack),
        do: :ok,
        else:
          {:compiled_accepts,
           "gave #{show(read)}, where the operation raised #{show_error(error)}"}
    end

    defp against(_counted, {:raised, error, stack}, {:raised, other, other_stack}, _fuse) do
      if ours?(stack) or error_kind(error) == error_kind(other) or documented?(other),
        do: :ok,
        else:
          {:compiled_exception,
           "raised #{show_error(other)}#{where(other_stack)}, not #{show_error(error)}"}
    end

    # What has operands on Nx.BinaryBackend only was computed there.
    defp elsewhere?(counted) do
      Enum.any?(counted, fn {step, _} ->
        step.args |> Gen.leaves() |> elem(0) |> Enum.any?(&match?(%Leaf{on: :binary}, &1))
      end)
    end

    # What Nx itself raises while it traces the function, and what it computes otherwise there:
    # x / 1 is x, and numbers take the type of the operand beside them.
    defp nx?({:raised, error, _}, fun, tensors) do
      case attempt(fn ->
             Nx.Defn.jit_apply(fun, [tensors], compiler: Nx.Defn.Evaluator) && nil
           end) do
        {:raised, other, _} -> error_kind(error) == error_kind(other)
        _ -> false
      end
    end

    defp nx?({:ok, _, read}, fun, tensors) do
      case attempt(fn -> Nx.Defn.jit_apply(fun, [tensors], compiler: Nx.Defn.Evaluator) end) do
        {:ok, _, evaluated} -> Compare.same_bits(read, evaluated) == :ok
        _ -> false
      end
    end
  end
end
