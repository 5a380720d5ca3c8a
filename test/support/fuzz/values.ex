if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Values do
    @moduledoc false
    # Operands as data: a leaf knows its type, its shape and its bits, so that it can be built on any
    # backend, printed as code and made smaller. Elements come from a pool per type, encoded once,
    # for packing numbers is what would take the time.

    alias Nx.Tensor, as: T

    defmodule Leaf do
      @moduledoc false
      # `on` is where the tensor is: `:mlx`, `:binary`, or `{:shared, k}` for one that all processes
      # use, which is on Mlx.
      defstruct [:type, :shape, :data, names: nil, on: :mlx]
    end

    @ints for size <- [2, 4, 8, 16, 32, 64], kind <- [:u, :s], do: {kind, size}
    @floats [{:f, 8}, {:f8_e4m3fn, 8}, {:f, 16}, {:bf, 16}, {:f, 32}, {:f, 64}]
    @types @ints ++ @floats ++ [{:c, 64}, {:c, 128}]

    # Common ones come more often, so that operands often agree.
    @weighted @types ++
                List.duplicate({:f, 32}, 9) ++
                List.duplicate({:s, 32}, 5) ++
                [{:u, 8}, {:s, 64}, {:f, 16}, {:bf, 16}, {:f, 64}, {:c, 64}, {:c, 64}]

    @limits %{
      {:f, 16} => [65_504.0, 6.103515625e-5, 5.9604644775390625e-8],
      {:bf, 16} => [3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41],
      {:f, 32} => [3.4028234663852886e38, 1.1754943508222875e-38, 1.401298464324817e-45],
      {:f, 64} => [1.7976931348623157e308, 2.2250738585072014e-308, 5.0e-324],
      {:f, 8} => [57_344.0, 6.103515625e-5, 1.52587890625e-5],
      {:f8_e4m3fn, 8} => [448.0, 0.015625, 0.001953125]
    }

    def types, do: @types
    def ints, do: @ints
    def floats, do: @floats
    def reals, do: @ints ++ @floats
    def complex?({kind, _}), do: kind == :c
    def int?({kind, _}), do: kind in [:u, :s]
    def type, do: Enum.random(@weighted)

    @doc "One of `list`."
    def pick(list), do: Enum.random(list)
    def int(range), do: Enum.random(range)
    def chance(percent), do: :rand.uniform(100) <= percent

    @doc "A shape, now and then one that takes more than a tile of a fused kernel."
    def shape do
      case :rand.uniform(240) do
        1 -> pick([{300}, {17, 33}, {1025}, {2, 3, 65}, {1, 600}])
        n when n <= 36 -> {}
        n when n <= 95 -> dims(1, 5)
        n when n <= 160 -> dims(2, 4)
        n when n <= 200 -> dims(3, 3)
        n when n <= 220 -> dims(4, 3)
        n when n <= 230 -> dims(5, 2)
        _ -> dims(6, 2)
      end
    end

    defp dims(rank, limit), do: List.to_tuple(for _ <- 1..rank, do: int(1..limit))

    @doc "A shape of a rank at least `least`."
    def shape(least) do
      case shape() do
        shape when tuple_size(shape) >= least -> shape
        _small -> dims(int(least..(least + 1)), 4)
      end
    end

    @doc "One that broadcasts with `shape`, as a rule."
    def beside(shape) do
      if chance(93) do
        dims = shape |> Tuple.to_list() |> Enum.drop(int(0..tuple_size(shape)))
        dims |> Enum.map(&pick([&1, &1, &1, 1])) |> List.to_tuple()
      else
        shape()
      end
    end

    @doc """
    A leaf. `kind` is `:tame` (small numbers that all types have), `:wild` (also special ones), a
    list of numbers, or `nil` for either of the first two.
    """
    def leaf(type, shape, kind \\ nil) do
      kind = kind || pick([:tame, :tame, :wild])
      on = if chance(8), do: :binary, else: :mlx
      %Leaf{type: type, shape: shape, data: data(type, Tuple.product(shape), kind), on: on}
    end

    def data(type, size, numbers) when is_list(numbers) do
      pool = numbers |> Enum.map(&encode(&1, type)) |> List.to_tuple()
      draw(pool, size)
    end

    def data({:c, bits}, size, kind), do: data({:f, div(bits, 2)}, size * 2, kind)
    def data(type, size, kind), do: draw(pool(type, kind), size)

    defp draw(pool, size) do
      count = tuple_size(pool)
      for _ <- 1..size//1, into: <<>>, do: elem(pool, :rand.uniform(count) - 1)
    end

    defp pool(type, kind) do
      case :persistent_term.get({__MODULE__, type, kind}, nil) do
        nil ->
          pool = numbers(type, kind) |> Enum.map(&encode(&1, type)) |> List.to_tuple()
          :persistent_term.put({__MODULE__, type, kind}, pool)
          pool

        pool ->
          pool
      end
    end

    defp numbers({:u, 2}, _kind), do: [0, 1, 2, 3]
    defp numbers({:s, 2}, _kind), do: [0, 1, -1, -2]
    defp numbers({:u, _}, :tame), do: [0, 1, 1, 2, 3, 4, 5]
    defp numbers({:s, _}, :tame), do: [0, 1, 1, 2, 3, -1, -2, -3]
    defp numbers(_float, :tame), do: [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, 2.5, -3.0]

    defp numbers({:u, size}, :wild),
      do: [0, 1, 2, 7, 2 ** size - 1, 2 ** size - 2, 2 ** (size - 1), 2 ** (size - 1) - 1, 3]

    defp numbers({:s, size}, :wild),
      do: [0, 1, -1, 2, -2, 7, -7, 2 ** (size - 1) - 1, -(2 ** (size - 1)), 3]

    defp numbers(type, :wild) do
      # f8_e4m3fn has no infinity.
      special = if type == {:f8_e4m3fn, 8}, do: [:nan], else: [:nan, :infinity, :neg_infinity]
      limits = Enum.flat_map(@limits[type], &[&1, -&1])
      special ++ limits ++ [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 0.1, 3.140625, 1.0e-3, 200.0, -17.0]
    end

    @doc "The bits of one number."
    def encode(number, {kind, size}) when kind in [:u, :s], do: <<number::size(size)-native>>

    def encode(number, type),
      do: number |> Nx.tensor(type: type, backend: Nx.BinaryBackend) |> Nx.to_binary()

    @doc "The leaf as a tensor of `backend`, whatever its `on` says."
    def tensor(%Leaf{} = leaf, {backend, opts}) do
      backend.from_binary(template(leaf), leaf.data, opts)
    end

    @doc "A template of the leaf's."
    def template(%{type: type, shape: shape, names: names}) do
      %T{type: type, shape: shape, names: names || List.duplicate(nil, tuple_size(shape))}
    end

    @doc "The numbers of the leaf, flat."
    def numbers(%Leaf{} = leaf) do
      leaf |> tensor({Nx.BinaryBackend, []}) |> Nx.to_flat_list()
    end

    @doc "Code that makes the leaf."
    def code(%Leaf{type: type, shape: shape} = leaf) do
      numbers = numbers(leaf)
      names = if leaf.names, do: ", names: #{inspect(leaf.names)}", else: ""
      where = if leaf.on == :binary, do: ", backend: Nx.BinaryBackend", else: ""
      made = for n <- numbers, into: <<>>, do: encode(n, type)
      list = inspect(nested(numbers, Tuple.to_list(shape)), limit: :infinity)

      cond do
        made == leaf.data ->
          "Nx.tensor(#{list}, type: #{inspect(type)}#{names}#{where})"

        true ->
          # Another NaN than the one that numbers stand for.
          bits = inspect(leaf.data, limit: :infinity)
          backend = if where == "", do: "", else: where

          "Nx.reshape(Nx.from_binary(#{bits}, #{inspect(type)}#{backend}), #{inspect(shape)}#{names})"
      end
    end

    defp nested([number], []), do: number

    defp nested(numbers, [_dim | rest]) do
      case rest do
        [] -> numbers
        _ -> numbers |> Enum.chunk_every(Enum.product(rest)) |> Enum.map(&nested(&1, rest))
      end
    end
  end
end
