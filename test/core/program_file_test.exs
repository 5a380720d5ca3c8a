defmodule Mlx.ProgramFileTest do
  # Oracle: the VM, and what load!/1 promises. Files that were written and then changed at random,
  # mostly with a checksum that fits, and terms that no program is made of: each is a program or an
  # ArgumentError that names the file, without new atoms, in little memory and time. The seed is
  # ExUnit's, and a failure prints the file. MLX_FUZZ sets how many are tried.
  use ExUnit.Case, async: false

  import Bitwise, only: [<<<: 2]

  alias Mlx.Program

  @count String.to_integer(System.get_env("MLX_FUZZ", "2000"))
  @head "MLX program\n\x01"
  # What reading a file of a few kilobytes may take, in words and in the processors' milliseconds.
  @heap 4_000_000
  @slow 2000

  @tag :tmp_dir
  @tag timeout: :infinity
  test "any bytes are a program or an error", %{tmp_dir: dir} do
    path = Path.join(dir, "p")
    valid = for program <- programs(), do: saved(program, path)
    # Modules that are loaded on the way bring their atoms.
    for kind <- 0..9, _ <- 1..20, do: load(any(valid, kind), path)
    atoms = :erlang.system_info(:atom_count)
    before = resident()

    outcomes =
      for _ <- 1..@count do
        bytes = any(valid, Enum.random(0..9))
        {spent, outcome} = spent(fn -> load(bytes, path) end)
        assert spent < @slow, "#{spent} ms for #{shown(bytes)}"
        outcome
      end

    made = :erlang.system_info(:atom_count)

    assert for(index <- atoms..(made - 1)//1, do: :erlang.binary_to_term(<<131, 75, index::24>>)) ==
             []

    assert resident() - before < 512 * 1024
    # Sense enough to come past the first look.
    assert Enum.count(outcomes, &(&1 == :program)) > @count / 50
    assert Enum.count(outcomes, &(&1 == :looked_into)) > @count / 20
  end

  @tag :tmp_dir
  test "refuses what would take memory that the file does not have, or stay", %{tmp_dir: dir} do
    path = Path.join(dir, "p")
    inside = fn inputs -> {[], [{{:repeat, 1, {inputs, [], []}}, []}], []} end
    zeros = :binary.copy(<<0>>, 50_000_000)

    for {bytes, message} <- [
          # Read, it would be a thousand times as large.
          {forged(:erlang.term_to_binary({[], [], zeros}, [:compressed])), ~r/made of/},
          {forged(:erlang.term_to_binary({[], [], [fn -> :ok end]})), ~r/made of/},
          {forged(:erlang.term_to_binary({[], [], [&String.length/1]})), ~r/made of/},
          {forged(:erlang.term_to_binary({[], [], [self(), make_ref()]})), ~r/made of/},
          {forged(:erlang.term_to_binary({[], [], [%{}]})), ~r/made of/},
          # More elements than there are bytes.
          {forged(<<131, 108, 0xFFFFFFFF::32, 106>>), ~r/cut short/},
          {forged(<<131, 105, 0xFFFFFFFF::32, 106>>), ~r/cut short/},
          {forged(<<131, 109, 0xFFFFFFFF::32, 1>>), ~r/made of/},
          {forged(<<:erlang.term_to_binary({[], [], []})::binary, 106>>), ~r/the parts of one/},
          {forged(:erlang.term_to_binary({[], []})), ~r/the parts of one/},
          # Room for each input, of which there are as many as anybody likes to write.
          {forged(inside.(1 <<< 40)), ~r/program of 1099511627776 inputs.*0 operands/},
          {forged(inside.(1 <<< 80)), ~r/inputs/},
          {forged(inside.(-1)), ~r/inputs/},
          # Lists that do not end as lists do.
          {forged({[{{:f, 32}, {2}} | 1], [], []}), ~r/inputs must be a list/},
          {forged({[{{:f, 32}, [2 | 1]}], [], []}), ~r/input 0/},
          {forged({[], [{:eye, []} | 1], []}), ~r/must be a list/},
          {forged({[], [{{:sum_axes, [0 | 1], true}, []}], []}), ~r/instruction 0/},
          {forged({[], [{:add, [0 | 1]}], []}), ~r/instruction 0/},
          {forged({[], [{{:call, 0, [{{:f, 32}, [2 | 1]}]}, []}], []}), ~r/instruction 0/},
          {forged({[], [], [0 | 1]}), ~r/outputs must be a list/},
          {forged({[], [{:add, [0, 1]}], [2]}), ~r/uses slot 0, and only 0 exist/}
        ] do
      {spent, _} =
        spent(fn ->
          File.write!(path, bytes)
          assert_raise ArgumentError, message, fn -> Program.load!(path) end
        end)

      assert spent < @slow, shown(bytes)
    end
  end

  defp programs do
    add = {1, [{:add, [0, 0]}], [1]}
    less = {1, [{{:constant, {:f, 32}, <<0::32>>}, []}, {:less, [0, 1]}], [2]}
    f32 = {{:f, 32}, {2}}

    [
      Program.new([f32], [], [0]),
      Program.new([f32, f32], [{:add, [0, 1]}, {{:sum_axes, [0], false}, [2]}], [3]),
      Program.new([f32], [{{:repeat, 3, add}, [0]}], [1]),
      Program.new([f32], [{{:while, less, add}, [0]}], [1]),
      Program.new([], [{{:arange, 9, {:s, 32}}, []}, {{:reshape, {3, 3}}, [0]}], [1]),
      Program.new(
        [{{:f, 32}, {2, 3}}],
        [{{:gather, [0], [1, 3]}, [0, 0]}, {{:call, 7, [f32]}, [0]}, {{:hook, 1}, [2]}],
        [1, 2]
      )
    ]
  end

  defp saved(program, path) do
    Program.save!(program, path)
    File.read!(path)
  end

  defp forged(data) when is_binary(data), do: @head <> :erlang.md5(data) <> data
  defp forged(term), do: term |> :erlang.term_to_binary() |> forged()

  # What a program is made of, and not in the way in which it is.
  @numbers [
    0,
    1,
    2,
    3,
    -1,
    255,
    256,
    2_147_483_648,
    4_294_967_296,
    1 <<< 62,
    1 <<< 64,
    -(1 <<< 70)
  ]
  @atoms [
    :add,
    :sum_axes,
    :repeat,
    :while,
    :if,
    :fold,
    :fused,
    :call,
    :hook,
    :constant,
    :f,
    :bool
  ]

  # Bytes that begin as a term does, with other ends.
  defp any(valid, 0), do: valid |> Enum.random() |> changed()
  defp any(valid, 1), do: valid |> Enum.random() |> data() |> changed() |> forged()

  defp any(valid, 2) do
    data = valid |> Enum.random() |> data()
    data |> binary_part(0, Enum.random(0..byte_size(data))) |> forged()
  end

  defp any(valid, 3) do
    {one, other} = {valid |> Enum.random() |> data(), valid |> Enum.random() |> data()}
    from = Enum.random(0..byte_size(other))

    forged(
      binary_part(one, 0, Enum.random(0..byte_size(one))) <>
        binary_part(other, from, byte_size(other) - from)
    )
  end

  defp any(_valid, 4), do: forged(term(4))
  defp any(_valid, 5), do: forged({list(3), list(3), list(3)})
  defp any(_valid, 6), do: forged({inputs(), instructions(2), slots()})
  defp any(_valid, 7), do: forged(<<131, :rand.bytes(Enum.random(0..60))::binary>>)

  defp any(_valid, 8),
    do: forged(:erlang.term_to_binary({inputs(), instructions(1), slots()}, compressed: 9))

  defp any(valid, 9) do
    term = valid |> Enum.random() |> data() |> :erlang.binary_to_term()
    term |> mutated(Enum.random([1.0, 0.1, 0.03])) |> forged()
  end

  defp mutated(term, rate) do
    cond do
      :rand.uniform() < rate / 20 -> term(2)
      is_list(term) -> for(element <- term, do: mutated(element, rate))
      is_tuple(term) -> List.to_tuple(for(e <- Tuple.to_list(term), do: mutated(e, rate)))
      is_integer(term) and :rand.uniform() < rate -> Enum.random(@numbers)
      true -> term
    end
  end

  defp data(<<@head, _checksum::binary-16, data::binary>>), do: data

  defp changed(bytes) do
    Enum.reduce(1..Enum.random(1..4), bytes, fn _, bytes ->
      at = Enum.random(0..byte_size(bytes))
      count = min(Enum.random([0, 1, 1, 1, 4]), byte_size(bytes) - at)
      <<before::binary-size(at), _::binary-size(count), rest::binary>> = bytes
      new = Enum.random([<<>>, :rand.bytes(1), :rand.bytes(count), <<255, 255, 255, 255>>, <<0>>])
      before <> new <> rest
    end)
  end

  defp term(depth) do
    case Enum.random(if(depth == 0, do: 1..6, else: 1..13)) do
      1 -> Enum.random(@numbers)
      2 -> Enum.random(@atoms)
      3 -> :rand.bytes(Enum.random([0, 1, 4, 70]))
      4 -> Enum.random([1.5, [], {}, {:f, 32}, nil, true])
      5 -> Enum.random([self(), make_ref(), fn -> exit(:run) end, &System.halt/1])
      6 -> slots()
      7 -> %{term(depth - 1) => term(depth - 1)}
      8 -> [term(depth - 1) | term(depth - 1)]
      n when n < 11 -> list(depth - 1)
      _ -> List.to_tuple(list(depth - 1))
    end
  end

  defp list(depth), do: for(_ <- 1..Enum.random(0..4)//1, do: term(depth))

  defp slots,
    do: for(_ <- 1..Enum.random(0..3)//1, do: Enum.random([0, 0, 1, 1, 2, 3, -1, 1 <<< 33]))

  defp inputs do
    for _ <- 1..Enum.random(1..3),
        do: {Enum.random([{:f, 32}, {:u, 8}, :bool, {:f, 7}]), List.to_tuple(dims())}
  end

  defp dims,
    do: for(_ <- 1..Enum.random([0, 1, 2, 40])//1, do: Enum.random([0, 1, 2, 3, 1 <<< 31]))

  defp instructions(depth) do
    for _ <- 1..Enum.random(0..3)//1 do
      case Enum.random(if(depth == 0, do: 1..3, else: 1..5)) do
        1 -> {Enum.random([:add, :negative, :where]), slots()}
        2 -> {{Enum.random([:sum_axes, :all_axes]), slots(), true}, slots()}
        3 -> {List.to_tuple([Enum.random(@atoms) | list(1)]), slots()}
        4 -> {{:repeat, Enum.random(@numbers), body(depth)}, slots()}
        5 -> {{Enum.random([:while, :if]), body(depth), body(depth)}, slots()}
      end
    end
  end

  defp body(depth), do: {Enum.random([0, 1, 1, 2 | @numbers]), instructions(depth - 1), slots()}

  # In a process of its own, which goes where it takes too much memory.
  defp load(bytes, path) do
    File.write!(path, bytes)
    limit = %{size: @heap, kill: true, error_logger: false, include_shared_binaries: true}

    {pid, monitor} =
      :erlang.spawn_opt(
        fn -> exit({:done, outcome(path)}) end,
        [:monitor, max_heap_size: limit]
      )

    receive do
      {:DOWN, ^monitor, :process, ^pid, {:done, outcome}} -> outcome
      {:DOWN, ^monitor, :process, ^pid, reason} -> flunk("#{inspect(reason)}: #{shown(bytes)}")
    end
  end

  defp outcome(path) do
    %Program{} = Program.load!(path)
    :program
  rescue
    error in ArgumentError ->
      ^path <> rest = Exception.message(error)
      if rest =~ ~r/program: |input|instruction|outputs/, do: :looked_into, else: :refused
  end

  defp shown(bytes),
    do: inspect(bytes, limit: :infinity, printable_limit: :infinity, binaries: :as_binaries)

  defp spent(fun) do
    {before, _} = :erlang.statistics(:runtime)
    result = fun.()
    {now, _} = :erlang.statistics(:runtime)
    {now - before, result}
  end

  # Kilobytes.
  defp resident do
    case File.read("/proc/self/status") do
      {:ok, status} ->
        [_, kilobytes] = Regex.run(~r/VmHWM:\s*(\d+)/, status)
        String.to_integer(kilobytes)

      {:error, _} ->
        0
    end
  end
end
