//! Decompositions, which make several arrays.

use mlx_ffi as ffi;

use crate::array::{Array, Vector};
use crate::error::{Error, Result};
use crate::stream::Stream;

pub(super) fn qr(a: &Array, s: &Stream) -> Result<[Array; 2]> {
    pair("qr", |q, r| {
        // SAFETY: the handles are live for the call.
        unsafe { ffi::mlx_linalg_qr(q, r, a.raw(), s.raw()) }
    })
}

/// Eigenvalues in ascending order and eigenvectors of a symmetric matrix.
pub(super) fn eigh(a: &Array, lower: bool, s: &Stream) -> Result<[Array; 2]> {
    let triangle = if lower { c"L" } else { c"U" };
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
