defmodule Mlx.NxDoctestTest do
  # Nx's own examples, run on this backend. They are taken from the loaded Nx. Every example that
  # prints something else says why, and is checked as its exception says: see Mlx.Doctests.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx, except: [:moduledoc]

  Mlx.Doctests.except(Nx, [
    {"tensor/2", [18], :unsupported, "MLX has no f8"},
    {"tensor/2", [19, 20], :unsupported, "MLX has no f8_e4m3fn"},
    {"bit_size/1", [1], :unsupported, "MLX has no u2"},
    {"erf_inv/1", [1, 2], :rounding, "Nx's f64 value is right to 8 digits only, Mlx's to all"},
    {"erfc/1", [1, 2], :rounding, "the last digit of f64 differs"},
    {"log1p/1", [2], :rounding, "the last digit of f64 differs"},
    {"sin/1", [2], :rounding, "the last digit of f64 differs"}
  ])
end

defmodule Mlx.NxRandomDoctestTest do
  # As above: bits and uniform numbers are Nx's, bit for bit.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Random, except: [:moduledoc]

  Mlx.Doctests.except(Nx.Random, [
    {"normal/4", [1, 3, 4], :rounding, "erf_inv of f32 differs in the last digit"},
    {"multivariate_normal/4", [2, 4], :rounding, "erf_inv of f32 differs in the last digit"}
  ])
end

defmodule Mlx.NxConstantsDoctestTest do
  # As above.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.Constants, except: [:moduledoc]

  Mlx.Doctests.except(Nx.Constants, [
    {"e/2", [5], :unsupported, "MLX has no f8"},
    {"epsilon/2", [5], :unsupported, "MLX has no f8"},
    {"euler_gamma/2", [5], :unsupported, "MLX has no f8"},
    {"i/2", [2], :unsupported, "MLX has no c128"},
    {"infinity/2", [1], :unsupported, "MLX has no f8"},
    {"nan/2", [1], :unsupported, "MLX has no f8"},
    {"neg_infinity/2", [1], :unsupported, "MLX has no f8"},
    {"pi/2", [5], :unsupported, "MLX has no f8"},
    {"smallest_positive_normal/2", [5], :unsupported, "MLX has no f8"}
  ])
end

defmodule Mlx.NxLinAlgDoctestTest do
  # As above; linalg_test.exs has what a decomposition has to satisfy.
  use Mlx.NxCase, async: true

  require Mlx.Doctests

  doctest Nx.LinAlg, except: [:moduledoc]

  @rounding "LAPACK rounds the last digit otherwise"
  @signs "LAPACK chooses other signs, or other vectors of a plane"

  Mlx.Doctests.except(Nx.LinAlg, [
    {"cholesky/1", [2, 5], :rounding, @rounding},
    {"determinant/1", [7], :rounding, @rounding},
    {"eigh/2", [2, 3, 4], {:signs, "eigh, the largest magnitude first"}, @signs},
    {"least_squares/3", [1, 2, 3], :rounding, @rounding},
    {"lu/1", [3], :rounding, @rounding},
    {"matrix_power/2", [6], :rounding, @rounding},
    {"pinv/2", [5, 6], :rounding, @rounding},
    {"qr/2", [1, 2, 3, 4, 5, 6], {:signs, "qr, reduced and complete"}, @signs},
    {"solve/2", [1, 4], :rounding, @rounding},
    {"svd/2", [1, 2, 3], {:signs, "svd, full and thin"}, @signs},
    {"triangular_solve/3", [1, 4, 11], :rounding, @rounding}
  ])
end
