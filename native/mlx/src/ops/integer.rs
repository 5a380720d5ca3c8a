//! Integer division that never signals: MLX divides whatever it is given, and a processor answers
//! a zero divisor, or the least number divided by -1, with SIGFPE.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::shape::Shape;
use crate::stream::Stream;

/// The quotient; of integers, x / 0 is -1 (all bits set) and the least number by -1 is itself.
pub(super) fn floor_divide(a: &Array, b: &Array, s: &Stream) -> Result<Array> {
    let Some(divisor) = Divisor::of(a, b, s)? else {
        return c!(mlx_floor_divide(a, b), s);
    };
    let quotient = c!(mlx_floor_divide(a, divisor.safe), s)?;
    let quotient = match divisor.minus_one {
        Some(minus_one) => {
            let negated = c!(mlx_negative(a), s)?;
            c!(mlx_where(minus_one, negated, quotient), s)?
        }
        None => quotient,
    };
    let ones = constant(-1, quotient.dtype(), s)?;
    c!(mlx_where(divisor.zero, ones, quotient), s)
}

/// The remainder; of integers, x rem 0 is x and anything rem -1 is 0.
pub(super) fn remainder(a: &Array, b: &Array, s: &Stream) -> Result<Array> {
    let Some(divisor) = Divisor::of(a, b, s)? else {
        return c!(mlx_remainder(a, b), s);
    };
    let remainder = c!(mlx_remainder(a, divisor.safe), s)?;
    c!(mlx_where(divisor.zero, a, remainder), s)
}

struct Divisor {
    /// The divisor with 1 in place of 0 and -1. By 1 leaves no remainder, as by -1.
    safe: Array,
    zero: Array,
    minus_one: Option<Array>,
}

impl Divisor {
    fn of(a: &Array, b: &Array, s: &Stream) -> Result<Option<Self>> {
        // False is a zero among integers.
        let is_whole = |dtype: Dtype| dtype.is_integer() || dtype == Dtype::Bool;
        if !(is_whole(a.dtype()) && is_whole(b.dtype())) {
            return Ok(None);
        }
        let one = constant(1, b.dtype(), s)?;
        let nought = constant(0, b.dtype(), s)?;
        let zero = c!(mlx_equal(b, nought), s)?;
        let mut safe = c!(mlx_where(zero, one, b), s)?;
        let mut minus_one = None;
        if b.dtype().parts().0 == "s" {
            let minus = constant(-1, b.dtype(), s)?;
            let is = c!(mlx_equal(b, minus), s)?;
            safe = c!(mlx_where(is, one, safe), s)?;
            minus_one = Some(is);
        }
        Ok(Some(Self {
            safe,
            zero,
            minus_one,
        }))
    }
}

/// A scalar of an integer type; -1 is all bits set, also where the type has no sign.
pub(super) fn constant(value: i32, dtype: Dtype, s: &Stream) -> Result<Array> {
    let bytes = value.to_ne_bytes();
    let wide = Array::from_bytes(&bytes, &Shape::default(), Dtype::Int32)?;
    c!(mlx_astype(wide, dtype), s)
}
