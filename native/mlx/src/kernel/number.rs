//! Arithmetic of every element type, with the values that the ops of the same names have.

use half::{bf16, f16};

use crate::halves::Half;
use crate::isa::Level;

/// What can be done with numbers of any type. What a type lacks is `None` in `kernel`'s table, and
/// here whatever is simplest.
pub(super) trait Number: Copy + PartialEq + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    /// The widest vectors that its loops are compiled for: there are many loops, and most of them
    /// have little to gain.
    const WIDEST: Level = Level::Plain;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn negative(self) -> Self;
    fn abs(self) -> Self;
    fn is_nan(self) -> bool;

    fn minimum(self, other: Self) -> Self {
        if self.is_nan() || self < other {
            self
        } else {
            other
        }
    }

    fn maximum(self, other: Self) -> Self {
        if self.is_nan() || self > other {
            self
        } else {
            other
        }
    }

    fn sign(self) -> Self {
        if self > Self::ZERO {
            Self::ONE
        } else if self < Self::ZERO {
            Self::ONE.negative()
        } else {
            Self::ZERO
        }
    }
}

/// Integers wrap, shift everything out, and divide by everything.
pub(super) trait Whole: Number {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn invert(self) -> Self;
    fn left_shift(self, by: Self) -> Self;
    fn right_shift(self, by: Self) -> Self;
    /// Towards zero; x / 0 is -1 (all bits set), and the least number by -1 is itself.
    fn quotient(self, by: Self) -> Self;
}

/// Floats, half precision by way of f32.
pub(super) trait Fraction: Number {
    fn divide(self, other: Self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn sqrt(self) -> Self;
    fn power(self, exponent: Self) -> Self;
    fn arctan2(self, x: Self) -> Self;
    /// With the sign of the divisor.
    fn remainder(self, divisor: Self) -> Self;
    fn is_infinite(self) -> bool;
}

/// The widest numbers, of which every other is one.
pub(super) enum Source {
    I64(i64),
    U64(u64),
    F64(f64),
}

/// Conversions, as MLX's `astype` makes them; those of floats to integers are not asked for here.
pub(super) trait Cast: Number {
    fn from_i64(x: i64) -> Self;
    fn from_u64(x: u64) -> Self;
    fn from_f64(x: f64) -> Self;
    fn source(self) -> Source;

