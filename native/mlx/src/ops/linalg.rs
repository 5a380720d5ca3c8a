//! Linear algebra, lazy and total. LAPACK refuses some values while MLX computes, and MLX's
//! scheduler never gets over a failure there: after some dozens of them it waits for ever. So what
//! LAPACK would refuse it is not given, and the results for such a matrix are NaN.

use mlx_ffi as ffi;

use super::integer::constant;
use crate::array::{Array, Vector};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host;
use crate::shape::Shape;
use crate::stream::Stream;

/// The matrices of an array, with zeros in place of each that has an element which is NaN or
/// infinite.
struct Finite {
    matrices: Array,
    /// Which of them are themselves: bools with both of a matrix's axes kept, as 1.
    are: Array,
}

impl Finite {
    fn of(a: &Array, s: &Stream) -> Result<Self> {
        check_matrices(a)?;
        let each = if a.dtype() == Dtype::Complex64 {
            // MLX looks at one part only.
            let (real, imag) = (c!(mlx_real(a), s)?, c!(mlx_imag(a), s)?);
            let (real, imag) = (c!(mlx_isfinite(real), s)?, c!(mlx_isfinite(imag), s)?);
            c!(mlx_logical_and(real, imag), s)?
        } else {
            c!(mlx_isfinite(a), s)?
        };
        let are = c!(mlx_all_axes(each, [[-2, -1]], true), s)?;
        let zero = constant(0, a.dtype(), s)?;
        let matrices = c!(mlx_where(are, a, zero), s)?;
        Ok(Self { matrices, are })
    }

    /// What a decomposition made of the matrices, with NaN for those that are not themselves.
    fn or_nan<const N: usize>(&self, mut made: [Array; N], s: &Stream) -> Result<[Array; N]> {
        for array in &mut made {
            // Values have an axis less than matrices.
            let less = self.are.dims().len() - array.dims().len();
            let axes: &[i32] = if less == 1 { &[-1] } else { &[] };
            let are = c!(mlx_squeeze_axes(self.are, [axes]), s)?;
            *array = or_nan(&are, array, s)?;
        }
        Ok(made)
    }
}

/// LAPACK divides by the sizes.
fn check_matrices(a: &Array) -> Result<()> {
    if a.dims().len() >= 2 && a.size() > 0 {
        return Ok(());
    }
    Err(not_matrices())
}

fn not_matrices() -> Error {
    Error::invalid(
        "",
        "it takes matrices: an array with two axes or more, none of them empty",
    )
}

fn or_nan(fine: &Array, array: &Array, s: &Stream) -> Result<Array> {
    let nan = nan(array.dtype(), s)?;
    c!(mlx_where(fine, array, nan), s)
}

fn nan(dtype: Dtype, s: &Stream) -> Result<Array> {
    let bytes = f32::NAN.to_ne_bytes();
    let single = Array::from_bytes(&bytes, &Shape::default(), Dtype::Float32)?;
    c!(mlx_astype(single, dtype), s)
}

/// Whether the elements on the diagonal of each matrix satisfy `test`, as bools with both axes
/// kept.
fn diagonal_all(
    a: &Array,
    test: impl FnOnce(&Array) -> Result<Array>,
    s: &Stream,
) -> Result<Array> {
    let fine = test(&c!(mlx_diagonal(a, 0, -2, -1), s)?)?;
    let all = c!(mlx_all_axes(fine, [[-1]], true), s)?;
    c!(mlx_expand_dims_axes(all, [[-1]]), s)
}

/// L or U of positive-definite matrices. LAPACK stops at the first pivot that is not positive, and
/// leaves it there.
pub(super) fn cholesky(a: &Array, upper: bool, s: &Stream) -> Result<Array> {
    let finite = Finite::of(a, s)?;
    let factor = c!(mlx_linalg_cholesky(finite.matrices, upper), s)?;
    let zero = constant(0, factor.dtype(), s)?;
    let definite = diagonal_all(&factor, |pivots| c!(mlx_greater(pivots, zero), s), s)?;
    let [factor] = finite.or_nan([factor], s)?;
    or_nan(&definite, &factor, s)
}

/// The inverse, from LU: of P L U it is U⁻¹ L⁻¹ Pᵀ. Singular matrices have NaN for one.
pub(super) fn inv(a: &Array, s: &Stream) -> Result<Array> {
    let [.., rows, columns] = a.dims() else {
        return Err(not_matrices());
    };
    if rows != columns {
        return Err(Error::invalid("", "only square matrices have an inverse"));
    }
    let size = f64::from(*rows);
    let [rows, lower, upper] = lu(a, s)?;
    let places = c!(mlx_arange(0.0, size, 1.0, Dtype::Uint32), s)?;
    let places = c!(mlx_expand_dims_axes(places, [[-1]]), s)?;
    let rows = c!(mlx_expand_dims_axes(rows, [[-2]]), s)?;
    let moves = c!(mlx_equal(places, rows), s)?;
    let moves = c!(mlx_astype(moves, a.dtype()), s)?;
    let half = solve_triangular(&lower, &moves, false, s)?;
    let inverse = solve_triangular(&upper, &half, true, s)?;
    let zero = constant(0, upper.dtype(), s)?;
    let regular = diagonal_all(&upper, |pivots| c!(mlx_not_equal(pivots, zero), s), s)?;
    or_nan(&regular, &inverse, s)
}

