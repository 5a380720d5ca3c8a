//! Where the numbers of an operand lie, and how a kernel's registers come by them.

use std::ops::Range;

use smallvec::SmallVec;

use super::plan::Dims;
use crate::kernel::{Registers, TILE};

type Strides = SmallVec<[i64; 4]>;

enum Layout {
    /// One for all elements.
    One,
    /// Row by row, as the elements do.
    Rows,
    /// So many numbers apart along each axis.
    Strided(Strides),
}

/// Numbers that are brought together at once, of operands that do not lie as the elements do. Those of
/// some rows of a transposed operand share what a cache reads together.
const AHEAD: usize = 32 * TILE;
/// Rows and columns of a transposed operand that are copied before the next ones.
const HIGH: usize = 8;
const WIDE: usize = 16;

/// What a register has of an operand.
pub(super) struct Held {
    /// Where the number lies that the register is full of, if it is.
    filled: *const u8,
    /// Numbers that were brought together, and which.
    numbers: Vec<u64>,
    range: Range<usize>,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            filled: std::ptr::null(),
            numbers: Vec::new(),
            range: 0..0,
        }
    }
}

/// An operand, broadcast to the shape of what is computed.
pub(super) struct Source {
    data: *const u8,
    size: usize,
    dims: Dims,
    layout: Layout,
}

// SAFETY: operands are only read.
unsafe impl Sync for Source {}

impl Source {
    /// Numbers of `size` bytes, with a stride for each axis of `dims`.
    pub(super) fn new(data: *const u8, size: usize, dims: &[i32], strides: &[i64]) -> Self {
        let (mut one, mut rows, mut expected) = (true, true, 1);
        for (dim, stride) in dims.iter().zip(strides).rev() {
            if *dim != 1 {
                one &= *stride == 0;
                rows &= *stride == expected;
            }
            expected *= i64::from(*dim);
        }
        let layout = match (one, rows) {
            (true, _) => Layout::One,
            (_, true) => Layout::Rows,
            _ => Layout::Strided(Strides::from_slice(strides)),
        };
        Self {
            data,
            size,
            dims: Dims::from_slice(dims),
            layout,
        }
    }

    /// Where its first number lies.
    pub(super) fn data(&self) -> *const u8 {
        self.data
    }

    /// Brings the numbers of some elements, at most a tile, into a register. Those up to `end` come
    /// next. What is `held` is of this operand and register.
    ///
    /// # Safety
    /// The operand must have a number for each of the elements and up to `end`, for as long as the
    /// register is read, as must `held`, and no step may write the register.
    pub(super) unsafe fn load(
        &self,
        registers: &mut Registers,
        register: usize,
        range: Range<usize>,
        end: usize,
        held: &mut Held,
    ) {
        let from = match &self.layout {
            Layout::One => self.data,
            Layout::Rows => self.data.wrapping_add(range.start * self.size),
            Layout::Strided(strides) => {
                let cursor = Cursor::new(&self.dims, strides, range.start);
                let from = cursor.place(self);
                if cursor.left() < range.len() || !matches!(cursor.stride(), 0 | 1) {
                    // SAFETY: as the caller says.
                    let from = unsafe { self.ahead(strides, range, end, held) };
                    held.filled = std::ptr::null();
                    // SAFETY: they are aligned and only read: no step writes an operand.
                    return unsafe { registers.place(register, from.cast_mut()) };
                }
                from
            }
        };
        let is_one = match &self.layout {
            Layout::One => true,
            Layout::Rows => false,
            Layout::Strided(strides) => strides.last() == Some(&0),
        };
        if is_one {
            if held.filled != from {
                // SAFETY: there is a number of that size.
                registers.fill(register, unsafe {
                    std::slice::from_raw_parts(from, self.size)
                });
                held.filled = from;
            }
        } else if from.addr().is_multiple_of(self.size) {
            // SAFETY: they are aligned and only read: no step writes an operand.
            unsafe { registers.place(register, from.cast_mut()) };
        } else {
            let place = registers.hold(register, range.len() * self.size);
            // SAFETY: the operand has so many numbers there.
            place.copy_from_slice(unsafe { std::slice::from_raw_parts(from, place.len()) });
        }
    }

