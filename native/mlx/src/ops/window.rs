//! Sums at the extremes of windows. MLX has nothing of the kind.

use super::index::{self, Scatter, cast};
use super::shape::as_strided;
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host;
use crate::shape::Shape;
use crate::stream::Stream;

/// Windows of `dims` elements, each `strides` behind the one before.
#[derive(Debug, Clone)]
pub(crate) struct Windows<'a> {
    pub dims: &'a [i32],
    pub strides: &'a [i32],
    pub max: bool,
}

impl Windows<'_> {
    /// How many there are along each axis, if they fit a shape.
    fn places(&self, shape: &[i32]) -> Option<Vec<i32>> {
        let fits = self.dims.len() == shape.len() && self.strides.len() == shape.len();
        let axes = shape.iter().zip(self.dims).zip(self.strides);
        let places = axes.map(|((size, dim), stride)| {
            (*dim >= 1 && dim <= size && *stride >= 1).then(|| (size - dim) / stride + 1)
        });
        fits.then(|| places.collect()).flatten()
    }
}

/// Of the shape of `x`: what `source` has for each window, added at the last of its extremes in `x`,
/// to `init`.
pub(super) fn scatter(
    x: &Array,
    source: &Array,
    init: &Array,
    windows: &Windows,
    s: &Stream,
) -> Result<Array> {
    let places = windows.places(x.dims());
    if places.as_deref() != Some(source.dims())
        || !init.dims().is_empty()
        || init.dtype() != source.dtype()
    {
        return Err(Error::invalid(
            "",
            format!(
                "windows of {windows:?} over {x:?} take a number for each, and got {source:?} and {init:?}"
            ),
        ));
    }
    match host::window_scatter(x, source, init, windows, s) {
        Some(made) => made,
        None => by_index(x, source, init, windows, s),
    }
}

/// The same by operations of MLX's.
pub(crate) fn by_index(
    x: &Array,
    source: &Array,
    init: &Array,
    windows: &Windows,
    s: &Stream,
) -> Result<Array> {
    let wide = |dims: &[i32]| dims.iter().map(|dim| i64::from(*dim)).collect::<Vec<_>>();
    let mut steps = vec![1_i64; x.dims().len()];
    for axis in (1..steps.len()).rev() {
        steps[axis - 1] = steps[axis] * i64::from(x.dims()[axis]);
    }
    let mut shape = wide(source.dims());
    shape.extend(wide(windows.dims));
    let shape = Shape::new(shape)?;
    let moves = steps.iter().zip(windows.strides);
    let mut strides: Vec<i64> = moves.map(|(step, by)| step * i64::from(*by)).collect();
    strides.extend(&steps);
    // A row per window, its last element first.
    let flat = [
        source.size() as i32,
        (shape.size() / source.size().max(1)) as i32,
    ];
    let rows = |of: &Array| {
        let of = c!(mlx_contiguous(of, false), s)?;
        let view = as_strided(&of, &shape, &strides, 0, s)?;
        let view = c!(mlx_reshape(view, [flat]), s)?;
        c!(mlx_flip_axes(view, [[1]]), s)
    };
    let size = i32::try_from(x.size())
        .map_err(|_| Error::invalid("", "windows are of at most 2^31 - 1 elements"))?;
    let order = c!(mlx_arange(0.0, f64::from(size), 1.0, Dtype::Int32), s)?;
    let seen = rows(x)?;
    let chosen = if windows.max {
        c!(mlx_argmax_axis(seen, 1, true), s)?
    } else {
        c!(mlx_argmin_axis(seen, 1, true), s)?
    };
    let order = rows(&order)?;
    let at = index::take_along_axis(&order, &chosen, 1, s)?;
    let at = c!(mlx_reshape(at, [[flat[0]]]), s)?;
    let at = cast(&at, Dtype::Int32, s)?;
    let sums = c!(mlx_broadcast_to(init, [[size]]), s)?;
    let updates = c!(mlx_reshape(source, [[flat[0], 1]]), s)?;
    let sums = index::scatter(Scatter::Add, &sums, &updates, &[&at], &[0], s)?;
    c!(mlx_reshape(sums, [x.dims()]), s)
}
