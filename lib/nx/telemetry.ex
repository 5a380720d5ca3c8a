defmodule Mlx.Telemetry do
  @moduledoc """
  The events that Mlx emits by `:telemetry`, which comes with Nx.

  Durations are in native units of time: `System.convert_time_unit(duration, :native, :microsecond)`.
  Sizes of memory are in bytes. `:key` is the function that was compiled, as it was given to
  `Nx.Defn`; that of a `defn` which ordinary code calls is one of its module.

  ## Compilation

  A call that finds its program in the cache emits none of these. They are those of a
  `:telemetry.span/3`, which adds `:telemetry_span_context` to the metadata.

    * `[:mlx, :compile, :start]`
      * measurements: `:system_time`, `:monotonic_time`
      * metadata: `:key`; `:device`, the device that is to run it
    * `[:mlx, :compile, :stop]`
      * measurements: `:duration`; `:trace`, the part of it in which the function itself built its
        expression, `:lower`, in which that became instructions, and `:build`, in which these were
        checked, and captured tensors copied to the device; `:monotonic_time`
      * metadata: `:key`, `:device`; `:operations`, how many operations of Nx were lowered, counting
        those of a loop that is written out once for each time around; `:instructions`, `:inputs` and
        `:outputs`, the numbers of them in the program
    * `[:mlx, :compile, :exception]`, where the function or its compilation raised
      * measurements: `:duration`, `:monotonic_time`
      * metadata: `:key`, `:device`; `:kind`, `:reason`, `:stacktrace`

  ## Calls of compiled functions

  There is no event at the start: a call takes microseconds, and each event a part of one.

    * `[:mlx, :run, :stop]`
      * measurements: `:duration`. What it covers is the metadata's `:mode`. It does not cover the
        compilation that a call had to wait for
      * metadata: `:key`; `:device`, where it runs; `:cached?`, whether the program was there when
        the call came (a function of `Nx.Defn.compile/3` always has it); `:mode`, one of
        * `:posted` - the duration covers bringing the arguments to the device, posting the program,
          and hooks. Results are promises: computing them is **not** covered, and may fail later, where
          they are read
        * `:attended` - a program with a `runtime_call`, or with hooks in loops or branches. The
          duration covers the whole run and all functions that it called
        * `:evaluated` - a function with c128, evaluated operation by operation
    * `[:mlx, :run, :exception]`, where the call raised: for its arguments, for what a hook or a
      `runtime_call` raised, and in the mode `:attended` also for an operation that failed
      * measurements: `:duration`
      * metadata: `:key`, `:device`, `:cached?`, `:mode`; `:kind`, `:reason`, `:stacktrace`

  ## The cache of compiled functions

  A hit has no event of its own, for it is part of every call: `[:mlx, :run, :stop]` says
  `cached?: true`. `Mlx.Compiler.cache_info/0` has the totals. The measurements `:entries` and
  `:limit` are the numbers of programs that are kept, and that may be.

    * `[:mlx, :cache, :miss]`, before a function is compiled. Processes that miss together wait for
      the one that compiles, and it alone emits this
      * measurements: `:entries`, `:limit`
      * metadata: `:key`, `:device`
    * `[:mlx, :cache, :eviction]`, where a program took the place of others
      * measurements: `:count`, the number of programs dropped; `:entries`, `:limit`
      * metadata: `:key` and `:device` of the program that was added
    * `[:mlx, :cache, :clear]`, by `Mlx.Compiler.clear_cache/0`
      * measurements: `:count`, the number of programs dropped; `:entries`, `:limit`
      * metadata: none

  ## Memory

    * `[:mlx, :memory]`
      * measurements: `:active`, `:peak`, `:cache` and `:limit`, as in `Mlx.Memory.info/0`. MLX counts
        all its devices together
      * metadata: `:cause`, one of
        * `:pressure` - memory has grown by a quarter and more since the last time, and the process
          that posts is about to collect its garbage; `:device` is the one that it posted to
        * `:asked` - `memory/0` was called

  ## Fallback

    * `[:mlx, :fallback]`, where Mlx lacks an operation, before `config :mlx, fallback:` decides what
      becomes of it, see `Mlx.Backend`
      * measurements: none
      * metadata: `:op`, the name of the callback of `Nx.Backend`, the module of the block, or `:jit`
        for a compiled function with c128

  ## Example

  A handler that says how long functions took to compile:

      iex> defmodule MyApp.MlxLog do
      ...>   def attach do
      ...>     :telemetry.attach("mlx-log", [:mlx, :compile, :stop], &__MODULE__.handle/4, self())
      ...>   end
      ...>
      ...>   def handle([:mlx, :compile, :stop], measurements, metadata, parent) do
      ...>     ms = System.convert_time_unit(measurements.duration, :native, :millisecond)
      ...>     send(parent, {:compiled, metadata.key, metadata.instructions, "in \#{ms} ms"})
      ...>   end
      ...> end
      iex> MyApp.MlxLog.attach()
      :ok
      iex> add = &Nx.add/2
      iex> Nx.Defn.compile(add, [Nx.template({77}, :f32), 1.0], compiler: Mlx.Compiler, debug: false)
      iex> receive do: ({:compiled, ^add, instructions, _in} -> instructions)
      1
      iex> :telemetry.detach("mlx-log")
      :ok

  All events in one place, such as for `Telemetry.Metrics` or a handler of one's own, are
  `events/0`. Handlers run in the process that emits; one that raises is detached by `:telemetry`.

  With the package `telemetry_poller`, memory is measured in intervals:

      {:telemetry_poller, measurements: [{Mlx.Telemetry, :memory, []}], period: :timer.seconds(10)}
  """

  @events [
    [:mlx, :compile, :start],
    [:mlx, :compile, :stop],
    [:mlx, :compile, :exception],
    [:mlx, :run, :stop],
    [:mlx, :run, :exception],
    [:mlx, :cache, :miss],
    [:mlx, :cache, :eviction],
    [:mlx, :cache, :clear],
    [:mlx, :memory],
    [:mlx, :fallback]
  ]

  @doc """
  The names of all events, for `:telemetry.attach_many/4`.

  ## Examples

      iex> [:mlx, :run, :stop] in Mlx.Telemetry.events()
      true

  """
  @spec events() :: [[atom, ...]]
  def events, do: @events

  @doc """
  Emits `[:mlx, :memory]` with what MLX holds now, in bytes, and the cause `:asked`.

  For `:telemetry_poller`, as a measurement.

  ## Examples

      iex> Mlx.Telemetry.memory()
      :ok

  """
  @spec memory() :: :ok
  def memory, do: Mlx.Event.memory(%{cause: :asked})
end
