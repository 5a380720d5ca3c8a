//! Where parts of an array begin, by indices, and how they lie.

use std::ffi::c_void;

use smallvec::SmallVec;

use crate::array::Array;
use crate::dtype::Dtype;

/// How many places are held at once.
pub(super) const HELD: usize = 256;
/// The place of what is not within the array.
pub(super) const OUTSIDE: usize = usize::MAX;

/// The indices along one axis.
struct Axis {
    indices: Dtype,
    /// The last index from which on a part is within the array.
    last: usize,
    /// How many elements apart neighbours are.
    stride: usize,
}

/// Where parts begin.
pub(super) struct Places {
    axes: SmallVec<[Axis; 2]>,
    /// How many there are.
    pub(super) count: usize,
}

impl Places {
    /// Those of parts of these sizes in an array, if there is an index for each of them along each of
    /// the axes, and an axis has one element of a part.
    pub(super) fn new(
        indices: &[&Array],
        axes: &[i32],
        dims: &[i32],
        sizes: &[i32],
    ) -> Option<Self> {
        let first = indices.first()?;
        if indices.len() != axes.len() {
            return None;
        }
        let strides = strides(dims);
        let mut places = SmallVec::new();
        for (at, (index, axis)) in indices.iter().zip(axes).enumerate() {
            let place = usize::try_from(*axis).ok()?;
            let (dim, size) = (*dims.get(place)?, *sizes.get(place)?);
            if size != 1 || axes[..at].contains(axis) || index.dims() != first.dims() {
                return None;
            }
            places.push(Axis {
                indices: index.dtype(),
                last: usize::try_from(dim - size).ok()?,
                stride: strides[place],
            });
        }
        Some(Self {
            axes: places,
            count: first.size(),
        })
    }

    /// The places from the `first` on, of parts moved into the array.
    ///
    /// # Safety
    /// There must be an array of so many indices for each axis.
    pub(super) unsafe fn clamped(
        &self,
        indices: &[*const c_void],
        first: usize,
        places: &mut [usize],
    ) {
        let mut held = [0; HELD];
        let held = &mut held[..places.len()];
        places.fill(0);
        for (axis, indices) in self.axes.iter().zip(indices) {
            // SAFETY: as the caller says.
            unsafe { clamped(axis.indices, *indices, first, axis.last, held) };
            for (place, index) in places.iter_mut().zip(&*held) {
                *place += index * axis.stride;
            }
        }
    }

    /// The places from the `first` on, `OUTSIDE` for what is not within the array.
    ///
    /// # Safety
    /// As for `clamped`.
    pub(super) unsafe fn within(
        &self,
        indices: &[*const c_void],
        first: usize,
        places: &mut [usize],
    ) {
        let mut held = [0; HELD];
        let held = &mut held[..places.len()];
        places.fill(0);
        for (axis, indices) in self.axes.iter().zip(indices) {
            // SAFETY: as the caller says.
            unsafe { read(axis.indices, *indices, first, held) };
            for (place, index) in places.iter_mut().zip(&*held) {
                // What is negative is as far outside as can be.
                *place = if *index as usize > axis.last || *place == OUTSIDE {
                    OUTSIDE
                } else {
                    *place + *index as usize * axis.stride
                };
            }
        }
    }
}

/// Indices from the `first` on, moved to within 0 and `last`.
///
/// # Safety
/// There must be so many indices of the type.
pub(super) unsafe fn clamped(
    dtype: Dtype,
    indices: *const c_void,
    first: usize,
    last: usize,
    to: &mut [usize],
) {
    let mut held = [0; HELD];
    let held = &mut held[..to.len()];
    // SAFETY: as the caller says.
    unsafe { read(dtype, indices, first, held) };
    for (to, index) in to.iter_mut().zip(held) {
        *to = (*index).clamp(0, last as i64) as usize;
    }
}

/// Indices from the `first` on.
///
/// # Safety
/// There must be so many of the type.
unsafe fn read(dtype: Dtype, indices: *const c_void, first: usize, to: &mut [i64]) {
    // What is beyond is far outside as well.
    let least = |index| i64::try_from(index).unwrap_or(i64::MAX);
    // SAFETY: as the caller says.
    unsafe {
        match dtype {
            Dtype::Uint8 => widened::<u8>(indices, first, to, i64::from),
            Dtype::Uint16 => widened::<u16>(indices, first, to, i64::from),
            Dtype::Uint32 => widened::<u32>(indices, first, to, i64::from),
            Dtype::Uint64 => widened::<u64>(indices, first, to, least),
            Dtype::Int8 => widened::<i8>(indices, first, to, i64::from),
            Dtype::Int16 => widened::<i16>(indices, first, to, i64::from),
            Dtype::Int32 => widened::<i32>(indices, first, to, i64::from),
            Dtype::Int64 => widened::<i64>(indices, first, to, |index| index),
            // Their caller has refused these.
            _ => to.fill(0),
        }
    }
}

