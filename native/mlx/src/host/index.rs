//! Parts of an array read and written at positions, on all cores. A read takes the nearest part that
//! is within the array; a write that is not within it does nothing.

mod places;
mod scatter;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::stream::{Device, Stream};
use places::{HELD, Part, Places, clamped};
pub(crate) use scatter::{Merged, scatter};

/// Parts that one core takes at a time, at least.
const FEW: usize = 64;

/// A number of elements.
fn size(dims: &[i32]) -> usize {
    dims.iter().map(|dim| *dim as usize).product()
}

/// Where elements are read, and where they are written.
struct Copies<T> {
    from: *const T,
    to: *mut T,
}

// SAFETY: each element is written by one thread.
unsafe impl<T: Sync + Send> Sync for Copies<T> {}

impl<T: Copy> Copies<T> {
    /// # Safety
    /// There are so many elements at either place, and nobody else has those that are written.
    #[inline(always)]
    unsafe fn copy(&self, from: usize, to: usize, count: usize) {
        // SAFETY: as the caller says; what is read is of another array than what is written.
        unsafe {
            let (from, to) = (self.from.add(from), self.to.add(to));
            if count == 1 {
                to.write(from.read());
            } else {
                std::ptr::copy_nonoverlapping(from, to, count);
            }
        }
    }
}

/// Parts of an array, one after the other.
struct Gather<T> {
    places: Places,
    part: Part,
    element: PhantomData<T>,
}

impl<T: Copy + Send + Sync + 'static> Call for Gather<T> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let [from, indices @ ..] = inputs else {
            return;
        };
        let indices = Indices(indices);
        let copies = Copies::<T> {
            from: from.cast(),
            to: out.cast(),
        };
        let Part { run, size, .. } = self.part;
        cores::share(self.places.count, size.max(1), FEW, &|range| {
            let mut held = [0; HELD];
            for first in range.clone().step_by(HELD) {
                let held = &mut held[..HELD.min(range.end - first)];
                // SAFETY: the places are within these indices.
                unsafe { self.places.clamped(indices.get(), first, held) };
                for (index, begin) in (first..).zip(&*held) {
                    // SAFETY: the part lies within the array from there on, and the result has room
                    // for each of them.
                    self.part.each(|offset, at| unsafe {
                        copies.copy(begin + offset, index * size + at, run);
                    });
                }
            }
        });
    }
}

/// Pointers to elements that nobody writes.
struct Indices<'a>(&'a [*const c_void]);

// SAFETY: see above.
unsafe impl Sync for Indices<'_> {}

impl Indices<'_> {
    fn get(&self) -> &[*const c_void] {
        self.0
    }
}

/// Of elements as `outer` times `dim` times `inner`, those in the middle at `count` positions.
struct Take<T> {
    outer: usize,
    dim: usize,
    inner: usize,
    count: usize,
    indices: Dtype,
    element: PhantomData<T>,
}

impl<T: Copy + Send + Sync> Take<T> {
    /// # Safety
    /// As for `run`.
    unsafe fn part(
        &self,
        copies: &Copies<T>,
        indices: *const c_void,
        rows: Range<usize>,
        range: Range<usize>,
    ) {
        let mut held = [0; HELD];
        for first in range.clone().step_by(HELD) {
            let held = &mut held[..HELD.min(range.end - first)];
            // SAFETY: so many indices are there.
            unsafe { clamped(self.indices, indices, first, self.dim - 1, held) };
            for row in rows.clone() {
                let (from, to) = (row * self.dim, row * self.count + first);
                for (index, to) in held.iter().zip(to..) {
                    // SAFETY: both are within their arrays, and this part of the result is this
                    // thread's.
                    unsafe {
                        copies.copy((from + index) * self.inner, to * self.inner, self.inner);
                    }
                }
            }
        }
    }
}

impl<T: Copy + Send + Sync + 'static> Call for Take<T> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let [from, indices] = inputs else {
            return;
        };
        let copies = Copies::<T> {
            from: from.cast(),
            to: out.cast(),
        };
        let indices = Indices(std::slice::from_ref(indices));
        // SAFETY: the ranges are of what there is.
        let part = |rows, range| unsafe { self.part(&copies, indices.get()[0], rows, range) };
        if self.outer < cores::count() {
            let work = self.outer * self.inner;
            cores::share(self.count, work, FEW, &|range| part(0..self.outer, range));
        } else {
            let work = self.count * self.inner;
            cores::share(self.outer, work, 1, &|rows| part(rows, 0..self.count));
        }
    }
}

/// As `Take`, with positions for each element of `outer` and `inner`.
struct TakeAlong<T>(Take<T>);

