//! Indexing that stays within the array. MLX checks no index: one outside reads or writes memory
//! that is not the array's.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::ops::shape::check_axes;
use crate::ops::vector;
use crate::shape::Shape;
use crate::stream::Stream;

/// Which value wins where an update meets one already there.
pub(super) enum Scatter {
    Put,
    Add,
    Max,
    Min,
    Prod,
}

pub(super) fn gather(
    x: &Array,
    indices: &[&Array],
    axes: &[i32],
    sizes: &[i32],
    s: &Stream,
) -> Result<Array> {
    let within = room(sizes, x.dims())?;
    let indices = clamped(indices, axes, &within, s)?;
    let indices: Vec<&Array> = indices.iter().collect();
    c!(mlx_gather(x, vector(&indices), [axes], [sizes]), s)
}

pub(super) fn scatter(
    kind: Scatter,
    x: &Array,
    updates: &Array,
    indices: &[&Array],
    axes: &[i32],
    s: &Stream,
) -> Result<Array> {
    let dims = x.dims();
    // The updates' trailing axes are the slices' extents; each must fit behind any index.
    let slices = updates
        .dims()
        .get(updates.dims().len().saturating_sub(dims.len())..)
        .filter(|slices| slices.len() == dims.len())
        .ok_or_else(|| {
            Error::invalid(
                "",
                format!(
                    "updates of shape {:?} are no slices of {dims:?}",
                    updates.dims()
                ),
            )
        })?;
    let within = room(slices, dims)?;
    let indices = clamped(indices, axes, &within, s)?;
    let refs: Vec<&Array> = indices.iter().collect();
    let indices = vector(&refs);
    let made = match kind {
        Scatter::Put => c!(mlx_scatter(x, indices, updates, [axes]), s),
        Scatter::Add => c!(mlx_scatter_add(x, indices, updates, [axes]), s),
        Scatter::Max => c!(mlx_scatter_max(x, indices, updates, [axes]), s),
        Scatter::Min => c!(mlx_scatter_min(x, indices, updates, [axes]), s),
        Scatter::Prod => c!(mlx_scatter_prod(x, indices, updates, [axes]), s),
    }?;
    // MLX has checked the rest; computing, it would divide by the size of an update.
    if updates.size() == 0 {
        return Ok(x.clone());
    }
    Ok(made)
}

pub(super) fn take_axis(x: &Array, indices: &Array, axis: i32, s: &Stream) -> Result<Array> {
    let last = dim(x, axis)? - 1;
    let indices = clamp(indices, last, s)?;
    c!(mlx_take_axis(x, indices, axis), s)
}

pub(super) fn take_along_axis(x: &Array, indices: &Array, axis: i32, s: &Stream) -> Result<Array> {
    let last = dim(x, axis)? - 1;
    let indices = clamp(indices, last, s)?;
    c!(mlx_take_along_axis(x, indices, axis), s)
}

pub(super) fn slice_dynamic(
    x: &Array,
    start: &Array,
    axes: &[i32],
    sizes: &[i32],
    s: &Stream,
) -> Result<Array> {
    let start = starts(x, start, axes, sizes, s)?;
    c!(mlx_slice_dynamic(x, start, [axes], [sizes]), s)
}

pub(super) fn slice_update_dynamic(
    x: &Array,
    update: &Array,
    start: &Array,
    axes: &[i32],
    s: &Stream,
) -> Result<Array> {
    let sizes = update.dims();
    let start = starts(x, start, axes, sizes, s)?;
    c!(mlx_slice_update_dynamic(x, update, start, [axes]), s)
}

/// How far a slice of these sizes can be moved along each axis.
fn room(sizes: &[i32], dims: &[i32]) -> Result<Vec<i32>> {
    let fits = |(size, dim): (&i32, &i32)| (0..=*dim).contains(size);
    if sizes.len() != dims.len() || !sizes.iter().zip(dims).all(fits) {
        return Err(Error::invalid(
            "",
            format!("a slice of sizes {sizes:?} does not fit {dims:?}"),
        ));
    }
    Ok(sizes
        .iter()
        .zip(dims)
        .map(|(size, dim)| dim - size)
        .collect())
}

/// The starts of a slice, moved so that the whole slice lies within the array.
fn starts(x: &Array, start: &Array, axes: &[i32], sizes: &[i32], s: &Stream) -> Result<Array> {
    check_axes(x, axes)?;
    let left = room(sizes, x.dims())?;
    let room: Vec<i32> = axes.iter().map(|axis| left[*axis as usize]).collect();
    if start.dims() != [axes.len() as i32] {
        return Err(Error::invalid(
            "",
            format!("the starts of axes {axes:?} have shape {:?}", start.dims()),
        ));
    }
    let bytes: Vec<u8> = room.iter().flat_map(|left| left.to_ne_bytes()).collect();
    let shape = Shape::new(vec![room.len() as i64])?;
    let room = Array::from_bytes(&bytes, &shape, Dtype::Int32)?;
    bound(start, room, s)
}

fn clamped(indices: &[&Array], axes: &[i32], within: &[i32], s: &Stream) -> Result<Vec<Array>> {
    if indices.len() != axes.len() {
        let (count, axes) = (indices.len(), axes.len());
        return Err(Error::invalid(
            "",
            format!("{count} index arrays were given for {axes} axes"),
        ));
    }
    indices
        .iter()
        .zip(axes)
        .map(|(index, axis)| {
            let last = usize::try_from(*axis)
                .ok()
                .and_then(|axis| within.get(axis))
                .ok_or_else(|| no_axis(*axis, within.len()))?;
            clamp(index, *last, s)
        })
        .collect()
}

fn clamp(indices: &Array, last: i32, s: &Stream) -> Result<Array> {
    let last = Array::from_bytes(&last.to_ne_bytes(), &Shape::default(), Dtype::Int32)?;
    bound(indices, last, s)
}

/// Each index within 0 and `last`, as i32, compared in a type that holds both as they are.
fn bound(indices: &Array, last: Array, s: &Stream) -> Result<Array> {
    let dtype = indices.dtype();
    if !dtype.is_integer() {
        return Err(Error::invalid(
            "",
            format!("indices must be integers, and these are {dtype:?}"),
        ));
    }
    let wide = match dtype {
        Dtype::Uint32 | Dtype::Uint64 | Dtype::Int64 => dtype,
        _ => Dtype::Int32,
    };
    let (indices, last) = (cast(indices, wide, s)?, cast(&last, wide, s)?);
    let mut within = c!(mlx_minimum(indices, last), s)?;
    if wide.parts().0 == "s" {
        let zero = super::integer::constant(0, wide, s)?;
        within = c!(mlx_maximum(within, zero), s)?;
    }
    cast(&within, Dtype::Int32, s)
}

pub(super) fn cast(array: &Array, dtype: Dtype, s: &Stream) -> Result<Array> {
    if array.dtype() == dtype {
        return Ok(array.clone());
    }
    c!(mlx_astype(array, dtype), s)
}

fn dim(x: &Array, axis: i32) -> Result<i32> {
    let rank = x.dims().len();
    let index = if axis < 0 { axis + rank as i32 } else { axis };
    usize::try_from(index)
        .ok()
        .and_then(|index| x.dims().get(index))
        .copied()
        .ok_or_else(|| no_axis(axis, rank))
}

fn no_axis(axis: i32, rank: usize) -> Error {
    Error::invalid("", format!("an array of rank {rank} has no axis {axis}"))
}
