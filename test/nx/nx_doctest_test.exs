defmodule Mlx.NxDoctestTest do
  # Nx's own examples, run on this backend. They are taken from the loaded Nx. Every example that
  # prints something else is in test/conformance/exceptions.exs with a reason, and is checked as
  # its exception says: see Mlx.Doctests.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx, except: [:moduledoc]
  Mlx.Doctests.except(Nx)
end

defmodule Mlx.NxRandomDoctestTest do
  # As above: bits and uniform numbers are Nx's, bit for bit.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Random, except: [:moduledoc]
  Mlx.Doctests.except(Nx.Random)
end

defmodule Mlx.NxConstantsDoctestTest do
  # As above.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Constants, except: [:moduledoc]
  Mlx.Doctests.except(Nx.Constants)
end

defmodule Mlx.NxC128DoctestTest do
  # As above, for the one type that falls back to Nx.BinaryBackend. The policy is the application's,
  # so nothing runs beside it.
  use Mlx.NxCase, async: false

  doctest Nx.Constants, only: [i: 2]

  setup do
    policy = Application.fetch_env!(:mlx, :fallback)
    Application.put_env(:mlx, :fallback, :silent)
    on_exit(fn -> Application.put_env(:mlx, :fallback, policy) end)
  end
end

defmodule Mlx.NxLinAlgDoctestTest do
  # As above; linalg_test.exs has what a decomposition has to satisfy.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.LinAlg, except: [:moduledoc]
  Mlx.Doctests.except(Nx.LinAlg)
end
