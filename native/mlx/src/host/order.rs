//! An axis sorted, and the positions that sort it, on all cores: upwards and stably, NaN last.
//!
//! What is sorted are keys, unsigned integers in the order of the elements. Zeros of both signs are
//! equal, and so are all NaNs, which have different bits: they are put back as they stood. Lines are
//! shared among cores, or a long one is, in runs that are merged.

mod element;
mod sort;

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::stream::{Device, Stream};
use element::{Element, equal};
use sort::{Key, PIECE, WORK};

/// Lines beside each other that are read and written together, as what is beside is in one cache line.
const BESIDE: usize = 16;
/// Elements of such lines, all together.
const BLOCK: usize = 1 << 18;
/// Elements of a line that cores share.
const LONG: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };

/// What becomes of the elements of a line.
trait Order: Send + Sync + 'static {
    type In: Copy + Send + Sync;
    type Out: Copy + Send + Sync;
    type Key: Key;

    fn key(x: Self::In, index: usize) -> Self::Key;
    fn made(key: Self::Key) -> Self::Out;

    /// Puts right what keys do not tell, in a line that is sorted.
    fn mend(_line: &Line<Self::In, Self::Out>) {}

    /// Sorts a line, without room for keys.
    fn in_place(from: &[Self::In], to: &mut [Self::Out]);
}

struct Sorted<T>(PhantomData<T>);

impl<T: Element> Order for Sorted<T> {
    type In = T;
    type Out = T;
    type Key = T::Key;

    #[inline(always)]
    fn key(x: T, _index: usize) -> T::Key {
        x.key()
    }

    #[inline(always)]
    fn made(key: T::Key) -> T {
        T::of(key)
    }

