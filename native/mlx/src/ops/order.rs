//! Scans and orders. Along an axis of one element they change nothing, and MLX's GPU kernels count by
//! the stride of that axis, which a view may have any value of: they then compute something else,
//! or fail, and everything after them. What they sort has to lie row by row.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::host;
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
    if let Some(made) = hosted(x, axis, s, host::argsort) {
        return made;
    }
    let x = &in_rows(x, s)?;
    c!(mlx_argsort_axis(x, axis), s)
}

/// An axis sorted.
pub(super) fn sort(x: &Array, axis: i32, s: &Stream) -> Result<Array> {
    if is_single(x, axis) {
        return Ok(x.clone());
    }
    if let Some(made) = hosted(x, axis, s, host::sort) {
        return made;
    }
    let x = &in_rows(x, s)?;
    c!(mlx_sort_axis(x, axis), s)
}

/// What the host makes of an axis, where there is such a one.
fn hosted(
    x: &Array,
    axis: i32,
    s: &Stream,
    order: impl Fn(&Array, usize, &Stream) -> Option<Result<Array>>,
) -> Option<Result<Array>> {
    let axis = index(x, axis)?;
    if s.device != Device::Cpu || !host::is_far(x, axis) {
        return order(x, axis, s);
    }
    let last = x.dims().len() - 1;
    let mut axes: Vec<i32> = (0..=last as i32).collect();
    axes.swap(axis, last);
    let turned = |x: &Array| c!(mlx_transpose_axes(x, [axes]), s);
    match turned(x) {
        Ok(x) => order(&x, last, s).map(|made| turned(&made?)),
        Err(error) => Some(Err(error)),
    }
}

fn in_rows(x: &Array, s: &Stream) -> Result<Array> {
    match s.device {
        Device::Cpu => Ok(x.clone()),
        Device::Gpu(_) => c!(mlx_contiguous(x, false), s),
    }
}

fn is_single(x: &Array, axis: i32) -> bool {
    index(x, axis).is_some_and(|index| x.dims()[index] == 1)
}

/// An axis counted from the first, if there is such a one.
fn index(x: &Array, axis: i32) -> Option<usize> {
    let rank = x.dims().len();
    let index = if axis < 0 { axis + rank as i32 } else { axis };
    usize::try_from(index).ok().filter(|index| *index < rank)
}