/// Of A X = B with a triangular A. NaN stands in for a pivot of zero, which LAPACK refuses.
pub(super) fn solve_triangular(a: &Array, b: &Array, upper: bool, s: &Stream) -> Result<Array> {
    check_matrices(a)?;
    if let Some(solved) = host::solve_triangular(a, b, upper, s) {
        return solved;
    }
    let [.., rows, columns] = a.dims() else {
        return Err(not_matrices());
    };
    let diagonal = c!(mlx_eye(*rows, *columns, 0, Dtype::Bool), s)?;
    let (zero, nan) = (constant(0, a.dtype(), s)?, nan(a.dtype(), s)?);
    let zero = c!(mlx_equal(a, zero), s)?;
    let pivotless = c!(mlx_logical_and(diagonal, zero), s)?;
    let regular = c!(mlx_where(pivotless, nan, a), s)?;
    c!(mlx_linalg_solve_triangular(regular, b, upper), s)
}

pub(super) fn qr(a: &Array, s: &Stream) -> Result<[Array; 2]> {
    let finite = Finite::of(a, s)?;
    let made = pair("qr", |q, r| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_qr(q, r, finite.matrices.raw(), s.raw()) }
    })?;
    finite.or_nan(made, s)
}

/// Eigenvalues in ascending order and eigenvectors of a symmetric or Hermitian matrix.
///
/// LAPACK does not converge for some whose elements differ by more than the square of what the
/// type can hold as a whole. With the largest near 1 it does, since the least vanish beside it.
pub(super) fn eigh(a: &Array, lower: bool, s: &Stream) -> Result<[Array; 2]> {
    let triangle = if lower { c"L" } else { c"U" };
    let finite = Finite::of(a, s)?;
    let magnitude = magnitude(&finite.matrices, s)?;
    let scale = c!(mlx_reciprocal(magnitude), s)?;
    let scale = c!(mlx_astype(scale, a.dtype()), s)?;
    let a = c!(mlx_multiply(finite.matrices, scale), s)?;
    let [values, vectors] = pair("eigh", |values, vectors| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_eigh(values, vectors, a.raw(), triangle.as_ptr(), s.raw()) }
    })?;
    let magnitude = c!(mlx_squeeze_axes(magnitude, [[-1]]), s)?;
    let values = c!(mlx_multiply(values, magnitude), s)?;
    finite.or_nan([values, vectors], s)
}

/// The power of two at or below the largest magnitude of each matrix, with both axes kept; the
/// least that is normal for zeros. Scaling by it is exact.
fn magnitude(a: &Array, s: &Stream) -> Result<Array> {
    let largest = |part: &Array| {
        let absolute = c!(mlx_abs(part), s)?;
        c!(mlx_max_axes(absolute, [[-2, -1]], true), s)
    };
    let (most, bits, shift) = match a.dtype() {
        Dtype::Float32 => (largest(a)?, Dtype::Uint32, 23),
        Dtype::Float64 => (largest(a)?, Dtype::Uint64, 52),
        Dtype::Complex64 => {
            let real = largest(&c!(mlx_real(a), s)?)?;
            let imag = largest(&c!(mlx_imag(a), s)?)?;
            (c!(mlx_maximum(real, imag), s)?, Dtype::Uint32, 23)
        }
        // MLX says itself which types it decomposes.
        other => return constant(1, other, s),
    };
    // Without its fraction a number is a power of two.
    let shift = constant(shift, bits, s)?;
    let pattern = c!(mlx_view(most, bits), s)?;
    let exponent = c!(mlx_right_shift(pattern, shift), s)?;
    let pattern = c!(mlx_left_shift(exponent, shift), s)?;
    let power = c!(mlx_view(pattern, most.dtype()), s)?;
    let least = constant(1, bits, s)?;
    let least = c!(mlx_left_shift(least, shift), s)?;
    let least = c!(mlx_view(least, most.dtype()), s)?;
    c!(mlx_maximum(power, least), s)
}

/// The rows' permutation, L and U.
pub(super) fn lu(a: &Array, s: &Stream) -> Result<[Array; 3]> {
    let finite = Finite::of(a, s)?;
    // MLX takes the bytes of its factors for their size, and where a matrix of one row or column
    // counts as contiguous in either order it writes as many elements. In a batch none does.
    let batch = c!(mlx_expand_dims_axes(finite.matrices, [[0]]), s)?;
    let [rows, lower, upper] = triple("lu", |res| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_lu(res, batch.raw(), s.raw()) }
    })?;
    let rows = c!(mlx_squeeze_axes(rows, [[0]]), s)?;
    let lower = c!(mlx_squeeze_axes(lower, [[0]]), s)?;
    let upper = c!(mlx_squeeze_axes(upper, [[0]]), s)?;
    let [lower, upper] = finite.or_nan([lower, upper], s)?;
    Ok([rows, lower, upper])
}

/// U, the singular values and the conjugate transpose of V, the squares in full.
pub(super) fn svd(a: &Array, s: &Stream) -> Result<[Array; 3]> {
    let finite = Finite::of(a, s)?;
    let made = triple("svd", |res| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_svd(res, finite.matrices.raw(), true, s.raw()) }
    })?;
    finite.or_nan(made, s)
}

fn pair(
    op: &'static str,
    call: impl FnOnce(*mut ffi::mlx_array, *mut ffi::mlx_array) -> i32,
) -> Result<[Array; 2]> {
    let mut second = None;
    let first = Array::build(op, |first| {
        let mut status = 0;
        let made = Array::build(op, |res| {
            status = call(first, res);
            status
        });
        second = Some(made);
        status
    })?;
    match second {
        Some(second) => Ok([first, second?]),
        None => Err(Error::invalid(op, "it made one array and not two")),
    }
}

fn triple(
    op: &'static str,
    call: impl FnOnce(*mut ffi::mlx_vector_array) -> i32,
) -> Result<[Array; 3]> {
    let made = Vector::build(op, call)?;
    <[Array; 3]>::try_from(made)
        .map_err(|made| Error::invalid(op, format!("it made {} arrays and not three", made.len())))
}
