//! Oracle: the sums as they are defined, in f64.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use smallvec::SmallVec;

use super::sizes::{Axis, Blocks, Order, Sizes};
use super::work::Work;
use super::{Number, Operand};
use crate::halves::Half;

/// A number from a small integer, and back.
trait Small: Number + Default {
    fn of(x: i32) -> Self;
    fn value(self) -> f64;
}

macro_rules! small {
    ($($t:ty, $of:expr, $value:expr;)*) => {$(
        impl Small for $t {
            fn of(x: i32) -> Self {
                $of(x)
            }
            fn value(self) -> f64 {
                $value(self)
            }
        }
    )*};
}

small! {
    f32, |x: i32| x as f32, f64::from;
    f64, f64::from, |x: f64| x;
    f16, |x: i32| <f16 as Half>::narrow(x as f32), |x: f16| f64::from(Half::wide(x));
    bf16, |x: i32| <bf16 as Half>::narrow(x as f32), |x: bf16| f64::from(Half::wide(x));
}

/// An array of small integers whose axes lie in any order, forwards or backwards.
#[derive(Debug)]
struct Scattered<T> {
    data: Vec<T>,
    first: usize,
    strides: Vec<i64>,
}

impl<T: Small> Scattered<T> {
    fn new(dims: &[usize], order: &[usize], back: u32, seed: i32) -> Self {
        let (mut strides, mut first, mut step) = (vec![0; dims.len()], 0, 1);
        for axis in order.iter().rev() {
            strides[*axis] = step as i64;
            if back & (1 << axis) != 0 {
                strides[*axis] = -(step as i64);
                first += step * (dims[*axis] - 1);
            }
            if dims[*axis] == 1 {
                strides[*axis] = 0;
            }
            step *= dims[*axis];
        }
        let number = |index: usize| T::of((index as i32 * 7 + seed) % 5 - 2);
        Self {
            data: (0..step).map(number).collect(),
            first,
            strides,
        }
    }

    fn operand(&self) -> Operand<'_, T> {
        Operand {
            at: self.data[self.first..].as_ptr(),
            strides: &self.strides,
        }
    }

    fn at(&self, places: &[i64]) -> f64 {
        let offsets = self.strides.iter().zip(places);
        let offset: i64 = offsets.map(|(stride, place)| stride * place).sum();
        self.data[(self.first as i64 + offset) as usize].value()
    }
}

/// All places of a shape, in order.
fn places(dims: &[usize]) -> impl Iterator<Item = Vec<i64>> + use<'_> {
    let size = dims.iter().product::<usize>();
    (0..size).map(move |mut index| {
        let mut place = vec![0; dims.len()];
        for (place, dim) in place.iter_mut().zip(dims).rev() {
            *place = (index % dim) as i64;
            index /= dim;
        }
        place
    })
}

fn naive<T: Small>(sizes: &Sizes, x: &Scattered<T>, weights: &Scattered<T>, at: &[i64]) -> f64 {
    let group = at[at.len() - 1] as usize / sizes.filters;
    let taps: Vec<usize> = sizes.axes.iter().map(|axis| axis.taps).collect();
    let mut sum = 0.0;
    for tap in places(&taps) {
        let mut place = vec![at[0]];
        for ((axis, tap), at) in sizes.axes.iter().zip(&tap).zip(&at[1..]) {
            let from = *at as isize * axis.stride + *tap as isize * axis.dilation - axis.low;
            if from >= 0 && from % axis.spread == 0 && from / axis.spread < axis.input as isize {
                place.push((from / axis.spread) as i64);
            }
        }
        if place.len() <= sizes.axes.len() {
            continue;
        }
        for channel in 0..sizes.channels {
            let mut place = place.clone();
            place.push((group * sizes.channels + channel) as i64);
            let mut weight = vec![at[at.len() - 1]];
            weight.extend(&tap);
            weight.push(channel as i64);
            sum += x.at(&place) * weights.at(&weight);
        }
    }
    sum
}

#[derive(Debug, Clone)]
struct Case {
    sizes: Sizes,
    orders: [Vec<usize>; 2],
    back: [u32; 2],
    blocks: Option<[usize; 4]>,
}

fn axis() -> impl Strategy<Value = Axis> {
    (
        1..8usize,
        1..4usize,
        1..4isize,
        1..4isize,
        1..4isize,
        -3..4isize,
        0..4isize,
    )
        .prop_map(|(input, taps, stride, dilation, spread, low, more)| {
            let reach = (taps as isize - 1) * dilation + 1;
            let size = ((input as isize - 1) * spread + 1 + low + more).max(reach);
            let places = ((size - reach) / stride + 1) as usize;
            Axis {
                input,
                taps,
                places,
                stride,
                dilation,
                spread,
                low,
            }
        })
}

