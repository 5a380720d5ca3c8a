# Where Nx's own examples and tests give something else here, and why. The one list of these:
# test/nx/nx_doctest_test.exs and test/conformance/run.exs both read it.
#
# `doctests`: per module `{function, examples, kind, reason}`, the examples counted from 1.
# Mlx.Doctests has the kinds and checks that each exception is still needed.
#
# Where versions of Nx differ, `later?` tells Nx 0.13 from what comes after it.
#
# `eager` and `compiled`: per file of a checkout of Nx `{name, reason}`, the name as ExUnit prints it,
# for the two parts of test/conformance/run.exs.

later? = function_exported?(Nx, :donatable, 1)
annex = "complex infinities follow C, and Nx a formula of its own"
atan2 = "Mlx raises for every complex number, Nx for those with an imaginary part"
blas = "sums are added up in another order: the last digit differs"
open = "Nx leaves the result open and Mlx does not raise: see Mlx.Backend"
erf_inv = "erf_inv of f32 differs in the last digit"
last_digit = "the last digit of f64 differs"
lapack = "LAPACK rounds the last digit otherwise"
signs = "LAPACK chooses other signs, or other vectors of a plane"

captured = "its function captures a tensor, which Nx allows of Nx.BinaryBackend only"
compared = "it compares the floats of another machine for equality: the last digit differs"
own = "the gradient is of Nx's own function, whose signs or vectors are not those of LAPACK"
references = "it matches a tensor in a pattern, which compares references"
serving = "it expects that there are no default options for Nx.Defn"
torchx_error = "it expects an error of Torchx about what that library lacks"

# These files run in both parts.
vectorize = [
  {"test cond only executes selected branches",
   "it matches a tensor in a message, which compares references"}
]

lin_alg = [
  {"test eigh computes eigenvalues and eigenvectors for a Hermitian matrix case",
   "it compares floats for equality: -5.0000005 is not -5.0"},
  {"test qr factors a square matrix", signs},
  {"test qr factors tall matrix", signs}
  | if(later?, do: [], else: [{"test svd finds the singular values of tall matrices", signs}])
]

random = [
  {"test properties multivariate_normal properties",
   "its covariance is not positive-definite, which LAPACK wants and Nx documents"},
  {"test types multivariate_normal", erf_inv},
  {"test types normal", erf_inv},
  {"test types uniform", "conversions to bf16 round to the nearest, Nx cuts off"}
]

captures = "test multi-tensor ops with captured closure tensors "

later_defn =
  if later?,
    do: [
      {"test block accepts a constant tensor argument", captured},
      {captures <> "clip in a jit closure over a concrete target", captured},
      {captures <> "gather in a jit closure over a concrete source", captured},
      {captures <> "put_slice in a jit closure over a concrete target", captured}
    ],
    else: []

grad_by_version =
  if later?,
    do: [
      {captures <> "clip grad wrt min and max with a captured target", captured},
      {captures <> "put_slice grad wrt the update with a captured target", captured},
      {captures <>
         "reduce and window_reduce raise their documented no-grad error, not a dispatch crash",
       captured},
      {"test solve computes the grad when the right-hand side is a constant", captured},
      {"test qr computes grad for tall tensor with mode: :complete", own}
    ],
    else: []

