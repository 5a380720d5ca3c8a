//! What the window sees at some places, as a matrix: a row per element of the window and a column per
//! place, or the other way round, whichever copies longer parts of the input.

use std::ops::Range;

use smallvec::SmallVec;

use super::Number;
use super::sizes::Axis;
use crate::host::gemm::Sum;
use crate::isa::Job;

/// One of the axes that places, or elements of a window, are counted along.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) size: usize,
    /// How far apart the input's elements are, if it is no axis of the window.
    pub(super) offset: isize,
    /// The axis of the window, and how far apart the places are along it, in elements of the input
    /// with zeros among them.
    pub(super) axis: Option<(usize, isize)>,
}

/// Places, or elements of a window, in their order.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    /// Outermost first.
    pub(super) steps: SmallVec<[Step; 4]>,
    /// Where the first one is along each axis of the window.
    pub(super) first: SmallVec<[isize; 3]>,
}

/// Some of them, those along the innermost axis together if they are runs.
pub(super) struct Listed {
    offsets: Vec<isize>,
    /// Where each is, along all axes of the window.
    at: Vec<isize>,
    sizes: Vec<usize>,
}

impl Walk {
    pub(super) fn list(&self, range: Range<usize>, runs: bool) -> Listed {
        let mut listed = Listed {
            offsets: Vec::new(),
            at: Vec::new(),
            sizes: Vec::new(),
        };
        let inner = self.steps.last().map_or(1, |step| step.size);
        let mut index = range.start;
        while index < range.end {
            let size = if runs {
                (inner - index % inner).min(range.end - index)
            } else {
                1
            };
            let (mut offset, mut rest) = (0, index);
            let from = listed.at.len();
            listed.at.extend(&self.first);
            for step in self.steps.iter().rev() {
                let place = (rest % step.size) as isize;
                rest /= step.size;
                match step.axis {
                    Some((axis, by)) => listed.at[from + axis] += place * by,
                    None => offset += place * step.offset,
                }
            }
            listed.offsets.push(offset);
            listed.sizes.push(size);
            index += size;
        }
        listed
    }
}

/// How the elements of a run follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Along {
    /// So far apart in the input.
    Memory(isize),
    /// So far apart on the last axis of the window.
    Axis(isize),
}

/// An input and how far apart its elements are along the axes of the window.
#[derive(Clone, Copy)]
pub(super) struct Input<'a, T> {
    pub(super) at: *const T,
    pub(super) axes: &'a [Axis],
    pub(super) strides: &'a [isize],
}

/// A matrix to be filled, with a row for each of `rows`, and the runs in each row.
pub(super) struct Patch<'a, T: Number> {
    pub(super) input: Input<'a, T>,
    pub(super) rows: &'a Listed,
    pub(super) runs: &'a Listed,
    pub(super) along: Along,
    pub(super) to: *mut T::Sum,
}

impl<T: Number> Job for Patch<'_, T> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let axes = self.input.axes.len();
        let mut to = self.to;
        let mut last = Last::default();
        for (row, offset) in self.rows.offsets.iter().enumerate() {
            let row = &self.rows.at[row * axes..][..axes];
            for (run, size) in self.runs.sizes.iter().enumerate() {
                let at = &self.runs.at[run * axes..][..axes];
                let offset = offset + self.runs.offsets[run];
                // SAFETY: the matrix has room for so many.
                unsafe {
                    self.fill(row, at, offset, *size, to, &mut last);
                    to = to.add(*size);
                }
            }
        }
    }
}

impl<T: Number> Patch<'_, T> {
    /// # Safety
    /// There must be room for `size` numbers.
    #[inline(always)]
    unsafe fn fill(
        &self,
        row: &[isize],
        run: &[isize],
        mut offset: isize,
        size: usize,
        to: *mut T::Sum,
        last: &mut Last,
    ) {
        let Input { at, axes, strides } = self.input;
        let (others, step) = match self.along {
            Along::Memory(_) => (axes.len(), 0),
            Along::Axis(step) => (axes.len() - 1, step),
        };
        for axis in 0..others {
            match axes[axis].element(row[axis] + run[axis]) {
                Some(element) => offset += element * strides[axis],
                // SAFETY: as the caller says; all zeros is a number.
                None => return unsafe { to.write_bytes(0, size) },
            }
        }
        if let Along::Memory(step) = self.along {
            // SAFETY: these are elements of the input.
            return unsafe { copy(at.offset(offset), step, to, 1, size) };
        }
        let (axis, place, stride) = (axes[others], row[others] + run[others], strides[others]);
        // Mostly it is the row above that was seen.
        if (last.place, last.size) != (place, size) {
            let seen = axis.seen(place, step, size);
            *last = Last { place, size, seen };
        }
        let Seen {
            first,
            count,
            every,
        } = last.seen;
        // SAFETY: those seen are elements of the input, and the others are zeros.
        unsafe {
            if every > 1 {
                to.write_bytes(0, size);
            } else {
                zeros(to, first);
                zeros(to.add(first + count), size - first - count);
            }
            if count > 0 {
                let element = (place + first as isize * step) / axis.spread;
                let step = step * every as isize / axis.spread * stride;
                let from = at.offset(offset + element * stride);
                copy(from, step, to.add(first), every, count);
            }
        }
    }
}