fn case() -> impl Strategy<Value = Case> {
    let order = |axes: usize| Just((0..axes + 2).collect::<Vec<_>>()).prop_shuffle();
    let sizes = (1..4usize, 1..3usize, 1..4usize, 1..7usize);
    (sizes, prop::collection::vec(axis(), 1..4)).prop_flat_map(
        move |((batch, groups, channels, filters), axes)| {
            let count = axes.len();
            let sizes = Sizes {
                batch,
                groups,
                channels,
                filters,
                axes: SmallVec::from_vec(axes),
            };
            let blocks = prop::option::of((1..20usize, 1..5usize, 1..9usize, 1..4usize));
            (order(count), order(count), 0..64u32, 0..64u32, blocks).prop_map(
                move |(one, other, back, turned, blocks)| Case {
                    sizes: sizes.clone(),
                    orders: [one, other],
                    back: [back, turned],
                    blocks: blocks.map(|(a, b, c, d)| [a, b, c, d]),
                },
            )
        },
    )
}

fn check<T: Small>(case: &Case) -> TestCaseResult {
    let sizes = &case.sizes;
    let axes = |of: fn(&Axis) -> usize| sizes.axes.iter().map(of);
    let mut input = vec![sizes.batch];
    input.extend(axes(|axis| axis.input));
    input.push(sizes.groups * sizes.channels);
    let mut kernel = vec![sizes.groups * sizes.filters];
    kernel.extend(axes(|axis| axis.taps));
    kernel.push(sizes.channels);
    let mut made = vec![sizes.batch];
    made.extend(axes(|axis| axis.places));
    made.push(sizes.groups * sizes.filters);

    let x = Scattered::<T>::new(&input, &case.orders[0], case.back[0], 3);
    let weights = Scattered::<T>::new(&kernel, &case.orders[1], case.back[1], 1);
    let mut to = vec![T::of(99); made.iter().product()];
    let mut work = Work::new(sizes, x.operand(), weights.operand(), to.as_mut_ptr());
    if let Some([places, filters, depth, pieces]) = case.blocks {
        let deep = sizes.depth().div_ceil(depth);
        work.blocks = Blocks {
            places,
            filters,
            depth,
            pieces: pieces.min(deep),
        };
    }
    work.all();

    let mut strides = vec![0; made.len()];
    Order::new(sizes, &x.strides, &weights.strides).strides(sizes, &mut strides);
    for place in places(&made) {
        let offsets = strides.iter().zip(&place);
        let offset: i64 = offsets.map(|(stride, place)| stride * place).sum();
        let wanted = naive(sizes, &x, &weights, &place);
        prop_assert_eq!(to[offset as usize].value(), wanted, "{:?}", place);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn sums_are_those_of_the_definition(case in case()) {
        check::<f32>(&case)?;
        check::<f64>(&case)?;
        check::<f16>(&case)?;
        check::<bf16>(&case)?;
    }
}

fn sizes(batch: usize, channels: usize, filters: usize, axis: [usize; 3]) -> Sizes {
    let [input, taps, low] = axis;
    let axis = Axis {
        input,
        taps,
        places: input + 2 * low + 1 - taps,
        stride: 1,
        dilation: 1,
        spread: 1,
        low: low as isize,
    };
    Sizes {
        batch,
        groups: 1,
        channels,
        filters,
        axes: SmallVec::from_elem(axis, 2),
    }
}

#[test]
fn results_lie_as_operands_do() {
    let sizes = sizes(8, 16, 32, [32, 3, 1]);
    let weights = [144, 3, 1, 9];
    let of = |x: [i64; 4]| Order::new(&sizes, &x, &weights);
    assert_eq!(of([16 << 10, 32, 1, 1 << 10]), Order::Images);
    assert_eq!(of([16 << 10, 512, 16, 1]), Order::Rows);
    assert_eq!(of([1 << 10, 32, 1, 8 << 10]), Order::Planes);
    assert_eq!(of([1, 512, 16, 16 << 10]), Order::Turned);
    let mut strides = [0; 4];
    Order::Planes.strides(&sizes, &mut strides);
    assert_eq!(strides, [1 << 10, 32, 1, 8 << 10]);
    Order::Turned.strides(&sizes, &mut strides);
    assert_eq!(strides, [32, 32 * 8 * 32, 8 * 32, 1]);
}

#[test]
fn blocks_are_enough_for_many_cores_and_small_enough_for_a_cache() {
    let large = Blocks::new(&sizes(8, 16, 32, [32, 3, 1]), 4);
    assert_eq!(
        (large.places, large.filters, large.depth, large.pieces),
        (512, 32, 144, 1)
    );
    // A gradient of weights has few places, and a window as large as its input.
    let deep = Blocks::new(&sizes(16, 8, 32, [32, 32, 1]), 4);
    assert_eq!((deep.filters, deep.depth, deep.pieces), (32, 512, 16));
    let small = Blocks::new(&sizes(1, 1, 1, [1, 1, 0]), 4);
    assert_eq!(
        (small.places, small.filters, small.depth, small.pieces),
        (1, 1, 1, 1)
    );
}
