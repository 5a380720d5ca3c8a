//! What a program checks while it runs, where its maker asked for that. A check hands on its first
//! operand as it is; whoever made the program says what the operation is called that is checked.
//!
//! The run waits for the values that it looks at. They are looked at on the device, and only where
//! something is wrong are they read: what another device reads leaves a GPU.

use super::Bytes;
use super::index::cast;
use super::integer::constant;
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::program::Run;
use crate::shape::Shape;
use crate::stream::Stream;

/// Which axes indices are for: so many from the first on, in turns, of an array of these sizes.
pub(super) struct Axes<'a> {
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) of: &'a Shape,
}

/// Whether each index is inside.
pub(super) fn bounds(x: &Array, op: &Bytes, axes: &Axes, run: &Run) -> Result<Array> {
    let sizes = axes.of.dims();
    let first = axes.first as usize;
    let dtype = x.dtype();
    let within = sizes.get(first..first.saturating_add(axes.count as usize));
    let in_turns = axes.count == 1 || x.dims().last() == Some(&(axes.count as i32));
    let Some(within) = within.filter(|w| !w.is_empty() && in_turns && dtype.is_integer()) else {
        return Err(Error::invalid(
            "",
            format!(
                "{x:?} has no indices for {} axes of {sizes:?} from axis {first} on",
                axes.count
            ),
        ));
    };
    if !any(&outside(x, within, run.streams.pick(false))?, run)? {
        return Ok(x.clone());
    }
    let bytes = x.bytes(None, run.streams)?;
    let indices = bytes.chunks(dtype.size()).map(|bytes| number(bytes, dtype));
    let mut indices = indices.zip((0..within.len()).cycle());
    match indices.find(|(index, turn)| !(0..i128::from(within[*turn])).contains(index)) {
        None => Ok(x.clone()),
        Some((index, turn)) => {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let message = format!(
                "index {index} is out of bounds for axis {} in shape {{{}}}",
                first + turn,
                sizes.join(", ")
            );
            Err(failure("out_of_bounds", op, message, None))
        }
    }
}

/// Compared in a type that holds both sides as they are.
fn outside(x: &Array, within: &[i32], s: &Stream) -> Result<Array> {
    let wide = match x.dtype() {
        dtype @ (Dtype::Uint32 | Dtype::Uint64 | Dtype::Int64) => dtype,
        _ => Dtype::Int32,
    };
    let bytes: Vec<u8> = within.iter().flat_map(|size| size.to_ne_bytes()).collect();
    let shape = match within {
        [_] => Shape::default(),
        _ => Shape::new(vec![within.len() as i64])?,
    };
    let within = cast(&Array::from_bytes(&bytes, &shape, Dtype::Int32)?, wide, s)?;
    let x = cast(x, wide, s)?;
    let beyond = c!(mlx_greater_equal(x, within), s)?;
    if wide.parts().0 == "u" {
        return Ok(beyond);
    }
    let zero = constant(0, wide, s)?;
    let before = c!(mlx_less(x, zero), s)?;
    c!(mlx_logical_or(before, beyond), s)
}

fn number(bytes: &[u8], dtype: Dtype) -> i128 {
    let mut wide = [0; 16];
    let negative = dtype.parts().0 == "s" && bytes.last().is_some_and(|byte| *byte > 127);
    if negative {
        wide = [0xFF; 16];
    }
    // Every machine that MLX runs on has the lowest byte first.
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

/// What is looked for in floats.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) nan: bool,
    pub(super) infinity: bool,
}

/// Whether `value`, which an operation made of `operands`, has what no operand has.
pub(super) fn finite(
    x: &Array,
    value: &Array,
    operands: &[&Array],
    op: &Bytes,
    described: &Bytes,
    wanted: Wanted,
    run: &Run,
) -> Result<Array> {
    if !has(value, wanted, run)? {
        return Ok(x.clone());
    }
    for operand in operands {
        if has(operand, wanted, run)? {
            return Ok(x.clone());
        }
    }
    let nan = Wanted {
        nan: true,
        infinity: false,
    };
    let found = match wanted.nan && has(value, nan, run)? {
        true => "NaN",
        false => "infinity",
    };
    let none = match (wanted.nan, wanted.infinity) {
        (true, true) => "its operands are finite",
        _ => "no operand has any",
    };
    let described = Some(text(described)).filter(|described| !described.is_empty());
    let message = format!("it made {found}, and {none}");
    Err(failure("non_finite", op, message, described))
}

fn has(x: &Array, wanted: Wanted, run: &Run) -> Result<bool> {
    let dtype = x.dtype();
    let s = run.streams.pick(dtype == Dtype::Float64);
    let each = |part: &Array| match (wanted.nan, wanted.infinity) {
        (true, true) => {
            let finite = c!(mlx_isfinite(part), s)?;
            c!(mlx_logical_not(finite), s)
        }
        (true, false) => c!(mlx_isnan(part), s),
        _ => c!(mlx_isinf(part), s),
    };
    match dtype.parts().0 {
        "f" | "bf" => any(&each(x)?, run),
        // MLX looks at one part only.
        "c" => {
            let (real, imag) = (c!(mlx_real(x), s)?, c!(mlx_imag(x), s)?);
            Ok(any(&each(&real)?, run)? || any(&each(&imag)?, run)?)
        }
        _ => Ok(false),
    }
}

/// Whether `x` is what was announced of the operation's result.
pub(super) fn result(x: &Array, op: &Bytes, dtype: Dtype, shape: &Shape) -> Result<Array> {
    if x.dtype() == dtype && x.dims() == shape.dims() {
        return Ok(x.clone());
    }
    let (kind, bits) = dtype.parts();
    let dims: String = shape.dims().iter().map(|dim| format!("[{dim}]")).collect();
    let message = format!(
        "it was announced as {kind}{bits}{dims}, and made {x:?}; this is a bug in Mlx, please report it"
    );
    Err(failure("wrong_result", op, message, None))
}

fn any(each: &Array, run: &Run) -> Result<bool> {
    let s = run.streams.pick(false);
    let any = c!(mlx_any(each, false), s)?;
    Ok(any.bytes(None, run.streams)?.iter().any(|byte| *byte != 0))
}

fn failure(kind: &'static str, op: &Bytes, message: String, operands: Option<String>) -> Error {
    Error::Checked {
        kind,
        op: text(op),
        message,
        operands,
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}
