//! Shape operations that MLX does not check enough.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::stream::Stream;

pub(super) fn eye(rows: u32, cols: u32, diagonal: i32, dtype: Dtype, s: &Stream) -> Result<Array> {
    let shape = Shape::new(vec![i64::from(rows), i64::from(cols)])?;
    let [rows, cols] = [shape.dims()[0], shape.dims()[1]];
    c!(mlx_eye(rows, cols, diagonal, dtype), s)
}

/// What is to be reduced, with floats in the order of the shape. MLX reduces in that of the memory,
/// and which that is depends on what came before: one fused kernel, or operations that each keep the
/// order of an operand. Sums would differ in the last digit, and extremes in the sign of zero.
pub(super) fn in_order(x: &Array, s: &Stream) -> Result<Array> {
    match x.dtype().parts().0 {
        "f" | "bf" | "c" => c!(mlx_contiguous(x, false), s),
        _ => Ok(x.clone()),
    }
}

/// MLX trusts the strides; a view that leaves the array would read what is not its own. It also
/// takes it that no element is seen twice: it reduces an overlapping view in blocks as long as the
/// stride, which need not divide the result, and writes behind its end. So such a view is copied.
pub(super) fn as_strided(
    x: &Array,
    dims: &Shape,
    strides: &[i64],
    offset: u64,
    s: &Stream,
) -> Result<Array> {
    let outside = || {
        let (dims, size) = (dims.dims(), x.size());
        Error::invalid(
            "",
            format!(
                "a view of shape {dims:?}, strides {strides:?} and offset {offset} leaves an array of {size} elements"
            ),
        )
    };
    if dims.dims().len() != strides.len() {
        return Err(outside());
    }
    let offset = usize::try_from(offset).map_err(|_| outside())?;
    let (mut least, mut most) = (offset as i128, offset as i128);
    for (dim, stride) in dims.dims().iter().zip(strides) {
        let reach = i128::from(dim - 1).max(0) * i128::from(*stride);
        least += reach.min(0);
        most += reach.max(0);
    }
    if dims.size() > 0 && (least < 0 || most >= x.size() as i128) {
        return Err(outside());
    }
    let view = c!(mlx_as_strided(x, [dims.dims()], [strides], offset), s)?;
    if !overlaps(dims, strides) {
        return Ok(view);
    }
    c!(mlx_contiguous(view, false), s)
}

/// Whether two positions may be one element: no stride may be within reach of the smaller ones.
fn overlaps(dims: &Shape, strides: &[i64]) -> bool {
    let pairs = dims.dims().iter().zip(strides);
    let mut axes: Vec<(u64, i128)> = pairs
        .filter(|(dim, _)| **dim > 1)
        .map(|(dim, stride)| (stride.unsigned_abs(), i128::from(*dim)))
        .collect();
    axes.sort_unstable();
    let mut reach = 0;
    axes.into_iter().any(|(stride, dim)| {
        let stride = i128::from(stride);
        let within = stride <= reach;
        reach += (dim - 1) * stride;
        within
    })
}

/// One bound and one step per axis; MLX divides by the steps.
pub(super) fn check_slice(x: &Array, starts: &[i32], stops: &[i32], strides: &[i32]) -> Result<()> {
    let rank = x.dims().len();
    if [starts, stops, strides]
        .iter()
        .any(|list| list.len() != rank)
        || strides.contains(&0)
    {
        return Err(Error::invalid(
            "",
            format!(
                "starts {starts:?}, stops {stops:?} and strides {strides:?} must have {rank} entries, and no stride may be 0"
            ),
        ));
    }
    Ok(())
}

/// Axes that exist, each once.
pub(super) fn check_axes(x: &Array, axes: &[i32]) -> Result<()> {
    let rank = x.dims().len();
    let exists = |axis: &i32| usize::try_from(*axis).is_ok_and(|axis| axis < rank);
    let once = |index: usize| !axes[..index].contains(&axes[index]);
    if axes.iter().all(exists) && (0..axes.len()).all(once) {
        return Ok(());
    }
    Err(Error::invalid(
        "",
        format!("{axes:?} are not axes of an array of rank {rank}, each once"),
    ))
}

pub(super) fn pad(
    x: &Array,
    value: &Array,
    axes: &[i32],
    lows: &[i32],
    highs: &[i32],
    s: &Stream,
) -> Result<Array> {
    if axes.len() != lows.len() || axes.len() != highs.len() {
        return Err(Error::invalid(
            "",
            format!("axes {axes:?}, lows {lows:?} and highs {highs:?} differ in number"),
        ));
    }
    check_axes(x, axes)?;
    if value.size() != 1 {
        return Err(Error::invalid(
            "",
            "the value to pad with must be one element",
        ));
    }
    if lows.iter().chain(highs).any(|width| *width < 0) {
        return Err(Error::invalid(
            "",
            format!("widths must not be negative: lows {lows:?}, highs {highs:?}"),
        ));
    }
    Array::build("pad", |res| {
        // SAFETY: the handles and slices are borrowed for the call; the mode is a C string.
        unsafe {
            mlx_ffi::mlx_pad(
                res,
                x.raw(),
                axes.as_ptr(),
                axes.len(),
                lows.as_ptr(),
                lows.len(),
                highs.as_ptr(),
                highs.len(),
                value.raw(),
                c"constant".as_ptr(),
                s.raw(),
            )
        }
    })
}