    /// Where the numbers of some elements lie together, brought there with those that come next.
    ///
    /// # Safety
    /// As `load` says.
    unsafe fn ahead(
        &self,
        strides: &[i64],
        range: Range<usize>,
        end: usize,
        held: &mut Held,
    ) -> *const u8 {
        if range.start < held.range.start || held.range.end < range.end {
            held.range = range.start..end.min(range.start + AHEAD).max(range.end);
            let len = held.range.len() * self.size;
            held.numbers.resize(len.div_ceil(size_of::<u64>()), 0);
            // SAFETY: there are so many bytes, of plain numbers.
            let place =
                unsafe { std::slice::from_raw_parts_mut(held.numbers.as_mut_ptr().cast(), len) };
            // SAFETY: as the caller says.
            unsafe { self.gather(strides, held.range.start, place) };
        }
        let before = (range.start - held.range.start) * self.size;
        held.numbers.as_ptr().cast::<u8>().wrapping_add(before)
    }

    /// Where the numbers of some elements lie one after the other: where they are, if they do so there.
    ///
    /// # Safety
    /// The operand must have a number for each of the elements.
    pub(super) unsafe fn in_rows(&self, range: Range<usize>, held: &mut Vec<u64>) -> *const u8 {
        let from = self.data.wrapping_add(range.start * self.size);
        if matches!(self.layout, Layout::Rows) && from.addr().is_multiple_of(self.size) {
            return from;
        }
        let len = range.len() * self.size;
        held.resize(len.div_ceil(size_of::<u64>()), 0);
        // SAFETY: there are so many bytes, of plain numbers.
        let place = unsafe { std::slice::from_raw_parts_mut(held.as_mut_ptr().cast(), len) };
        let none = Strides::from_elem(0, self.dims.len());
        let strides = match &self.layout {
            Layout::Strided(strides) => strides,
            Layout::One => &none,
            Layout::Rows => {
                // SAFETY: as the caller says.
                place.copy_from_slice(unsafe { std::slice::from_raw_parts(from, len) });
                return held.as_ptr().cast();
            }
        };
        // SAFETY: as the caller says.
        unsafe { self.gather(strides, range.start, place) };
        held.as_ptr().cast()
    }

    /// Copies the numbers of elements from the first on, wherever they lie, until the place is full.
    ///
    /// # Safety
    /// The operand must have a number for each element.
    unsafe fn gather(&self, strides: &[i64], first: usize, place: &mut [u8]) {
        // SAFETY: as the caller says.
        unsafe {
            match self.size {
                1 => self.either::<1>(strides, first, place),
                2 => self.either::<2>(strides, first, place),
                4 => self.either::<4>(strides, first, place),
                _ => self.either::<8>(strides, first, place),
            }
        }
    }

    /// # Safety
    /// As `gather` says; the numbers have `N` bytes.
    unsafe fn either<const N: usize>(&self, strides: &[i64], first: usize, place: &mut [u8]) {
        let (numbers, _) = place.as_chunks_mut::<N>();
        let end = first + numbers.len();
        let cursor = |first| Cursor::new(&self.dims, strides, first);
        let Some(rows) = self.transposed(strides, first..end) else {
            // SAFETY: as the caller says.
            return unsafe { self.numbers::<N>(cursor(first), numbers) };
        };
        let (before, numbers) = numbers.split_at_mut(rows.start - first);
        let (whole, after) = numbers.split_at_mut(rows.len());
        // SAFETY: as the caller says.
        unsafe {
            self.numbers::<N>(cursor(first), before);
            self.columns::<N>(strides, rows.start, whole);
            self.numbers::<N>(cursor(rows.end), after);
        }
    }

    /// The elements of a range in whole rows of a matrix, where neighbours of a column lie closer
    /// together than those of a row, and there are several.
    fn transposed(&self, strides: &[i64], range: Range<usize>) -> Option<Range<usize>> {
        let ([.., height, width], [.., down, across]) = (&self.dims[..], strides) else {
            return None;
        };
        let (height, width) = (*height as usize, *width as usize);
        if down.abs() >= across.abs() || width == 0 {
            return None;
        }
        let (top, bottom) = (range.start.div_ceil(width), range.end / width);
        let is_one = top + 1 < bottom && top / height == (bottom - 1) / height;
        is_one.then_some(top * width..bottom * width)
    }