/// # Safety
/// There must be so many numbers of the type.
unsafe fn widened<T: Copy>(
    from: *const c_void,
    first: usize,
    to: &mut [i64],
    wide: impl Fn(T) -> i64,
) {
    // SAFETY: as the caller says.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<T>().add(first), to.len()) };
    for (to, index) in to.iter_mut().zip(from) {
        *to = wide(*index);
    }
}

/// How many elements apart neighbours are along each axis, in rows.
fn strides(dims: &[i32]) -> SmallVec<[usize; 4]> {
    let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, dims.len());
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as usize;
    }
    strides
}

/// A part of an array: runs of elements that lie one after the other.
pub(super) struct Part {
    pub(super) run: usize,
    /// How many runs there are along the axes before, and how many elements apart.
    runs: SmallVec<[(usize, usize); 4]>,
    /// The number of elements.
    pub(super) size: usize,
}

impl Part {
    pub(super) fn new(sizes: &[i32], dims: &[i32]) -> Self {
        let mut run = 1;
        let mut runs = SmallVec::new();
        let mut is_run = true;
        let strides = strides(dims);
        for ((size, dim), stride) in sizes.iter().zip(dims).zip(strides).rev() {
            let count = *size as usize;
            if is_run {
                run *= count;
            } else if count != 1 {
                runs.insert(0, (count, stride));
            }
            is_run &= size == dim;
        }
        let size = sizes.iter().map(|size| *size as usize).product();
        Self { run, runs, size }
    }

    /// Calls `run` for each run: how far it is from the part's beginning, and how many elements of the
    /// part come before it.
    #[inline(always)]
    pub(super) fn each(&self, mut run: impl FnMut(usize, usize)) {
        if self.runs.is_empty() {
            return run(0, 0);
        }
        self.nested(&self.runs, 0, &mut 0, &mut run);
    }

    fn nested(
        &self,
        runs: &[(usize, usize)],
        offset: usize,
        at: &mut usize,
        run: &mut impl FnMut(usize, usize),
    ) {
        let Some(((count, stride), inner)) = runs.split_first() else {
            run(offset, *at);
            *at += self.run;
            return;
        };
        for index in 0..*count {
            self.nested(inner, offset + index * stride, at, run);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Oracle: the places of the elements, worked out by hand.
    use super::*;

    fn runs(sizes: &[i32], dims: &[i32]) -> (usize, Vec<(usize, usize)>) {
        let part = Part::new(sizes, dims);
        let mut runs = Vec::new();
        part.each(|offset, at| runs.push((offset, at)));
        (part.run, runs)
    }

    #[test]
    fn parts_are_runs_of_neighbours() {
        assert_eq!(runs(&[], &[]), (1, vec![(0, 0)]));
        assert_eq!(runs(&[1, 4], &[3, 4]), (4, vec![(0, 0)]));
        assert_eq!(runs(&[1, 2, 4], &[3, 2, 4]), (8, vec![(0, 0)]));
        assert_eq!(runs(&[2, 1], &[2, 4]), (1, vec![(0, 0), (4, 1)]));
        // Less than the array has, along the last axis and along one before.
        assert_eq!(runs(&[2, 3], &[2, 4]), (3, vec![(0, 0), (4, 3)]));
        assert_eq!(runs(&[1, 2, 4], &[2, 3, 4]), (8, vec![(0, 0)]));
        let nested = vec![(0, 0), (3, 2), (6, 4), (9, 6)];
        assert_eq!(runs(&[2, 2, 2], &[3, 2, 3]), (2, nested));
    }

    #[test]
    fn indices_beyond_are_as_far_outside() {
        let indices = [u64::MAX, 1 << 63, 2, 3];
        let mut places = [7; 4];
        // SAFETY: there are four.
        unsafe { clamped(Dtype::Uint64, indices.as_ptr().cast(), 0, 2, &mut places) };
        assert_eq!(places, [2, 2, 2, 2]);
        let indices = [-1_i8, i8::MIN, 1, 5];
        // SAFETY: as above, from the second on.
        unsafe { clamped(Dtype::Int8, indices.as_ptr().cast(), 1, 2, &mut places[..3]) };
        assert_eq!(places[..3], [0, 1, 2]);
    }
}
