//! Functions of floats that MLX lacks, for GPUs: composed of what it has. On a CPU the host kernel
//! of the same name serves (see `host`), and what is here is only seen by this file's tests. f64 and
//! complex numbers never come here: they are computed on the CPU also where the device is a GPU.

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::stream::Stream;

/// The cube root, of negative numbers too.
pub(super) fn cbrt(x: &Array, s: &Stream) -> Result<Array> {
    wide(x, s, |x, s| {
        let [zero, third, three] = scalars([0.0, 1.0 / 3.0, 3.0])?;
        let magnitude = c!(mlx_abs(x), s)?;
        let root = c!(mlx_power(magnitude, third), s)?;
        let square = c!(mlx_square(root), s)?;
        let quotient = c!(mlx_divide(magnitude, square), s)?;
        let step = c!(mlx_subtract(root, quotient), s)?;
        let step = c!(mlx_divide(step, three), s)?;
        let refined = c!(mlx_subtract(root, step), s)?;
        // The Newton step has no value at zero and infinity, whose first root is right.
        let none = c!(mlx_isnan(refined), s)?;
        let root = c!(mlx_where(none, root, refined), s)?;
        let root = mirrored(x, &root, s)?;
        // Zero keeps its sign.
        let is_zero = c!(mlx_equal(x, zero), s)?;
        c!(mlx_where(is_zero, x, root), s)
    })
}

/// With t = 2 / (2 + z), erfc(z) = t exp(-z^2 + P(2t - 1)) for z >= 0, where P is a Chebyshev fit
/// with an error of 1e-8; erfc(-z) = 2 - erfc(z).
pub(super) fn erfc(x: &Array, s: &Stream) -> Result<Array> {
    const P: [f32; 12] = [
        -0.671_794_1,
        0.672_643_2,
        0.047_343_89,
        -0.046_893_64,
        -0.009_880_019,
        0.008_808_825,
        0.001_794_066_2,
        -0.002_288_765_2,
        -0.000_227_910_97,
        0.000_573_766_4,
        8.000_738e-6,
        -8.728_381e-5,
    ];
    wide(x, s, |x, s| {
        let [zero, one, two] = scalars([0.0, 1.0, 2.0])?;
        let z = c!(mlx_abs(x), s)?;
        let t = c!(mlx_add(two, z), s)?;
        let t = c!(mlx_divide(two, t), s)?;
        let y = c!(mlx_add(t, t), s)?;
        let y = c!(mlx_subtract(y, one), s)?;
        let mut sum = scalar(P[P.len() - 1])?;
        for coefficient in P.iter().rev().skip(1) {
            let product = c!(mlx_multiply(sum, y), s)?;
            let coefficient = scalar(*coefficient)?;
            sum = c!(mlx_add(product, coefficient), s)?;
        }
        let square = c!(mlx_square(z), s)?;
        let exponent = c!(mlx_subtract(sum, square), s)?;
        let exp = c!(mlx_exp(exponent), s)?;
        let tail = c!(mlx_multiply(t, exp), s)?;
        let reflected = c!(mlx_subtract(two, tail), s)?;
        let below = c!(mlx_less(x, zero), s)?;
        c!(mlx_where(below, reflected, tail), s)
    })
}

/// To the nearest whole number, halves away from zero.
pub(super) fn round_away(x: &Array, s: &Stream) -> Result<Array> {
    wide(x, s, |x, s| {
        let half = scalar(0.5)?;
        let magnitude = c!(mlx_abs(x), s)?;
        let whole = c!(mlx_floor(magnitude), s)?;
        let rest = c!(mlx_subtract(magnitude, whole), s)?;
        let up = c!(mlx_greater_equal(rest, half), s)?;
        let up = c!(mlx_astype(up, Dtype::Float32), s)?;
        let rounded = c!(mlx_add(whole, up), s)?;
        // Infinity less infinity is NaN, and zero has lost its sign: what is whole stays.
        let is_whole = c!(mlx_equal(magnitude, whole), s)?;
        let rounded = mirrored(x, &rounded, s)?;
        c!(mlx_where(is_whole, x, rounded), s)
    })
}

/// Floats as integers: towards zero, then wrapped; NaN is 0, infinities are the extremes.
pub(super) fn convert(x: &Array, to: Dtype, s: &Stream) -> Result<Array> {
    if x.dtype() == to {
        return Ok(x.clone());
    }
    if !is_float(x) || !to.is_integer() {
        return c!(mlx_astype(x, to), s);
    }
    let x = c!(mlx_astype(x, Dtype::Float32), s)?;
    // Between 2^63 and 2^64 numbers are spaced so widely that nothing here is rounded.
    let [zero, half, period] = scalars([0.0, (1u64 << 63) as f32, (1u128 << 64) as f32])?;
    let [least_float, greatest_float] = scalars([f32::NEG_INFINITY, f32::INFINITY])?;
    let magnitude = c!(mlx_abs(x), s)?;
    let rest = c!(mlx_remainder(magnitude, period), s)?;
    let upper = c!(mlx_greater_equal(rest, half), s)?;
    let lowered = c!(mlx_subtract(rest, period), s)?;
    let rest = c!(mlx_where(upper, lowered, rest), s)?;
    let finite = c!(mlx_isfinite(x), s)?;
    let rest = c!(mlx_where(finite, rest, zero), s)?;
    let whole = c!(mlx_astype(rest, Dtype::Int64), s)?;
    let value = mirrored(&x, &whole, s)?;
    let value = c!(mlx_astype(value, to), s)?;
    let (least, greatest) = extremes(to)?;
    let above = c!(mlx_equal(x, greatest_float), s)?;
    let value = c!(mlx_where(above, greatest, value), s)?;
    let below = c!(mlx_equal(x, least_float), s)?;
    c!(mlx_where(below, least, value), s)
}