    /// Copies whole rows of a matrix in blocks, of which a cache holds what is read and what is
    /// written.
    ///
    /// # Safety
    /// As `gather` says; the numbers have `N` bytes, and their rows are of one matrix.
    unsafe fn columns<const N: usize>(
        &self,
        strides: &[i64],
        first: usize,
        numbers: &mut [[u8; N]],
    ) {
        let ([.., width], [.., down, across]) = (&self.dims[..], strides) else {
            return;
        };
        let (width, down, across) = (*width as usize, *down as isize, *across as isize);
        let from = Cursor::new(&self.dims, strides, first).place(self);
        let from = from.cast::<[u8; N]>();
        for (block, rows) in numbers.chunks_mut(HIGH * width).enumerate() {
            let from = from.wrapping_offset((block * HIGH) as isize * down);
            for left in (0..width).step_by(WIDE) {
                for column in left..width.min(left + WIDE) {
                    let from = from.wrapping_offset(column as isize * across);
                    let to = rows[column..].iter_mut().step_by(width);
                    for (row, number) in to.enumerate() {
                        // SAFETY: every element's number is within the operand, as its strides say.
                        *number = unsafe { from.wrapping_offset(row as isize * down).read() };
                    }
                }
            }
        }
    }

    /// # Safety
    /// As `gather` says; the numbers have `N` bytes.
    unsafe fn numbers<const N: usize>(&self, mut cursor: Cursor, mut numbers: &mut [[u8; N]]) {
        while !numbers.is_empty() {
            let run = numbers.len().min(cursor.left());
            let (now, later) = numbers.split_at_mut(run);
            let from = cursor.place(self).cast::<[u8; N]>();
            match cursor.stride() {
                // SAFETY: every element's number is within the operand, as its strides say.
                0 => now.fill(unsafe { from.read() }),
                // SAFETY: as above.
                1 => now.copy_from_slice(unsafe { std::slice::from_raw_parts(from, run) }),
                stride => {
                    for (index, number) in now.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *number = unsafe { from.offset(index as isize * stride as isize).read() };
                    }
                }
            }
            numbers = later;
            cursor.advance(run);
        }
    }
}

/// An element of a shape, and where its number lies.
struct Cursor<'a> {
    dims: &'a [i32],
    strides: &'a [i64],
    at: SmallVec<[i64; 4]>,
    offset: i64,
}

impl<'a> Cursor<'a> {
    fn new(dims: &'a [i32], strides: &'a [i64], first: usize) -> Self {
        let mut at = SmallVec::from_elem(0, dims.len());
        let (mut rest, mut offset) = (first as i64, 0);
        for axis in (0..dims.len()).rev() {
            let dim = i64::from(dims[axis]);
            at[axis] = rest % dim;
            rest /= dim;
            offset += at[axis] * strides[axis];
        }
        Self {
            dims,
            strides,
            at,
            offset,
        }
    }

    fn place(&self, source: &Source) -> *const u8 {
        let bytes = self.offset as isize * source.size as isize;
        source.data.wrapping_offset(bytes)
    }

    /// How far apart neighbours along the last axis lie.
    fn stride(&self) -> i64 {
        self.strides.last().copied().unwrap_or(0)
    }

    /// How many elements there are until the end of the last axis.
    fn left(&self) -> usize {
        match (self.dims.last(), self.at.last()) {
            (Some(dim), Some(at)) => (i64::from(*dim) - at) as usize,
            _ => usize::MAX,
        }
    }

    /// Goes on by so many elements, at most those that are left of the last axis.
    fn advance(&mut self, run: usize) {
        let Some(mut axis) = self.dims.len().checked_sub(1) else {
            return;
        };
        self.offset += run as i64 * self.strides[axis];
        self.at[axis] += run as i64;
        while self.at[axis] == i64::from(self.dims[axis]) {
            self.offset -= self.at[axis] * self.strides[axis];
            self.at[axis] = 0;
            if axis == 0 {
                return;
            }
            axis -= 1;
            self.at[axis] += 1;
            self.offset += self.strides[axis];
        }
    }
}
