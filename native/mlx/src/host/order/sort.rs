//! Keys put in order, digit by digit: on one core, or in runs on all of them that are then merged.

use std::ops::Range;

use crate::cores;

/// Keys up to which comparing them takes no longer than counting digits.
const FEW: usize = 512;
/// Keys of a run that is worth another core.
const RUN: usize = if cfg!(miri) { 1 << 11 } else { 1 << 15 };
/// Keys that are merged as one piece.
pub(super) const PIECE: usize = if cfg!(miri) { 1 << 9 } else { 1 << 14 };
/// About how many additions it takes to bring a key to its place.
pub(super) const WORK: usize = 16;
/// Digits up to which counting them takes no longer than comparing keys.
const PASSES: usize = 5;
/// Values of a digit, which has eight bits.
const DIGITS: usize = 256;

/// What is put in order. Keys that compare equal are the same.
pub(super) trait Key: Copy + Ord + Default + Send + Sync + 'static {
    /// What decides, the highest bits first. Keys with the same come in order.
    fn bits(self) -> u64;

    #[inline(always)]
    fn digit(self, pass: u32) -> usize {
        (self.bits() >> (8 * pass)) as usize & (DIGITS - 1)
    }
}

macro_rules! whole {
    ($($t:ty),*) => {$(
        impl Key for $t {
            #[inline(always)]
            fn bits(self) -> u64 { self.into() }
        }
    )*};
}

whole!(u8, u16, u32, u64);

/// A key, and below it where it was.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Short(u64);

impl Short {
    pub(super) fn new(key: u32, index: u32) -> Self {
        Self(u64::from(key) << 32 | u64::from(index))
    }

    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }
}

impl Key for Short {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0 >> 32
    }
}

/// A key that takes all of 64 bits, and where it was.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Long(u64, u32);

impl Long {
    pub(super) fn new(key: u64, index: u32) -> Self {
        Self(key, index)
    }

    pub(super) fn index(self) -> u32 {
        self.1
    }
}

impl Key for Long {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
}

/// Puts keys in order, and answers whether that is in `spare`, which has room for as many.
pub(super) fn sort<K: Key>(keys: &mut [K], spare: &mut [K]) -> bool {
    if keys.len() <= FEW || keys.is_sorted() {
        keys.sort_unstable();
        return false;
    }
    // Where all have the same digit there is nothing to do.
    let first = keys[0].bits();
    let varied = keys.iter().fold(0, |all, key| all | (key.bits() ^ first));
    let passes = (0..8).filter(|pass| varied.digit(*pass) != 0);
    let passes: Vec<u32> = passes.collect();
    if passes.len() > PASSES {
        keys.sort_unstable();
        return false;
    }
    let mut counts = [[0_u32; DIGITS]; PASSES];
    for key in keys.iter() {
        for (pass, counts) in passes.iter().zip(&mut counts) {
            counts[key.digit(*pass)] += 1;
        }
    }
    let (mut from, mut to) = (keys, spare);
    for (pass, counts) in passes.iter().zip(&counts) {
        let mut places = [0_usize; DIGITS];
        let mut before = 0;
        for (place, count) in places.iter_mut().zip(counts) {
            *place = before;
            before += *count as usize;
        }
        // So that what is below is right.
        let room = &mut to[..from.len()];
        for key in from.iter() {
            let place = &mut places[key.digit(*pass)];
            // SAFETY: every key was counted, so a digit has a place among as many for each of its keys.
            unsafe { *room.get_unchecked_mut(*place) = *key };
            *place += 1;
        }
        (from, to) = (to, from);
    }
    passes.len() % 2 == 1
}

/// Keys that threads have parts of, each of them others.
struct Parts<K>(*mut K);
// SAFETY: see above.
unsafe impl<K: Send> Sync for Parts<K> {}

