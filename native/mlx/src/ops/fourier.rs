//! Fourier transforms. Of a single point there is nothing to transform, and MLX's GPU kernels refuse
//! it where the point is what a view has along its last axis.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::stream::Stream;

/// What `transform` makes of `n` points, in `dtype`; of one, the point.
pub(super) fn of_points(
    x: &Array,
    n: i32,
    axis: i32,
    dtype: Dtype,
    s: &Stream,
    transform: impl FnOnce() -> Result<Array>,
) -> Result<Array> {
    let mut stops = x.dims().to_vec();
    let last = usize::try_from(if axis < 0 {
        axis + stops.len() as i32
    } else {
        axis
    });
    let (1, Some(stop @ 1..)) = (n, last.ok().and_then(|last| stops.get_mut(last))) else {
        return transform();
    };
    *stop = 1;
    let (starts, strides) = (vec![0; stops.len()], vec![1; stops.len()]);
    let point = c!(mlx_slice(x, [starts], [stops], [strides]), s)?;
    if dtype == Dtype::Float32 && point.dtype() == Dtype::Complex64 {
        c!(mlx_real(point), s)
    } else {
        c!(mlx_astype(point, dtype), s)
    }
}
