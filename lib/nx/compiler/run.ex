defmodule Mlx.Compiler.Run do
  @moduledoc false
  # Calls of a compiled function: its arguments become inputs, the program is posted, and results
  # are put into the container that the function returns.

  alias Mlx.{Backend, Flags, Native, Stream}
  alias Mlx.Backend.Fallback
  alias Mlx.Compiler.{Build, Evaluated, Options, Output}
  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

  @doc """
  Runs `program` on `worker`, one of its device, and emits `[:mlx, :run, :stop]`, or `[:mlx, :run, :exception]`. The call began at
  `start`.
  """
  @spec run(
          Build.program(),
          Native.worker(),
          [(-> Nx.Tensor.t())],
          Options.t(),
          fun,
          boolean,
          integer
        ) :: Nx.Container.t()
  def run(program, worker, args, options, key, cached?, start) do
    result = run(program, worker, args, options)

    # There is no event at the start: each takes a tenth of what a call does.
    :telemetry.execute(
      [:mlx, :run, :stop],
      %{duration: System.monotonic_time() - start},
      %{key: key, device: program.device, cached?: cached?, mode: mode(program)}
    )

    result
  catch
    kind, reason ->
      :telemetry.execute(
        [:mlx, :run, :exception],
        %{duration: System.monotonic_time() - start},
        %{
          key: key,
          device: program.device,
          cached?: cached?,
          mode: mode(program),
          kind: kind,
          reason: reason,
          stacktrace: __STACKTRACE__
        }
      )

      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  # What the duration stands for: posting, or the whole run.
  defp mode(%{attended?: false}), do: :posted
  defp mode(%{attended?: true}), do: :attended
  defp mode(%{evaluated: _}), do: :evaluated

  defp run(%{evaluated: expr, device: device} = program, worker, args, options) do
    Build.naming(program.source, fn -> Fallback.permit!(:jit) end)
    args = for arg <- args, do: fn -> placed(arg.(), device, worker) end

    Flags.with(options.flags, fn ->
      Stream.with_default(%Stream{worker: worker, device: device}, fn ->
        Evaluated.run(expr, args, device, options.hooks)
      end)
    end)
  end

  defp run(%{attended?: true} = program, worker, args, options) do
    inputs = inputs(args, program.used, program, worker)

    handler = &attend(&1, &2, &3, program, worker, options.hooks)
    refs = Native.attend(program.native, inputs, worker, handler, options.flags)

    free(program.donated, inputs)
    {result, []} = Output.fill(program.output, refs)
    result
  end

  defp run(%{output: output} = program, worker, args, options) do
    inputs = inputs(args, program.used, program, worker)
    refs = Native.run_program(program.native, inputs, worker, options.flags)
    free(program.donated, inputs)
    {result, refs} = Output.fill(output, refs)
    if program.effects != {}, do: call_hooks(program.effects, refs, options.hooks)
    result
  end

  # What is posted may still use them.
  defp free([], _inputs), do: :ok

  defp free(donated, inputs),
    do: for(i <- donated, do: inputs |> Enum.at(i) |> Native.deallocate())

  defp call_hooks(effects, refs, hooks) do
    effects
    |> Tuple.to_list()
    |> Enum.reduce(refs, fn {:hook, callback, plan}, refs ->
      {value, refs} = Output.fill(plan, refs)
      callback(callback, hooks).(value)
      refs
    end)
  end

  defp attend(:hook, id, refs, program, _worker, hooks) do
    {:hook, callback, plan} = elem(program.effects, id)
    {value, []} = Output.fill(plan, refs)
    callback(callback, hooks).(value)
  end

  defp attend(:call, id, refs, program, worker, _hooks) do
    {:call, fun, plan, template, opts} = elem(program.effects, id)
    {value, []} = Output.fill(plan, refs)
    result = fun.(value, opts)

    flat = Composite.traverse(template, &Nx.devectorize/1)

    unless Nx.compatible?(template, result) or Nx.compatible?(flat, result) do
      raise "expected the runtime_call function to match the given output template " <>
              "#{inspect(template)}, got: #{inspect(result)}"
    end

    for t <- Composite.flatten_list([result]),
        do: input(Nx.devectorize(t), program.device, worker)
  end

  defp callback({:fn, fun}, _hooks), do: fun
  defp callback({:named, name, default}, hooks), do: hooks[name] || default

  defp inputs(_args, [], program, _worker), do: program.captured

  defp inputs([_ | args], [false | used], program, worker),
    do: inputs(args, used, program, worker)

  defp inputs([arg | args], [true | used], program, worker),
    do: [input(arg.(), program.device, worker) | inputs(args, used, program, worker)]

  defp placed(%T{type: {:c, 128}} = tensor, _device, _worker), do: tensor

  defp placed(tensor, device, worker),
    do: %{tensor | data: %Backend{ref: input(tensor, device, worker)}}

  defp input(%T{data: %Backend{ref: ref}}, device, worker) do
    case Native.device(ref) do
      ^device -> ref
      _other -> Native.copy_to(ref, worker)
    end
  end

  defp input(%T{data: %Expr{}} = tensor, _device, _worker) do
    raise ArgumentError,
          "cannot pass a tensor expression as argument to defn, got: #{inspect(tensor)}"
  end

  defp input(tensor, _device, worker), do: Build.upload(tensor, worker)
end
