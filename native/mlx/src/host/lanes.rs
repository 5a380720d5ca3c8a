//! Elementary functions of f32, so written that a loop over them becomes vector instructions: by way
//! of f64, and without branches.
//!
//! What an approximation in f64 lacks, 2^-35 of the value, is far below the last place of f32. So the
//! result is the nearest f32 but where the value lies that close to the middle between two.
//! Polynomials are interpolated at Chebyshev's nodes; `mul_add` is one instruction wherever these
//! functions are used.

use std::f64::consts::{FRAC_1_PI, FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, PI, SQRT_2};

/// Added to a number of less than 2^51, it leaves the nearest integer in the low bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;
/// What π/2 as f64 lacks.
const FRAC_PI_2_REST: f64 = 6.123_233_995_736_766e-17;
/// What π lacks.
const PI_REST: f64 = 2.0 * FRAC_PI_2_REST;
const MANTISSA: u64 = (1 << 52) - 1;

/// `c[0] + c[1] x + …`
#[inline(always)]
fn polynomial<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut sum = c[N - 1];
    for index in (0..N - 1).rev() {
        sum = sum.mul_add(x, c[index]);
    }
    sum
}

/// 2^k and exp(r) - 1 for x = k ln 2 + r. NaN is the latter's for NaN.
#[inline(always)]
fn exponential(x: f64) -> (f64, f64) {
    const Q: [f64; 8] = [
        0.999_999_999_995_505_5,
        0.499_999_999_999_550_7,
        0.166_666_667_863_804_4,
        0.041_666_666_786_337_556,
        0.008_333_283_518_768_105,
        0.001_388_883_909_064_138,
        0.000_199_075_825_913_251_34,
        2.486_788_345_352_180_2e-5,
    ];
    // Far beyond what f32 holds.
    let x = if x < -200.0 { -200.0 } else { x };
    let x = if x > 200.0 { 200.0 } else { x };
    let shifted = x.mul_add(LOG2_E, SHIFT);
    let r = (shifted - SHIFT).mul_add(-LN_2, x);
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0_f64.to_bits()));
    (scale, r * polynomial(r, Q))
}

#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    let (scale, rest) = exponential(x);
    scale.mul_add(rest, scale)
}

#[inline(always)]
pub(super) fn expm1(x: f64) -> f64 {
    let (scale, rest) = exponential(x);
    // The sign of a zero, too.
    scale.mul_add(rest, scale - 1.0).copysign(x)
}

#[inline(always)]
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(super) fn tanh(x: f64) -> f64 {
    let y = expm1(x + x);
    y / (y + 2.0)
}

#[inline(always)]
pub(super) fn sinh(x: f64) -> f64 {
    let y = expm1(x.abs());
    (0.5 * (y + y / (y + 1.0))).copysign(x)
}

#[inline(always)]
pub(super) fn cosh(x: f64) -> f64 {
    let y = exp(x);
    0.5 * (y + 1.0 / y)
}

/// log(u), where `x` is u - 1 and more precise.
#[inline(always)]
fn logarithm(u: f64, x: f64) -> f64 {
    const L: [f64; 4] = [
        0.666_666_665_544_061_8,
        0.400_001_219_141_492_8,
        0.285_508_123_825_901_46,
        0.233_306_966_724_557_8,
    ];
    const LEAST: u64 = (SQRT_2 / 2.0).to_bits();
    const ONE: u64 = 1.0_f64.to_bits();
    // u = 2^e m, with m from √½ to √2.
    let bits = u.to_bits().wrapping_add(ONE - LEAST);
    let biased = bits >> 52;
    let m = f64::from_bits((bits & MANTISSA) + LEAST);
    // The bits of 2^52, which leave those of an integer below.
    let e = f64::from_bits(biased | 4_503_599_627_370_496.0_f64.to_bits())
        - (4_503_599_627_370_496.0 + 1023.0);
    let f = if biased == 1023 { x } else { m - 1.0 };
    let s = f / (2.0 + f);
    let square = s * s;
    let log = e.mul_add(LN_2, s * square.mul_add(polynomial(square, L), 2.0));
    let below = if u == 0.0 {
        f64::NEG_INFINITY
    } else {
        f64::NAN
    };
    let log = if u > 0.0 { log } else { below };
    if u < f64::INFINITY || u.is_nan() {
        log
    } else {
        u
    }
}

