# What a system cannot run is left out, and ExUnit says so.
exclude = if :os.type() == {:unix, :linux}, do: [], else: [:linux]
ExUnit.start(exclude: exclude)
