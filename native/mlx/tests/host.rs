//! Host kernels. Oracles: f64 by mpmath with 300 bits, rounded; f32 by f64; integers by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::excessive_precision, clippy::approx_constant)]

mod common;
use common::*;

use mlx::{Dtype, Op, Shape};

/// Functions, arguments, and the doubles nearest to the values.
#[rustfmt::skip]
fn table() -> Vec<(Op, [f64; 4], [f64; 4])> {
    vec![
        (Op::Arccos, [-0.9, 0.001, 0.5, 0.99999], [2.6905658417935308, 1.56979632662823, 1.0471975511965979, 0.0044721396817777506]),
        (Op::Arccosh, [1.0001, 1.5, 30.0, 1e+200], [0.014142017775251545, 0.9624236501192069, 4.0940666686320855, 461.2101657793691]),
        (Op::Arcsin, [-0.9, 1e-09, 0.5, 0.99999], [-1.1197695149986342, 1e-09, 0.5235987755982989, 1.5663241871131188]),
        (Op::Arcsinh, [-1e+200, 1e-09, 0.7, 30.0], [-461.2101657793691, 1e-09, 0.6526665660823557, 4.09462222433053]),
        (Op::Arctan, [-1000000000.0, 1e-09, 0.7, 30.0], [-1.5707963257948967, 1e-09, 0.6107259643892086, 1.5374753309166493]),
        (Op::Arctanh, [-0.99999, 1e-09, 0.5, 0.9], [-6.1030338227611125, 1e-09, 0.5493061443340549, 1.4722194895832204]),
        (Op::Cbrt, [-8.1, 1e-300, 2.0, 1e+300], [-2.0082988502465087, 1e-100, 1.2599210498948732, 1e+100]),
        (Op::Cos, [1e-05, 1.5, 100.0, 1e+22], [0.99999999995, 0.0707372016677029, 0.8623188722876839, 0.523214785395139]),
        (Op::Cosh, [-3.0, 1e-05, 0.7, 700.0], [10.067661995777765, 1.00000000005, 1.255169005630943, 5.0711602736750225e+303]),
        (Op::Erf, [-0.5, 1e-09, 1.0, 3.0], [-0.5204998778130465, 1.1283791670955127e-09, 0.8427007929497149, 0.9999779095030014]),
        (Op::Erfc, [-2.0, 0.5, 5.0, 26.0], [1.9953222650189528, 0.4795001221869535, 1.537459794428035e-12, 5.663192408856143e-296]),
        (Op::Erfinv, [-0.9, 1e-09, 0.5, 0.999999], [-1.1630871536766743, 8.86226925452758e-10, 0.4769362762044699, 3.458910737275499]),
        (Op::Exp, [-700.0, -1e-09, 1.0, 700.0], [9.85967654375977e-305, 0.999999999, 2.718281828459045, 1.0142320547350045e+304]),
        (Op::Expm1, [-30.0, 1e-12, 1.0, 700.0], [-0.9999999999999064, 1.0000000000005e-12, 1.7182818284590453, 1.0142320547350045e+304]),
        (Op::Log, [1e-300, 0.99999, 2.0, 1e+300], [-690.7755278982137, -1.0000050000287824e-05, 0.6931471805599453, 690.7755278982137]),
        (Op::Log1p, [-0.9, 1e-12, 0.7, 1e+300], [-2.302585092994046, 9.999999999995e-13, 0.5306282510621704, 690.7755278982137]),
        (Op::Rsqrt, [1e-300, 0.5, 3.0, 1e+300], [1e+150, 1.4142135623730951, 0.5773502691896257, 1e-150]),
        (Op::Sigmoid, [-700.0, -1.0, 1.0, 30.0], [9.85967654375977e-305, 0.2689414213699951, 0.7310585786300049, 0.9999999999999064]),
        (Op::Sin, [1e-05, 3.0, 100.0, 1e+22], [9.999999999833334e-06, 0.1411200080598672, -0.5063656411097588, -0.8522008497671888]),
        (Op::Sinh, [-3.0, 1e-05, 0.7, 700.0], [-10.017874927409903, 1.0000000000166668e-05, 0.7585837018395335, 5.0711602736750225e+303]),
        (Op::Tan, [1e-05, 1.5, 100.0, 1e+22], [1.0000000000333334e-05, 14.101419947171719, -0.5872139151569291, -1.6287782256068988]),
        (Op::Tanh, [-3.0, 1e-05, 0.7, 15.0], [-0.9950547536867305, 9.999999999666668e-06, 0.6043677771171635, 0.9999999999998128]),
    ]
}

