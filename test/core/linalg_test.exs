defmodule Mlx.LinAlgTest do
  # Oracle: every program of linear algebra gives results, whatever the values of its matrices. A
  # failure inside MLX would end in a worker that waits for ever after some dozens of them, so
  # there are hundreds. The seed is ExUnit's; MLX_FUZZ sets how many are run.
  use ExUnit.Case, async: true

  alias Mlx.Native

  @count String.to_integer(System.get_env("MLX_FUZZ", "1500"))
  @real [f: 32, f: 64]
  @ops [
    {{:cholesky, false}, 1, @real},
    {{:cholesky, true}, 1, @real},
    {{:eigh, true}, 2, @real ++ [c: 64]},
    {{:eigh, false}, 2, @real ++ [c: 64]},
    {:inv, 1, @real},
    {:lu, 3, @real},
    {:qr, 2, @real},
    {:svd, 3, @real ++ [c: 64]},
    {{:solve_triangular, false}, 1, @real},
    {{:solve_triangular, true}, 1, @real}
  ]
  # Sign, exponent and fraction are drawn apart, so that all magnitudes come up.
  @special [0.0, -0.0, 1.0, -1.0, :nan, :infinity, :neg_infinity]

  @tag timeout: :infinity
  test "gives results for any values, hundreds in a row" do
    worker = Native.start_worker(:cpu)

    for _ <- 1..@count do
      {op, outputs, types} = Enum.random(@ops)
      type = Enum.random(types)
      {a, b} = shapes(op)
      operands = [matrix(worker, type, a) | List.wrap(b && matrix(worker, type, b))]
      count = length(operands)
      slots = Enum.to_list(0..(count - 1))
      results = Enum.to_list(count..(count + outputs - 1))
      made = Native.run([{op, slots}], results, operands, worker)
      # What is read now and then only is evaluated together with others.
      if Enum.random(1..3) == 1, do: Enum.each(made, &Native.to_binary/1)
    end

    one = Native.from_binary(worker, {:u, 8}, {1}, <<1>>)
    assert Native.to_binary(hd(Native.run([{:add, [0, 0]}], [1], [one]))) == <<2>>
  end

  test "matrices with NaN or infinity make NaN, and those beside them what they always make" do
    nans = List.duplicate(:nan, 4)

    for bad <- [:nan, :infinity, :neg_infinity], type <- @real do
      a = from_list(type, {2, 2, 2}, [2.0, 0.0, 0.0, 1.0, bad, 1.0, 1.0, 1.0])
      assert hd(run({:eigh, true}, 2, [a])) == [1.0, 2.0, :nan, :nan]
      assert Enum.at(run(:svd, 3, [a]), 1) == [2.0, 1.0, :nan, :nan]
      assert run({:cholesky, false}, 1, [square(a)]) == [[2.0, 0.0, 0.0, 1.0] ++ nans]
      assert run(:inv, 1, [a]) == [[0.5, 0.0, 0.0, 1.0] ++ nans]
      [q, r] = run(:qr, 2, [a])
      assert {Enum.drop(q, 4), Enum.drop(r, 4)} == {nans, nans}
      assert :nan not in Enum.take(q ++ r, 4)
      [_rows, l, u] = run(:lu, 3, [a])
      assert {l, u} == {[1.0, 0.0, 0.0, 1.0] ++ nans, [2.0, 0.0, 0.0, 1.0] ++ nans}
    end
  end

  test "what has no result is NaN: singular and indefinite matrices" do
    nans = List.duplicate(:nan, 4)

    for type <- @real do
      singular = from_list(type, {2, 2}, [1.0, 0.0, 1.0, 0.0])
      assert run(:inv, 1, [from_list(type, {2, 2}, [0.0, 0.0, 0.0, 0.0])]) == [nans]
      assert run(:inv, 1, [singular]) == [nans]
      regular = from_list(type, {2, 2}, [2.0, 0.0, 0.0, 4.0])
      assert run(:inv, 1, [regular]) == [[0.5, 0.0, 0.0, 0.25]]
      assert run({:solve_triangular, false}, 1, [singular, ones(type)]) == [[1.0, :nan]]

      for values <- [[1.0, 2.0, 2.0, 1.0], [-1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]] do
        assert run({:cholesky, false}, 1, [from_list(type, {2, 2}, values)]) == [nans]
      end
    end
  end

  test "what is no matrix is refused" do
    vector = from_list({:f, 32}, {2}, [1.0, 2.0])
    wide = from_list({:f, 32}, {1, 2}, [1.0, 2.0])

    for {op, outputs, _types} <- @ops do
      operands = if match?({:solve_triangular, _}, op), do: [vector, vector], else: [vector]
      assert_raise Mlx.Error, ~r/two axes or more/, fn -> run(op, outputs, operands) end
      empty = from_list({:f, 32}, {0, 0}, [])
      operands = if length(operands) == 2, do: [empty, empty], else: [empty]
      assert_raise Mlx.Error, ~r/none of them empty/, fn -> run(op, outputs, operands) end
    end

    assert_raise Mlx.Error, ~r/square/, fn -> run(:inv, 1, [wide]) end

    assert_raise Mlx.Error, ~r/square/, fn ->
      run({:solve_triangular, true}, 1, [wide, vector])
    end
  end

  defp shapes({:solve_triangular, _}) do
    {{n, _}, batch} = dims(:square)
    {List.to_tuple(batch ++ [n, n]), List.to_tuple(batch ++ [n, Enum.random(1..5)])}
  end

  defp shapes(op) do
    {{m, n}, batch} = dims(if op in [:svd, :qr], do: :any, else: :square)
    {List.to_tuple(batch ++ [m, n]), nil}
  end

  defp dims(kind) do
    m = Enum.random([1, 1, 2, 3, 4, 5, 17, 70])
    n = if kind == :square, do: m, else: Enum.random([1, 2, 3, 4, 5, 40])
    {{m, n}, Enum.random([[], [], [1], [3], [2, 2]])}
  end

  # A matrix has values of one kind, or of all.
  defp matrix(worker, {_, bits} = type, shape) do
    size = Tuple.product(shape) * if(type == {:c, 64}, do: 2, else: 1)
    kind = Enum.random([:zero, :bits, :huge, :tiny, :plain, :plain, :plain, :mixed])
    same = value(kind)
    repeat? = Enum.random(1..5) == 1
    part = if type == {:c, 64}, do: 32, else: bits

    bytes =
      for _ <- 1..size//1, into: <<>> do
        bytes(if(repeat?, do: same, else: value(kind)), part)
      end

    Native.from_binary(worker, type, shape, bytes)
  end

  defp value(:zero), do: 0.0
  defp value(:bits), do: :bits
  defp value(:huge), do: {:exponent, Enum.random([1.0, -1.0]), 0}
  defp value(:tiny), do: {:exponent, Enum.random([1.0, -1.0]), 1}
  defp value(:plain), do: Enum.random([:rand.normal(), Enum.random(-2..2) * 1.0])
  defp value(:mixed), do: value(Enum.random([:zero, :huge, :tiny, :plain, :plain, :special]))
  defp value(:special), do: Enum.random(@special)

  defp bytes(:bits, bits), do: :rand.bytes(div(bits, 8))
  defp bytes(:nan, 32), do: <<0x7FC00000::32-native>>
  defp bytes(:nan, 64), do: <<0x7FF8000000000000::64-native>>
  defp bytes(:infinity, 32), do: <<0x7F800000::32-native>>
  defp bytes(:infinity, 64), do: <<0x7FF0000000000000::64-native>>
  defp bytes(:neg_infinity, 32), do: <<0xFF800000::32-native>>
  defp bytes(:neg_infinity, 64), do: <<0xFFF0000000000000::64-native>>
  # Close to the largest, or below the least that is normal.
  defp bytes({:exponent, sign, 0}, 32), do: <<sign * 3.0e38::float-32-native>>
  defp bytes({:exponent, sign, 0}, 64), do: <<sign * 1.7e308::float-64-native>>
  defp bytes({:exponent, _, 1}, 32), do: <<Enum.random(1..0x7FFFFF)::32-native>>
  defp bytes({:exponent, _, 1}, 64), do: <<Enum.random(1..0xFFFFF)::64-native>>
  defp bytes(number, bits), do: <<number::float-size(bits)-native>>

  defp from_list({_, bits} = type, shape, values),
    do:
      Native.from_binary(default(), type, shape, for(v <- values, into: <<>>, do: bytes(v, bits)))

  defp ones(type), do: from_list(type, {2}, [1.0, 1.0])

  defp square(a) do
    [product] =
      Native.run([{{:transpose_axes, [0, 2, 1]}, [0]}, {:matmul, [0, 1]}], [2], [a], default())

    product
  end

  defp run(op, outputs, operands) do
    count = length(operands)
    results = Enum.to_list(count..(count + outputs - 1))

    for ref <- Native.run([{op, Enum.to_list(0..(count - 1))}], results, operands, default()) do
      {{_, bits} = type, _shape} = Native.describe(ref)

      for <<element::binary-size(div(bits, 8)) <- Native.to_binary(ref)>>,
        do: number(type, element)
    end
  end

  defp default, do: Mlx.Device.worker(:cpu)

  defp number({:u, bits}, element) do
    <<value::size(bits)-native>> = element
    value
  end

  defp number({:f, bits}, element) do
    infinities = for special <- [:infinity, :neg_infinity], do: {bytes(special, bits), special}

    case element do
      <<value::float-size(bits)-native>> -> value
      bytes -> Map.get(Map.new(infinities), bytes, :nan)
    end
  end
end