/// Half precision loses too much between the steps of a composition, which therefore runs in f32.
fn wide(
    x: &Array,
    s: &Stream,
    composed: impl FnOnce(&Array, &Stream) -> Result<Array>,
) -> Result<Array> {
    if !is_float(x) {
        let message = format!("it takes floats, and not {x:?}");
        return Err(Error::invalid("", message));
    }
    let dtype = x.dtype();
    if dtype == Dtype::Float32 {
        return composed(x, s);
    }
    let single = c!(mlx_astype(x, Dtype::Float32), s)?;
    let made = composed(&single, s)?;
    c!(mlx_astype(made, dtype), s)
}

/// The magnitude with the sign of x.
fn mirrored(x: &Array, magnitude: &Array, s: &Stream) -> Result<Array> {
    let zero = c!(mlx_zeros_like(x), s)?;
    let below = c!(mlx_less(x, zero), s)?;
    let negated = c!(mlx_negative(magnitude), s)?;
    c!(mlx_where(below, negated, magnitude), s)
}

fn is_float(x: &Array) -> bool {
    matches!(x.dtype().parts().0, "f" | "bf")
}

fn scalars<const N: usize>(values: [f32; N]) -> Result<[Array; N]> {
    let arrays: Vec<Array> = values.into_iter().map(scalar).collect::<Result<_>>()?;
    arrays
        .try_into()
        .map_err(|_| Error::invalid("", "a constant is missing"))
}

fn scalar(value: f32) -> Result<Array> {
    Array::from_bytes(&value.to_ne_bytes(), &Shape::default(), Dtype::Float32)
}

/// The least and the greatest number of an integer type.
fn extremes(dtype: Dtype) -> Result<(Array, Array)> {
    let size = dtype.size();
    let signed = dtype.parts().0 == "s";
    let ones = u64::MAX >> (64 - 8 * size);
    let (least, greatest) = if signed {
        (ones ^ (ones >> 1), ones >> 1)
    } else {
        (0, ones)
    };
    let scalar = |bits: u64| {
        let mut bytes = bits.to_le_bytes();
        let bytes = &mut bytes[..size];
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
        Array::from_bytes(bytes, &Shape::default(), dtype)
    };
    Ok((scalar(least)?, scalar(greatest)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the host kernels, which tests/host.rs compares with published values.

    use super::*;
    use crate::host::{self, Unary};
    use crate::stream::{Device, Streams};

    fn specials() -> Vec<f32> {
        let small = (-4000..4000).map(|i| i as f32 / 512.0);
        let scaled = (-300..300).map(|i: i32| (i % 7) as f32 * 2f32.powi(i / 3));
        let rest = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
        ];
        small.chain(scaled).chain(rest).collect()
    }

    fn floats(array: &Array, streams: &Streams) -> Vec<f32> {
        let bytes = array.bytes(None, streams).unwrap();
        let floats = bytes.chunks_exact(4);
        floats
            .map(|c| f32::from_ne_bytes(c.try_into().unwrap()))
            .collect()
    }

    fn made(values: &[f32]) -> Array {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let shape = Shape::new(vec![values.len() as i64]).unwrap();
        Array::from_bytes(&bytes, &shape, Dtype::Float32).unwrap()
    }

    type Composed = fn(&Array, &Stream) -> Result<Array>;

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn compositions_are_near_the_host_kernels() {
        let streams = Streams::new(Device::Cpu).unwrap();
        let s = &streams.main;
        let cases: [(Unary, Composed, f32); 3] = [
            (Unary::Cbrt, cbrt, 4e-7),
            // The exponent of the tail reaches -80, and f32 has 24 bits.
            (Unary::Erfc, erfc, 1e-5),
            (Unary::RoundAway, round_away, 0.0),
        ];
        let values = specials();
        for (function, composed, tolerance) in cases {
            let x = made(&values);
            let found = floats(&composed(&x, s).unwrap(), &streams);
            let wanted = floats(&host::unary(function, &x, s).unwrap().unwrap(), &streams);
            for ((x, found), wanted) in values.iter().zip(found).zip(wanted) {
                let near = (found - wanted).abs() <= tolerance * wanted.abs() + f32::MIN_POSITIVE;
                assert!(
                    found.to_bits() == wanted.to_bits()
                        || near && found.is_sign_negative() == wanted.is_sign_negative()
                        || found.is_nan() && wanted.is_nan(),
                    "{function:?}({x:e}) is {found:e} and not {wanted:e}"
                );
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn composed_conversions_are_those_of_the_host() {
        let streams = Streams::new(Device::Cpu).unwrap();
        let s = &streams.main;
        let x = made(&specials());
        for to in Dtype::ALL.iter().filter(|dtype| dtype.is_integer()) {
            let found = convert(&x, *to, s).unwrap().bytes(None, &streams).unwrap();
            let wanted = host::convert(&x, *to, s).unwrap().unwrap();
            assert_eq!(*found, *wanted.bytes(None, &streams).unwrap(), "{to:?}");
        }
    }
}
