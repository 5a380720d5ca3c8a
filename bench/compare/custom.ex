defmodule Bench.Custom do
  @moduledoc """
  Workloads that are more than a function of tensors. Each takes the peer, its inputs as binaries,
  and options, and returns a function that does all the work once: it answers results to be compared,
  or figures.
  """
  alias Bench.{Engine, Functions}

  @type input :: {atom, tuple, binary}
  @type run :: (-> term) | {:none, String.t()}

  @doc "From a binary to a tensor; one number is read of it, so that it is there."
  @spec upload(Engine.t(), [input], keyword) :: run
  def upload(_engine, [{type, {size}, binary}], _opts) do
    fn ->
      t = Nx.from_binary(binary, type)
      number = Nx.to_binary(t[size - 1])
      Nx.backend_deallocate(t)
      [{type, number}]
    end
  end

  @doc "From a tensor to a binary."
  @spec download(Engine.t(), [input], keyword) :: run
  def download(_engine, [{type, _, _} = input], _opts) do
    t = Engine.tensor(input)
    fn -> [{type, Nx.to_binary(t)}] end
  end

  @doc "Processes that add and read, all at once. The result is one of theirs."
  @spec processes(Engine.t(), [input], keyword) :: run
  def processes(engine, inputs, opts) do
    [a, b] = Enum.map(inputs, &Engine.tensor/1)

    fn ->
      1..opts[:processes]
      |> Enum.map(fn _ ->
        Task.async(fn ->
          Engine.configure(engine)
          for(_ <- 1..opts[:adds], do: Nx.to_binary(Nx.add(a, b))) |> List.last()
        end)
      end)
      |> Task.await_many(:infinity)
      |> then(fn [first | _] -> [{:f32, first}] end)
    end
  end

  @doc "How long an add and its reading take while another process multiplies matrices."
  @spec latency(Engine.t(), [input], keyword) :: run
  def latency(engine, inputs, opts) do
    [add, matrix] = Enum.map(inputs, &Engine.tensor/1)

    fn ->
      beside(engine, matrix, fn -> samples(add, opts[:samples]) end)
    end
  end

  @doc "As `latency/3`, on a stream of its own where the peer has such a thing."
  @spec latency_stream(Engine.t(), [input], keyword) :: run
  def latency_stream(%{name: "mlx"} = engine, inputs, opts) do
    [add, matrix] = Enum.map(inputs, &Engine.tensor/1)
    stream = Mlx.Stream.new(:cpu)

    fn ->
      beside(engine, matrix, fn ->
        Mlx.Stream.with_default(stream, fn -> samples(add, opts[:samples]) end)
      end)
    end
  end

  def latency_stream(_engine, _inputs, _opts), do: {:none, "it has no streams of this kind"}

  defp beside(engine, matrix, fun) do
    me = self()

    other =
      Task.async(fn ->
        Engine.configure(engine)
        Nx.to_binary(Nx.dot(matrix, matrix))
        send(me, :busy)
        multiply(matrix)
      end)

    receive do: (:busy -> :ok)

    try do
      fun.()
    after
      send(other.pid, :enough)
      Task.await(other, :infinity)
    end
  end

  defp multiply(matrix) do
    receive do
      :enough -> :ok
    after
      0 ->
        Nx.to_binary(Nx.dot(matrix, matrix))
        multiply(matrix)
    end
  end

  # The median and the last but one in a hundred, in nanoseconds.
  defp samples(add, count) do
    times =
      for _ <- 1..count do
        start = System.monotonic_time()
        Nx.to_binary(Nx.add(add, add))
        System.convert_time_unit(System.monotonic_time() - start, :native, :nanosecond)
      end

    times = Enum.sort(times)
    [Enum.at(times, div(count, 2)), Enum.at(times, div(count * 99, 100))]
  end

  @doc "Traces and compiles a chain that nobody has seen before."
  @spec compile(Engine.t(), [input], keyword) :: run
  def compile(_engine, [{type, shape, _}], opts) do
    template = Nx.template(shape, type)

    fn ->
      number = next()
      Nx.Defn.compile(&Functions.long_chain(&1, opts[:pairs], number), [template])
      []
    end
  end

  @doc "The first call of such a chain, with its result read."
  @spec first_call(Engine.t(), [input], keyword) :: run
  def first_call(_engine, [input], opts) do
    x = Engine.tensor(input)
    Process.put(:chains, 0)

    fn ->
      number = next()
      result = Nx.Defn.jit(&Functions.long_chain(&1, opts[:pairs], number)).(x)
      [{:f32, Nx.to_binary(result)}]
    end
  end

  # 0 for the first, which is the one that everybody's results are compared of.
  defp next do
    number = Process.get(:chains, 0)
    Process.put(:chains, number + 1)
    number
  end
end
