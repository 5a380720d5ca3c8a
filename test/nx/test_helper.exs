# What a system cannot run is left out, and ExUnit says so.
platform = if :os.type() == {:unix, :linux}, do: [], else: [:linux]

# So are the tests of libraries that are not there.
libraries = [axon: {Axon, "Axon"}, scholar: {Scholar.Cluster.KMeans, "Scholar"}]

missing =
  for {tag, {module, name}} <- libraries, not Code.ensure_loaded?(module), do: {tag, name}

if missing != [] do
  IO.puts(
    "mlx: the tests of #{Enum.map_join(missing, " and ", &elem(&1, 1))} are left out; to have " <>
      "them, install Hex and run mix deps.get, or put the sources of axon, polaris, scholar and " <>
      "nimble_options beside those of nx, in MLX_DEPS_PATH or ~/.mlx/deps"
  )
end

ExUnit.start(exclude: platform ++ Keyword.keys(missing))
Mlx.Faults.count()
