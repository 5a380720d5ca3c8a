defmodule Mlx.Backend.Operands do
  @moduledoc false
  # From the arguments of a callback to one posted program and back: operands become inputs, the
  # tree of the lowering becomes instructions, and the promise becomes the template's data.

  alias Mlx.Backend, as: B
  alias Mlx.Backend.{Bits, Fallback, Programs}
  alias Mlx.{Device, Lower, Native, Stream, Type}
  alias Mlx.Program.Builder
  alias Nx.Tensor, as: T

  # Compares what MLX made with what Nx announced, at the price of waiting for every operation.
  @check Application.compile_env(:mlx, :check_results, false)

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
  Posts `trees`, whose leaves are the positions of `refs`, and puts the results into `out`: a
  template, or a tuple of them for a list of trees. `worker` runs what has no operands.
  """
  def run(trees, out, refs, worker \\ nil),
    do: build(trees, out, refs, Builder.new(length(refs)), worker)

  @doc "As `run/4`, and keeps the program under `key` for the next time."
  def run_new(key, tree, out, refs, worker \\ nil) do
    {slot, builder} = Builder.add(Builder.new(length(refs)), tree)
    fill(out, Programs.run(key, Builder.instructions(builder), [slot], refs, worker))
  end

  defp build(trees, out, refs, builder, worker) do
    {slots, builder} = Enum.map_reduce(List.wrap(trees), builder, &Builder.add(&2, &1))
    post(Builder.instructions(builder), slots, out, refs, worker)
  end

  @doc """
  Posts `trees`, and raises now what Nx raises for the values of the operands `leaves` of `name`,
  a callback or block.
  """
  def run_guarded(name, trees, out, leaves, refs),
    do: guarded(name, trees, out, leaves, refs, Builder.new(length(refs)), nil)

  defp guarded(name, trees, out, leaves, refs, builder, worker) do
    case Lower.guard(name, out, leaves, trees) do
      nil ->
        build(trees, out, refs, builder, worker)

      {predicate, exception} ->
        {slots, builder} =
          Enum.map_reduce([predicate | List.wrap(trees)], builder, &Builder.add(&2, &1))

        [raise? | results] = Native.run(Builder.instructions(builder), slots, refs, worker)
        if Native.to_binary(raise?, nil) != <<0>>, do: raise(exception)
        fill(out, results)
    end
  end

  defp post(instructions, slots, out, refs, worker),
    do: fill(out, Native.run(instructions, slots, refs, worker))

  @doc "The template, or tuple of templates, with `refs` as its data."
  def fill(out, refs)

  if @check do
    def fill(%T{} = out, [ref]), do: put(out, checked(out, ref))
  else
    def fill(%T{} = out, [ref]), do: put(out, ref)
  end

  def fill(out, refs) when is_tuple(out) do
    out
    |> Tuple.to_list()
    |> Enum.zip_with(refs, &fill(&1, [&2]))
    |> List.to_tuple()
  end

  if @check do
    defp checked(%T{type: type, shape: shape}, ref) do
      held = Type.held!(type)

      case Native.describe(ref) do
        {^held, ^shape} ->
          ref

        made ->
          raise "an operation announced as #{inspect({type, shape})} made #{inspect(made)}"
      end
    end
  end

  defp put(out, ref), do: %{out | data: %B{ref: ref}}

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
    inputs = Enum.reject(tensors, &constant?/1)
    worker = worker(tensors)
    refs = Enum.map(inputs, &ref(&1, worker))

    builder = Builder.new(length(inputs))
    {leaves, {_, builder}} = zip_map(args, kinds, {0, builder}, &import_leaf/2)
    tree = Lower.lower(name, out, leaves)
    guarded(name, tree, out, leaves, refs, builder, worker)
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