/// Mostly a few of them: calling a function takes longer.
///
/// # Safety
/// There must be room for them.
#[inline(always)]
unsafe fn zeros<S: Sum>(to: *mut S, count: usize) {
    // SAFETY: as the caller says; all zeros is a number.
    unsafe {
        if count > FEW {
            return to.write_bytes(0, count);
        }
        for index in 0..count {
            // Else the compiler calls that function.
            to.add(index).write_volatile(S::default());
        }
    }
}

/// As many numbers as are copied without calling a function.
const SHORT: usize = 64;
const FEW: usize = 8;

/// # Safety
/// So many must be there, and room for them elsewhere.
#[inline(always)]
pub(super) unsafe fn copy_sums<S: Sum>(from: *const S, to: *mut S, count: usize) {
    // SAFETY: as the caller says; the last few may be copied twice.
    unsafe {
        if !(FEW..=SHORT).contains(&count) {
            if count > SHORT {
                return to.copy_from_nonoverlapping(from, count);
            }
            for index in 0..count {
                to.add(index).write_volatile(from.add(index).read());
            }
            return;
        }
        let mut next = 0;
        while next + FEW < count {
            let few = from.add(next).cast::<[S; FEW]>().read_unaligned();
            to.add(next).cast::<[S; FEW]>().write_unaligned(few);
            next += FEW;
        }
        let few = from.add(count - FEW).cast::<[S; FEW]>().read_unaligned();
        to.add(count - FEW).cast::<[S; FEW]>().write_unaligned(few);
    }
}

/// Numbers that lie `step` apart, to every `every`th.
///
/// # Safety
/// They must be there, and room for them.
#[inline(always)]
unsafe fn copy<T: Number>(
    from: *const T,
    step: isize,
    to: *mut T::Sum,
    every: usize,
    count: usize,
) {
    // SAFETY: as the caller says, in all of these.
    unsafe {
        if every == 1 && step == 1 {
            T::copy(from, to, count);
        } else if every == 1 {
            for index in 0..count {
                to.add(index)
                    .write(from.offset(index as isize * step).read().wide());
            }
        } else {
            for index in 0..count {
                to.add(index * every)
                    .write(from.offset(index as isize * step).read().wide());
            }
        }
    }
}

/// The run before.
#[derive(Default)]
struct Last {
    place: isize,
    size: usize,
    seen: Seen,
}

/// Those of a run that are elements of the input, every so many of them from the first on.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    first: usize,
    count: usize,
    every: usize,
}

impl Axis {
    /// The element at a place, which may be a zero instead.
    #[inline(always)]
    fn element(&self, place: isize) -> Option<isize> {
        if place < 0 {
            return None;
        }
        let mut element = place;
        if self.spread > 1 {
            if place % self.spread != 0 {
                return None;
            }
            element = place / self.spread;
        }
        (element < self.input as isize).then_some(element)
    }

    /// Of `size` places from `place` on, which are `step` apart.
    #[inline(always)]
    fn seen(&self, place: isize, step: isize, size: usize) -> Seen {
        let none = Seen {
            first: 0,
            count: 0,
            every: 1,
        };
        let end = (self.input as isize - 1) * self.spread;
        if self.input == 0 || place > end {
            return none;
        }
        let up = |places: isize| {
            if step == 1 {
                places
            } else {
                (places + step - 1) / step
            }
        };
        let mut first = if place < 0 { up(-place) } else { 0 };
        let after = (up(end - place + 1)).min(size as isize);
        let mut every = 1;
        if self.spread > 1 {
            every = self.spread / common(self.spread, step);
            let fits = |index: &isize| (place + index * step) % self.spread == 0;
            match (first..first + every).find(fits) {
                Some(index) => first = index,
                None => return none,
            }
        }
        if first >= after {
            return none;
        }
        Seen {
            first: first as usize,
            count: ((after - first - 1) / every + 1) as usize,
            every: every as usize,
        }
    }
}

/// The greatest common divisor.
fn common(mut a: isize, mut b: isize) -> isize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