fn ulp(x: f64) -> f64 {
    let next = f64::from_bits(x.abs().to_bits() + 1);
    next - x.abs()
}

#[test]
fn functions_of_f64_are_right_to_the_last_place() {
    let w = worker();
    for (op, xs, wanted) in table() {
        let name = op.name();
        let found = value::<f64>(&w, op, &[&array(&w, &[4], &xs)]).unwrap();
        for ((x, found), wanted) in xs.iter().zip(found).zip(wanted) {
            let error = (found - wanted).abs() / ulp(wanted);
            assert!(
                error <= 1.0,
                "{name}({x:e}) is {found:e} and not {wanted:e}: {error} units off"
            );
        }
    }
}

#[test]
fn functions_of_f32_are_those_of_f64_rounded_or_next_to_it() {
    let w = worker();
    // Every 40,009th bit pattern: all exponents, both signs, infinities left to the next test.
    let xs: Vec<f32> = (0..=u32::MAX)
        .step_by(40_009)
        .map(f32::from_bits)
        .filter(|x| x.is_finite())
        .collect();
    let wide: Vec<f64> = xs.iter().map(|x| f64::from(*x)).collect();
    let n = xs.len() as i64;
    for (op, _, _) in table() {
        let name = op.name();
        let single = value::<f32>(&w, op.clone(), &[&array(&w, &[n], &xs)]).unwrap();
        let double = value::<f64>(&w, op, &[&array(&w, &[n], &wide)]).unwrap();
        let mut off = 0;
        for ((x, single), double) in xs.iter().zip(single).zip(double) {
            let rounded = double as f32;
            let same = single == rounded || single.is_nan() && rounded.is_nan();
            let near = single == rounded.next_up() || single == rounded.next_down();
            off += i32::from(!same);
            assert!(
                same || near,
                "{name}({x:e}) is {single:e} in f32 and {double:e} in f64"
            );
        }
        assert!(off <= 20, "{name}: {off} are not the nearest");
    }
}

#[test]
fn special_values() {
    let w = worker();
    let specials = [f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY, f64::NAN];
    let cases = [
        (Op::Exp, [0.0, 1.0, 1.0, f64::INFINITY]),
        (
            Op::Log,
            [
                f64::NAN,
                f64::NEG_INFINITY,
                f64::NEG_INFINITY,
                f64::INFINITY,
            ],
        ),
        (Op::Tanh, [-1.0, -0.0, 0.0, 1.0]),
        (Op::Sigmoid, [0.0, 0.5, 0.5, 1.0]),
        (Op::Erf, [-1.0, -0.0, 0.0, 1.0]),
        (Op::Erfc, [2.0, 1.0, 1.0, 0.0]),
        (Op::Cbrt, [f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY]),
        (Op::RoundAway, [f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY]),
        (Op::Rsqrt, [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, 0.0]),
        (Op::Sin, [f64::NAN, -0.0, 0.0, f64::NAN]),
    ];
    for (op, wanted) in cases {
        let name = op.name();
        let found = value::<f64>(&w, op, &[&array(&w, &[5], &specials)]).unwrap();
        for (found, wanted) in found.iter().zip(wanted) {
            let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
            assert!(same, "{name} of {specials:?} is {found:?}");
        }
        assert!(found[4].is_nan(), "{name}(NaN) is {}", found[4]);
    }
    let halves = array(&w, &[6], &[-2.5f32, -1.5, -0.5, 0.5, 1.5, 0.49999997]);
    let rounded = value::<f32>(&w, Op::RoundAway, &[&halves]).unwrap();
    assert_eq!(rounded, [-3.0, -2.0, -1.0, 1.0, 2.0, 0.0]);
}

