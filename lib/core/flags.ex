defmodule Mlx.Flags do
  @moduledoc false
  # What helps to find a mistake, and costs time: `:off`, or a struct that says what is on. A process
  # has flags of its own or those of the application, and options add to them.
  #
  # Every operation asks for them, once. Nothing being on is an atom, so that this is all it costs.

  defstruct dispatch: :async, bounds_check: false, detect_non_finite: false, check_results: false

  @type on :: %__MODULE__{
          dispatch: :async | :sync,
          bounds_check: boolean,
          detect_non_finite: boolean | :nan | :infinity,
          check_results: boolean | :eager
        }
  @type t :: :off | on

  # The first value of each is what it is when it is off.
  @values [
    dispatch: [:async, :sync],
    bounds_check: [false, true],
    detect_non_finite: [false, true, :nan, :infinity],
    check_results: [false, true, :eager]
  ]
  @names Keyword.keys(@values)

  # An atom is found faster than a tuple.
  @key __MODULE__

  @doc "Their names, as options and in the configuration."
  @spec names() :: [atom]
  def names, do: @names

  @doc "Those of the calling process, or else of the application."
  @spec current() :: t
  def current, do: Process.get(@key) || :persistent_term.get(@key, :off)

  @doc "Gives the calling process flags; answers what was in force before."
  @spec put(t) :: t
  def put(flags) do
    before = current()
    Process.put(@key, flags)
    before
  end

  @doc "Calls the function while the process has these flags."
  @spec with(t, (-> result)) :: result when result: var
  def with(flags, fun) do
    before = Process.put(@key, flags)

    try do
      fun.()
    after
      if before, do: Process.put(@key, before), else: Process.delete(@key)
    end
  end

  @doc "Makes those of the configuration the application's."
  @spec configure!() :: :ok
  def configure! do
    flags =
      for name <- @names, {:ok, value} <- [Application.fetch_env(:mlx, name)], reduce: :off do
        flags -> set!(flags, name, value, "config :mlx, #{name}:")
      end

    :persistent_term.put(@key, flags)
  end

  @doc "The flags with one of them changed. `what` is what a wrong value's message calls it."
  @spec set!(t, atom, term, String.t()) :: t
  def set!(flags, name, value, what) do
    values = Keyword.fetch!(@values, name)

    value in values ||
      raise ArgumentError, "#{what} must be #{listed(values)}, got: #{inspect(value)}"

    flags |> fields() |> Map.put(name, value) |> normal()
  end

  defp listed(values) do
    {last, values} = values |> Enum.map(&inspect/1) |> List.pop_at(-1)
    Enum.join(values, ", ") <> " or " <> last
  end

  @doc "The value of one of them."
  @spec get(t, atom) :: term
  def get(flags, name), do: flags |> fields() |> Map.fetch!(name)

  @doc "What either asks for."
  @spec merge(t, t) :: t
  def merge(flags, :off), do: flags
  def merge(:off, flags), do: flags

  def merge(left, right) do
    Map.merge(left, right, fn
      _name, same, same -> same
      name, one, other -> both(name, one, other)
    end)
  end

  defp both(:dispatch, _one, _other), do: :sync
  defp both(_name, false, on), do: on
  defp both(_name, on, false), do: on
  # Half of it and the other half, or half of it and all.
  defp both(_name, _one, _other), do: true

  @doc "What of them changes the program of an eager operation. Its results are looked at later."
  @spec eager(t) :: t
  def eager(:off), do: :off
  def eager(flags), do: normal(%{flags | dispatch: :async, check_results: false})

  @doc "What of them changes the program of a compiled function."
  @spec compiled(t) :: t
  def compiled(:off), do: :off

  def compiled(flags),
    do: normal(%{flags | dispatch: :async, check_results: flags.check_results == true})

  @doc "Whether there are checks in a program, for whose outcome a call waits."
  @spec checks?(on) :: boolean
  def checks?(flags),
    do: flags.bounds_check or flags.detect_non_finite != false or flags.check_results == true

  defp fields(:off), do: %__MODULE__{}
  defp fields(flags), do: flags

  defp normal(flags), do: if(flags == %__MODULE__{}, do: :off, else: flags)
end
