if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Run do
    @moduledoc false
    # Runs a chain of calls in every way and compares: operation by operation with what
    # Nx.BinaryBackend makes of the same operands, as one program with what came operation by
    # operation, and again.

    import Mlx.Fuzz.Outcome

    alias Mlx.Fuzz.{Calls, Compare, Compiled, Exceptions, Gen, Values}
    alias Mlx.Fuzz.Gen.{Ref, Step}
    alias Mlx.Fuzz.Values.Leaf
    alias Nx.Tensor, as: T

    @type outcome :: {:ok, term, [tuple]} | {:raised, Exception.t() | tuple, list}

    @doc """
    What is wrong with the chain, or the bits of all results. `ways` are `:compiled` and `:again`
    besides running it once. `notes` are the reasons of differences that are meant.
    """
    def check(steps, ways, shared \\ %{}) do
      outcomes = eager(steps, shared)
      counted = Enum.zip(steps, outcomes)

      with {:ok, notes} <- verify(counted, shared),
           :ok <- if(:compiled in ways, do: Compiled.check(counted, shared), else: :ok),
           :ok <- if(:again in ways, do: again(counted, steps, shared), else: :ok),
           :ok <- mailbox(steps) do
        {:ok, Enum.map(outcomes, &bits/1), notes}
      end
    end

    defp bits({:ok, _value, read}), do: read
    defp bits({:raised, error, _stack}), do: error_kind(error)

    ## Operation by operation

    # Ends with the first call that raises.
    @doc "What each call gives, operation by operation, up to the first that raises."
    def eager(steps, shared) do
      steps
      |> Enum.reduce_while([], fn step, done ->
        outcome = attempt(fn -> call(step, &built(&1, done, shared)) end)
        next = if match?({:ok, _, _}, outcome), do: :cont, else: :halt
        {next, [outcome | done]}
      end)
      |> Enum.reverse()
    end

    @doc "The call with its operands made by `operand`."
    def call(%Step{module: module, name: name, args: args}, operand) do
      {operands, args} = Gen.leaves(args)
      operands = operands |> Enum.map(operand) |> List.to_tuple()
      apply(module, name, Enum.map(args, &Gen.fill(&1, operands)))
    end

    @doc "An operand on its backend. `done` are the outcomes so far, in reverse."
    def built(%Leaf{on: {:shared, k}} = leaf, _done, shared),
      do: Map.get_lazy(shared, k, fn -> built(%{leaf | on: :mlx}, [], shared) end)

    def built(%Leaf{on: :binary} = leaf, _done, _shared),
      do: Values.tensor(leaf, {Nx.BinaryBackend, []})

    # These stay on Nx.BinaryBackend, by the fallback policy.
    def built(%Leaf{type: {:c, 128}} = leaf, _done, _shared),
      do: Values.tensor(leaf, {Nx.BinaryBackend, []})

    def built(%Leaf{} = leaf, _done, _shared), do: Values.tensor(leaf, {Mlx.Backend, []})
    def built(%Ref{} = ref, done, _shared), do: done |> result(ref) |> part(ref)

    # Results are in reverse.
    defp result(done, %Ref{step: step}) do
      {:ok, value, _read} = Enum.at(done, length(done) - 1 - step)
      value
    end

    @doc "The part of a result that `ref` is."
    def part(value, %Ref{elem: nil}), do: value
    def part(value, %Ref{elem: i}), do: elem(value, i)

    @doc "What `fun` gives, read, or raises."
    def attempt(fun) do
      value = fun.()
      {:ok, value, read(value)}
    rescue
      error -> {:raised, error, __STACKTRACE__}
    catch
      kind, reason -> {:raised, {kind, reason}, __STACKTRACE__}
    end

    # Every tensor in `value` with its bits, and what is none.
    defp read(%T{data: %Nx.TemplateBackend{}} = t), do: [{:term, t}]

    defp read(%T{} = t) do
      t_flat = Nx.devectorize(t)
      [{:tensor, t.type, t_flat.shape, t.names, t.vectorized_axes, Nx.to_binary(t)}]
    end

    defp read(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> read()
    defp read(list) when is_list(list), do: Enum.flat_map(list, &read/1)
    # Nx fails to inspect some tensors; the text has the stack in it.
    defp read("#Inspect.Error" <> _), do: [{:term, "#Inspect.Error"}]
    defp read(other), do: [{:term, other}]

    ## Nx.BinaryBackend

    defp verify(counted, shared) do
      counted
      |> Enum.with_index()
      |> Enum.reduce_while({:ok, []}, fn {{step, outcome}, index}, {:ok, notes} ->
        done = counted |> Enum.take(index) |> Enum.map(&elem(&1, 1)) |> Enum.reverse()
        operands = operands(step, done)
        expected = if huge?(step.args), do: outcome, else: expected(step, operands)

        case judge(step, operands, outcome, expected, shared) do
          :ok ->
            {:cont, {:ok, notes}}

          {kind, text} ->
            case Exceptions.reason(kind, step, operands, outcome, expected) do
              nil -> {:halt, finding(kind, step, index, text)}
              reason -> {:cont, {:ok, [reason | notes]}}
            end
        end
      end)
    end

    # Sizes at which Nx.BinaryBackend never comes to an end, and Mlx refuses. The outcome stands for
    # itself, so that it counts only whether it is a kind of error that is documented.
    defp huge?(list) when is_list(list), do: Enum.any?(list, &huge?/1)
    defp huge?({_key, value}), do: huge?(value)
    defp huge?(number) when is_integer(number), do: abs(number) >= 2 ** 31
    defp huge?(_other), do: false

    defp operands(step, done) do
      {leaves, _args} = Gen.leaves(step.args)

      for leaf <- leaves do
        case leaf do
          %Leaf{} -> Values.tensor(leaf, {Nx.BinaryBackend, []})
          %Ref{} = ref -> copy(done, ref)
        end
      end
    end

    defp copy(done, %Ref{step: step, elem: elem} = ref) do
      {:ok, value, read} = Enum.at(done, length(done) - 1 - step)
      {:tensor, _, _, _, _, bits} = Enum.at(read, elem || 0)
      %{part(value, ref) | data: %Nx.BinaryBackend{state: bits}}
    end

    defp expected(step, operands) do
      {_leaves, args} = Gen.leaves(step.args)
      operands = List.to_tuple(operands)

      attempt(fn ->
        Nx.with_default_backend(Nx.BinaryBackend, fn ->
          apply(step.module, step.name, Enum.map(args, &Gen.fill(&1, operands)))
        end)
      end)
    end

    defp judge(step, operands, {:ok, value, read}, {:ok, _, right}, _shared) do
      class = Calls.class(step.module, step.name)
      compared = numbers(step, operands, class)

      with :ok <- sizes(read),
           :ok <- Compare.same(class, step.name, compared, read, right),
           do: place(step, operands, value)
    end

    defp judge(_step, _operands, {:ok, _, read}, {:raised, error, stack}, _shared) do
      if opinion?(stack),
        do: :ok,
        else: {:did_not_raise, "gave #{show(read)}, where Nx raises #{show_error(error)}"}
    end

    defp judge(_step, _operands, {:raised, error, stack}, {:ok, _, right}, _shared),
      do: {:raised, "raised #{show_error(error)}#{where(stack)}, instead of #{show(right)}"}

    defp judge(_step, _operands, {:raised, error, stack}, {:raised, other, other_stack}, _shared) do
      cond do
        ours?(stack) and not opinion?(stack) and not documented?(error) ->
          {:wrong_exception,
           "raised #{show_error(error)}#{where(stack)}; Nx #{show_error(other)}"}

        not ours?(stack) and not opinion?(other_stack) and
            error_kind(error) != error_kind(other) ->
          {:other_exception,
           "raised #{show_error(error)}#{where(stack)}; Nx #{show_error(other)}"}

        true ->
          :ok
      end
    end

    # Numbers among the arguments are operands of what is computed number by number.
    defp numbers(%{args: args}, operands, :rounded) do
      for {arg, place} <- Enum.with_index(args),
          is_number(arg) or is_struct(arg, Complex) or arg in [:nan, :infinity, :neg_infinity],
          reduce: operands do
        operands -> List.insert_at(operands, place, Nx.tensor(arg, backend: Nx.BinaryBackend))
      end
    end

    defp numbers(_step, operands, _class), do: operands

    defp sizes(read) do
      Enum.find_value(read, :ok, fn
        {:tensor, {_, size} = type, shape, _, _, binary} ->
          if bit_size(binary) != size * Tuple.product(shape),
            do: {:wrong_size, "#{bit_size(binary)} bits for #{inspect({type, shape})}"}

        _ ->
          nil
      end)
    end

    # What has an operand on Mlx is on Mlx, but for c128.
    defp place(%{name: name}, _operands, _value) when name in [:backend_transfer, :backend_copy],
      do: :ok

    defp place(step, operands, %T{data: %Nx.BinaryBackend{}, type: type}) do
      {leaves, _} = Gen.leaves(step.args)

      if type != {:c, 128} and leaves != [] and Enum.all?(operands, &(&1.type != {:c, 128})) and
           Enum.all?(leaves, &match?(%Leaf{on: on} when on != :binary, &1)),
         do: {:place, "the result is on Nx.BinaryBackend"},
         else: :ok
    end

    defp place(_step, _operands, _value), do: :ok

    ## Again

    defp again(counted, steps, shared) do
      second = eager(steps, shared)
      read = &Enum.flat_map(&1, fn outcome -> outcome |> bits() |> List.wrap() end)
      {step, _} = List.last(counted)

      case Compare.same_bits(read.(second), read.(Enum.map(counted, &elem(&1, 1)))) do
        :ok -> :ok
        text -> finding(:not_repeated, step, length(counted) - 1, text)
      end
    end

    defp mailbox(steps) do
      case Process.info(self(), :message_queue_len) do
        {:message_queue_len, 0} -> :ok
        _ -> finding(:message, List.last(steps), length(steps) - 1, flush())
      end
    end

    defp flush do
      receive do
        message -> "a message is left: #{inspect(message, limit: 10)} " <> flush()
      after
        0 -> ""
      end
    end
  end
end