impl<K> Parts<K> {
    /// # Safety
    /// The range is within the keys, and nobody else has any of it.
    // The pointer is borrowed, and not what is there.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, range: Range<usize>) -> &mut [K] {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

/// As `sort`, on all cores.
pub(super) fn sort_shared<K: Key>(keys: &mut [K], spare: &mut [K]) -> bool {
    let len = keys.len();
    let runs = cores::count().min(len / RUN);
    if runs < 2 {
        return sort(keys, spare);
    }
    let size = len.div_ceil(runs);
    let (one, other) = (Parts(keys.as_mut_ptr()), Parts(spare.as_mut_ptr()));
    cores::share(runs, size * WORK, 1, &|runs| {
        for run in runs {
            let run = (run * size).min(len)..((run + 1) * size).min(len);
            // SAFETY: runs are within the keys and apart from each other.
            let (keys, spare) = unsafe { (one.part(run.clone()), other.part(run)) };
            if sort(keys, spare) {
                keys.copy_from_slice(spare);
            }
        }
    });
    let (mut from, mut to) = (keys, spare);
    let (mut width, mut is_spare) = (size, false);
    while width < len {
        merge_runs(from, to, width);
        (from, to) = (to, from);
        is_spare = !is_spare;
        width *= 2;
    }
    is_spare
}

/// Merges every two runs of `width` keys.
fn merge_runs<K: Key>(from: &[K], to: &mut [K], width: usize) {
    let len = from.len();
    let to = Parts(to.as_mut_ptr());
    cores::share(len.div_ceil(PIECE), PIECE * 4, 1, &|pieces| {
        let (mut first, last) = (pieces.start * PIECE, (pieces.end * PIECE).min(len));
        while first < last {
            let pair = first / (2 * width) * (2 * width);
            let (middle, end) = ((pair + width).min(len), (pair + 2 * width).min(len));
            let piece = first..end.min(last);
            first = piece.end;
            // SAFETY: pieces are within the keys and apart from each other.
            let to = unsafe { to.part(piece.clone()) };
            merge(
                &from[pair..middle],
                &from[middle..end],
                piece.start - pair,
                to,
            );
        }
    });
}

/// Of all keys of both in order, those from `first` on.
fn merge<K: Key>(a: &[K], b: &[K], first: usize, to: &mut [K]) {
    // How many of those before are of `a`.
    let (mut low, mut high) = (first.saturating_sub(b.len()), first.min(a.len()));
    while low < high {
        let middle = low.midpoint(high);
        if a[middle] <= b[first - middle - 1] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let (mut a, mut b) = (&a[low..], &b[first - low..]);
    let mut to = to;
    while !to.is_empty() && !a.is_empty() && !b.is_empty() {
        // So many come before either ends.
        let safe = to.len().min(a.len()).min(b.len());
        let (now, later) = to.split_at_mut(safe);
        let (mut i, mut j) = (0, 0);
        for to in now {
            let is_b = b[j] < a[i];
            *to = if is_b { b[j] } else { a[i] };
            j += usize::from(is_b);
            i += usize::from(!is_b);
        }
        (a, b, to) = (&a[i..], &b[j..], later);
    }
    let rest = if a.is_empty() { b } else { a };
    to.copy_from_slice(&rest[..to.len()]);
}

#[cfg(test)]
mod tests {
    //! Oracle: the standard library.
    use super::*;

    fn numbers(count: usize, bits: u32) -> Vec<u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> (64 - bits)
        };
        (0..count).map(next).collect()
    }

    fn check<K: Key + std::fmt::Debug>(keys: Vec<K>) {
        let mut wanted = keys.clone();
        wanted.sort();
        for shared in [false, true] {
            let (mut keys, mut spare) = (keys.clone(), vec![K::default(); keys.len()]);
            let is_spare = if shared {
                sort_shared(&mut keys, &mut spare)
            } else {
                sort(&mut keys, &mut spare)
            };
            assert!(if is_spare { spare } else { keys } == wanted);
        }
    }

    #[test]
    fn keys_come_in_order() {
        let most = if cfg!(miri) { 5_000 } else { 200_003 };
        for count in [0, 1, 2, FEW, FEW + 1, most] {
            for bits in [1, 7, 20, 64] {
                let keys = numbers(count, bits);
                check::<u8>(keys.iter().map(|key| *key as u8).collect());
                check::<u16>(keys.iter().map(|key| *key as u16).collect());
                check::<u32>(keys.iter().map(|key| *key as u32).collect());
                check(keys);
            }
        }
        check::<u32>((0..most as u32).rev().collect());
        check::<u64>((0..most as u64).map(|key| key << 40).rev().collect());
    }

    #[test]
    fn equal_keys_stay_as_they_were() {
        let most = if cfg!(miri) { 5_000 } else { 100_003 };
        let keys = numbers(most, 3);
        let short = keys.iter().zip(0..);
        let short = short.map(|(key, index)| Short::new(*key as u32, index));
        let long = keys.iter().zip(0..);
        let long = long.map(|(key, index)| Long::new(*key, index));
        let (mut short, mut long): (Vec<_>, Vec<_>) = (short.collect(), long.collect());
        let mut wanted: Vec<usize> = (0..most).collect();
        wanted.sort_by_key(|index| keys[*index]);
        let mut spare = vec![Short::default(); most];
        let short = if sort_shared(&mut short, &mut spare) {
            spare
        } else {
            short
        };
        assert!(
            short
                .iter()
                .map(|key| key.index() as usize)
                .eq(wanted.iter().copied())
        );
        let mut spare = vec![Long::default(); most];
        let long = if sort_shared(&mut long, &mut spare) {
            spare
        } else {
            long
        };
        assert!(long.iter().map(|key| key.index() as usize).eq(wanted));
    }

    #[test]
    fn merging_begins_anywhere() {
        let (a, b): ([u8; 5], [u8; 4]) = ([1, 1, 3, 5, 5], [0, 1, 5, 9]);
        let all = [0, 1, 1, 1, 3, 5, 5, 5, 9];
        for first in 0..all.len() {
            for last in first..=all.len() {
                let mut to = vec![7; last - first];
                merge(&a, &b, first, &mut to);
                assert_eq!(to, all[first..last]);
            }
        }
        let mut to = [7_u8; 3];
        merge(&[1, 2, 3], &[], 0, &mut to);
        assert_eq!(to, [1, 2, 3]);
    }
}
