//! Indexing that stays within the array. MLX checks no index: one outside reads or writes memory
//! that is not the array's. Reads take what is nearest, and scatters outside do nothing.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host::{self, Merged};
use crate::ops::integer::constant;
use crate::ops::shape::{check_axes, pad};
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
    let last = check(indices, axes, &within)?;
    if let Some(made) = host::gather(x, indices, axes, sizes, s) {
        return made;
    }
    let indices = clamped(indices, &last, s)?;
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
    let last = check(indices, axes, &within)?;
    if updates.size() == 0 {
        // MLX checks the rest; computing, it would divide by the size of an update.
        let indices = clamped(indices, &last, s)?;
        return scattered(kind, x, updates, &indices, axes, s).map(|_| x.clone());
    }
    let merged = match kind {
        Scatter::Put => Some(Merged::Put),
        Scatter::Add => Some(Merged::Add),
        _ => None,
    };
    let hosted = merged.and_then(|merged| host::scatter(merged, x, updates, indices, axes, s));
    if let Some(made) = hosted {
        return made;
    }
    let Some((first, size)) = axes.first().map(|axis| (*axis, slices[*axis as usize])) else {
        return scattered(kind, x, updates, &[], axes, s);
    };
    // An update outside is of room that is made for it, behind the array, and cut off again.
    let dim = dims[first as usize];
    let spare = constant(dim, Dtype::Int32, s)?;
    let nothing = constant(0, x.dtype(), s)?;
    let grown = pad(x, &nothing, &[first], &[0], &[size], s)?;
    let inside = inside(indices, &last, s)?;
    let mut indices = clamped(indices, &last, s)?;
    indices[0] = c!(mlx_where(inside, &indices[0], spare), s)?;
    let made = scattered(kind, &grown, updates, &indices, axes, s)?;
    let (starts, strides) = (vec![0; dims.len()], vec![1; dims.len()]);
    c!(mlx_slice(made, [starts], [dims], [strides]), s)
}

fn scattered(
    kind: Scatter,
    x: &Array,
    updates: &Array,
    indices: &[Array],
    axes: &[i32],
    s: &Stream,
) -> Result<Array> {
    let refs: Vec<&Array> = indices.iter().collect();
    let indices = vector(&refs);
    match kind {
        Scatter::Put => c!(mlx_scatter(x, indices, updates, [axes]), s),
        Scatter::Add => c!(mlx_scatter_add(x, indices, updates, [axes]), s),
        Scatter::Max => c!(mlx_scatter_max(x, indices, updates, [axes]), s),
        Scatter::Min => c!(mlx_scatter_min(x, indices, updates, [axes]), s),
        Scatter::Prod => c!(mlx_scatter_prod(x, indices, updates, [axes]), s),
    }
}

pub(super) fn take_axis(x: &Array, indices: &Array, axis: i32, s: &Stream) -> Result<Array> {
    let (axis, dim) = place(x, axis)?;
    check_type(indices)?;
    if let Some(made) = host::take(x, indices, axis, s) {
        return made;
    }
    let indices = clamp(indices, dim - 1, s)?;
    c!(mlx_take_axis(x, indices, axis as i32), s)
}

pub(super) fn take_along_axis(x: &Array, indices: &Array, axis: i32, s: &Stream) -> Result<Array> {
    let (axis, dim) = place(x, axis)?;
    check_type(indices)?;
    if let Some(made) = host::take_along(x, indices, axis, s) {
        return made;
    }
    let indices = clamp(indices, dim - 1, s)?;
    c!(mlx_take_along_axis(x, indices, axis as i32), s)
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

/// The last index along each of the axes, if there are index arrays for them.
fn check(indices: &[&Array], axes: &[i32], within: &[i32]) -> Result<Vec<i32>> {
    if indices.len() != axes.len() {
        let (count, axes) = (indices.len(), axes.len());
        return Err(Error::invalid(
            "",
            format!("{count} index arrays were given for {axes} axes"),
        ));
    }
    let last = |(index, axis): (&&Array, &i32)| {
        check_type(index)?;
        let last = usize::try_from(*axis)
            .ok()
            .and_then(|axis| within.get(axis));
        last.copied().ok_or_else(|| no_axis(*axis, within.len()))
    };
    indices.iter().zip(axes).map(last).collect()
}

fn check_type(indices: &Array) -> Result<()> {
    let dtype = indices.dtype();
    if dtype.is_integer() {
        return Ok(());
    }
    Err(Error::invalid(
        "",
        format!("indices must be integers, and these are {dtype:?}"),
    ))
}

fn clamped(indices: &[&Array], last: &[i32], s: &Stream) -> Result<Vec<Array>> {
    let each = indices.iter().zip(last);
    each.map(|(index, last)| clamp(index, *last, s)).collect()
}

/// Where the indices along all axes are within 0 and the last.
fn inside(indices: &[&Array], last: &[i32], s: &Stream) -> Result<Array> {
    let mut all: Option<Array> = None;
    for (index, last) in indices.iter().zip(last) {
        let wide = wide(index.dtype());
        let (index, last) = (cast(index, wide, s)?, constant(*last, wide, s)?);
        let zero = constant(0, wide, s)?;
        for inside in [
            c!(mlx_less_equal(index, last), s)?,
            c!(mlx_greater_equal(index, zero), s)?,
        ] {
            all = Some(match all {
                Some(all) => c!(mlx_logical_and(all, inside), s)?,
                None => inside,
            });
        }
    }
    all.ok_or_else(|| Error::invalid("", "there are no indices"))
}

fn clamp(indices: &Array, last: i32, s: &Stream) -> Result<Array> {
    let last = Array::from_bytes(&last.to_ne_bytes(), &Shape::default(), Dtype::Int32)?;
    bound(indices, last, s)
}

/// Each index within 0 and `last`, as i32, compared in a type that holds both as they are.
fn bound(indices: &Array, last: Array, s: &Stream) -> Result<Array> {
    check_type(indices)?;
    let wide = wide(indices.dtype());
    let (indices, last) = (cast(indices, wide, s)?, cast(&last, wide, s)?);
    let mut within = c!(mlx_minimum(indices, last), s)?;
    if wide.parts().0 == "s" {
        let zero = constant(0, wide, s)?;
        within = c!(mlx_maximum(within, zero), s)?;
    }
    cast(&within, Dtype::Int32, s)
}

/// A type that holds every index of this one, and every size of an axis.
fn wide(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Uint32 | Dtype::Uint64 | Dtype::Int64 => dtype,
        _ => Dtype::Int32,
    }
}

pub(super) fn cast(array: &Array, dtype: Dtype, s: &Stream) -> Result<Array> {
    if array.dtype() == dtype {
        return Ok(array.clone());
    }
    c!(mlx_astype(array, dtype), s)
}

/// An axis counted from the first, and its size.
fn place(x: &Array, axis: i32) -> Result<(usize, i32)> {
    let rank = x.dims().len();
    let index = if axis < 0 { axis + rank as i32 } else { axis };
    let index = usize::try_from(index).ok();
    let found = index.and_then(|index| Some((index, *x.dims().get(index)?)));
    found.ok_or_else(|| no_axis(axis, rank))
}

fn no_axis(axis: i32, rank: usize) -> Error {
    Error::invalid("", format!("an array of rank {rank} has no axis {axis}"))
}
