//! What a host kernel does: a fused program, tile by tile, on all cores where there is much to do.

use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mlx_ffi as ffi;
use smallvec::SmallVec;

use super::plan::Dims;
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::host;
use crate::kernel::{Kernel, Part, Registers, TILE};
use crate::shape::Shape;

/// Tiles that a core takes at a time.
const TILES: usize = 16;

/// What a host kernel is given.
pub(super) struct Work {
    pub(super) kernel: Kernel,
    pub(super) part: Part,
    pub(super) dims: Dims,
    /// The sizes of the operands' and the results' numbers.
    pub(super) sizes: Vec<usize>,
    pub(super) made: Vec<usize>,
}

pub(super) unsafe extern "C" fn forget(payload: *mut c_void) {
    // SAFETY: it was made by `Stage::make`, and this is its only end.
    drop(unsafe { Arc::from_raw(payload.cast::<Work>()) });
}

/// What C++ lists, which may be nowhere if it is nothing.
///
/// # Safety
/// There must be so many for as long as the result is used.
unsafe fn listed<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(first, count) }
}

pub(super) unsafe extern "C" fn call(
    payload: *mut c_void,
    inputs: *const ffi::mlx_ffi_input,
    outputs: *const *mut c_void,
) {
    // SAFETY: the payload is that of `Stage::make`, alive until `forget`, and there are as many
    // inputs and outputs as it knows the sizes of.
    let (work, inputs, outputs) = unsafe {
        let work = &*payload.cast::<Work>();
        (
            work,
            listed(inputs, work.sizes.len()),
            listed(outputs, work.made.len()),
        )
    };
    // Nothing here panics; a panic would end the process, in the middle of C++.
    if catch_unwind(AssertUnwindSafe(|| work.run(inputs, outputs))).is_err() {
        // New memory has what was there before, which is nobody's to read.
        for (output, size) in outputs.iter().zip(&work.made) {
            // SAFETY: each has room for so many numbers.
            unsafe { output.cast::<u8>().write_bytes(0, work.elements() * size) };
        }
    }
}

/// Where an operand's numbers lie.
enum Layout {
    /// One for all elements.
    One,
    /// Row by row, as the elements do.
    Rows,
    /// So many numbers apart along each axis.
    Strided(Vec<i64>),
}

struct Source {
    data: *const u8,
    size: usize,
    layout: Layout,
}

struct Target {
    data: *mut u8,
    size: usize,
}

// SAFETY: inputs are only read, and of the outputs each tile is written by one thread.
unsafe impl Sync for Source {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Work {
    /// How many elements the results have: beyond all numbers it is the largest, so that no shape
    /// passes for a small one before it is refused.
    fn elements(&self) -> usize {
        let dims = self.dims.iter().map(|dim| *dim as usize);
        dims.fold(1, usize::saturating_mul)
    }

    /// Whether it is done sooner than MLX is told of it.
    pub(super) fn is_small(&self) -> bool {
        self.elements().saturating_mul(self.kernel.work()) <= host::SMALL
    }

