defmodule Mlx.Soak.Samples do
  @moduledoc false
  # What a VM holds at a moment. What Linux alone tells is left out elsewhere.

  @type t :: %{:at => float, optional(atom) => non_neg_integer}

  @megabyte 1_048_576

  # Name, words, unit, and how much it may be more at the end than at the beginning: the greater of a
  # number and a share. Sizes are in megabytes. Atoms are made by code that is loaded late, a stream's
  # thread stays for the next stream, and the cache of compiled functions fills up to its limit.
  @series [
    {:resident, "resident memory", "MB", 48, 0.10},
    {:active, "held by arrays", "MB", 24, 0.10},
    {:peak, "most held by arrays within a second", "MB", 64, 0.25},
    {:cache, "kept by MLX for reuse", "MB", 64, 0.25},
    {:beam, "held by the BEAM", "MB", 24, 0.10},
    {:processes, "processes", "", 40, 0.25},
    {:ports, "ports", "", 2, 0.0},
    {:tables, "ETS tables", "", 2, 0.0},
    {:entries, "compiled functions that are kept", "", 512, 0.0},
    {:atoms, "atoms", "", 200, 0.0},
    {:threads, "threads", "", 16, 0.10}
  ]

  @doc "The series that are sampled, `{name, words, unit, most, share}`."
  def series, do: @series

  @doc "A sample; the peak is that of the time since the last one."
  @spec take(float) :: t
  def take(at) do
    %{active: active, cache: cache, peak: peak} = Mlx.Memory.info()
    Mlx.Memory.reset_peak()

    Map.merge(
      %{
        at: at,
        active: megabytes(active),
        cache: megabytes(cache),
        peak: megabytes(peak),
        beam: megabytes(:erlang.memory(:total)),
        processes: :erlang.system_info(:process_count),
        ports: :erlang.system_info(:port_count),
        tables: length(:ets.all()),
        entries: Mlx.Compiler.cache_info().entries,
        atoms: :erlang.system_info(:atom_count)
      },
      of_linux()
    )
  end

  # /proc/self is the VM's, whose files the BEAM reads itself.
  defp of_linux do
    with {:ok, status} <- File.read("/proc/self/status"),
         [_, kilobytes] <- Regex.run(~r/VmRSS:\s+(\d+) kB/, status),
         [_, threads] <- Regex.run(~r/Threads:\s+(\d+)/, status) do
      resident = String.to_integer(kilobytes) / 1024
      %{resident: Float.round(resident, 1), threads: String.to_integer(threads)}
    else
      _ -> %{}
    end
  end

  defp megabytes(bytes), do: Float.round(bytes / @megabyte, 1)

  @doc "A line of column names and a line per sample."
  @spec csv([t]) :: iodata
  def csv([first | _] = samples) do
    names = [:at | for({name, _, _, _, _} <- @series, is_map_key(first, name), do: name)]
    line = fn values -> [Enum.map_intersperse(values, ",", &to_string/1), "\n"] end
    [line.(names) | for(sample <- samples, do: line.(Enum.map(names, &sample[&1])))]
  end
end
