defmodule Mlx.Backend.Operands do
  @moduledoc false
  # From the arguments of a callback to one posted program and back: operands become inputs, the
  # tree of the lowering becomes instructions, and the promise becomes the template's data.

  alias Mlx.Backend, as: B
  alias Mlx.Backend.{Bits, Fallback, Programs}
  alias Mlx.{Device, Flags, Lower, Native, Stream, Type}
  alias Mlx.Lower.Check
  alias Mlx.Program.Builder
  alias Nx.Tensor, as: T

  @doc "What each argument after `out` is: a tensor, a list with tensors in it, or a plain term."
  @spec kinds(atom, non_neg_integer) :: [:tensor | :list | :term]
  def kinds(name, arity)
  def kinds(name, 2) when name in [:concatenate, :stack], do: [:list, :term]
  def kinds(:slice, 4), do: [:tensor, :list, :term, :term]
  def kinds(:put_slice, 3), do: [:tensor, :list, :tensor]
  def kinds(:broadcast, 3), do: [:tensor, :term, :term]
  def kinds(:dot, 6), do: [:tensor, :term, :term, :tensor, :term, :term]
  def kinds(name, 3) when name in [:clip, :select], do: [:tensor, :tensor, :tensor]

  def kinds(name, 3) when name in [:pad, :gather, :conv, :triangular_solve],
    do: [:tensor, :tensor, :term]

  def kinds(name, 4) when name in [:indexed_add, :indexed_put],
    do: [:tensor, :tensor, :tensor, :term]

  def kinds(:reduce, 4), do: [:tensor, :tensor, :term, :term]
  def kinds(:window_reduce, 5), do: [:tensor, :tensor, :term, :term, :term]

  def kinds(name, 5) when name in [:window_scatter_max, :window_scatter_min],
    do: [:tensor, :tensor, :tensor, :term, :term]

  def kinds(name, 3) when name in [:window_sum, :window_product, :window_max, :window_min],
    do: [:tensor, :term, :term]

  def kinds(name, 2)
      when name in [:squeeze, :transpose, :reverse, :fft, :ifft, :sort, :argsort] or
             name in [:argmax, :argmin, :all, :any, :sum, :product, :reduce_max, :reduce_min],
      do: [:tensor, :term]

  def kinds(_name, arity) when arity in [1, 2], do: List.duplicate(:tensor, arity)

  @doc """
  Posts `tree`, whose leaves are the positions of `refs`, puts the result into the template `out`,
  and keeps the program under `key` for the next time. `worker` runs what has no operands.
  """
  def run_new(key, tree, out, refs, worker, flags) do
    {slot, builder} = Builder.add(Builder.new(length(refs)), tree)
    fill(out, Programs.run(key, Builder.instructions(builder), [slot], refs, worker, flags))
  end

  @doc """
  What the callback `name` does where flags are on. A program with checks in it is kept by nobody.
  """
  def run_flagged(flags, name, key, out, leaves, refs) do
    case Flags.eager(flags) do
      :off ->
        case Programs.lookup(key) do
          nil -> run_new(key, Lower.lower(name, out, leaves), out, refs, nil, flags)
          program -> fill(out, Native.run_program(program, refs, nil, flags))
        end

      checks ->
        tree = Check.lower(checks, name, out, leaves)
        build(tree, out, refs, Builder.new(length(refs)), nil, flags)
    end
    |> verified(name, flags)
  end

  defp build(trees, out, refs, builder, worker, flags) do
    {slots, builder} = Enum.map_reduce(List.wrap(trees), builder, &Builder.add(&2, &1))
    fill(out, Native.run(Builder.instructions(builder), slots, refs, worker, flags))
  end

  @doc """
  Posts `trees`, a list of them for a tuple of templates, and raises now what Nx raises for the values
  of the operands `leaves` of `name`, a callback or block.
  """
  def run_guarded(name, trees, out, leaves, refs, flags),
    do: guarded(name, trees, out, leaves, refs, Builder.new(length(refs)), nil, flags)

  defp guarded(name, trees, out, leaves, refs, builder, worker, flags) do
    checked = Check.results(Flags.eager(flags), name, out, leaves, trees)

    case Lower.guard(name, out, leaves, trees) do
      nil ->
        build(checked, out, refs, builder, worker, flags)

      {predicate, exception} when checked == trees ->
        {slots, builder} =
          Enum.map_reduce([predicate | List.wrap(trees)], builder, &Builder.add(&2, &1))

        [raise? | results] = Native.run(Builder.instructions(builder), slots, refs, worker, flags)
        if Native.to_binary(raise?, nil) != <<0>>, do: raise(exception)
        fill(out, results)

      # What Nx says comes first.
      {predicate, exception} ->
        {slot, asked} = Builder.add(builder, predicate)
        [raise?] = Native.run(Builder.instructions(asked), [slot], refs, worker, :off)
        if Native.to_binary(raise?, nil) != <<0>>, do: raise(exception)
        build(checked, out, refs, builder, worker, flags)
    end
    |> verified(name, flags)
  end

  @doc "The template, or tuple of templates, with `refs` as its data."
  def fill(out, refs)
  def fill(%T{} = out, [ref]), do: put(out, ref)

  def fill(out, refs) when is_tuple(out) do
    out
    |> Tuple.to_list()
    |> Enum.zip_with(refs, &fill(&1, [&2]))
    |> List.to_tuple()
  end

  defp put(out, ref), do: %{out | data: %B{ref: ref}}

  ## Flags

  @doc "The flags that count for these operands, and those that go on to the results."
  def flags(tensors), do: flags(tensors, :off)

  defp flags([%T{data: %B{flags: flags}} | tensors], own) when flags != nil,
    do: flags(tensors, Flags.merge(own, flags))

  defp flags([_tensor | tensors], own), do: flags(tensors, own)
  defp flags([], :off), do: {Flags.current(), nil}
  defp flags([], own), do: {Flags.merge(Flags.current(), own), own}

  @doc "The leaves of the callback or block `name`, with what the flags have checked of them."
  def checked(flags, name, leaves), do: Check.operands(Flags.eager(flags), name, leaves)

  @doc "The tensor, or tuple of them, with flags that go on with it."
  def keep(made, nil), do: made
  def keep(%T{data: %B{} = data} = made, flags), do: %{made | data: %{data | flags: flags}}

  def keep(made, flags) when is_tuple(made),
    do: made |> Tuple.to_list() |> Enum.map(&keep(&1, flags)) |> List.to_tuple()

  def keep(made, _flags), do: made

  # Compares what MLX made with what Nx announced, at the price of waiting for the operation.
  @doc "The results of the callback or block `name`, looked at if the flags say so."
  def verified(made, _name, :off), do: made
  def verified(made, _name, %Flags{check_results: false}), do: made

  def verified(made, name, flags) when is_tuple(made) do
    for t <- Tuple.to_list(made), do: verified(t, name, flags)
    made
  end

  def verified(%T{type: type, shape: shape, data: %B{ref: ref}} = made, name, _flags) do
    announced = {Type.held!(type), shape}

    case Native.describe(ref) do
      ^announced -> made
      other -> raise_wrong(name, announced, other)
    end
  end

  defp raise_wrong(name, announced, made) do
    raise Mlx.Error,
      kind: :wrong_result,
      op: Check.name(name),
      message:
        "it was announced as #{inspect(announced)}, and made #{inspect(made)}; this is a bug in " <>
          "Mlx, please report it"
  end

  ## Operands

  @doc "The arguments with tensors as leaves, and the tensors in the order of their slots."
  def leaves(args) do
    {leaves, {_, tensors}} = Enum.map_reduce(args, {0, []}, &leaf/2)
    {leaves, Enum.reverse(tensors)}
  end

  defp leaf(%T{} = t, {slot, tensors}), do: {%{t | data: slot}, {slot + 1, [t | tensors]}}
  defp leaf(term, acc), do: {term, acc}

  @doc "The arrays of `tensors`; those elsewhere are copied to the device of the first array."
  def refs(tensors) do
    worker = worker(tensors)

    Enum.map(tensors, fn
      %T{data: %B{ref: ref}} -> ref
      t -> import_tensor(t, worker)
    end)
  end

  @doc """
  Runs the callback `name` with operands that may be on another backend. Scalars of those become
  constants of the program; larger ones are copied.
  """
  def import_and_run(name, out, args, kinds) do
    if Fallback.c128?([out | args]),
      do: Fallback.run(name, out, args),
      else: import_and_lower(name, out, args, kinds)
  end

  defp import_and_lower(name, out, args, kinds) do
    tensors = tensors(args, kinds)
    {flags, own} = flags(tensors)
    inputs = Enum.reject(tensors, &constant?/1)
    worker = worker(tensors)
    refs = Enum.map(inputs, &ref(&1, worker))

    builder = Builder.new(length(inputs))
    {leaves, {_, builder}} = zip_map(args, kinds, {0, builder}, &import_leaf/2)
    tree = Lower.lower(name, out, checked(flags, name, leaves))
    name |> guarded(tree, out, leaves, refs, builder, worker, flags) |> keep(own)
  end

  defp tensors(args, kinds) do
    Enum.zip(args, kinds)
    |> Enum.flat_map(fn
      {t, :tensor} -> [t]
      {list, :list} -> Enum.filter(list, &is_struct(&1, T))
      {_, :term} -> []
    end)
  end

  defp zip_map(args, kinds, acc, fun) do
    Enum.zip(args, kinds)
    |> Enum.map_reduce(acc, fn
      {t, :tensor}, acc -> fun.(t, acc)
      {list, :list}, acc -> Enum.map_reduce(list, acc, fun)
      {term, :term}, acc -> {term, acc}
    end)
  end

  defp import_leaf(%T{} = t, {slot, builder}) do
    if constant?(t) do
      {constant, builder} = Builder.add(builder, constant(t))
      {%{t | data: constant}, {slot, builder}}
    else
      {%{t | data: slot}, {slot + 1, builder}}
    end
  end

  defp import_leaf(number, acc) when is_integer(number), do: {number, acc}

  defp constant?(%T{data: %B{}}), do: false
  defp constant?(%T{shape: shape}), do: shape == {}

  defp constant(%T{type: type} = t),
    do: {{:constant, Type.held!(type), Type.element(Nx.to_binary(t), type)}, []}

  defp ref(%T{data: %B{ref: ref}}, _worker), do: ref
  defp ref(t, worker), do: import_tensor(t, worker)

  defp import_tensor(%T{type: type, shape: shape} = t, worker),
    do: Bits.write(worker, type, shape, Nx.to_binary(t))

  # On the device of the first array: the process's stream, or where that array is.
  defp worker(tensors) do
    ref =
      Enum.find_value(tensors, fn
        %T{data: %B{ref: ref}} -> ref
        _ -> nil
      end)

    case {ref, Stream.default()} do
      {nil, _} ->
        Device.worker(Device.default())

      {ref, nil} ->
        Mlx.NIF.worker_of(ref)

      {ref, stream} ->
        if Native.device(ref) == stream.device, do: stream.worker, else: Mlx.NIF.worker_of(ref)
    end
  end
end
