defmodule Mlx.NxDoctestTest do
  # Nx's own examples, run on this backend. They are taken from the loaded Nx. Every example that
  # is left out says why, and its function has a test of its own within a tolerance.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx, except: [:moduledoc]

  Mlx.Doctests.except([
    {"tensor/2", [18], "MLX has no f8"},
    {"tensor/2", [19, 20], "MLX has no f8_e4m3fn"},
    {"bit_size/1", [1], "MLX has no u2"},
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
    {"e/2", [5], "MLX has no f8"},
    {"epsilon/2", [5], "MLX has no f8"},
    {"euler_gamma/2", [5], "MLX has no f8"},
    {"i/2", [2], "MLX has no c128"},
    {"infinity/2", [1], "MLX has no f8"},
    {"nan/2", [1], "MLX has no f8"},
    {"neg_infinity/2", [1], "MLX has no f8"},
    {"pi/2", [5], "MLX has no f8"},
    {"smallest_positive_normal/2", [5], "MLX has no f8"}
  ])
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
