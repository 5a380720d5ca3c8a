defmodule Mlx.Native do
  @moduledoc false
  # Posts to workers, waits for those answers that are data, and raises what went wrong. Everything
  # above talks to the native side through here, and the only `receive` of the project is here.

  alias Mlx.{Error, Event, Flags, NIF, Source}

  @type array :: NIF.array()
  @type worker :: NIF.worker()
  @type program :: NIF.program()

  # How often what there was no memory for is tried again.
  @tries 2

  defmacrop answered(ref) do
    quote do
      receive do
        {^unquote(ref), {:ok, value}} -> value
        {^unquote(ref), {:error, failure}} -> raise_failure(failure)
      end
    end
  end

  # The reference is made in the very function that receives, which lets the BEAM skip the messages
  # that were in the mailbox before it. Hence a macro: `await(eval_async, [arrays])` becomes
  # `ref = make_ref()`, `NIF.eval_async(ref, arrays)` and the `receive`.
  # No timeout: a worker answers everything it was posted, also when it is stopped, and a late
  # answer would stay in the mailbox for good.
  defmacrop await(nif, args) do
    quote do
      case outcome(unquote(nif), unquote(args)) do
        {:ok, value} -> value
        {:error, failure} -> raise_failure(failure)
      end
    end
  end

  # Nor is there a `try` around it, which would have the BEAM look through the mailbox after all.
  defmacrop outcome(nif, args) do
    {name, _, _} = nif

    quote do
      ref = make_ref()

      case NIF.unquote(name)(ref, unquote_splicing(args)) do
        :ok -> receive do: ({^ref, outcome} -> outcome)
        {:error, _failure} = error -> error
      end
    end
  end

  # A run happens on the worker that is given, if any of its operands is on that device, and else
  # where the first operand is. The process's stream stands in for one that is not given, and so do
  # its flags, for callers that have not asked for them themselves.

  @doc "Runs instructions at once: an eager operation. The results are promises."
  @spec run(NIF.instructions(), [non_neg_integer], [array], worker | nil, Flags.t() | nil) ::
          [array]
  def run(instructions, outputs, inputs, worker \\ nil, flags \\ nil) do
    worker = worker || stream_worker()

    case NIF.run(worker, inside_first(instructions, true), outputs, inputs) do
      :busy ->
        make_room(worker, inputs)
        run(instructions, outputs, inputs, worker, flags)

      :scattered ->
        {inputs, worker} = gather(inputs, worker)
        run(instructions, outputs, inputs, worker, flags)

      posted ->
        promised(posted, flags)
    end
  end

  @doc """
  Checks a program once. `inputs` is their number, or their types and shapes to be checked at each
  run. Failures of its runs name `source`. Unless `fuse?`, its operations are left to MLX one by one.
  """
  @spec build(
          non_neg_integer | [{Mlx.Array.type(), tuple}],
          NIF.instructions(),
          [non_neg_integer],
          Source.t() | nil,
          boolean
        ) :: program
  def build(inputs, instructions, outputs, source \\ nil, fuse? \\ true) do
    instructions = inside_first(instructions, fuse?)

    case NIF.program_new(inputs, instructions, outputs, Source.label(source), fuse?) do
      {:ok, program} -> program
      {:error, failure} -> raise_failure(failure)
    end
  end

  # Programs inside of operations are built before those that hold them, so that the native side
  # decodes none inside of another: its stack is small, and they may be nested deep. Whatever is no
  # instruction is left for the native side to refuse.
  defp inside_first([{op, slots} | rest], fuse?) when is_tuple(op) do
    op = op |> Tuple.to_list() |> Enum.map(&attribute(&1, fuse?)) |> List.to_tuple()
    [{op, slots} | inside_first(rest, fuse?)]
  end

  defp inside_first([instruction | rest], fuse?), do: [instruction | inside_first(rest, fuse?)]
  defp inside_first(rest, _fuse?), do: rest

  defp attribute({inputs, instructions, outputs}, fuse?)
       when is_integer(inputs) and is_list(instructions) and is_list(outputs),
       do: build(inputs, instructions, outputs, nil, fuse?)

  defp attribute(other, _fuse?), do: other

  @doc "Runs a program. The results are promises."
  @spec run_program(program, [array], worker | nil, Flags.t() | nil) :: [array]
  def run_program(program, inputs, worker \\ nil, flags \\ nil) do
    worker = worker || stream_worker()

    case NIF.program_run(worker, program, inputs) do
      :busy ->
        make_room(worker, inputs)
        run_program(program, inputs, worker, flags)

      :scattered ->
        {inputs, worker} = gather(inputs, worker)
        run_program(program, inputs, worker, flags)

      posted ->
        promised(posted, flags)
    end
  end

  @doc """
  Runs a program that tells of hooks and asks for answers, and waits for its results.

  `handler` is called with `:hook` or `:call`, the number of it in the program, and arrays; for a
  `:call` it answers arrays of the worker's device. What it raises is raised here, once the run is
  given up.
  """
  @spec attend(
          program,
          [array],
          worker,
          (:hook | :call, non_neg_integer, [array] -> term),
          Flags.t() | nil
        ) :: [array]
  def attend(program, inputs, worker, handler, flags \\ nil) do
    ref = make_ref()

    case NIF.program_attend_async(ref, worker, program, inputs) do
      {:ok, run} ->
        ref |> attended(run, worker, handler) |> settle(flags)

      :scattered ->
        {inputs, worker} = gather(inputs, worker)
        attend(program, inputs, worker, handler, flags)

      {:error, failure} ->
        raise_failure(failure)
    end
  end

  defp attended(ref, run, worker, handler) do
    receive do
      {^ref, {:hook, id, arrays}} ->
        handled(ref, run, fn -> handler.(:hook, id, arrays) end)
        attended(ref, run, worker, handler)

      {^ref, {:call, id, arrays}} ->
        handled(ref, run, fn -> answer(run, handler.(:call, id, arrays), worker) end)
        attended(ref, run, worker, handler)

      {^ref, {:ok, arrays}} ->
        if NIF.run_pressure(run), do: collect(arrays)
        arrays

      {^ref, {:error, failure}} ->
        raise_failure(failure)
    end
  end

  defp answer(run, arrays, worker) do
    with :scattered <- NIF.run_answer(run, arrays),
         do: :ok = NIF.run_answer(run, Enum.map(arrays, &on(&1, worker)))
  end

  defp handled(ref, run, handle) do
    handle.()
  catch
    kind, reason ->
      NIF.run_abandon(run)
      ended(ref)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  # Nothing of a run stays in the mailbox.
  defp ended(ref) do
    receive do
      {^ref, {outcome, _}} when outcome in [:ok, :error] -> :ok
      {^ref, _} -> ended(ref)
    end
  end

  @doc "An array with a copy of the binary's bytes."
  @spec from_binary(worker, Mlx.Array.type(), tuple, binary) :: array
  def from_binary(worker, type, shape, binary) do
    case NIF.from_binary(worker, type, shape, binary) do
      :busy ->
        make_room(worker, [])
        from_binary(worker, type, shape, binary)

      posted ->
        hd(promised(posted, nil))
    end
  end

  @doc "The values, at most `limit` elements of them. Waits."
  @spec to_binary(array, non_neg_integer | nil) :: binary
  def to_binary(array, limit \\ nil), do: to_binary(array, limit, @tries)

  defp to_binary(array, limit, tries) do
    case outcome(to_binary_async, [array, limit]) do
      {:ok, binary} ->
        binary

      {:error, failure} ->
        make_memory(failure, tries)
        to_binary(array, limit, tries - 1)
    end
  end

  @doc "Computes the arrays and waits."
  @spec eval([array]) :: :ok
  def eval([]), do: :ok

  def eval([first | rest] = arrays) do
    worker = NIF.worker_of(first)

    case Enum.split_with(rest, &NIF.worker_owns(worker, &1)) do
      {_, []} ->
        evaluate(arrays, @tries)

      {same, others} ->
        eval([first | same])
        eval(others)
    end
  end

  defp evaluate(arrays, tries) do
    case outcome(eval_async, [arrays]) do
      {:ok, true} ->
        :ok

      {:error, failure} ->
        make_memory(failure, tries)
        evaluate(arrays, tries - 1)
    end
  end

  # What was refused for want of memory can be tried again, once garbage no longer holds any. The
  # BEAM may destroy what a collection found only some time after it.
  defp make_memory(failure, tries) when elem(failure, 0) == :out_of_memory and tries > 0 do
    :erlang.garbage_collect()
    Process.sleep(10)
  end

  defp make_memory(failure, _tries), do: raise_failure(failure)

  @doc "The type and the shape. Waits."
  @spec describe(array) :: {Mlx.Array.type(), tuple}
  def describe(array) do
    {type, dims} = await(describe_async, [array])
    {type, List.to_tuple(dims)}
  end

  @doc """
  An array of its own with the same values on the worker. If that is another one, waits until they
  are computed: no worker ever waits for another.
  """
  @spec copy_to(array, worker) :: array
  def copy_to(array, worker) do
    if NIF.worker_owns(worker, array),
      do: hd(run([], [0], [array])),
      else: hd(promised(await(copy_async, [array, worker]), nil))
  end

  # The array, or its copy on the worker.
  defp on(array, worker),
    do: if(NIF.worker_owns(worker, array), do: array, else: copy_to(array, worker))

  @doc "The address and the size in bytes of the array, which stays there until it is freed. Waits."
  @spec address(array) :: {non_neg_integer, non_neg_integer}
  def address(array), do: await(address_async, [array])

  @doc "The name and the size in bytes of shared memory with a copy, which goes with the array. Waits."
  @spec share(array, non_neg_integer) :: {String.t(), non_neg_integer}
  def share(array, permissions), do: await(share_async, [array, permissions])

  @doc "An array with a copy of the memory at the address. Waits, for it may be freed then."
  @spec from_address(worker, Mlx.Array.type(), tuple, non_neg_integer) :: array
  def from_address(worker, type, shape, address),
    do: hd(promised(await(from_address_async, [worker, type, shape, address]), nil))

  @doc "An array with a copy of the shared memory of that name. Waits likewise."
  @spec from_shared(worker, Mlx.Array.type(), tuple, String.t()) :: array
  def from_shared(worker, type, shape, name),
    do: hd(promised(await(from_shared_async, [worker, type, shape, name]), nil))

  @doc "The device on which a run over these arrays happens, at least one of them."
  @spec home([array]) :: Mlx.Device.t()
  def home(arrays), do: arrays |> leader() |> device()

  @doc "Frees the array once what was posted before is done."
  @spec deallocate(array) :: :ok | :already_deallocated
  defdelegate deallocate(array), to: NIF

  @doc "Where the array is."
  @spec device(array) :: Mlx.Device.t()
  defdelegate device(array), to: NIF

  @doc "A short name of the array, for inspecting."
  @spec inspect_ref(array) :: String.t()
  def inspect_ref(array) do
    "#Reference<" <> numbers = inspect(array)
    [_node, _creation | rest] = numbers |> String.trim_trailing(">") |> String.split(".")
    Enum.join(rest, ".")
  end

  @doc "Starts a worker and waits until its stream is there."
  @spec start_worker(Mlx.Device.t()) :: worker
  def start_worker(device) do
    ref = make_ref()

    case NIF.worker_start_async(ref, device) do
      {:ok, worker} ->
        true = answered(ref)
        worker

      {:error, failure} ->
        raise_failure(failure)
    end
  end

  @doc "The process's stream, if it has one."
  @spec stream() :: Mlx.Stream.t() | nil
  def stream, do: Process.get({Mlx, :stream})

  @doc "Gives the process a stream, or none; answers the one before."
  @spec put_stream(Mlx.Stream.t() | nil) :: Mlx.Stream.t() | nil
  def put_stream(nil), do: Process.delete({Mlx, :stream})
  def put_stream(stream), do: Process.put({Mlx, :stream}, stream)

  defp stream_worker do
    case stream() do
      nil -> nil
      %{worker: worker} -> worker
    end
  end

  @doc "Waits until everything posted to the worker is computed."
  @spec sync(worker) :: :ok
  def sync(worker) do
    true = await(worker_sync_async, [worker])
    :ok
  end

  @doc "Panics inside a job of the worker, for tests."
  @spec panic(worker) :: no_return
  def panic(worker), do: await(worker_panic_async, [worker])

  @doc "The value of a native answer that did not need to wait."
  def answer!({:ok, value}), do: value
  def answer!({:error, failure}), do: raise_failure(failure)

  defp promised(arrays, flags) when is_list(arrays), do: settle(arrays, flags)

  defp promised({:pressure, arrays}, flags) do
    collect(arrays)
    settle(arrays, flags)
  end

  defp promised({:error, failure}, _flags), do: raise_failure(failure)

  # What the BEAM sees of an array is a few words, so its collector must be told.
  defp collect(arrays) do
    for array <- Enum.take(arrays, 1),
        do: Event.memory(%{cause: :pressure, device: device(array)})

    :erlang.garbage_collect()
  end

  # Results of one post, which fail together where they fail at a check.
  defp settle(arrays, nil), do: settle(arrays, Flags.current())
  defp settle(arrays, :off), do: arrays
  defp settle([], _flags), do: []

  defp settle([first | _] = arrays, flags) do
    cond do
      flags.dispatch == :sync -> eval(arrays)
      Flags.checks?(flags) -> describe(first)
      true -> :ok
    end

    arrays
  end

  # What another worker of the device has is borrowed, once it is computed. From another device only
  # scalars follow: a number in an expression becomes an array of the default device, whatever device
  # the rest is on. Anything larger is not moved behind the user's back.
  defp gather(inputs, worker) do
    home = leader(inputs)
    device = device(home)

    worker =
      if worker != nil and NIF.worker_device(worker) == device,
        do: worker,
        else: NIF.worker_of(home)

    inputs =
      for input <- inputs do
        cond do
          device(input) == device -> on(input, worker)
          scalar?(input) -> copy_to(input, worker)
          true -> raise_scattered(home, input)
        end
      end

    {inputs, worker}
  end

  # The array whose device counts.
  defp leader([first | rest] = arrays) do
    device = device(first)

    if Enum.all?(rest, &(device(&1) == device)),
      do: first,
      else: Enum.find(arrays, first, &(not scalar?(&1)))
  end

  defp scalar?(array), do: match?({_type, {}}, describe(array))

  @spec raise_scattered(array, array) :: no_return
  defp raise_scattered(first, second) do
    raise Error,
      kind: :invalid_argument,
      message:
        "the operands are on different devices, #{inspect(device(first))} and " <>
          "#{inspect(device(second))}: transfer one of them first, with Nx.backend_transfer/2"
  end

  # The queue is full: waits for its end, which bounds what a process can post ahead. Operands that
  # are elsewhere may have had the run go there.
  defp make_room(nil, [array | _]), do: sync(NIF.worker_of(array))

  defp make_room(worker, inputs) do
    sync(worker)

    with [array | _] <- inputs,
         false <- NIF.worker_owns(worker, array),
         do: sync(NIF.worker_of(array))
  end

  @spec raise_failure({atom, String.t() | nil, String.t(), String.t() | nil, binary | nil}) ::
          no_return
  # The words are Nx's, and so is the exception.
  defp raise_failure({:out_of_bounds, op, message, _operands, label}) do
    function = Source.from_label(label)
    place = if function, do: "\n\nOperation: #{op}" <> Error.place(:run, function), else: ""
    raise ArgumentError, message <> place
  end

  defp raise_failure({kind, op, message, operands, label}) do
    raise Error,
      kind: kind,
      op: op,
      message: message,
      operands: operands,
      function: Source.from_label(label),
      stage: label && :run
  end
end
