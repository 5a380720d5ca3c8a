defmodule Mlx.NxDoctestTest do
  # Nx's own examples, run on this backend. They are taken from the loaded Nx. Every example that
  # is left out says why, and its function has a test of its own within a tolerance.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx, except: [:moduledoc]

  Mlx.Doctests.except([
    {"acosh/1", [2], "the last digit of f64 differs"},
    {"atanh/1", [2], "the last digit of f64 differs"},
    {"expm1/1", [1, 2], "the last digit of f64 differs"},
    {"rsqrt/1", [2], "the last digit of f64 differs"},
    {"sinh/1", [2], "the last digit of f64 differs"},
    {"erf_inv/1", [1, 2], "Nx's f64 value is right to 8 digits only, Mlx's to all"},
    {"erfc/1", [1, 2], "the last digit of f64 differs"},
    {"log1p/1", [2], "the last digit of f64 differs"},
    {"sin/1", [2], "the last digit of f64 differs"}
  ])
end

defmodule Mlx.NxRandomDoctestTest do
  # As above: bits and uniform numbers are Nx's, bit for bit.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Random, except: [:moduledoc]

  Mlx.Doctests.except([
    {"normal/4", [1, 3, 4], "erf_inv of f32 differs in the last digit"},
    {"multivariate_normal/4", [2, 4], "erf_inv of f32 differs in the last digit"}
  ])
end

defmodule Mlx.NxConstantsDoctestTest do
  # As above.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Constants, except: [:moduledoc]

  Mlx.Doctests.except([
    {"i/2", [2], "c128 is a fallback, see below"}
  ])
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

  @rounding "LAPACK rounds the last digit otherwise"
  @signs "LAPACK chooses other signs, or other vectors of a plane"

  Mlx.Doctests.except([
    {"cholesky/1", [2, 5], @rounding},
    {"determinant/1", [7], @rounding},
    {"eigh/2", [2, 3, 4], @signs},
    {"least_squares/3", [1, 2, 3], @rounding},
    {"lu/1", [3], @rounding},
    {"matrix_power/2", [6], @rounding},
    {"pinv/2", [5, 6], @rounding},
    {"qr/2", [1, 2, 3, 4, 5, 6], @signs},
    {"solve/2", [1, 4], @rounding},
    {"svd/2", [1, 2, 3], @signs},
    {"triangular_solve/3", [1, 4, 11], @rounding}
  ])
end