%{
  doctests: %{
    Nx => [
      {"acosh/1", [2], :rounding, last_digit},
      {"atanh/1", [2], :rounding, last_digit},
      {"expm1/1", [1, 2], :rounding, last_digit},
      {"rsqrt/1", [2], :rounding, last_digit},
      {"sinh/1", [2], :rounding, last_digit},
      {"erf_inv/1", [1, 2], :rounding, "Nx's f64 value is right to 8 digits only, Mlx's to all"},
      {"erfc/1", [2], :rounding, last_digit}
    ],
    Nx.Random => [
      {"normal/4", [1, 3], :rounding, erf_inv},
      {"multivariate_normal/4", [2, 4], :rounding, erf_inv}
    ],
    Nx.Constants => [
      {"i/2", [2], :unsupported, "MLX has no c128, and what falls back raises in these tests"}
    ],
    Nx.LinAlg => [
      {"cholesky/1", [2, 5], :rounding, lapack},
      {"determinant/1", [7], :rounding, lapack},
      {"eigh/2", [2, 3, 4], {:signs, "the largest magnitude first"}, signs},
      {"least_squares/3", [1, 2, 3], :rounding, lapack},
      {"lu/1", [3], :rounding, lapack},
      {"matrix_power/2", [6], :rounding, lapack},
      {"pinv/2", [5, 6], :rounding, lapack},
      {"qr/2", [1, 2, 3, 5, 6], :rounding, lapack},
      {"qr/2", [4], {:signs, "reduced and complete"}, signs},
      {"solve/2", [1, 4], :rounding, lapack},
      {"svd/2", [1, 2, 3], :rounding, lapack},
      {"triangular_solve/3", [1, 4, 11], :rounding, lapack}
    ]
  },
  eager: %{
    "nx/test/nx_test" => [
      {"test bitshift raises for negative numbers on the left", open},
      {"test bitshift raises for negative numbers on the right", open},
      {"test gather raises when out of bounds", open},
      {"test indexed_add raises when out of bounds", open},
      {"test indexed_put raises when out of bounds", open},
      {"test covariance/1 calculates the covariance of a tensor", blas},
      {"test covariance/1 uses optional ddof", blas},
      {"test covariance/1 with tensor batch", blas},
      {"test fft/ifft Bluestein clause", "it compares floats for equality: 1.5e-7 is not 0.0"}
    ],
    "nx/test/nx/non_finite_test" => [
      {"test aggregate operations product", annex},
      {"test binary operations pow", annex},
      {"test binary operations atan2", atan2},
      {"test binary operations remainder", "it expects an error of Erlang's arithmetic"},
      {"test unary operations acos", annex},
      {"test unary operations acosh", annex},
      {"test unary operations asin", annex},
      {"test unary operations asinh", annex},
      {"test unary operations atan", annex},
      {"test unary operations atanh", annex},
      {"test unary operations tanh", annex}
    ],
    "nx/test/nx/complex_test" => [{"test binary operations atan2", atan2}],
    "nx/test/nx/vectorize_test" => vectorize,
    "nx/test/nx/lin_alg_test" => lin_alg,
    "nx/test/nx/random_test" => random
  },
  compiled: %{
    "nx/test/nx/defn_test" => later_defn,
    "nx/test/nx/defn/grad_test" =>
      [
        {"test cholesky computes grad for composed {2,2}-tensor", compared},
        {"test concatenate computes grad for powers of a {2, 2}-tensor", compared},
        {"test pad computes with pad value from tensor", compared},
        {"test take computes gradient", compared},
        {"test metadata computes custom grad", references},
        {"test conv rule computes gradient of kernel when image is a constant closure variable",
         captured},
        {"test vectorization composed: sigmoid(x @ w + b) (exercises composed chain with captures)",
         captured},
        {"test vectorization conv with vectorized (exercises conv grad)", captured},
        {"test vectorization dot with captured matrix (exercises concrete tensor handling)",
         captured},
        {"test vectorization grad of non-vectorized target with vectorized capture", captured},
        {"test vectorization mixed: vectorized x * non-vectorized y (exercises broadcast_vectors)",
         captured},
        {"test vectorization non-vectorized input, vectorized output", captured},
        {"test vectorization supports combination of vectorized and non-vectorized tensors",
         captured},
        {"test vectorization supports combination of vectorized and non-vectorized tensors over composed function",
         captured},
        {"test vectorization vectorized grad through Nx.LinAlg.triangular_solve with captured a",
         captured},
        {"test vectorization window_scatter_max/min with vectorized inputs", captured}
      ] ++ grad_by_version,
    "nx/test/nx/defn/evaluator_test" => [
      {"test decompositions svd", "LAPACK gives -0.0 where it compares with 0.0"}
      | if(later?, do: [], else: [{"test decompositions qr", signs}])
    ],
    "nx/test/nx/defn/composite_test" => [
      {"doctest Nx.Defn.Composite.flatten_list/2 (3)", references}
    ],
    "nx/test/nx/serving_test" => [
      {"test batched_run + streaming 2+2=4 with pre and post", serving},
      {"test batched_run + streaming 3+3=4+2(+pad) with pre and post", serving},
      {"test batched_run + streaming 5=3+2(+pad) (oversized)", serving},
      {"test batched_run + streaming 5=3+3 (oversized)", serving},
      {"test batched_run + streaming with output streaming", serving},
      {"test batched_run 1=1", serving},
      {"test batched_run 2+2=4", serving},
      {"test batched_run 2+2=4 with pre and post", serving},
      {"test batched_run 5=3+2(+pad) (oversized)", serving},
      {"test batched_run 5=3+3 (oversized)", serving},
      {"test batched_run with input streaming", serving},
      {"test run + streaming with client pre/post", serving},
      {"test run + streaming with module callbacks", serving},
      {"test run/2 with client pre/post", serving},
      {"test run/2 with module callbacks", serving}
    ],
    "nx/test/nx/vectorize_test" => vectorize,
    "nx/test/nx/lin_alg_test" => lin_alg,
    "nx/test/nx/random_test" => random,
    "exla/test/exla/defn/expr_test" => [
      {"test precision raises on bad precision", "an option of EXLA's, ignored as others are"}
    ],
    "exla/test/exla/defn/api_test" => [
      {"test disk cache reads and writes", "EXLA's option `cache: path` and its log"},
      {"test options logs when debugging", "EXLA's log"},
      {"test telemetry executes event when function is compiled", "EXLA's event"}
    ],
    "exla/test/exla/defn/vectorize_test" => [
      {"test cond if with container result",
       "hooks are given vectorized axes as leading axes, as in Nx.Defn.Evaluator"}
    ],
    "exla/test/exla/defn/runtime_call_test" => [
      {"test runtime_call with CUDA client fails when CUDA not available", "a client of EXLA's"}
    ],
    "torchx/test/torchx/nx_test" => [
      {"test Nx.as_type non-finite to integer conversions",
       "Nx has infinities become the greatest and least integers, Torchx zero"},
      {"test rounding error tests round/1", "Nx rounds halves away from zero, Torchx to even"}
    ],
    "torchx/test/torchx/complex_test" => [
      {"test binary operations atan2", torchx_error},
      {"test unary operations expm1", torchx_error},
      {"test unary operations log1p", torchx_error}
    ],
    "torchx/test/torchx/nx_linalg_test" => [
      {"test svd factors square matrix", signs},
      {"test svd factors tall matrix", signs},
      {"test triangular_solve left_side: false", torchx_error}
    ]
  }
}
