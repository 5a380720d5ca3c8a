//! Linear algebra. Its routines fail on some values, and a failure inside MLX is never given back
//! by its scheduler: after some dozens of them it waits for ever. So the values are looked at first.

use mlx_ffi as ffi;

use super::integer::constant;
use crate::array::{Array, Vector};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// The inverse, by way of LU where it has to be seen whether there is one.
pub(super) fn inv(a: &Array, s: &Stream) -> Result<Array> {
    let inverse = c!(mlx_linalg_inv(a), s)?;
    finite(a, s)?;
    let [_permutation, _lower, upper] = lu(a, s)?;
    regular(&upper, s)?;
    Ok(inverse)
}

pub(super) fn solve_triangular(a: &Array, b: &Array, upper: bool, s: &Stream) -> Result<Array> {
    let solution = c!(mlx_linalg_solve_triangular(a, b, upper), s)?;
    regular(a, s)?;
    Ok(solution)
}

fn finite(a: &Array, s: &Stream) -> Result<()> {
    if all(&c!(mlx_isfinite(a), s)?, s)? {
        return Ok(());
    }
    Err(Error::invalid(
        "",
        "the matrix has elements that are NaN or infinite",
    ))
}

/// Whether a triangular matrix has no zero on its diagonal.
fn regular(triangle: &Array, s: &Stream) -> Result<()> {
    let diagonal = c!(mlx_diagonal(triangle, 0, -2, -1), s)?;
    let zero = constant(0, triangle.dtype(), s)?;
    if all(&c!(mlx_not_equal(diagonal, zero), s)?, s)? {
        return Ok(());
    }
    Err(Error::invalid("", "the matrix is singular"))
}

fn all(conditions: &Array, s: &Stream) -> Result<bool> {
    let bytes = c!(mlx_all(conditions, false), s)?.bytes(None, s)?;
    Ok(bytes.first().is_some_and(|all| *all != 0))
}

pub(super) fn qr(a: &Array, s: &Stream) -> Result<[Array; 2]> {
    pair("qr", |q, r| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_qr(q, r, a.raw(), s.raw()) }
    })
}

/// Eigenvalues in ascending order and eigenvectors of a symmetric matrix.
pub(super) fn eigh(a: &Array, lower: bool, s: &Stream) -> Result<[Array; 2]> {
    let triangle = if lower { c"L" } else { c"U" };
    finite(a, s)?;
    pair("eigh", |values, vectors| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_eigh(values, vectors, a.raw(), triangle.as_ptr(), s.raw()) }
    })
}

/// The rows' permutation, L and U.
pub(super) fn lu(a: &Array, s: &Stream) -> Result<[Array; 3]> {
    triple("lu", |res| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_lu(res, a.raw(), s.raw()) }
    })
}

/// U, the singular values and the transpose of V, the squares in full.
pub(super) fn svd(a: &Array, s: &Stream) -> Result<[Array; 3]> {
    finite(a, s)?;
    triple("svd", |res| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_svd(res, a.raw(), true, s.raw()) }
    })
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
