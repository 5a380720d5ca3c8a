# Where Nx's own examples and tests give something else here, and why. The one list of these:
# test/nx/nx_doctest_test.exs and test/conformance/run.exs both read it.
#
# `doctests`: per module `{function, examples, kind, reason}`, the examples counted from 1.
# Mlx.Doctests has the kinds and checks that each exception is still needed.
#
# `tests`: per file of Nx `{name, reason}`, the name as ExUnit prints it.

erf_inv = "erf_inv of f32 differs in the last digit"
last_digit = "the last digit of f64 differs"
lapack = "LAPACK rounds the last digit otherwise"
signs = "LAPACK chooses other signs, or other vectors of a plane"

%{
  doctests: %{
    Nx => [
      {"tensor/2", [18], :unsupported, "MLX has no f8"},
      {"tensor/2", [19, 20], :unsupported, "MLX has no f8_e4m3fn"},
      {"bit_size/1", [1], :unsupported, "MLX has no u2"},
      {"erf_inv/1", [1, 2], :rounding, "Nx's f64 value is right to 8 digits only, Mlx's to all"},
      {"erfc/1", [1, 2], :rounding, last_digit},
      {"log1p/1", [2], :rounding, last_digit},
      {"sin/1", [2], :rounding, last_digit}
    ],
    Nx.Random => [
      {"normal/4", [1, 3, 4], :rounding, erf_inv},
      {"multivariate_normal/4", [2, 4], :rounding, erf_inv}
    ],
    Nx.Constants => [
      {"e/2", [5], :unsupported, "MLX has no f8"},
      {"epsilon/2", [5], :unsupported, "MLX has no f8"},
      {"euler_gamma/2", [5], :unsupported, "MLX has no f8"},
      {"i/2", [2], :unsupported, "MLX has no c128"},
      {"infinity/2", [1], :unsupported, "MLX has no f8"},
      {"nan/2", [1], :unsupported, "MLX has no f8"},
      {"neg_infinity/2", [1], :unsupported, "MLX has no f8"},
      {"pi/2", [5], :unsupported, "MLX has no f8"},
      {"smallest_positive_normal/2", [5], :unsupported, "MLX has no f8"}
    ],
    Nx.LinAlg => [
      {"cholesky/1", [2, 5], :rounding, lapack},
      {"determinant/1", [7], :rounding, lapack},
      {"eigh/2", [2, 3, 4], {:signs, "eigh, the largest magnitude first"}, signs},
      {"least_squares/3", [1, 2, 3], :rounding, lapack},
      {"lu/1", [3], :rounding, lapack},
      {"matrix_power/2", [6], :rounding, lapack},
      {"pinv/2", [5, 6], :rounding, lapack},
      {"qr/2", [1, 2, 3, 5, 6], :rounding, lapack},
      {"qr/2", [4], {:signs, "qr, reduced and complete"}, signs},
      {"solve/2", [1, 4], :rounding, lapack},
      {"svd/2", [1, 2, 3], :rounding, lapack},
      {"triangular_solve/3", [1, 4, 11], :rounding, lapack}
    ]
  },
  tests: %{}
}