    /// Zeros and NaNs, of which all that is known is how many there are.
    fn mend(line: &Line<T, T>) {
        let Some([lesser, greater, nan]) = T::FLOAT else {
            return;
        };
        // SAFETY: these are in the line, and written.
        let made = |index| unsafe { line.to.add(index * line.stride).read().key() };
        let below = |key| {
            let (mut low, mut high) = (0, line.count);
            while low < high {
                let middle = low.midpoint(high);
                if made(middle) < key {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        let (zeros, others, nans) = (below(lesser), below(greater), below(nan));
        let is_mixed = zeros < others && others < line.count && made(others) == greater;
        if !is_mixed && nans == line.count {
            return;
        }
        let (mut zero, mut last) = (zeros, nans);
        for index in 0..line.count {
            let x = line.get(index);
            let key = x.key();
            let place = if key == nan {
                &mut last
            } else if is_mixed && (key == lesser || key == greater) {
                &mut zero
            } else {
                continue;
            };
            line.put(*place, x);
            *place += 1;
        }
    }

    fn in_place(from: &[T], to: &mut [T]) {
        to.copy_from_slice(from);
        to.sort_unstable_by_key(|x| x.key());
    }
}

struct Positions<T>(PhantomData<T>);

impl<T: Element> Order for Positions<T> {
    type In = T;
    type Out = u32;
    type Key = T::Placed;

    #[inline(always)]
    fn key(x: T, index: usize) -> T::Placed {
        T::placed(equal(x), index as u32)
    }

    #[inline(always)]
    fn made(key: T::Placed) -> u32 {
        T::index(key)
    }

    fn in_place(from: &[T], to: &mut [u32]) {
        for (index, to) in (0..).zip(&mut *to) {
            *to = index;
        }
        to.sort_unstable_by_key(|index| (equal(from[*index as usize]), *index));
    }
}

/// Some elements, `stride` apart, and room for what comes of them.
struct Line<T, U> {
    from: *const T,
    to: *mut U,
    stride: usize,
    count: usize,
}

// SAFETY: threads share elements to read, and write others each.
unsafe impl<T: Sync, U: Send> Sync for Line<T, U> {}

impl<T: Copy, U> Line<T, U> {
    /// The line that begins so many elements further on.
    #[inline(always)]
    fn beside(&self, elements: usize) -> Self {
        Self {
            from: self.from.wrapping_add(elements),
            to: self.to.wrapping_add(elements),
            ..*self
        }
    }

    #[inline(always)]
    fn get(&self, index: usize) -> T {
        debug_assert!(index < self.count);
        // SAFETY: the line has this element.
        unsafe { self.from.add(index * self.stride).read() }
    }

    #[inline(always)]
    fn put(&self, index: usize, made: U) {
        debug_assert!(index < self.count);
        // SAFETY: the line has this element, and this thread alone writes it.
        unsafe { self.to.add(index * self.stride).write(made) };
    }
}

/// Room for so many keys, if it can be had.
fn room<K: Key>(count: usize) -> Option<Vec<K>> {
    let mut keys = Vec::new();
    keys.try_reserve_exact(count).ok()?;
    keys.resize(count, K::default());
    Some(keys)
}

/// Sorts one line on all cores.
fn long<O: Order>(line: &Line<O::In, O::Out>) {
    let (Some(mut keys), Some(mut spare)) = (room(line.count), room(line.count)) else {
        return alone::<O>(line);
    };
    let places = Line {
        from: std::ptr::null::<()>(),
        to: keys.as_mut_ptr(),
        stride: 1,
        count: line.count,
    };
    cores::share(line.count, 1, PIECE, &|range| {
        for index in range {
            places.put(index, O::key(line.get(index), index));
        }
    });
    let keys = if sort::sort_shared(&mut keys, &mut spare) {
        spare
    } else {
        keys
    };
    cores::share(line.count, 1, PIECE, &|range| {
        for (index, key) in range.clone().zip(&keys[range]) {
            line.put(index, O::made(*key));
        }
    });
    O::mend(line);
}

/// Sorts one line of elements that lie one after the other, where there is no room for keys.
fn alone<O: Order>(line: &Line<O::In, O::Out>) {
    // SAFETY: the line has so many elements, one after the other, which nobody else writes, and all
    // of what is written is a number, whatever was there.
    let (from, to) = unsafe {
        line.to.write_bytes(0, line.count);
        (
            std::slice::from_raw_parts(line.from, line.count),
            std::slice::from_raw_parts_mut(line.to, line.count),
        )
    };
    O::in_place(from, to);
    O::mend(line);
}

/// Elements as so many times `count` times `inner`, of which those in the middle are lines.
#[derive(Debug, Clone, Copy)]
struct Lines {
    outer: usize,
    count: usize,
    inner: usize,
}

impl Lines {
    /// How many lines are read and written together.
    fn beside(&self) -> usize {
        self.inner.min(BESIDE).min(BLOCK / self.count).max(1)
    }
}

struct Ordered<O>(Lines, PhantomData<O>);

impl<O: Order> Ordered<O> {
    /// Sorts lines that lie beside each other, of which the first is given.
    fn beside(
        &self,
        first: &Line<O::In, O::Out>,
        lines: usize,
        keys: &mut [O::Key],
        spare: &mut [O::Key],
    ) {
        let count = first.count;
        for index in 0..count {
            for at in 0..lines {
                keys[at * count + index] = O::key(first.beside(at).get(index), index);
            }
        }
        for keys in keys.chunks_exact_mut(count).take(lines) {
            if sort::sort(keys, &mut spare[..count]) {
                keys.copy_from_slice(&spare[..count]);
            }
        }
        for index in 0..count {
            for at in 0..lines {
                first
                    .beside(at)
                    .put(index, O::made(keys[at * count + index]));
            }
        }
        for at in 0..lines {
            O::mend(&first.beside(at));
        }
    }
}

impl<O: Order> Call for Ordered<O> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let Lines {
            outer,
            count,
            inner,
        } = self.0;
        if outer * count * inner == 0 {
            return;
        }
        let all = Line {
            from: inputs[0].cast::<O::In>(),
            to: out.cast::<O::Out>(),
            stride: inner,
            count,
        };
        let first = |line: usize, column: usize| all.beside(line * count * inner + column);
        if inner == 1 && outer < cores::count() && count >= LONG {
            return (0..outer).for_each(|line| long::<O>(&first(line, 0)));
        }
        let beside = self.0.beside();
        let blocks = inner.div_ceil(beside);
        cores::share(outer * blocks, beside * count * WORK, 1, &|items: Range<
            usize,
        >| {
            let (mut keys, mut spare) = match room(beside * count).zip(room(count)) {
                Some(room) => room,
                None if inner == 1 => {
                    return items.for_each(|line| alone::<O>(&first(line, 0)));
                }
                // These lines are not long.
                None => {
                    let none = O::Key::default();
                    (vec![none; beside * count], vec![none; count])
                }
            };
            for item in items {
                let column = item % blocks * beside;
                let lines = beside.min(inner - column);
                self.beside(&first(item / blocks, column), lines, &mut keys, &mut spare);
            }
        });
    }
}

/// What `$of` makes of the type of the elements.
macro_rules! by_type {
    ($x:expr, $s:expr, $of:ident) => {
        match $x.dtype() {
            _ if $s.device != Device::Cpu => None,
            Dtype::Bool | Dtype::Uint8 => $of!(u8),
            Dtype::Uint16 => $of!(u16),
            Dtype::Uint32 => $of!(u32),
            Dtype::Uint64 => $of!(u64),
            Dtype::Int8 => $of!(i8),
            Dtype::Int16 => $of!(i16),
            Dtype::Int32 => $of!(i32),
            Dtype::Int64 => $of!(i64),
            Dtype::Float16 => $of!(f16),
            Dtype::Bfloat16 => $of!(bf16),
            Dtype::Float32 => $of!(f32),
            Dtype::Float64 => $of!(f64),
            Dtype::Complex64 => None,
        }
    };
}

/// The axis sorted, if the stream is a CPU's and the elements have an order.
pub(crate) fn sort(x: &Array, axis: usize, s: &Stream) -> Option<Result<Array>> {
    macro_rules! of {
        ($t:ty) => {
            ordered::<Sorted<$t>>(c"Sort", x, axis, x.dtype(), s)
        };
    }
    by_type!(x, s, of)
}

/// The positions that sort the axis, if the stream is a CPU's and the elements have an order.
pub(crate) fn argsort(x: &Array, axis: usize, s: &Stream) -> Option<Result<Array>> {
    macro_rules! of {
        ($t:ty) => {
            ordered::<Positions<$t>>(c"Argsort", x, axis, Dtype::Uint32, s)
        };
    }
    by_type!(x, s, of)
}

/// Whether lines along the axis are too long to be read beside each other: that axis should be the
/// last.
pub(crate) fn is_far(x: &Array, axis: usize) -> bool {
    axis + 1 < x.dims().len() && x.dims()[axis] as usize > BLOCK
}

fn ordered<O: Order>(
    name: &'static CStr,
    x: &Array,
    axis: usize,
    dtype: Dtype,
    s: &Stream,
) -> Option<Result<Array>> {
    let size = |dims: &[i32]| dims.iter().map(|dim| *dim as usize).product();
    let dims = x.dims();
    let (outer, rest) = dims.split_at_checked(axis)?;
    let (count, inner) = rest.split_first()?;
    let lines = Lines {
        outer: size(outer),
        count: *count as usize,
        inner: size(inner),
    };
    Some(call(
        name,
        &[x],
        (dims, dtype),
        Ordered::<O>(lines, PhantomData),
        s,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