    #[inline]
    fn cast<T: Cast>(self) -> T {
        match self.source() {
            Source::I64(x) => T::from_i64(x),
            Source::U64(x) => T::from_u64(x),
            Source::F64(x) => T::from_f64(x),
        }
    }
}

macro_rules! whole {
    ($($int:ty, $abs:expr, $source:ident, $widest:ident, $quotient:expr;)*) => {$(
        impl Number for $int {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const WIDEST: Level = Level::$widest;
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn subtract(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn negative(self) -> Self { self.wrapping_neg() }
            fn abs(self) -> Self { $abs(self) }
            fn is_nan(self) -> bool { false }
        }
        impl Whole for $int {
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn invert(self) -> Self { !self }
            fn left_shift(self, by: Self) -> Self { self.wrapping_shl(by as u32) }
            fn right_shift(self, by: Self) -> Self { self.wrapping_shr(by as u32) }
            #[inline]
            fn quotient(self, by: Self) -> Self { $quotient(self, by) }
        }
        impl Cast for $int {
            fn from_i64(x: i64) -> Self { x as Self }
            fn from_u64(x: u64) -> Self { x as Self }
            fn from_f64(x: f64) -> Self { x as Self }
            fn source(self) -> Source { Source::$source(self.into()) }
        }
    )*};
}

whole! {
    u8, |x| x, U64, Avx2, |x: Self, y| x.checked_div(y).unwrap_or(!0);
    u16, |x| x, U64, Plain, |x: Self, y| x.checked_div(y).unwrap_or(!0);
    u32, |x| x, U64, Avx2, |x: Self, y| x.checked_div(y).unwrap_or(!0);
    u64, |x| x, U64, Avx2, |x: Self, y| x.checked_div(y).unwrap_or(!0);
    i8, i8::wrapping_abs, I64, Plain, |x: Self, y| if y == 0 { !0 } else { x.wrapping_div(y) };
    i16, i16::wrapping_abs, I64, Plain, |x: Self, y| if y == 0 { !0 } else { x.wrapping_div(y) };
    i32, i32::wrapping_abs, I64, Avx2, quotient;
    i64, i64::wrapping_abs, I64, Avx2, |x: Self, y| if y == 0 { !0 } else { x.wrapping_div(y) };
}

/// Vectors have a division of floats only; f64 has the quotient of all i32 exactly, but for what is
/// behind its point.
#[inline(always)]
fn quotient(x: i32, by: i32) -> i32 {
    let safe = if by == 0 || by == -1 { 1 } else { by };
    // SAFETY: the quotient is no number of more digits than x.
    let quotient: i32 = unsafe { (f64::from(x) / f64::from(safe)).to_int_unchecked() };
    let quotient = if by == -1 { x.wrapping_neg() } else { quotient };
    if by == 0 { !0 } else { quotient }
}

macro_rules! fraction {
    ($($float:ident),*) => {$(
        impl Number for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const WIDEST: Level = Level::Avx2;
            fn add(self, other: Self) -> Self { self + other }
            fn subtract(self, other: Self) -> Self { self - other }
            fn multiply(self, other: Self) -> Self { self * other }
            fn negative(self) -> Self { -self }
            fn abs(self) -> Self { $float::abs(self) }
            fn is_nan(self) -> bool { $float::is_nan(self) }
        }
        impl Fraction for $float {
            fn divide(self, other: Self) -> Self { self / other }
            fn floor(self) -> Self { $float::floor(self) }
            fn ceil(self) -> Self { $float::ceil(self) }
            fn sqrt(self) -> Self { $float::sqrt(self) }
            fn power(self, exponent: Self) -> Self { self.powf(exponent) }
            fn arctan2(self, x: Self) -> Self { self.atan2(x) }
            fn remainder(self, divisor: Self) -> Self {
                let rest = self % divisor;
                if rest != 0.0 && (rest < 0.0) != (divisor < 0.0) {
                    rest + divisor
                } else {
                    rest
                }
            }
            fn is_infinite(self) -> bool { $float::is_infinite(self) }
        }
        impl Cast for $float {
            fn from_i64(x: i64) -> Self { x as Self }
            fn from_u64(x: u64) -> Self { x as Self }
            fn from_f64(x: f64) -> Self { x as Self }
            fn source(self) -> Source { Source::F64(self.into()) }
        }
    )*};
}

fraction!(f32, f64);

macro_rules! half {
    ($($half:ident),*) => {$(
        impl Number for $half {
            const ZERO: Self = $half::ZERO;
            const ONE: Self = $half::ONE;
            const WIDEST: Level = Level::Avx2;
            fn add(self, other: Self) -> Self { $half::narrow(self.wide() + other.wide()) }
            fn subtract(self, other: Self) -> Self { $half::narrow(self.wide() - other.wide()) }
            fn multiply(self, other: Self) -> Self { $half::narrow(self.wide() * other.wide()) }
            fn negative(self) -> Self { -self }
            fn abs(self) -> Self { $half::narrow(self.wide().abs()) }
            fn is_nan(self) -> bool { $half::is_nan(self) }
        }
        impl Fraction for $half {
            fn divide(self, other: Self) -> Self { $half::narrow(self.wide() / other.wide()) }
            fn floor(self) -> Self { $half::narrow(self.wide().floor()) }
            fn ceil(self) -> Self { $half::narrow(self.wide().ceil()) }
            fn sqrt(self) -> Self { $half::narrow(self.wide().sqrt()) }
            fn power(self, exponent: Self) -> Self {
                $half::narrow(self.wide().powf(exponent.wide()))
            }
            fn arctan2(self, x: Self) -> Self { $half::narrow(self.wide().atan2(x.wide())) }
            fn remainder(self, divisor: Self) -> Self {
                $half::narrow(self.wide().remainder(divisor.wide()))
            }
            fn is_infinite(self) -> bool { $half::is_infinite(self) }
        }
        impl Cast for $half {
            #[inline]
            fn from_i64(x: i64) -> Self { $half::narrow(x as f32) }
            #[inline]
            fn from_u64(x: u64) -> Self { $half::narrow(x as f32) }
            #[inline]
            fn from_f64(x: f64) -> Self { $half::narrow(x as f32) }
            #[inline]
            fn source(self) -> Source { Source::F64(self.wide().into()) }
        }
    )*};
}

half!(f16, bf16);

#[cfg(test)]
mod tests {
    //! Oracle: division.

    use super::*;

    #[test]
    fn quotients_are_whole() {
        let mut numbers = vec![
            0,
            1,
            2,
            3,
            7,
            46_340,
            65_536,
            i32::MAX - 1,
            i32::MAX,
            i32::MIN,
        ];
        numbers.extend((0..200).map(|i: i32| i.wrapping_mul(0x2545_f491).rotate_left(7)));
        let signed: Vec<i32> = numbers
            .iter()
            .flat_map(|x| [*x, x.wrapping_neg()])
            .collect();
        for x in &signed {
            for by in &signed {
                let wanted = if *by == 0 { -1 } else { x.wrapping_div(*by) };
                assert_eq!(quotient(*x, *by), wanted, "{x} / {by}");
            }
        }
    }
}
