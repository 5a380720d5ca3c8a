//! Conversions that C leaves undefined, or rounds twice.

use half::{bf16, f16};

use super::{Float, Function, Run, map, run};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::isa::{self, Job};
use crate::stream::{Device, Stream};

/// An integer type, made from a float as Nx defines it.
pub(crate) trait Integer: Copy {
    const LEAST: Self;
    const GREATEST: Self;
    fn wrapped(x: i64) -> Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {
        $(impl Integer for $integer {
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;
            fn wrapped(x: i64) -> Self {
                x as Self
            }
        })*
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

/// From float to integer: towards zero, then wrapped; NaN is 0, infinities are the extremes.
pub(crate) struct Converted<E, I>(E, I);

impl<E: Float, I: Integer> Function for Converted<E, I> {
    type In = E;
    type Out = I;
    #[inline]
    fn of(x: E) -> I {
        const HELD: f64 = (1u64 << 63) as f64;
        let x = x.wide();
        if x.abs() < HELD {
            I::wrapped(x as i64)
        } else if x == f64::INFINITY {
            I::GREATEST
        } else if x == f64::NEG_INFINITY {
            I::LEAST
        } else {
            I::wrapped(beyond(x))
        }
    }

    fn all(from: &[E], to: &mut [I]) {
        isa::run(Whole(from, to));
    }
}

/// Floats, and room for the integer of each.
struct Whole<'a, E, I>(&'a [E], &'a mut [I]);

impl<E: Float, I: Integer> Job for Whole<'_, E, I> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self(from, to) = self;
        for (to, x) in to.iter_mut().zip(from) {
            *to = I::wrapped(x.low().into());
        }
        if from.iter().fold(false, |any, x| any | x.is_high()) {
            for (to, x) in to.iter_mut().zip(from).filter(|(_, x)| x.is_high()) {
                *to = Converted::<E, I>::of(*x);
            }
        }
    }
}

/// The low 64 bits of a whole number beyond them. NaN, whose exponent is the highest, has none.
fn beyond(x: f64) -> i64 {
    let bits = x.to_bits();
    let shift = ((bits >> 52) & 0x7ff) as u32 - 1075;
    let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
    let magnitude = mantissa.checked_shl(shift).unwrap_or(0) as i64;
    if x < 0.0 {
        magnitude.wrapping_neg()
    } else {
        magnitude
    }
}

/// From f64 to half precision, rounded once.
struct Halved<H>(H);

macro_rules! halved {
    ($($half:ty),*) => {
        $(impl Function for Halved<$half> {
            type In = f64;
            type Out = $half;
            fn of(x: f64) -> $half {
                <$half>::from_f64(x)
            }
        })*
    };
}

halved!(f16, bf16);

fn converted<E: Float>(to: Dtype) -> Option<Run> {
    Some(match to {
        Dtype::Uint8 => run::<Converted<E, u8>>,
        Dtype::Uint16 => run::<Converted<E, u16>>,
        Dtype::Uint32 => run::<Converted<E, u32>>,
        Dtype::Uint64 => run::<Converted<E, u64>>,
        Dtype::Int8 => run::<Converted<E, i8>>,
        Dtype::Int16 => run::<Converted<E, i16>>,
        Dtype::Int32 => run::<Converted<E, i32>>,
        Dtype::Int64 => run::<Converted<E, i64>>,
        _ => return None,
    })
}

/// Floats as integers, or f64 as half precision, if the stream is a CPU's.
pub(crate) fn convert(x: &Array, to: Dtype, s: &Stream) -> Option<Result<Array>> {
    if s.device != Device::Cpu {
        return None;
    }
    let run = match x.dtype() {
        Dtype::Float64 => match to {
            Dtype::Float16 => Some(run::<Halved<f16>> as Run),
            Dtype::Bfloat16 => Some(run::<Halved<bf16>> as Run),
            _ => converted::<f64>(to),
        },
        Dtype::Float32 => converted::<f32>(to),
        Dtype::Float16 => converted::<f16>(to),
        Dtype::Bfloat16 => converted::<bf16>(to),
        _ => None,
    }?;
    Some(map(x, to, c"Convert", run, s))
}
