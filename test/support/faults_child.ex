defmodule Mlx.Faults.Child do
  @moduledoc false
  # What happens in a VM of its own, to which things are done that a suite would not live through.

  @doc "The command line of a VM that calls `function` of this module with a string."
  def command(function, argument \\ "") do
    paths = for path <- :code.get_path(), path != ~c".", do: ["-pa", to_string(path)]
    elixir = :elixir |> :code.lib_dir() |> Path.join("ebin")

    call = "'Elixir.Mlx.Faults.Child':start(#{function}, <<#{inspect(argument)}>>)."
    List.flatten(["-noshell", "-pa", elixir, paths, "-eval", call])
  end

  def start(function, argument) do
    {:ok, _} = Application.ensure_all_started(:elixir)
    if function != :signals, do: {:ok, _} = Application.ensure_all_started(:mlx)
    apply(__MODULE__, function, [argument])
  rescue
    error ->
      IO.puts(Exception.format(:error, error, __STACKTRACE__))
      System.halt(99)
  end

  defp made(size, stream \\ nil) do
    worker = if stream, do: stream.worker, else: Mlx.Device.worker(:cpu)
    Mlx.Native.from_binary(worker, {:f, 32}, {size}, :binary.copy(<<0.5::float-32-native>>, size))
  end

  defp negate(ref), do: hd(Mlx.Native.run([{:negative, [0]}], [1], [ref]))

  # Everything that a VM may be doing when it ends.
  defp busy do
    parent = self()

    spawn(fn -> Enum.reduce(Stream.cycle([1]), made(10_000), fn _, x -> negate(x) end) end)

    for size <- [1_000, 2_000_000] do
      spawn(fn ->
        Mlx.Stream.put_default(stream = Mlx.Stream.new(:cpu))
        x = made(size, stream)
        send(parent, :busy)
        for _ <- Stream.cycle([1]), do: Mlx.Native.to_binary(negate(x), 1)
      end)

      receive do: (:busy -> :ok)
    end

    forever = {{:while, {1, [{:equal, [0, 0]}], [1]}, {1, [{:negative, [0]}], [1]}}, [0]}

    spawn(fn ->
      [forever] |> Mlx.Native.run([1], [made(1, Mlx.Stream.new(:cpu))]) |> Mlx.Native.eval()
    end)

    Process.sleep(:rand.uniform(30))
  end

  def halt(_), do: busy() && System.halt(7)
  def stop(_), do: busy() && :init.stop(8)

  def wait(_) do
    busy()
    IO.puts("busy")
  end

  # The module is loaded again, deleted and purged while there are handles of its library.
  def reload(_) do
    a = made(3)
    binary = Mlx.Native.to_binary(a)
    spawn(fn -> for _ <- Stream.cycle([1]), do: Mlx.Native.to_binary(negate(made(1_000)), 1) end)

    for _ <- 1..20 do
      {:error, :on_load_failure} = :code.load_file(Mlx.NIF)
      :code.purge(Mlx.NIF)
      ^binary = Mlx.Native.to_binary(a)
    end

    IO.puts("refused")
    :code.delete(Mlx.NIF)
    :code.purge(Mlx.NIF)
    %{__exception__: true} = catch_any(fn -> Mlx.Native.to_binary(a) end)
    ^binary = Mlx.Native.to_binary(made(3))
    :ok = Application.stop(:mlx)
    :ok = Application.start(:mlx)
    ^binary = Mlx.Native.to_binary(made(3))
    %{__exception__: true} = catch_any(fn -> Mlx.Native.to_binary(a) end)
    IO.puts("loaded again")
    System.halt(0)
  end

  defp catch_any(fun) do
    fun.()
  rescue
    error -> error
  end

  # Whether SIGCHLD is ignored, and whether it is caught: before the library is loaded, and after it
  # has computed.
  def signals(_) do
    before = sigchld()
    {:ok, _} = Application.ensure_all_started(:mlx)
    Mlx.Native.to_binary(negate(made(1_000)), 1)
    IO.inspect({before, sigchld()})
    System.halt(0)
  end

  defp sigchld do
    for line <- File.stream!("/proc/self/status"),
        [name, mask] <- [String.split(line)],
        name in ["SigIgn:", "SigCgt:"],
        do: {name, Bitwise.band(String.to_integer(mask, 16), Bitwise.bsl(1, 16))}
  end

  # The system has less memory than the limit says.
  def malloc(_) do
    Mlx.Memory.set_limit(1_000_000_000_000)
    x = made(1_000)

    for _ <- 1..20 do
      [huge] =
        Mlx.Native.run([{{:broadcast_to, {4_000_000, 1_000}}, [0]}, {:add, [1, 1]}], [2], [x])

      error = catch_any(fn -> Mlx.Native.to_binary(huge, 1) end)
      %Mlx.Error{kind: :out_of_memory} = error
    end

    <<-0.5::float-32-native>> = Mlx.Native.to_binary(negate(x), 1)
    true = Mlx.Memory.info().active < 100_000_000
    IO.puts("refused")
    System.halt(0)
  end
end
