defmodule Mlx.NIF do
  @moduledoc false
  # The stubs of the native library, grouped as in native/mlx_nif/src/nif. Only Mlx.Native and the
  # modules that ask something answered at once call them. A library that cannot be loaded leaves
  # the module usable: whatever is called then raises with the cause and the remedy. Once one is
  # loaded, the module is not replaced under those who hold handles.

  @on_load :load

  @type array :: reference
  @type worker :: reference
  @type program :: reference
  @type run :: reference
  @type failure ::
          {:error,
           {kind :: atom, op :: String.t() | nil, message :: String.t(),
            operands :: String.t() | nil, label :: binary | nil}}
  @type posted :: [array] | {:pressure, [array]} | :busy | :scattered | failure
  @type instructions :: [{op :: atom | tuple, operands :: [non_neg_integer]}]

  def load do
    case :erlang.load_nif(path(), 0) do
      :ok ->
        forget_workers()

      # Another version of this module has the library, and everybody's handles are its own. Not
      # loaded, this one leaves that in place; a VM that is to have it has to be started again.
      {:error, {:upgrade, _}} = refused ->
        refused

      {:error, {_, reason}} ->
        :persistent_term.put({__MODULE__, :load_error}, to_string(reason))
        :ok
    end
  end

  # They are handles of a version of this module that was purged, if there are any.
  defp forget_workers do
    for {{Mlx.Device, device} = key, _worker} <- :persistent_term.get(),
        device != :default,
        do: :persistent_term.erase(key)

    :ok
  end

  # Beside this module's own folder. Asking for the application's folder by name would find a
  # working directory that happens to be called mlx.
  defp path do
    ebin =
      case :code.where_is_file(~c"Elixir.Mlx.NIF.beam") do
        :non_existing -> :code.lib_dir(:mlx) |> :filename.join(~c"ebin")
        beam -> :filename.dirname(beam)
      end

    :filename.join([:filename.dirname(ebin), ~c"priv", ~c"mlx_nif"])
  end

  # Arrays

  @spec from_binary(worker, Mlx.Array.type() | :bool, tuple, binary) :: posted
  def from_binary(_worker, _type, _shape, _binary), do: not_loaded()

  @spec to_binary_async(reference, array, non_neg_integer | nil) :: :ok | failure
  def to_binary_async(_ref, _array, _limit), do: not_loaded()

  @spec eval_async(reference, [array]) :: :ok | failure
  def eval_async(_ref, _arrays), do: not_loaded()

  @spec describe_async(reference, array) :: :ok | failure
  def describe_async(_ref, _array), do: not_loaded()

  @spec deallocate(array) :: :ok | :already_deallocated
  def deallocate(_array), do: not_loaded()

  @spec device(array) :: Mlx.Device.t()
  def device(_array), do: not_loaded()

  @spec copy_async(reference, array, worker) :: :ok | failure
  def copy_async(_ref, _array, _worker), do: not_loaded()

  # Pointers

  @spec address_async(reference, array) :: :ok | failure
  def address_async(_ref, _array), do: not_loaded()

  @spec share_async(reference, array, non_neg_integer) :: :ok | failure
  def share_async(_ref, _array, _permissions), do: not_loaded()

  @spec from_address_async(reference, worker, Mlx.Array.type(), tuple, non_neg_integer) ::
          :ok | failure
  def from_address_async(_ref, _worker, _type, _shape, _address), do: not_loaded()

  @spec from_shared_async(reference, worker, Mlx.Array.type(), tuple, String.t()) ::
          :ok | failure
  def from_shared_async(_ref, _worker, _type, _shape, _name), do: not_loaded()

  # Programs

  @spec run(worker | nil, instructions, [non_neg_integer], [array]) :: posted
  def run(_worker, _instructions, _outputs, _inputs), do: not_loaded()

  @spec program_new(
          non_neg_integer | [{Mlx.Array.type(), tuple}],
          instructions,
          [non_neg_integer],
          label :: binary | nil,
          fuse? :: boolean
        ) :: {:ok, program} | failure
  def program_new(_inputs, _instructions, _outputs, _label, _fuse?), do: not_loaded()

  @spec program_run(worker | nil, program, [array]) :: posted
  def program_run(_worker, _program, _inputs), do: not_loaded()

  @spec program_attend_async(reference, worker | nil, program, [array]) ::
          {:ok, run} | :scattered | failure
  def program_attend_async(_ref, _worker, _program, _inputs), do: not_loaded()

  @spec run_answer(run, [array]) :: :ok | :scattered | failure
  def run_answer(_run, _arrays), do: not_loaded()

  @spec run_pressure(run) :: boolean
  def run_pressure(_run), do: not_loaded()

  @spec run_abandon(run) :: :ok
  def run_abandon(_run), do: not_loaded()

  @spec op_table() ::
          {[{name :: String.t(), attributes :: [String.t()], outputs :: pos_integer}],
           [Mlx.Array.type() | :bool]}
  def op_table, do: not_loaded()

  @spec hosted() :: [String.t()]
  def hosted, do: not_loaded()

  # Workers

  @spec worker_start_async(reference, Mlx.Device.t()) :: {:ok, worker} | failure
  def worker_start_async(_ref, _device), do: not_loaded()

  @spec worker_sync_async(reference, worker) :: :ok
  def worker_sync_async(_ref, _worker), do: not_loaded()

  @spec worker_of(array) :: worker
  def worker_of(_array), do: not_loaded()

  @spec worker_device(worker) :: Mlx.Device.t()
  def worker_device(_worker), do: not_loaded()

  @spec worker_owns(worker, array) :: boolean
  def worker_owns(_worker, _array), do: not_loaded()

  @spec worker_stop(worker) :: true
  def worker_stop(_worker), do: not_loaded()

  @spec worker_stopped(worker) :: boolean
  def worker_stopped(_worker), do: not_loaded()

  @spec worker_panic_async(reference, worker) :: :ok
  def worker_panic_async(_ref, _worker), do: not_loaded()

  @spec gpu_count() :: non_neg_integer
  def gpu_count, do: not_loaded()

  @spec versions() :: {headers :: String.t(), library :: String.t(), blas :: String.t()}
  def versions, do: not_loaded()

  # Memory

  @spec memory() ::
          {active :: non_neg_integer, cache :: non_neg_integer, peak :: non_neg_integer,
           limit :: non_neg_integer}
  def memory, do: not_loaded()

  @spec memory_set_limit(non_neg_integer) :: {:ok, non_neg_integer} | failure
  def memory_set_limit(_bytes), do: not_loaded()

  @spec memory_cache_limit() :: {:ok, non_neg_integer} | failure
  def memory_cache_limit, do: not_loaded()

  @spec memory_set_cache_limit(non_neg_integer) :: {:ok, non_neg_integer} | failure
  def memory_set_cache_limit(_bytes), do: not_loaded()

  @spec memory_clear_cache() :: {:ok, true} | failure
  def memory_clear_cache, do: not_loaded()

  @spec memory_reset_peak() :: {:ok, true} | failure
  def memory_reset_peak, do: not_loaded()

  # nif_error, for the compiler must not conclude that these functions never return.
  defp not_loaded do
    :erlang.nif_error(%Mlx.Error{
      kind: :not_loaded,
      message: """
      the native library of Mlx could not be loaded: \
      #{:persistent_term.get({__MODULE__, :load_error}, "it was not found")}

      Build it again with `mix compile --force` (as a dependency: `mix deps.compile mlx \
      --force`), and see "Troubleshooting" in the README.\
      """
    })
  end
end
