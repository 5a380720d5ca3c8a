defmodule Mlx.Backend.Programs do
  @moduledoc false
  # The programs of eager operations, by what decides them: the operation, the types and shapes of
  # its operands and result, and its options. An operation met again is neither lowered nor decoded
  # again, which for most takes longer than posting it.
  #
  # An operation is kept from its second time on: many differ each time, such as slices at moving
  # positions. At the limit the table is emptied; what is in use comes back at once.

  # The process does nothing but own the table.
  use GenServer

  alias Mlx.Native

  @limit 4096

  def start_link(_opts), do: GenServer.start_link(__MODULE__, [], name: __MODULE__)

  @impl true
  def init(_opts) do
    :ets.new(__MODULE__, [:named_table, :public, read_concurrency: true])
    {:ok, nil}
  end

  @doc "The program under `key`, or nil where it is to be built."
  @spec lookup(tuple) :: Native.program() | nil
  def lookup(key) do
    :ets.lookup_element(__MODULE__, key, 2, nil)
  catch
    # The application is not started.
    :error, :badarg -> nil
  end

  @doc """
  Runs what `key` stands for when `lookup/1` has nothing: the first time as it is, and from then on
  as a program.
  """
  @spec run(
          tuple,
          Mlx.NIF.instructions(),
          [non_neg_integer],
          [reference],
          reference | nil,
          Mlx.Flags.t() | nil
        ) :: [reference]
  def run(key, instructions, outputs, refs, worker, flags) do
    if seen?(key) do
      program = Native.build(length(refs), instructions, outputs)
      put(key, program)
      Native.run_program(program, refs, worker, flags)
    else
      put({:seen, key}, nil)
      Native.run(instructions, outputs, refs, worker, flags)
    end
  end

  defp seen?(key) do
    :ets.member(__MODULE__, {:seen, key})
  catch
    :error, :badarg -> false
  end

  defp put(key, value) do
    if :ets.info(__MODULE__, :size) >= @limit, do: :ets.delete_all_objects(__MODULE__)
    :ets.insert(__MODULE__, {key, value})
  catch
    :error, :badarg -> false
  end
end
