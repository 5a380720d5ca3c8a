defmodule Mlx.Backend do
  @moduledoc """
  An `Nx.Backend` that keeps tensors in MLX arrays, on a CPU or a GPU.

      config :nx, default_backend: Mlx.Backend

  or for a script `Nx.global_default_backend({Mlx.Backend, device: :gpu})`. Operations then run on
  the device that holds their tensors.

  ## Options

    * `:device` - where tensors are created: `:cpu`, `:gpu` or `{:gpu, index}`. Defaults to
      `Mlx.Device.default/0`.
    * `:stream` - an `Mlx.Stream` that they are created on, in place of the process's.
    * `:bounds_check`, `:detect_non_finite`, `:check_results`, `:dispatch` - flags, see `Mlx`. They go
      with the tensors that are created, and with what operations make of these. Compiled functions
      have their own.

  ## Results are promises

  An operation posts its instructions to the worker of its device and returns at once. What it
  computes is waited for when it is read: by `Nx.to_binary/1` and everything built on it, by
  inspecting, by transferring. An operation that fails on the device raises `Mlx.Error` there.

  ## Operands

  Tensors of `Nx.BinaryBackend` are copied to the device of the others. Tensors of other backends
  cannot be mixed with those of this one.

  ## Types

  All of Nx. On GPUs `f64` is computed by the CPU.

  MLX has no integers below 8 bits and no 8-bit floats. `u2`, `u4`, `s2`, `s4`, `f8` and `f8_e4m3fn`
  take a byte per element on the device; integers are computed in 8 bits and wrap in their own, and
  8-bit floats are computed in `f32` and rounded as Nx does it. `Nx.to_binary/1` and
  `Nx.from_binary/3` see the packed bits that Nx specifies.

  `c128` is the exception: its tensors stay on `Nx.BinaryBackend`, see "Fallback". Making one, or
  an operation on one and tensors of this backend, such as `Nx.fft/2` of `f64`, falls back, and
  results of other types come back to the device. What is computed from `c128` tensors alone is
  computed, and stays, there; positions for `Nx.slice/4` and `Nx.gather/3` of one have to be on
  `Nx.BinaryBackend` as well.

  ## Where Nx leaves the result open

    * `Nx.gather/3` and `Nx.take/3` read the nearest element for a position outside the tensor;
      `Nx.indexed_add/4` and `Nx.indexed_put/4` drop what would be written outside. Negative
      positions are outside. The flag `bounds_check: true` has them raise, see `Mlx`.
    * Of several updates of one element `Nx.indexed_put/4` keeps the last on the CPU and any on a
      GPU.
    * Integers: `x / 0` is -1 in two's complement, `x rem 0` is `x`, shifts by the width or more
      shift everything out, negative powers are reciprocals cut off to integers. Nothing raises.
    * Half precision beside integers of 16 bits and more is computed in single.
    * Conversions to `bf16` round to the nearest; constants are cut off, as Nx does it.
    * `Nx.sign/1` of NaN is NaN, and so is `Nx.clip/3` of NaN.

  ## Reductions by a function

  The function of `Nx.reduce/4` and `Nx.window_reduce/5` is traced, as the body of a `defn` is, and
  folded on the device in the order that Nx defines. One that is nothing but `Nx.add/2`,
  `Nx.multiply/2`, `Nx.max/2` or `Nx.min/2` becomes the reduction of that kind. One that cannot be
  traced, because it reads values or computes with tensors of its own, is a case for the fallback.

  ## Support

  How each operation is computed. What is composed is one program all the same, posted at once. `f64`
  and linear algebra run on the CPU also where the device is a GPU.

  #{Mlx.Lower.Support.markdown()}
  ## Fallback

  Every operation of Nx runs on the device, but

    * what has the type `c128`, which MLX lacks,
    * reductions by a function that cannot be traced,
    * and operations that a later version of Nx adds.

  What happens instead is a policy, `config :mlx, fallback: :warn`:

    * `:warn` (default) computes with `Nx.BinaryBackend` and logs a warning
    * `:silent` does so without a word
    * `:raise` raises `Mlx.Error`

  Each emits the event `[:mlx, :fallback]`, see `Mlx.Telemetry`.

  ## Transfer

  `Nx.backend_transfer/2` to the device where a tensor is returns the tensor. To another device of
  this backend, and for `Nx.backend_copy/2`, the elements do not pass through the BEAM. A copy is a
  tensor of its own: deallocating either leaves the other.

  ## Pointers

  `Nx.to_pointer/2` waits until the tensor is computed, and takes two options:

    * `:mode` - `:local` (default) for the tensor's address in this process, where it stays as long as
      it is held and not deallocated. The memory may be other tensors' as well, and is to be read
      only. Of a tensor on a GPU this is the address for the host, and the tensor's memory moves
      there. `:ipc` for a copy in POSIX shared memory, a new one at each call, which other processes
      can open by the pointer's `:handle`. It goes when the tensor is collected or deallocated, and
      when the VM ends; one that is killed leaves it behind, on Linux as `/dev/shm/mlx-*`.

    * `:permissions` - who may open the shared memory, as the mode of a file; `0o400` if left out.
      Where the system is not Linux, the process's mask takes away from it

  `Nx.from_pointer/5` copies, whatever the kind: what its owner writes later is not seen, and the
  memory may be freed once it returns. An address that is not memory of this process, shared memory
  that is gone, too small or not for this process to read, raise `Mlx.Error`. A pointer's
  `:data_size` must be what the type and the shape take, or `nil`.

  ## Inspection

  Tensors show their device and the reference of their array. Turn it off with
  `config :mlx, add_backend_on_inspect: false`, a compile-time option.
  """

  @behaviour Nx.Backend

  import Kernel, except: [inspect: 2]

  alias Mlx.Backend, as: B
  alias Mlx.Backend.{Bits, Fallback, Fold, Inspect, Operands, Pointer, Programs}
  alias Mlx.{Device, Flags, Lower, Native, NIF, Stream, Type}
  alias Nx.Tensor, as: T

  # The flags are those that the tensor was created with, and nil where there are none.
  @enforce_keys [:ref]
  defstruct [:ref, :flags]

  @type t :: %__MODULE__{ref: reference, flags: Flags.on() | nil}

  @flags Flags.names()
  @place [:device, :stream]

  ## Creation

  @impl true
  def init(opts) do
    {place, flags} =
      opts |> Keyword.validate!([:device, :stream | @flags]) |> Keyword.split(@place)

    _valid = flags(flags)
    device = place[:device] && Device.normalize!(place[:device])

    case place[:stream] do
      nil -> if device, do: [{:device, device} | flags], else: flags
      %Stream{device: own} = at when device in [nil, own] -> [device: own, stream: at] ++ flags
      other -> invalid_stream!(other, device)
    end
  end

  defp flags([]), do: nil
  defp flags([{place, _value} | opts]) when place in @place, do: flags(opts)

  defp flags(opts) do
    flags =
      for {name, value} <- Enum.reverse(opts), name in @flags, reduce: :off do
        flags ->
          Flags.set!(flags, name, value, "the option #{Kernel.inspect(name)} of Mlx.Backend")
      end

    if flags != :off, do: flags
  end

  defp invalid_stream!(stream, device) do
    raise ArgumentError,
          "the option :stream of Mlx.Backend must be an Mlx.Stream of the device, got: " <>
            "#{Kernel.inspect(stream)}#{if device, do: " for #{Kernel.inspect(device)}"}"
  end

  # Known by its bytes: as keys, 0.0 and -0.0 were one before OTP 27.
  @impl true
  def constant(%T{type: {:c, 128}} = out, number, _opts),
    do: Fallback.run(:constant, out, [number, []])

  def constant(%T{type: type} = out, number, opts),
    do: create(:constant, out, [number], Type.scalar(number, type), opts)

  @impl true
  def iota(%T{type: {:c, 128}} = out, axis, _opts), do: Fallback.run(:iota, out, [axis, []])
  def iota(out, axis, opts), do: create(:iota, out, [axis], axis, opts)

  @impl true
  def eye(%T{type: {:c, 128}} = out, _opts), do: Fallback.run(:eye, out, [[]])
  def eye(out, opts), do: create(:eye, out, [], nil, opts)

  @impl true
  def from_binary(%T{type: {:c, 128}} = out, binary, _opts),
    do: Fallback.run(:from_binary, out, [binary, []])

  def from_binary(%T{type: type, shape: shape} = out, binary, opts) do
    bits = if is_list(binary), do: :erlang.list_to_bitstring(binary), else: binary
    put(out, Bits.write(worker(opts), type, shape, bits), flags(opts))
  end

  defp create(name, %T{type: type, shape: shape} = out, args, known_by, opts) do
    key = {name, type, shape, known_by}
    worker = worker(opts)
    flags = Flags.current()

    made =
      case Programs.lookup(key) do
        nil -> Operands.run_new(key, Lower.lower(name, out, args), out, [], worker, flags)
        program -> Operands.fill(out, Native.run_program(program, [], worker, flags))
      end

    if flags == :off and opts == [],
      do: made,
      else: made |> Operands.verified(name, flags) |> Operands.keep(flags(opts))
  end

  defp worker([]), do: Device.worker(Device.default())
  defp worker(device: :cpu), do: Device.worker(:cpu)

  # Nx hands over options as they were given where it does not make a default of them.
  defp worker(opts) do
    opts = init(opts)

    case opts[:stream] do
      nil -> Device.worker(opts[:device] || Device.default())
      %Stream{worker: worker} -> worker
    end
  end

  defp put(%T{} = out, ref, flags), do: %{out | data: %B{ref: ref, flags: flags}}

  ## Transfer

  @impl true
  def backend_deallocate(%T{data: %B{ref: ref}}), do: Native.deallocate(ref)

  @impl true
  def backend_copy(tensor, Nx.Tensor, opts), do: backend_copy(tensor, Nx.BinaryBackend, opts)

  def backend_copy(%T{data: %B{ref: ref}} = tensor, B, opts),
    do: put(tensor, Native.copy_to(ref, worker(opts)), flags(opts))

  def backend_copy(tensor, backend, opts),
    do: backend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), opts)

  @impl true
  def backend_transfer(%T{data: %B{ref: ref}} = tensor, B, opts) do
    if NIF.worker_owns(worker(opts), ref),
      do: put(tensor, ref, flags(opts)),
      else: move(tensor, B, opts)
  end

  def backend_transfer(tensor, backend, opts), do: move(tensor, backend, opts)

  defp move(tensor, backend, opts) do
    moved = backend_copy(tensor, backend, opts)
    backend_deallocate(tensor)
    moved
  end

  @impl true
  def to_binary(%T{type: type, data: %B{ref: ref}} = tensor, limit),
    do: Bits.read(ref, type, held_shape(tensor), limit)

  # Vectorized axes lead the array's shape and are none of the tensor's.
  defp held_shape(%T{shape: shape, vectorized_axes: []}), do: shape

  defp held_shape(%T{shape: shape, vectorized_axes: axes}),
    do: List.to_tuple(Keyword.values(axes) ++ Tuple.to_list(shape))

  @impl true
  def to_batched(%T{shape: batch_shape} = out, %T{shape: shape} = tensor, opts) do
    {batch, size} = {elem(batch_shape, 0), elem(shape, 0)}
    {full, rest} = {div(size, batch), rem(size, batch)}
    more = if rest > 0 and opts[:leftover] == :repeat, do: 1, else: 0

    Elixir.Stream.map(0..(full + more - 1)//1, fn
      ^full ->
        last = rows(%{out | shape: put_elem(batch_shape, 0, rest)}, tensor, full * batch)
        first = rows(%{out | shape: put_elem(batch_shape, 0, batch - rest)}, tensor, 0)
        concatenate(out, [last, first], 0)

      index ->
        rows(out, tensor, index * batch)
    end)
  end

  defp rows(%T{shape: shape} = out, tensor, start) do
    starts = [start | List.duplicate(0, tuple_size(shape) - 1)]
    slice(out, tensor, starts, Tuple.to_list(shape), List.duplicate(1, tuple_size(shape)))
  end

  @impl true
  def inspect(tensor, opts), do: Inspect.inspect(tensor, opts)

  @impl true
  def from_pointer(pointer, type, shape, backend_opts, opts) do
    backend_opts = init(backend_opts)

    pointer
    |> Pointer.from_pointer(type, shape, worker(backend_opts), opts)
    |> Operands.keep(flags(backend_opts))
  end

  @impl true
  defdelegate to_pointer(tensor, opts), to: Pointer

  @impl true
  # By way of c128.
  def block(%Nx.Block.IRFFT{} = struct, %T{type: {:f, 64}}, args, fun),
    do: Fallback.block(struct, args, fun)

  def block(struct, output, args, fun) do
    if Fallback.c128?([output | args]) do
      Fallback.block(struct, args, fun)
    else
      {leaves, tensors} = Operands.leaves(args)
      {flags, own} = Operands.flags(tensors)

      case Lower.block(struct, output, Operands.checked(flags, struct, leaves)) do
        :default ->
          apply(fun, [struct | args])

        trees ->
          refs = Operands.refs(tensors)

          struct
          |> Operands.run_guarded(trees, output, leaves, refs, flags)
          |> Operands.keep(own)
      end
    end
  end

  ## Reductions by a function of the caller's

  @impl true
  def reduce(out, t, acc, opts, fun) do
    if Fallback.c128?([out, t, acc]),
      do: Fallback.run(:reduce, out, [t, acc, opts, fun]),
      else: Fold.reduce(out, t, acc, opts, fun)
  end

  @impl true
  def window_reduce(out, t, acc, dims, opts, fun) do
    if Fallback.c128?([out, t, acc]),
      do: Fallback.run(:window_reduce, out, [t, acc, dims, opts, fun]),
      else: Fold.window_reduce(out, t, acc, dims, opts, fun)
  end

  ## Operations, generated from the lowering
  #
  # A binary operation whose operands are on this backend already, as nearly always, becomes
  #
  #     def add(%T{type: type, shape: shape} = out, %T{data: %B{ref: ref0, flags: nil}} = arg0, ...)
  #         when type != {:c, 128} do
  #       key = {:add, type, shape, {arg0.type, arg0.shape}, {arg1.type, arg1.shape}}
  #
  #       case Flags.current() do
  #         :off ->
  #           case Programs.lookup(key) do
  #             nil ->
  #               tree = Lower.lower(:add, out, [%{arg0 | data: 0}, %{arg1 | data: 1}])
  #               Operands.run_new(key, tree, out, [ref0, ref1], nil, :off)
  #
  #             program ->
  #               Operands.fill(out, Native.run_program(program, [ref0, ref1], nil, :off))
  #           end
  #
  #         flags ->
  #           Operands.run_flagged(flags, :add, key, out, leaves, [ref0, ref1])
  #       end
  #     end
  #
  # and everything else goes through `Operands.import_and_run/4`.

  for {name, arity} <- Nx.Backend.behaviour_info(:callbacks),
      name not in Lower.not_computing(),
      name not in [:constant, :iota, :eye, :reduce, :window_reduce] do
    kinds = Operands.kinds(name, arity - 1)
    args = Macro.generate_arguments(arity - 1, __MODULE__)

    if :list not in kinds and name != :triangular_solve do
      tensors = for {:tensor, arg} <- Enum.zip(kinds, args), do: arg
      refs = tensors |> length() |> Macro.generate_arguments(Mlx.Backend.Operands)
      slots = tensors |> Enum.with_index() |> Map.new()
      names = tensors |> Enum.zip(refs) |> Map.new()

      patterns =
        for {kind, arg} <- Enum.zip(kinds, args) do
          if kind == :tensor,
            do: quote(do: %T{data: %B{ref: unquote(names[arg]), flags: nil}} = unquote(arg)),
            else: arg
        end

      leaves =
        for {kind, arg} <- Enum.zip(kinds, args) do
          if kind == :tensor,
            do: quote(do: %{unquote(arg) | data: unquote(slots[arg])}),
            else: arg
        end

      # All that a lowering looks at; the names of axes and the values of elements are not.
      parts =
        for {kind, arg} <- Enum.zip(kinds, args) do
          if kind == :tensor,
            do: quote(do: {unquote(arg).type, unquote(arg).shape}),
            else: arg
        end

      @impl true
      def unquote(name)(%T{type: type, shape: shape} = out, unquote_splicing(patterns))
          when type != {:c, 128} do
        key = {unquote(name), type, shape, unquote_splicing(parts)}

        case Flags.current() do
          :off ->
            case Programs.lookup(key) do
              nil ->
                tree = Lower.lower(unquote(name), out, [unquote_splicing(leaves)])
                Operands.run_new(key, tree, out, [unquote_splicing(refs)], nil, :off)

              program ->
                refs = [unquote_splicing(refs)]
                Operands.fill(out, Native.run_program(program, refs, nil, :off))
            end

          flags ->
            leaves = [unquote_splicing(leaves)]
            refs = [unquote_splicing(refs)]
            Operands.run_flagged(flags, unquote(name), key, out, leaves, refs)
        end
      end
    end

    @impl true
    def unquote(name)(out, unquote_splicing(args)) do
      Operands.import_and_run(unquote(name), out, [unquote_splicing(args)], unquote(kinds))
    end
  end
end
