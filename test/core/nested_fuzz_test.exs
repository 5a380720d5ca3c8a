defmodule Mlx.NestedFuzzTest do
  # Oracle: the VM is alive. Operations that hold programs, written by hand and most of them
  # senseless: bodies of control, of nothing, with too many or too few operands, with slots that are
  # not there. Each is refused, fails, or gives arrays; what goes on for ever is over when its worker
  # is stopped. The seed is ExUnit's. MLX_FUZZ sets how many are run.
  use ExUnit.Case, async: true

  alias Mlx.{Native, NIF}

  @count String.to_integer(System.get_env("MLX_FUZZ", "1000"))
  @types [{:f, 32}, {:s, 32}, {:u, 8}, :bool, {:c, 64}, {:f, 64}, {:bf, 16}]

  setup do
    %{worker: Native.start_worker(:cpu)}
  end

  @tag timeout: :infinity
  test "no program takes the VM down", %{worker: worker} do
    {outcomes, worker} =
      Enum.map_reduce(1..@count, worker, fn _, worker ->
        inputs = Enum.random(0..3)
        {_, instructions, outputs} = program(inputs, 3)
        operands = for _ <- 1..inputs//1, do: operand(worker)
        task = Task.async(fn -> run(instructions, outputs, operands, worker) end)

        case Task.yield(task, 200) do
          {:ok, outcome} ->
            {outcome, worker}

          nil ->
            NIF.worker_stop(worker)
            {Task.await(task, 20_000), Native.start_worker(:cpu)}
        end
      end)

    assert Enum.count(outcomes, &(&1 == :ok)) > @count / 10
    assert Enum.count(outcomes, &(&1 == :invalid_argument)) > @count / 20
    sum = Native.run([{:add, [0, 0]}], [1], [Native.from_binary(worker, {:u, 8}, {1}, <<2>>)])
    assert Native.to_binary(hd(sum)) == <<4>>
  end

  test "of a fused program's body nothing is taken for granted", %{worker: worker} do
    x = Native.from_binary(worker, {:f, 32}, {2}, <<1.0::float-32-native, 2.0::float-32-native>>)
    negative = {1, [{:negative, [0]}], [1]}
    refused = fn instructions, outputs -> run(instructions, outputs, [x], worker) end

    for body <- [
          {1, [{{:repeat, 2, negative}, [0]}], [1]},
          {1, [{{:hook, 0}, [0]}], [0]},
          {1, [{{:call, 0, [{{:f, 32}, {2}}]}, [0]}], [1]},
          {1, [{{:fused, {1, [{{:fused, negative}, [0]}], [1]}}, [0]}], [1]},
          {2, [{:add, [0, 1]}], [2]},
          {0, [], [0]}
        ],
        do: assert(refused.([{{:fused, body}, [0]}], [1]) == :invalid_argument)

    for body <- [negative, {1, [], [0]}, {1, [{{:sum_axes, [0], false}, [0]}], [1]}],
        do: assert(refused.([{{:fused, body}, [0]}], [1]) == :ok)

    # As wide and as long as it likes.
    long = {1, for(slot <- 0..29_999, do: {:negative, [slot]}), [30_000]}
    assert refused.([{{:fused, long}, [0]}], [1]) == :ok
  end

  defp run(instructions, outputs, operands, worker) do
    instructions |> Native.run(outputs, operands, worker) |> Enum.each(&Native.to_binary/1)
  rescue
    error in Mlx.Error -> error.kind
    ArgumentError -> :argument
  end

  defp operand(worker) do
    type = Enum.random(@types -- [:bool])
    {_, bits} = type
    shape = Enum.random([{}, {}, {}, {}, {3}, {3}, {2, 3}, {300}, {0}])
    Native.from_binary(worker, type, shape, :rand.bytes(Tuple.product(shape) * div(bits, 8)))
  end

  # A program of so many inputs, with others inside of it.
  defp program(inputs, depth) do
    {instructions, slots} =
      Enum.reduce(1..Enum.random(1..6)//1, {[], inputs}, fn _, {instructions, slots} ->
        {instruction, made} = instruction(slots, depth)
        {[instruction | instructions], slots + made}
      end)

    outputs = for _ <- 1..Enum.random(0..3)//1, do: slot(slots)
    {inputs, Enum.reverse(instructions), outputs}
  end

  # One more than there are, now and then.
  defp slot(slots),
    do: if(:rand.uniform(300) == 1, do: slots, else: :rand.uniform(max(slots, 1)) - 1)

  defp slots(slots, count), do: for(_ <- 1..count//1, do: slot(slots))

  defp instruction(slots, depth) when depth == 0 or slots == 0 do
    case if(slots == 0, do: 1, else: Enum.random(1..9)) do
      1 ->
        {{{:constant, {:f, 32}, <<:rand.uniform()::float-32-native>>}, []}, 1}

      2 ->
        {{{:constant, {:s, 32}, Enum.random([<<1::32>>, <<1>>, <<>>])}, []}, 1}

      3 ->
        {{{:astype, Enum.random(@types)}, slots(slots, 1)}, 1}

      4 ->
        {{{:sum_axes, [], true}, slots(slots, 1)}, 1}

      5 ->
        {{:where, slots(slots, 3)}, 1}

      6 ->
        {{Enum.random([:exp, :negative, :logical_not, :abs]), slots(slots, 1)}, 1}

      7 ->
        {{Enum.random([:less, :equal, :floor_divide]), slots(slots, 2)}, 1}

      _ ->
        {{Enum.random([:add, :multiply, :maximum]),
          slots(slots, if(:rand.uniform(30) == 1, do: 1, else: 2))}, 1}
    end
  end

  defp instruction(slots, depth) do
    count = Enum.random(0..3)
    wrong = if :rand.uniform(60) == 1, do: 1, else: 0
    inner = fn inputs -> program(inputs + wrong, depth - 1) end
    operands = slots(slots, count)
    made = fn {_, _, outputs} -> length(outputs) end

    case Enum.random(1..8) do
      1 ->
        # Control in it is refused.
        body = if(wrong == 0, do: program(count, 0), else: inner.(count))
        {{{:fused, body}, operands}, made.(body)}

      2 ->
        body = carried(inner.(count), count + wrong)
        {{{:repeat, Enum.random([0, 1, 3, 50]), body}, operands}, made.(body)}

      3 ->
        body = carried(inner.(count), count + wrong)
        {inputs, instructions, outputs} = inner.(count)
        condition = {inputs, instructions, Enum.take(outputs ++ [0], 1)}
        {{{:while, condition, body}, operands}, made.(body)}

      4 ->
        {then, otherwise} = {inner.(count), inner.(count)}
        outputs = Enum.take(elem(otherwise, 2) ++ [0, 0, 0], made.(then))
        otherwise = put_elem(otherwise, 2, outputs)
        {{{:if, then, otherwise}, slots(slots, count + 1)}, made.(then)}

      5 ->
        {{{:fold, inner.(2)}, slots(slots, 2)}, 1}

      6 ->
        {{{:hook, 0}, operands}, 0}

      _ ->
        instruction(slots, 0)
    end
  end

  # A loop's body returns at most as many as there are values.
  defp carried({inputs, instructions, outputs}, most),
    do: {inputs, instructions, Enum.take(outputs, most)}
end
