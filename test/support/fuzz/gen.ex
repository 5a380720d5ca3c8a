if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Gen do
    @moduledoc false
    # A case is a chain of calls, whose operands are leaves or results of calls before. It follows
    # from its seed and its number alone, so that one that ended the VM can be made again. As with
    # `:rand`, what is made so far is the process's state: a row of the table may put a view ahead of
    # an operand by adding a call.

    alias Mlx.Fuzz.{Calls, Values}
    alias Mlx.Fuzz.Values.Leaf

    defmodule Step do
      @moduledoc false
      defstruct [:module, :name, :args]
    end

    defmodule Ref do
      @moduledoc false
      # The result of the step of that number, or an element of it.
      defstruct [:step, :elem, :type, :shape]
    end

    defmodule Fun do
      @moduledoc false
      # A function of `Mlx.Fuzz.Control.functions/0`.
      defstruct [:name]
    end

    @shared 6

    @doc "The chain of calls number `index` of `seed`, of all functions or those named in `only`."
    def chain(seed, index, only \\ nil) do
      :rand.seed(:exsss, {:erlang.phash2({seed, index}), :erlang.phash2({index, seed}), seed})
      Process.put(__MODULE__, {0, [], []})
      Enum.each(1..length_of(), fn _ -> call(only) end)
      {_count, steps, _refs} = Process.delete(__MODULE__)
      Enum.reverse(steps)
    end

    defp length_of, do: Values.pick([1, 1, 1, 1, 2, 2, 3, 4, 6])

    defp call(only) do
      {module, name} = Calls.pick(only)
      args = Calls.args(name)
      add(module, name, if(Values.chance(8), do: Mlx.Fuzz.Wrong.args(name, args), else: args))
    end

    @doc "Adds a call and answers how its result is named, or `nil` where it has none of use."
    def add(module, name, args) do
      {count, steps, refs} = Process.get(__MODULE__)
      step = %Step{module: module, name: name, args: args}
      new = if Calls.tensors?(name), do: results(step, count), else: []
      Process.put(__MODULE__, {count + 1, [step | steps], new ++ refs})
      List.first(new)
    end

    # Types and shapes of the results, which Nx tells without computing.
    defp results(step, count) do
      {leaves, args} = leaves(step.args)
      templates = Enum.map(leaves, &template/1) |> List.to_tuple()

      fun = fn leaves -> apply(step.module, step.name, fill(args, leaves)) end

      case Nx.Defn.debug_expr_apply(fun, [templates]) do
        %Nx.Tensor{} = t ->
          [%Ref{step: count, type: t.type, shape: t.shape}]

        tuple when is_tuple(tuple) ->
          for {%Nx.Tensor{} = t, i} <- tuple |> Tuple.to_list() |> Enum.with_index(),
              do: %Ref{step: count, elem: i, type: t.type, shape: t.shape}

        _other ->
          []
      end
    rescue
      _error -> []
    end

    defp template(%Ref{type: type, shape: shape}), do: Nx.template(shape, type)
    defp template(%Leaf{} = leaf), do: leaf |> Values.template() |> Nx.to_template()

    # A tuple of three, for a list of pairs would be options.
    @doc "Operands among `args`, in order, and the arguments with their positions in their place."
    def leaves(args) do
      {args, {_, leaves}} = walk(args, {0, []})
      {Enum.reverse(leaves), args}
    end

    defp walk(%operand{} = leaf, {n, leaves}) when operand in [Leaf, Ref],
      do: {{:operand, n, :_}, {n + 1, [leaf | leaves]}}

    defp walk(list, acc) when is_list(list) do
      if Keyword.keyword?(list), do: {list, acc}, else: Enum.map_reduce(list, acc, &walk/2)
    end

    defp walk(other, acc), do: {other, acc}

    @doc "The arguments with the elements of the tuple `operands` at their positions."
    def fill({:operand, n, :_}, operands), do: elem(operands, n)
    def fill(%Fun{name: name}, _operands), do: Mlx.Fuzz.Control.functions()[name] |> elem(0)

    def fill(list, operands) when is_list(list),
      do: if(Keyword.keyword?(list), do: list, else: Enum.map(list, &fill(&1, operands)))

    def fill(other, _operands), do: other

    ## Operands

    @doc "Any operand."
    def any, do: of(nil)

    @doc "An operand of one of `types`, of a rank at least `least`."
    def of(types, least \\ 0) do
      case found(&(in?(types, &1.type) and tuple_size(&1.shape) >= least)) do
        nil -> types |> type() |> Values.leaf(Values.shape(least)) |> dressed(least)
        ref -> ref
      end
    end

    @doc "An operand of one of `types` and of this shape. `kind` is that of `Values.leaf/3`."
    def shaped(types, shape, kind \\ nil) do
      case kind == nil && found(&(in?(types, &1.type) and &1.shape == shape)) do
        ref when is_struct(ref) -> ref
        _ -> types |> type() |> Values.leaf(shape, kind)
      end
    end

    @doc "An operand that broadcasts with `other`, as a rule."
    def beside(other, types) do
      type = if Values.chance(60) and in?(types, other.type), do: [other.type], else: types
      shape = Values.beside(other.shape)
      if Values.chance(15), do: number(other.type), else: shaped(type, shape)
    end

    defp number({:c, _}), do: Values.pick([1, 0.5, Complex.new(1.0, -2.0)])
    defp number({kind, _}) when kind in [:u, :s], do: Values.pick([0, 1, 2, 3, -1, 2.5])
    defp number(_float), do: Values.pick([0, 1, 2, 0.5, -1.5, :nan, :infinity, :neg_infinity])

    defp found(wanted?) do
      {_count, _steps, refs} = Process.get(__MODULE__)
      if refs != [] and Values.chance(75), do: refs |> Enum.filter(wanted?) |> one()
    end

    defp one([]), do: nil
    defp one(refs), do: Enum.random(refs)

    defp in?(nil, _type), do: true
    defp in?(types, type), do: type in types

    defp type(nil), do: Values.type()

    defp type(types) do
      type = Values.type()
      if type in types, do: type, else: Enum.random(types)
    end

    # Now and then with names, as a view, shared by all processes, or vectorized.
    defp dressed(%Leaf{shape: shape} = leaf, least) do
      case :rand.uniform(30) do
        1 when shape != {} -> %{leaf | names: names(shape)}
        2 -> shared() || leaf
        3 when shape != {} -> add(Nx, :vectorize, [leaf, :v]) || leaf
        n when n <= 8 and shape != {} -> view(leaf)
        _ -> leaf
      end
      |> then(&if(&1.type == leaf.type and tuple_size(&1.shape) >= least, do: &1, else: leaf))
    end

    defp names(shape) do
      for axis <- 0..(tuple_size(shape) - 1),
          do: Values.pick([nil, Enum.at(~w(x y z w p q)a, axis)])
    end

    defp shared do
      k = Values.int(1..@shared)
      %{shared(k) | on: {:shared, k}}
    end

    @doc "The tensor number `k` of those that all processes use."
    def shared(k) do
      {type, shape} =
        elem(
          {{{:f, 32}, {3, 4}}, {{:s, 32}, {4}}, {{:bf, 16}, {2, 3}}, {{:u, 8}, {2, 2, 3}},
           {{:f, 64}, {3}}, {{:c, 64}, {2, 2}}},
          k - 1
        )

      size = Tuple.product(shape)
      numbers = Enum.map(0..(size - 1), &rem(&1 * 5, 7))
      data = for n <- numbers, into: <<>>, do: Values.encode(n, type)
      %Leaf{type: type, shape: shape, data: data, on: :mlx}
    end

    @doc "How many tensors are shared."
    def shared_count, do: @shared

    @doc "The leaf, seen in another way."
    def view(%Leaf{shape: shape} = leaf) do
      rank = tuple_size(shape)
      axes = Enum.to_list(0..(rank - 1))

      case :rand.uniform(4) do
        1 -> add(Nx, :transpose, [leaf, [axes: Enum.shuffle(axes)]])
        2 -> add(Nx, :reverse, [leaf, [axes: Enum.take_random(axes, Values.int(1..rank))]])
        3 -> add(Nx, :broadcast, [leaf, List.to_tuple([2 | Tuple.to_list(shape)])])
        4 -> add(Nx, :slice, slice(shape, leaf))
      end || leaf
    end

    @doc "The arguments of a slice of `operand` with fixed starts."
    def slice(shape, operand) do
      parts =
        for dim <- Tuple.to_list(shape) do
          length = Values.int(1..dim)
          {Values.int(0..(dim - length)), length, Values.pick([1, 1, 2])}
        end

      {starts, lengths, strides} =
        Enum.reduce(Enum.reverse(parts), {[], [], []}, fn {a, b, c}, {as, bs, cs} ->
          {[a | as], [b | bs], [c | cs]}
        end)

      [operand, starts, lengths, [strides: strides]]
    end
  end
end