    /// The results, at once, if the operands are computed already.
    pub(super) fn now(&self, operands: &[&Array], dtypes: &[Dtype]) -> Option<Result<Vec<Array>>> {
        let rank = self.dims.len();
        let mut strides = vec![0; operands.len() * rank];
        let mut inputs: SmallVec<[ffi::mlx_ffi_input; 4]> = SmallVec::new();
        for (index, operand) in operands.iter().enumerate() {
            let (data, own) = operand.lies()?;
            let place = &mut strides[index * rank..][..rank];
            // What has fewer axes has the last ones; one element stands for all along its axis.
            let missing = rank.checked_sub(own.len())?;
            let axes = own.iter().zip(operand.dims());
            for (place, (stride, dim)) in place[missing..].iter_mut().zip(axes) {
                *place = if *dim == 1 { 0 } else { *stride };
            }
            let strides = place.as_ptr();
            let data = data.cast();
            inputs.push(ffi::mlx_ffi_input { data, strides });
        }
        // Places for numbers of any type, aligned for all of them.
        let made = self.made.iter();
        let mut made: SmallVec<[Vec<u64>; 1]> = made
            .map(|size| vec![0; (self.elements() * size).div_ceil(size_of::<u64>())])
            .collect();
        let outputs = made.iter_mut().map(|place| place.as_mut_ptr().cast());
        self.run(&inputs, &outputs.collect::<SmallVec<[_; 1]>>());
        let dims = self.dims.iter().map(|dim| i64::from(*dim));
        let shape = match Shape::new(dims.collect()) {
            Ok(shape) => shape,
            Err(error) => return Some(Err(error)),
        };
        let array = |(place, dtype): (&Vec<u64>, &Dtype)| {
            let len = self.elements() * dtype.size();
            // SAFETY: there are so many bytes, of plain numbers.
            let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), len) };
            Array::from_bytes(bytes, &shape, *dtype)
        };
        Some(made.iter().zip(dtypes).map(array).collect())
    }

    fn run(&self, inputs: &[ffi::mlx_ffi_input], outputs: &[*mut c_void]) {
        let elements = self.elements();
        let source = |(input, size): (&ffi::mlx_ffi_input, &usize)| Source {
            data: input.data.cast(),
            size: *size,
            layout: self.layout(input),
        };
        let sources: Vec<Source> = inputs.iter().zip(&self.sizes).map(source).collect();
        let target = |(data, size): (&*mut c_void, &usize)| Target {
            data: data.cast(),
            size: *size,
        };
        let targets: Vec<Target> = outputs.iter().zip(&self.made).map(target).collect();
        let direct = self.direct(&sources, &targets);
        let range = |range: Range<usize>| {
            let mut registers = self.kernel.registers(0);
            for (register, source) in sources.iter().enumerate() {
                if matches!(source.layout, Layout::One) {
                    // SAFETY: it has one number of that size.
                    let number = unsafe { std::slice::from_raw_parts(source.data, source.size) };
                    registers.fill(register, number);
                }
            }
            for first in range.clone().step_by(TILE) {
                let size = TILE.min(range.end - first);
                self.tile(&sources, &targets, &direct, &mut registers, first, size);
            }
        };
        cores::share(elements, self.kernel.work(), TILE * TILES, &range);
    }

    fn layout(&self, input: &ffi::mlx_ffi_input) -> Layout {
        let rank = self.dims.len();
        if rank == 0 {
            return Layout::One;
        }
        // SAFETY: there is a stride for each axis of the result.
        let strides = unsafe { std::slice::from_raw_parts(input.strides, rank) };
        let (mut one, mut rows, mut expected) = (true, true, 1);
        for (dim, stride) in self.dims.iter().zip(strides).rev() {
            if *dim != 1 {
                one &= *stride == 0;
                rows &= *stride == expected;
            }
            expected *= i64::from(*dim);
        }
        match (one, rows) {
            (true, _) => Layout::One,
            (_, true) => Layout::Rows,
            _ => Layout::Strided(strides.to_vec()),
        }
    }

    /// Which results the last steps may write where they belong: those that stand in no operand's
    /// place, are not an operand themselves, and are not there twice.
    fn direct(&self, sources: &[Source], targets: &[Target]) -> Vec<bool> {
        let outputs = &self.part.outputs;
        let is_made =
            |index: usize| outputs[index].is_made && !outputs[..index].contains(&outputs[index]);
        let reuses = |target: &Target| sources.iter().any(|s| std::ptr::eq(s.data, target.data));
        let direct = targets.iter().enumerate();
        direct
            .map(|(index, target)| is_made(index) && !reuses(target))
            .collect()
    }

    fn tile(
        &self,
        sources: &[Source],
        targets: &[Target],
        direct: &[bool],
        registers: &mut Registers,
        first: usize,
        size: usize,
    ) {
        for (register, source) in sources.iter().enumerate() {
            match &source.layout {
                Layout::One => (),
                Layout::Rows => {
                    // SAFETY: the operand has a number for each element.
                    let from = unsafe { source.data.add(first * source.size) };
                    if from.addr().is_multiple_of(source.size) {
                        // SAFETY: they are aligned and only read: no step writes an operand, and no
                        // result is written where an operand is.
                        unsafe { registers.place(register, from.cast_mut()) };
                        continue;
                    }
                    let place = registers.bytes_mut(register, size * source.size);
                    // SAFETY: as above.
                    place.copy_from_slice(unsafe { std::slice::from_raw_parts(from, place.len()) });
                }
                Layout::Strided(strides) => {
                    let place = registers.bytes_mut(register, size * source.size);
                    match source.size {
                        1 => self.gather::<1>(source, strides, first, place),
                        2 => self.gather::<2>(source, strides, first, place),
                        4 => self.gather::<4>(source, strides, first, place),
                        _ => self.gather::<8>(source, strides, first, place),
                    }
                }
            }
        }
        let outputs = self.part.outputs.iter().zip(targets).zip(direct);
        for ((output, target), _) in outputs.clone().filter(|(_, direct)| **direct) {
            // SAFETY: the result has room for each element, is new and so aligned, and this tile of
            // it is this thread's alone.
            unsafe { registers.place(output.register, target.data.add(first * target.size)) };
        }
        self.kernel.run(&self.part, registers, size);
        for ((output, target), _) in outputs.filter(|(_, direct)| !**direct) {
            // SAFETY: the register holds so many numbers, and the result has room for them.
            unsafe {
                let from = registers.at(output.register);
                let to = target.data.add(first * target.size);
                std::ptr::copy(from, to, size * target.size);
            }
        }
    }

    /// Numbers of `N` bytes from wherever they lie, from the element `first` on.
    fn gather<const N: usize>(
        &self,
        source: &Source,
        strides: &[i64],
        first: usize,
        place: &mut [u8],
    ) {
        let axes = self.dims.len();
        let mut at: SmallVec<[i64; 4]> = SmallVec::from_elem(0, axes);
        let (mut rest, mut offset) = (first as i64, 0);
        for axis in (0..axes).rev() {
            let dim = i64::from(self.dims[axis]);
            at[axis] = rest % dim;
            rest /= dim;
            offset += at[axis] * strides[axis];
        }
        let (last, stride) = (i64::from(self.dims[axes - 1]), strides[axes - 1]);
        let (mut numbers, _) = place.as_chunks_mut::<N>();
        while !numbers.is_empty() {
            let run = numbers.len().min((last - at[axes - 1]) as usize);
            let (now, later) = numbers.split_at_mut(run);
            // SAFETY: every element's number is within the operand, as its strides say.
            let from = unsafe { source.data.offset(offset as isize * N as isize) };
            let from = from.cast::<[u8; N]>();
            match stride {
                // SAFETY: as above.
                0 => now.fill(unsafe { from.read() }),
                // SAFETY: as above.
                1 => now.copy_from_slice(unsafe { std::slice::from_raw_parts(from, run) }),
                _ => {
                    for (index, number) in now.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *number = unsafe { from.offset(index as isize * stride as isize).read() };
                    }
                }
            }
            offset += run as i64 * stride;
            numbers = later;
            at[axes - 1] += run as i64;
            let mut axis = axes - 1;
            while at[axis] == i64::from(self.dims[axis]) {
                offset -= at[axis] * strides[axis];
                at[axis] = 0;
                if axis == 0 {
                    break;
                }
                axis -= 1;
                at[axis] += 1;
                offset += strides[axis];
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the numbers, put where MLX would put them.
    use super::*;
    use crate::dtype::Dtype;
    use crate::ops::Op;
    use crate::program::{Instruction, Program};

    fn work(dims: &[i32], op: Op) -> Work {
        let dtype = Dtype::Int32;
        let operands = [0, 1].into_iter().collect();
        let program = Program::whole(2, vec![Instruction { op, operands }], vec![2, 2, 0]).unwrap();
        let mut kernel = Kernel::new(&[dtype, dtype]);
        let part = kernel.add(&program).unwrap();
        let (sizes, made) = (vec![4; 2], vec![4; 3]);
        let dims = Dims::from_slice(dims);
        Work {
            kernel,
            part,
            dims,
            sizes,
            made,
        }
    }

    /// A number per element, from one place and so many apart along each axis.
    fn each(dims: &[i32], from: &[i32], first: usize, strides: &[i64]) -> Vec<i32> {
        let size: i32 = dims.iter().product();
        let number = |index: i32| {
            let (mut rest, mut at) = (i64::from(index), first as i64);
            for (dim, stride) in dims.iter().zip(strides).rev() {
                at += rest % i64::from(*dim) * stride;
                rest /= i64::from(*dim);
            }
            from[at as usize]
        };
        (0..size).map(number).collect()
    }

    fn check(dims: &[i32], a: (usize, &[i64]), b: (usize, &[i64])) {
        let size = dims.iter().product::<i32>() as usize;
        let most = 2 * size + 8;
        let numbers: Vec<i32> = (0..most as i32).map(|i| i.wrapping_mul(i) % 1009).collect();
        // What is before the first number is an operand's too.
        let place = |(first, strides): (usize, &[i64])| ffi::mlx_ffi_input {
            data: numbers.as_ptr().wrapping_add(first).cast(),
            strides: strides.as_ptr(),
        };
        let mut made = vec![vec![0i32; size]; 3];
        let outputs = made
            .iter_mut()
            .map(|made| made.as_mut_ptr().cast::<c_void>());
        let outputs: Vec<_> = outputs.collect();
        work(dims, Op::Subtract).run(&[place(a), place(b)], &outputs);
        let (x, y) = (
            each(dims, &numbers, a.0, a.1),
            each(dims, &numbers, b.0, b.1),
        );
        let wanted: Vec<i32> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
        assert_eq!(made, [wanted.clone(), wanted, x], "{dims:?} {a:?} {b:?}");
    }

    #[test]
    fn operands_are_read_wherever_they_lie() {
        // Row by row, and one number.
        check(&[3, 4], (0, &[4, 1]), (5, &[0, 0]));
        // Transposed, and backwards.
        check(&[3, 4], (0, &[1, 3]), (11, &[-4, -1]));
        // Every second, and broadcast along one axis.
        check(&[5, 1, 3], (0, &[6, 0, 2]), (2, &[0, 0, 1]));
        // A scalar, and tiles that are not full.
        check(&[], (3, &[]), (1, &[]));
        check(&[2, 150], (0, &[150, 1]), (0, &[1, 2]));
    }

    #[test]
    fn cores_share_what_is_much() {
        let size = if cfg!(miri) {
            3 * TILE * TILES / 2
        } else {
            100_000
        };
        check(&[size as i32], (0, &[1]), (1, &[1]));
    }

    #[test]
    fn a_result_may_stand_in_the_place_of_an_operand() {
        let mut place: Vec<i32> = (0..600).collect();
        let other: Vec<i32> = (0..600).rev().collect();
        let (mut second, mut third) = (vec![0; 600], vec![0; 600]);
        let (first, strides) = (place.as_mut_ptr(), [1]);
        let input = |data: *const i32| ffi::mlx_ffi_input {
            data: data.cast(),
            strides: strides.as_ptr(),
        };
        let outputs = [first, second.as_mut_ptr(), third.as_mut_ptr()].map(|p| p.cast::<c_void>());
        work(&[600], Op::Add).run(&[input(first), input(other.as_ptr())], &outputs);
        assert!(place.iter().all(|x| *x == 599) && second == place);
    }
}
