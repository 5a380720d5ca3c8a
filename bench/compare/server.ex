defmodule Bench.Server do
  @moduledoc """
  What a peer does on request, for the peers in Elixir. `bench/peers/serve.py` is the same in Python.

  A process of a peer reads a command per line and answers with a line that starts with `@`:

      info                  @ ok TEXT
      load DESCRIPTION      @ ok, @ none REASON
      check PATH            @ ok TYPE...      runs once, and writes the results to PATH.0, PATH.1 ...
      time COUNT BATCHES    @ ok NS           the median of the batches, per call
      gauge                 @ ok FIGURE...

  Whatever fails is answered with `@ failed REASON`. Other lines are no answers.
  """
  alias Bench.{Custom, Engine, Functions, Inputs}

  @type loaded :: %{
          spec: map,
          engine: Engine.t(),
          start: term,
          step: (term -> term),
          finish: (term -> term),
          results: (term -> [Nx.Tensor.t() | {atom, binary}]),
          resident: non_neg_integer
        }

  @doc "Answers commands from standard input until it ends."
  @spec serve(Engine.t()) :: :ok
  def serve(engine) do
    Engine.configure(engine)
    loop(engine, nil)
  end

  defp loop(engine, loaded) do
    case IO.gets("") do
      line when is_binary(line) ->
        {answer, loaded} = answer(String.split(line), engine, loaded)
        IO.puts("@ " <> answer)
        loop(engine, loaded)

      _ ->
        :ok
    end
  end

  @doc "Answers a command, given what was loaded before."
  @spec answer([String.t()], Engine.t(), loaded | nil) :: {String.t(), loaded | nil}
  def answer(command, engine, loaded) do
    case {command, loaded} do
      {["info"], _} -> {"ok " <> engine.info, loaded}
      {["load", path], _} -> load(engine, path)
      {["check", path], loaded} -> check(loaded, path)
      {["time", count, batches], loaded} -> time(loaded, count, batches)
      {["gauge"], loaded} -> gauge(loaded)
    end
  rescue
    error -> {"failed " <> one_line(Exception.message(error)), loaded}
  catch
    kind, reason -> {"failed " <> one_line(Exception.format_banner(kind, reason)), loaded}
  end

  @doc "Text without its ends of lines, and not all of it."
  @spec one_line(String.t()) :: String.t()
  def one_line(text), do: text |> String.split() |> Enum.join(" ") |> String.slice(0, 300)

  defp load(engine, path) do
    resident = resident("VmRSS")
    spec = Inputs.read!(path)

    case prepare(engine, spec) do
      {:none, reason} -> {"none " <> reason, nil}
      parts -> {"ok", Map.merge(parts, %{spec: spec, engine: engine, resident: resident})}
    end
  end

  defp prepare(engine, %{mode: mode} = spec) when mode in [:custom, :gauge] do
    case apply(Custom, spec.function, [engine, spec.inputs, spec.options]) do
      {:none, reason} -> {:none, reason}
      run -> %{start: nil, step: fn _ -> run.() end, finish: & &1, results: &List.wrap/1}
    end
  end

  defp prepare(_engine, spec) do
    inputs = Enum.map(spec.inputs, &Engine.tensor/1)
    {packed, rest} = Enum.split(inputs, spec.pack)
    inputs = if packed == [], do: rest, else: [List.to_tuple(packed) | rest]
    call = callable(spec, length(inputs))

    case spec do
      %{mode: mode} when mode in [:step, :memory] ->
        [first | rest] = inputs

        # The loss of each step is read, as one who trains would. A step starts with what the last
        # one made, so nothing is left out, and the last one's weights are read at the end.
        step = fn {state, _} ->
          {state, loss} = apply(call, [state | rest])
          Nx.to_binary(loss)
          {state, loss}
        end

        results = fn {state, loss} -> Tuple.to_list(state) ++ [loss] end
        finish = fn state -> state |> results.() |> read() end
        %{start: {first, nil}, step: step, finish: finish, results: results}

      %{read: true} ->
        step = fn _ ->
          outputs = apply(call, inputs)
          read(outputs)
          outputs
        end

        %{start: nil, step: step, finish: & &1, results: &tensors/1}

      %{read: false} ->
        %{start: nil, step: fn _ -> apply(call, inputs) end, finish: &read/1, results: &tensors/1}
    end
  end

  defp callable(%{mode: :eager} = spec, arity),
    do: Function.capture(Functions, spec.function, arity)

  defp callable(%{options: options, function: function}, 1) when options != [],
    do: Nx.Defn.jit(fn x -> apply(Functions, function, [x, options]) end)

  defp callable(spec, 1) when spec.mode == :memory,
    do: Nx.Defn.jit(Function.capture(Functions, spec.function, 1))

  defp callable(spec, arity), do: Nx.Defn.jit(Function.capture(Functions, spec.function, arity))

  defp read(%Nx.Tensor{} = t), do: Nx.to_binary(t)
  defp read(outputs), do: outputs |> tensors() |> Enum.each(&Nx.to_binary/1)

  defp tensors(%Nx.Tensor{} = t), do: [t]
  defp tensors(outputs) when is_tuple(outputs), do: Tuple.to_list(outputs)
  defp tensors(outputs) when is_list(outputs), do: outputs

  defp check(loaded, path) do
    results = loaded.results.(loaded.step.(loaded.start))

    types =
      for {result, i} <- Enum.with_index(results) do
        {type, binary} = raw(result)
        File.write!("#{path}.#{i}", binary)
        type
      end

    {Enum.join(["ok" | types], " "), loaded}
  end

  defp raw(%Nx.Tensor{type: {kind, bits}} = t), do: {"#{kind}#{bits}", Nx.to_binary(t)}
  defp raw({type, binary}), do: {"#{type}", binary}

  defp time(loaded, count, batches) do
    [count, batches] = Enum.map([count, batches], &String.to_integer/1)

    times =
      for _ <- 1..batches do
        :erlang.garbage_collect()
        start = System.monotonic_time()
        state = repeat(loaded.step, loaded.start, count)
        state = if trains?(loaded), do: loaded.finish.(state), else: state
        time = System.monotonic_time() - start
        # What was not read is computed here, before the next batch.
        unless trains?(loaded), do: loaded.finish.(state)
        System.convert_time_unit(time, :native, :nanosecond) / count
      end

    {"ok #{times |> Enum.sort() |> Enum.at(div(batches, 2))}", loaded}
  end

  defp trains?(loaded), do: loaded.spec.mode == :step

  defp repeat(_step, state, 0), do: state
  defp repeat(step, state, count), do: repeat(step, step.(state), count - 1)

  defp gauge(%{spec: %{mode: :gauge}} = loaded),
    do: {Enum.join(["ok" | loaded.step.(nil)], " "), loaded}

  # The most that a process has held since the inputs were loaded, and what more steps add to it.
  defp gauge(%{spec: %{mode: :memory}} = loaded) do
    steps = loaded.spec.options[:steps]
    state = repeat(loaded.step, loaded.start, 10)
    loaded.finish.(state)
    first = resident("VmHWM")
    state = repeat(loaded.step, state, steps)
    loaded.finish.(state)
    {"ok #{first - loaded.resident} #{max(resident("VmHWM") - first, 0)}", loaded}
  end

  # A field of /proc/self/status in bytes; 0 where there is none.
  defp resident(field) do
    with {:ok, text} <- File.read("/proc/self/status"),
         [_, kilobytes] <- Regex.run(~r/^#{field}:\s+(\d+) kB/m, text) do
      String.to_integer(kilobytes) * 1024
    else
      _ -> 0
    end
  end
end