impl<T: Copy + Send + Sync + 'static> Call for TakeAlong<T> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let [from, indices] = inputs else {
            return;
        };
        let copies = Copies::<T> {
            from: from.cast(),
            to: out.cast(),
        };
        let indices = Indices(std::slice::from_ref(indices));
        let Take {
            outer, dim, inner, ..
        } = self.0;
        let row = self.0.count * inner;
        cores::share(outer * row, 4, HELD, &|range| {
            let mut held = [0; HELD];
            let mut first = range.start;
            while first < range.end {
                let before = first / row;
                let end = range.end.min((before + 1) * row).min(first + HELD);
                let held = &mut held[..end - first];
                // SAFETY: so many indices are there.
                unsafe { clamped(self.0.indices, indices.get()[0], first, dim - 1, held) };
                let mut column = first % inner;
                for (to, index) in (first..).zip(&*held) {
                    let from = (before * dim + index) * inner + column;
                    // SAFETY: both are within their arrays, and this element is this thread's.
                    unsafe { copies.copy(from, to, 1) };
                    column = if column + 1 == inner { 0 } else { column + 1 };
                }
                first = end;
            }
        });
    }
}

/// What `$of` makes of an unsigned type of the elements' size.
macro_rules! by_size {
    ($dtype:expr, $of:ident) => {
        match $dtype.size() {
            1 => $of!(u8),
            2 => $of!(u16),
            4 => $of!(u32),
            _ => $of!(u64),
        }
    };
}
use by_size;

/// Parts of these sizes at the positions, if the stream is a CPU's and the array where it can be read.
pub(crate) fn gather(
    x: &Array,
    indices: &[&Array],
    axes: &[i32],
    sizes: &[i32],
    s: &Stream,
) -> Option<Result<Array>> {
    let places = Places::new(indices, axes, x.dims(), sizes)?;
    let mut dims = indices.first()?.dims().to_vec();
    dims.extend(sizes);
    if !is_read(x, &dims, s) {
        return None;
    }
    let part = Part::new(sizes, x.dims());
    let inputs: Vec<&Array> = [x].into_iter().chain(indices.iter().copied()).collect();
    macro_rules! of {
        ($t:ty) => {{
            let element = PhantomData::<$t>;
            let gather = Gather {
                places,
                part,
                element,
            };
            call(c"Gather", &inputs, (&dims, x.dtype()), gather, s)
        }};
    }
    Some(by_size!(x.dtype(), of))
}

/// The elements at positions of an axis, if the stream is a CPU's and the array where it can be read.
pub(crate) fn take(x: &Array, indices: &Array, axis: usize, s: &Stream) -> Option<Result<Array>> {
    let (outer, [dim, inner @ ..]) = x.dims().split_at_checked(axis)? else {
        return None;
    };
    let dims = [outer, indices.dims(), inner].concat();
    if !is_read(x, &dims, s) {
        return None;
    }
    macro_rules! of {
        ($t:ty) => {{
            let take = Take {
                outer: size(outer),
                dim: *dim as usize,
                inner: size(inner),
                count: indices.size(),
                indices: indices.dtype(),
                element: PhantomData::<$t>,
            };
            call(c"Take", &[x, indices], (&dims, x.dtype()), take, s)
        }};
    }
    Some(by_size!(x.dtype(), of))
}

/// The elements at positions of an axis, of which each other axis has its own, if the stream is a CPU's
/// and the array where it can be read.
pub(crate) fn take_along(
    x: &Array,
    indices: &Array,
    axis: usize,
    s: &Stream,
) -> Option<Result<Array>> {
    let (outer, [dim, inner @ ..]) = x.dims().split_at_checked(axis)? else {
        return None;
    };
    let count = *indices.dims().get(axis)?;
    let dims = [outer, &[count], inner].concat();
    if indices.dims() != dims || !is_read(x, &dims, s) {
        return None;
    }
    macro_rules! of {
        ($t:ty) => {{
            let take = TakeAlong(Take {
                outer: size(outer),
                dim: *dim as usize,
                inner: size(inner),
                count: count as usize,
                indices: indices.dtype(),
                element: PhantomData::<$t>,
            });
            call(c"TakeAlong", &[x, indices], (&dims, x.dtype()), take, s)
        }};
    }
    Some(by_size!(x.dtype(), of))
}

/// Whether what is read is worth that all of the array is laid out in rows, if it is not.
fn is_read(x: &Array, made: &[i32], s: &Stream) -> bool {
    if s.device != Device::Cpu || x.size() == 0 || size(made) == 0 {
        return false;
    }
    size(made) >= x.size() / 4 || x.rows().is_some()
}
