//! Scans and orders. Along an axis of one element they change nothing, and MLX's GPU kernels count by
//! the stride of that axis, which a view may have any value of: they then compute something else,
//! or fail, and everything after them. What they sort has to lie row by row.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::stream::{Device, Stream};

/// What `scan` makes of an axis of several elements, else `x`; if that is what the scan includes.
pub(super) fn unless_single(
    x: &Array,
    axis: i32,
    inclusive: bool,
    scan: impl FnOnce() -> Result<Array>,
) -> Result<Array> {
    if inclusive && is_single(x, axis) {
        Ok(x.clone())
    } else {
        scan()
    }
}

/// The positions that sort an axis.
pub(super) fn argsort(x: &Array, axis: i32, s: &Stream) -> Result<Array> {
    if is_single(x, axis) {
        let dims = x.dims().to_vec();
        return c!(mlx_zeros([dims], Dtype::Uint32), s);
    }
    let x = &in_rows(x, s)?;
    c!(mlx_argsort_axis(x, axis), s)
}

/// An axis sorted.
pub(super) fn sort(x: &Array, axis: i32, s: &Stream) -> Result<Array> {
    unless_single(x, axis, true, || {
        let x = &in_rows(x, s)?;
        c!(mlx_sort_axis(x, axis), s)
    })
}

fn in_rows(x: &Array, s: &Stream) -> Result<Array> {
    match s.device {
        Device::Cpu => Ok(x.clone()),
        Device::Gpu(_) => c!(mlx_contiguous(x, false), s),
    }
}

fn is_single(x: &Array, axis: i32) -> bool {
    let dims = x.dims();
    let index = if axis < 0 {
        axis + dims.len() as i32
    } else {
        axis
    };
    usize::try_from(index).is_ok_and(|index| dims.get(index) == Some(&1))
}