#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    logarithm(x, x - 1.0)
}

#[inline(always)]
pub(super) fn log1p(x: f64) -> f64 {
    // The sign of a zero, too.
    logarithm(1.0 + x, x).copysign(x)
}

/// Beyond, a multiple of π cannot be taken off as below.
#[inline(always)]
pub(super) fn is_far(x: f32) -> bool {
    x.abs() >= 2_147_483_648.0
}

/// sin(r), cos(r) and k for x = k π/2 + r.
#[inline(always)]
fn circular(x: f64) -> (f64, f64, u64) {
    const S: [f64; 4] = [
        -0.166_666_666_638_530_44,
        0.008_333_331_873_837_089,
        -0.000_198_400_862_637_554_43,
        2.724_986_465_513_958_6e-6,
    ];
    const C: [f64; 5] = [
        -0.499_999_999_999_638_57,
        0.041_666_666_637_372_694,
        -0.001_388_888_508_912_625_2,
        2.479_986_150_250_612e-5,
        -2.723_707_673_132_509_7e-7,
    ];
    let shifted = x.mul_add(FRAC_2_PI, SHIFT);
    let k = shifted - SHIFT;
    let r = k.mul_add(-FRAC_PI_2_REST, k.mul_add(-FRAC_PI_2, x));
    let square = r * r;
    let sine = r * square.mul_add(polynomial(square, S), 1.0);
    let cosine = square.mul_add(polynomial(square, C), 1.0);
    (sine, cosine, shifted.to_bits())
}

/// sin(x - k π), negated if `turns` is odd, where that leaves at most π/2.
#[inline(always)]
fn turned(x: f64, k: f64, turns: u64) -> f64 {
    const S: [f64; 6] = [
        -0.166_666_666_666_584_58,
        0.008_333_333_330_937_984,
        -0.000_198_412_687_081_560_53,
        2.755_712_305_769_773e-6,
        -2.503_673_893_122_405_2e-8,
        1.550_239_959_997_099e-10,
    ];
    let r = k.mul_add(-PI_REST, k.mul_add(-PI, x));
    let square = r * r;
    // The sign of a zero, too.
    let sine = r * square.mul_add(polynomial(square, S), 1.0);
    f64::from_bits(sine.to_bits() ^ (turns << 63))
}

#[inline(always)]
pub(super) fn sin(x: f64) -> f64 {
    let shifted = x.mul_add(FRAC_1_PI, SHIFT);
    turned(x, shifted - SHIFT, shifted.to_bits())
}

#[inline(always)]
pub(super) fn cos(x: f64) -> f64 {
    // As many halves of π as an odd number says: there the cosine is what the sine is elsewhere.
    let shifted = x.mul_add(FRAC_1_PI, -0.5) + SHIFT;
    turned(x, shifted - SHIFT + 0.5, shifted.to_bits() ^ 1)
}

#[inline(always)]
pub(super) fn tan(x: f64) -> f64 {
    let (sine, cosine, k) = circular(x);
    let is_even = k & 1 == 0;
    let over = if is_even { sine } else { -cosine };
    over / if is_even { cosine } else { sine }
}

#[inline(always)]
pub(super) fn erf(x: f64) -> f64 {
    const P: [f64; 8] = [
        1.128_379_167_086_599_5,
        0.200_234_994_185_944_6,
        0.058_100_426_049_421_43,
        0.004_956_844_930_001_532,
        0.000_512_656_804_219_604_4,
        2.174_727_083_039_051e-5,
        7.521_586_944_601_096e-7,
        3.005_496_762_071_633e-9,
    ];
    const Q: [f64; 8] = [
        1.0,
        0.510_786_976_187_182_7,
        0.121_752_490_912_524_84,
        0.017_707_867_069_913_813,
        0.001_713_690_511_999_770_4,
        0.000_111_382_411_261_165_11,
        4.511_993_919_037_619e-6,
        7.328_341_164_947_285e-8,
    ];
    // From there on 1 is the nearest f32.
    let x = if x < -4.0 { -4.0 } else { x };
    let x = if x > 4.0 { 4.0 } else { x };
    let square = x * x;
    x * polynomial(square, P) / polynomial(square, Q)
}

#[inline(always)]
pub(super) fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

#[cfg(test)]
mod tests {
    //! Oracle: pxfm, whose functions of f32 are rounded correctly.