#[test]
fn floats_become_integers_as_nx_defines_it() {
    let w = worker();
    let xs = [
        300.7,
        -1.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        4294967297.0,
        9223372036854775808.0,
        -9223372036854775808.0,
        36893488147419103232.0,
        -18446744073709555712.0,
        1e300,
    ];
    let x = array(&w, &[11], &xs);
    let bytes = value::<u8>(&w, Op::Convert(Dtype::Uint8), &[&x]).unwrap();
    assert_eq!(bytes, [44, 255, 0, 255, 0, 1, 0, 0, 0, 0, 0]);
    let ints = value::<i32>(&w, Op::Convert(Dtype::Int32), &[&x]).unwrap();
    assert_eq!(ints, [300, -1, 0, i32::MAX, i32::MIN, 1, 0, 0, 0, -4096, 0]);
    let longs = value::<i64>(&w, Op::Convert(Dtype::Int64), &[&x]).unwrap();
    let least = i64::MIN;
    assert_eq!(
        longs,
        [
            300,
            -1,
            0,
            i64::MAX,
            least,
            4294967297,
            least,
            least,
            0,
            -4096,
            0
        ]
    );
    let unsigned = value::<u64>(&w, Op::Convert(Dtype::Uint64), &[&x]).unwrap();
    assert_eq!(
        unsigned[..7],
        [300, u64::MAX, 0, u64::MAX, 0, 4294967297, 1 << 63]
    );
}

#[test]
fn any_layout_is_read_in_its_order() {
    let w = worker();
    let a = array(&w, &[2, 3], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let exp =
        |xs: &[f32]| -> Vec<f32> { xs.iter().map(|x| (f64::from(*x)).exp() as f32).collect() };
    let transposed = run(&w, Op::TransposeAxes(vec![1, 0]), &[&a]).remove(0);
    let found = value::<f32>(&w, Op::Exp, &[&transposed]).unwrap();
    assert_eq!(found, exp(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    let flipped = run(&w, Op::Flip(vec![1]), &[&a]).remove(0);
    let found = value::<f32>(&w, Op::Exp, &[&flipped]).unwrap();
    assert_eq!(found, exp(&[2.0, 1.0, 0.0, 5.0, 4.0, 3.0]));
    let sliced = run(&w, Op::Slice(vec![0, 0], vec![2, 3], vec![1, 2]), &[&a]).remove(0);
    let found = value::<f32>(&w, Op::Exp, &[&sliced]).unwrap();
    assert_eq!(found, exp(&[0.0, 2.0, 3.0, 5.0]));
    let row = run(&w, Op::Slice(vec![0, 1], vec![2, 2], vec![1, 1]), &[&a]).remove(0);
    let shape = Shape::new(vec![2, 2, 2]).unwrap();
    let spread = run(&w, Op::BroadcastTo(shape), &[&row]).remove(0);
    let found = value::<f32>(&w, Op::Exp, &[&spread]).unwrap();
    assert_eq!(found, exp(&[1.0, 1.0, 4.0, 4.0, 1.0, 1.0, 4.0, 4.0]));
    // A chain, whose buffers are reused; the operand keeps its values.
    let chained = run(&w, Op::Exp, &[&a]).remove(0);
    let chained = run(&w, Op::Log, &[&chained]).remove(0);
    let chained = value::<f32>(&w, Op::RoundAway, &[&chained]).unwrap();
    assert_eq!(chained, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(read::<f32>(&w, &a).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}
