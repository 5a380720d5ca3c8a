defmodule Mlx.Compiler.Options do
  @moduledoc false
  # The options of the compiler, checked in one place. Every call of a jitted function comes
  # through here, so it is one pass over what is usually an empty list.

  alias Mlx.{Device, Flags, Stream}

  @enforce_keys [:device, :stream, :hooks, :debug, :fuse, :max_concurrency, :flags]
  defstruct [:device, :stream, :hooks, :debug, :fuse, :max_concurrency, :flags]

  @flags Flags.names()

  @type t :: %__MODULE__{
          device: Device.t() | nil,
          stream: Stream.t() | nil,
          hooks: %{optional(atom) => (term -> term)},
          debug: boolean,
          fuse: boolean,
          max_concurrency: pos_integer,
          flags: Flags.t()
        }

  @doc """
  The options among `opts` that are the compiler's, checked. Others are left alone: Nx, Axon and
  Bumblebee hand every compiler what is meant for themselves or for another one.
  """
  @spec parse!(keyword) :: t
  def parse!([]) do
    %__MODULE__{
      device: nil,
      stream: nil,
      hooks: %{},
      debug: false,
      fuse: true,
      max_concurrency: 1,
      flags: Flags.current()
    }
  end

  # Of a key that is there twice the first one counts, as Keyword has it.
  def parse!([{:device, device} | rest]),
    do: placed!(%{parse!(rest) | device: device && Device.normalize!(device)})

  def parse!([{:stream, stream} | rest]), do: placed!(%{parse!(rest) | stream: stream!(stream)})

  def parse!([{:hooks, hooks} | rest]), do: %{parse!(rest) | hooks: hooks!(hooks)}
  def parse!([{:debug, debug} | rest]), do: %{parse!(rest) | debug: boolean!(:debug, debug)}
  def parse!([{:fuse, fuse} | rest]), do: %{parse!(rest) | fuse: boolean!(:fuse, fuse)}

  def parse!([{:max_concurrency, count} | rest]),
    do: %{parse!(rest) | max_concurrency: positive!(:max_concurrency, count)}

  def parse!([{name, value} | rest]) when name in @flags do
    options = parse!(rest)
    what = "the option #{inspect(name)} of Mlx.Compiler"
    %{options | flags: Flags.set!(options.flags, name, value, what)}
  end

  def parse!([_other | rest]), do: parse!(rest)

  @doc "The device that is asked for, or the default one."
  @spec device(t) :: Device.t()
  def device(%__MODULE__{stream: %Stream{device: device}}), do: device
  def device(%__MODULE__{device: nil}), do: Device.default()
  def device(%__MODULE__{device: device}), do: device

  @doc "The worker that runs the programs: the stream's that is asked for, or the process's."
  @spec worker(t) :: Mlx.Native.worker()
  def worker(%__MODULE__{stream: %Stream{worker: worker}}), do: worker
  def worker(options), do: options |> device() |> Device.worker()

  @doc "The worker that programs and their constants belong to, whoever runs them."
  @spec home(t) :: Mlx.Native.worker()
  def home(options), do: options |> device() |> Device.shared_worker()

  @doc """
  The names of the hooks that get a callback. Callbacks may change from call to call, which ones
  there are is part of a program.
  """
  @spec hook_names(t) :: [atom]
  def hook_names(%__MODULE__{hooks: hooks}) when hooks == %{}, do: []
  def hook_names(%__MODULE__{hooks: hooks}), do: hooks |> Map.keys() |> Enum.sort()

  @doc "What tells programs of one function apart, of the options that say how it is compiled."
  @spec variant(t) :: term
  def variant(%__MODULE__{fuse: fuse, flags: flags}) do
    case Flags.compiled(flags) do
      :off -> fuse
      flags -> {fuse, flags}
    end
  end

  @doc "The options of a call of what was compiled before, by a process that may wait itself."
  @spec called(t) :: t
  def called(options) do
    case Flags.current() do
      :off -> options
      flags -> %{options | flags: Flags.merge(options.flags, flags)}
    end
  end

  defp stream!(nil), do: nil
  defp stream!(%Stream{} = stream), do: stream

  defp stream!(other) do
    raise ArgumentError,
          "the option :stream of Mlx.Compiler must be an Mlx.Stream, as Mlx.Stream.new/1 makes it, " <>
            "got: #{inspect(other)}"
  end

  defp placed!(%{device: device, stream: %Stream{device: other}})
       when device not in [nil, other] do
    raise ArgumentError,
          "the options :device and :stream of Mlx.Compiler must agree, got: #{inspect(device)} and " <>
            "a stream of #{inspect(other)}. Leave out :device"
  end

  defp placed!(options), do: options

  defp boolean!(_key, value) when is_boolean(value), do: value

  defp boolean!(key, value) do
    raise ArgumentError,
          "the option #{inspect(key)} must be true or false, got: #{inspect(value)}"
  end

  defp positive!(_key, value) when is_integer(value) and value > 0, do: value

  defp positive!(key, value) do
    raise ArgumentError,
          "the option #{inspect(key)} must be a positive integer, got: " <>
            inspect(value)
  end

  defp hooks!(hooks) when hooks == %{}, do: hooks

  defp hooks!(%{} = hooks) when not is_struct(hooks) do
    for {name, callback} <- hooks do
      unless is_atom(name) and is_function(callback, 1) do
        raise ArgumentError,
              "the option :hooks must be a map from the names of hooks, atoms, to " <>
                "functions of one argument, such as %{name: &IO.inspect/1}; got " <>
                "#{inspect(callback)} for #{inspect(name)}. Leave out a hook that nothing is to serve"
      end
    end

    hooks
  end

  defp hooks!(hooks) do
    raise ArgumentError,
          "the option :hooks must be a map from the names of hooks to functions of " <>
            "one argument, such as %{name: &IO.inspect/1}, got: #{inspect(hooks)}"
  end
end
