//! Oracle: the standard library's stable sort, by a comparison that has NaN last.

use std::cmp::Ordering;
use std::fmt::Debug;

use super::*;

/// An element, what it is compared by, and its bits.
trait Number: Element + Debug {
    fn compared(self, other: Self) -> Ordering;
    fn bits(self) -> u64;
    fn random(bits: u64) -> Self;
}

macro_rules! numbers {
    (whole $($t:ty),*) => {$(
        impl Number for $t {
            fn compared(self, other: Self) -> Ordering { self.cmp(&other) }
            fn bits(self) -> u64 { self as u64 }
            fn random(bits: u64) -> Self { bits as $t }
        }
    )*};
    (float $($t:ty, $key:ty);*) => {$(
        impl Number for $t {
            fn compared(self, other: Self) -> Ordering {
                let nan = self.is_nan().cmp(&other.is_nan());
                self.partial_cmp(&other).unwrap_or(nan)
            }
            fn bits(self) -> u64 { self.to_bits().into() }
            // Half of them are special, among them NaNs of several bits and both signs.
            fn random(bits: u64) -> Self {
                let nan = <$t>::NAN.to_bits();
                let one: $key = nan.leading_zeros().max(1) as $key;
                match bits >> 60 {
                    0 => <$t>::from_bits(0),
                    1 => -<$t>::from_bits(0),
                    2 => <$t>::INFINITY,
                    3 => <$t>::NEG_INFINITY,
                    4 => <$t>::from_bits(nan | bits as $key & 3),
                    5 => <$t>::from_bits(<$key>::MAX ^ one),
                    6 => <$t>::from_bits(<$key>::MAX),
                    _ => <$t>::from_bits(bits as $key),
                }
            }
        }
    )*};
}

numbers!(whole u8, u16, u32, u64, i8, i16, i32, i64);
numbers!(float f16, u16; bf16, u16; f32, u32; f64, u64);

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Where each element of each line is, line by line.
fn places(lines: Lines) -> Vec<Vec<usize>> {
    let Lines {
        outer,
        count,
        inner,
    } = lines;
    let starts = (0..outer).flat_map(|line| (0..inner).map(move |at| line * count * inner + at));
    starts
        .map(|first| (0..count).map(|index| first + index * inner).collect())
        .collect()
}

fn check<T: Number>(lines: Lines, numbers: &[T]) {
    let (mut values, mut positions) = (
        vec![T::random(1); numbers.len()],
        vec![7_u32; numbers.len()],
    );
    // SAFETY: so many elements are there, and there is room for as many.
    unsafe {
        let from = [numbers.as_ptr().cast::<c_void>()];
        Ordered::<Sorted<T>>(lines, PhantomData).run(&from, values.as_mut_ptr().cast());
        Ordered::<Positions<T>>(lines, PhantomData).run(&from, positions.as_mut_ptr().cast());
    }
    for line in places(lines) {
        let mut order: Vec<usize> = (0..line.len()).collect();
        order.sort_by(|a, b| numbers[line[*a]].compared(numbers[line[*b]]));
        for (place, wanted) in line.iter().zip(&order) {
            let what = (lines, std::any::type_name::<T>());
            assert_eq!(positions[*place] as usize, *wanted, "{what:?}");
            assert_eq!(
                values[*place].bits(),
                numbers[line[*wanted]].bits(),
                "{what:?}"
            );
        }
    }
}

fn check_all<T: Number>() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let long = 2 * LONG + 17;
    let shapes = [
        (1, 1, 1),
        (0, 4, 3),
        (3, 0, 2),
        (1, 2, 1),
        (4, 5, 3),
        (2, 3, 40),
        (3, 700, 1),
        (1, 900, 17),
        (1, long, 1),
        (5, 3, 16),
        (2, BLOCK / 4 + 1, 3),
    ];
    for (outer, count, inner) in shapes {
        // Miri takes minutes for what is long.
        if cfg!(miri) && count > long {
            continue;
        }
        let size = outer * count * inner;
        let lines = Lines {
            outer,
            count,
            inner,
        };
        let any: Vec<T> = (0..size).map(|_| T::random(dice.next())).collect();
        check(lines, &any);
        let few: Vec<T> = (0..size)
            .map(|_| T::random(dice.next() & (0xf << 60 | 3)))
            .collect();
        check(lines, &few);
        let one = vec![T::random(dice.next()); size];
        check(lines, &one);
    }
}

#[test]
fn whole_numbers_are_sorted() {
    check_all::<u8>();
    check_all::<u16>();
    check_all::<u32>();
    check_all::<u64>();
    check_all::<i8>();
    check_all::<i16>();
    check_all::<i32>();
    check_all::<i64>();
}

#[test]
fn floats_are_sorted_with_zeros_and_nans_as_they_stood() {
    check_all::<f16>();
    check_all::<bf16>();
    check_all::<f32>();
    check_all::<f64>();
}

#[test]
fn lines_are_sorted_where_there_is_no_room() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let numbers: Vec<f32> = (0..999).map(|_| f32::random(dice.next())).collect();
    let mut order: Vec<u32> = (0..999).collect();
    order.sort_by(|a, b| numbers[*a as usize].compared(numbers[*b as usize]));
    let (mut values, mut positions) = (vec![0_f32; 999], vec![0_u32; 999]);
    let line = Line {
        from: numbers.as_ptr(),
        to: values.as_mut_ptr(),
        stride: 1,
        count: 999,
    };
    alone::<Sorted<f32>>(&line);
    let line = Line {
        from: numbers.as_ptr(),
        to: positions.as_mut_ptr(),
        stride: 1,
        count: 999,
    };
    alone::<Positions<f32>>(&line);
    assert_eq!(positions, order);
    let wanted = order.iter().map(|index| numbers[*index as usize].bits());
    assert!(values.iter().map(|x| x.bits()).eq(wanted));
}