    use super::super::*;
    use std::thread;

    /// How many of the last place's units lie between two, of which both may be NaN.
    fn distance(a: f32, b: f32) -> u32 {
        if a.is_nan() || b.is_nan() {
            return if a.is_nan() && b.is_nan() {
                0
            } else {
                u32::MAX
            };
        }
        let order = |x: f32| {
            let bits = x.to_bits() as i32;
            if bits < 0 { i32::MIN - bits } else { bits }
        };
        order(a).abs_diff(order(b)) + u32::from(a.is_sign_negative() != b.is_sign_negative())
    }

    /// Compares every `step`th f32, and answers how many were not the nearest.
    fn compare<R: Real>(name: &str, _function: R, step: usize) {
        let (mut off, mut count) = (0_u64, 0_u64);
        let mut bits = (0..=u32::MAX).step_by(step);
        let mut made = [0.0; MOST];
        loop {
            let from: Vec<f32> = bits.by_ref().take(MOST).map(f32::from_bits).collect();
            if from.is_empty() {
                break;
            }
            let made = &mut made[..from.len()];
            R::f32s(&from, made);
            for (x, y) in from.iter().zip(&*made) {
                let wanted = R::f32(*x);
                let distance = distance(*y, wanted);
                assert!(distance <= 1, "{name}({x:e}) is {wanted:e}, and {y:e} came");
                off += u64::from(distance);
            }
            count += from.len() as u64;
        }
        assert!(
            off <= 1 + count / 500,
            "{name}: {off} of {count} are not the nearest"
        );
        println!("{name}: {off} of {count} are not the nearest");
    }

    fn compare_all(step: usize) {
        let all: [fn(usize); 13] = [
            |step| compare("cos", Cos, step),
            |step| compare("cosh", Cosh, step),
            |step| compare("erf", Erf, step),
            |step| compare("exp", Exp, step),
            |step| compare("expm1", Expm1, step),
            |step| compare("log", Log, step),
            |step| compare("log1p", Log1p, step),
            |step| compare("rsqrt", Rsqrt, step),
            |step| compare("sigmoid", Sigmoid, step),
            |step| compare("sin", Sin, step),
            |step| compare("sinh", Sinh, step),
            |step| compare("tan", Tan, step),
            |step| compare("tanh", Tanh, step),
        ];
        thread::scope(|scope| {
            for one in all {
                scope.spawn(move || one(step));
            }
        });
    }

    #[test]
    fn functions_are_the_nearest_f32_or_its_neighbour() {
        compare_all(if cfg!(miri) { 1 << 25 } else { 4_099 });
    }

    #[test]
    #[ignore = "every f32 takes some minutes of all cores"]
    fn functions_of_every_f32() {
        compare_all(1);
    }

    #[test]
    fn special_values() {
        let special = [
            0.0,
            f32::INFINITY,
            f32::NAN,
            1.0,
            f32::MIN_POSITIVE,
            1e-45,
            f32::MAX,
            2e9,
            3e9,
            88.72,
            88.73,
            103.97,
            103.98,
            3.92,
            4.0,
            1e-8,
            0.9999999,
        ];
        let from: Vec<f32> = special.iter().flat_map(|x| [*x, -*x]).collect();
        fn each<R: Real>(name: &str, _function: R, from: &[f32]) {
            let mut made = vec![0.0; from.len()];
            R::f32s(from, &mut made);
            for (x, y) in from.iter().zip(made) {
                let wanted = R::f32(*x);
                assert!(distance(y, wanted) <= 1, "{name}({x:e}): {wanted:e}, {y:e}");
                assert_eq!(y == 0.0, wanted == 0.0, "{name}({x:e})");
                let signs = [y, wanted].map(|y| y.is_sign_negative() && !y.is_nan());
                assert_eq!(signs[0], signs[1], "{name}({x:e})");
            }
        }
        each("cos", Cos, &from);
        each("cosh", Cosh, &from);
        each("erf", Erf, &from);
        each("exp", Exp, &from);
        each("expm1", Expm1, &from);
        each("log", Log, &from);
        each("log1p", Log1p, &from);
        each("rsqrt", Rsqrt, &from);
        each("sigmoid", Sigmoid, &from);
        each("sin", Sin, &from);
        each("sinh", Sinh, &from);
        each("tan", Tan, &from);
        each("tanh", Tanh, &from);
    }
}
