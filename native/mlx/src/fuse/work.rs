//! What a host kernel does: a fused program, tile by tile, on all cores where there is much to do.

use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mlx_ffi as ffi;
use smallvec::SmallVec;

use super::operand::{Held, Source};
use super::plan::{Dims, size};
use super::rows::{Operand, Rows};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::host;
use crate::kernel::{Kernel, Part, Registers, TILE};
use crate::shape::Shape;

/// Tiles that a core takes at a time.
const TILES: usize = 8;

/// What a host kernel is given.
pub(super) struct Work {
    /// What the operands broadcast to.
    pub(super) dims: Dims,
    /// The sizes of the operands' numbers.
    pub(super) sizes: Vec<usize>,
    pub(super) made: Vec<Made>,
    pub(super) how: How,
}

/// A result's numbers.
pub(super) struct Made {
    pub(super) dims: Dims,
    pub(super) dtype: Dtype,
}

pub(super) enum How {
    /// Element by element; all results have a number for each.
    Tiles(Kernel, Part),
    Rows(Rows),
}

impl Made {
    fn len(&self) -> usize {
        size(&self.dims).saturating_mul(self.dtype.size())
    }
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
        for (output, made) in outputs.iter().zip(&work.made) {
            // SAFETY: each has room for so many bytes.
            unsafe { output.cast::<u8>().write_bytes(0, made.len()) };
        }
    }
}

/// Where a result's numbers belong.
pub(super) struct Target {
    pub(super) data: *mut u8,
    size: usize,
}

// SAFETY: each tile is written by one thread.
unsafe impl Sync for Target {}

impl Work {
    /// How many elements the results have: beyond all numbers it is the largest, so that no shape
    /// passes for a small one before it is refused.
    fn elements(&self) -> usize {
        size(&self.dims)
    }

    /// Whether it is done sooner than MLX is told of it.
    pub(super) fn is_small(&self) -> bool {
        let work = match &self.how {
            How::Tiles(kernel, _) => self.elements().saturating_mul(kernel.work()),
            How::Rows(rows) => rows.count().saturating_mul(rows.work()),
        };
        work <= host::SMALL
    }

    /// Whether a result may stand in the place of an operand, of which each element is read before
    /// that of the result is written.
    pub(super) fn reuses(&self) -> bool {
        matches!(self.how, How::Tiles(..))
    }

    /// The results, at once, if the operands are computed already.
    pub(super) fn now(&self, operands: &[&Array]) -> Option<Result<Vec<Array>>> {
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
        let mut places: SmallVec<[Vec<u64>; 1]> = made
            .map(|made| vec![0; made.len().div_ceil(size_of::<u64>())])
            .collect();
        let outputs = places.iter_mut().map(|place| place.as_mut_ptr().cast());
        self.run(&inputs, &outputs.collect::<SmallVec<[_; 1]>>());
        let array = |(place, made): (&Vec<u64>, &Made)| {
            let dims = made.dims.iter().map(|dim| i64::from(*dim));
            let shape = Shape::new(dims.collect())?;
            // SAFETY: there are so many bytes, of plain numbers.
            let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), made.len()) };
            Array::from_bytes(bytes, &shape, made.dtype)
        };
        Some(places.iter().zip(&self.made).map(array).collect())
    }

    fn run(&self, inputs: &[ffi::mlx_ffi_input], outputs: &[*mut c_void]) {
        let target = |(data, made): (&*mut c_void, &Made)| Target {
            data: data.cast(),
            size: made.dtype.size(),
        };
        let targets: Vec<Target> = outputs.iter().zip(&self.made).map(target).collect();
        let operand = |input: &ffi::mlx_ffi_input| Operand {
            data: input.data.cast(),
            // SAFETY: there is a stride for each axis that they broadcast to.
            strides: unsafe { listed(input.strides, self.dims.len()) },
        };
        let operands: SmallVec<[Operand; 4]> = inputs.iter().map(operand).collect();
        match &self.how {
            How::Tiles(kernel, part) => self.tiles(kernel, part, &operands, &targets),
            // SAFETY: they are what the work was made for, and no result stands in an operand's place.
            How::Rows(rows) => unsafe { rows.run(&operands, &targets) },
        }
    }

    fn tiles(&self, kernel: &Kernel, part: &Part, operands: &[Operand], targets: &[Target]) {
        let source = |(operand, size): (&Operand, &usize)| {
            Source::new(operand.data, *size, &self.dims, operand.strides)
        };
        let sources: Vec<Source> = operands.iter().zip(&self.sizes).map(source).collect();
        let direct = direct(part, &sources, targets);
        let range = |range: Range<usize>| {
            let mut registers = kernel.registers(0);
            let mut held: Vec<Held> = sources.iter().map(|_| Held::new()).collect();
            for first in range.clone().step_by(TILE) {
                let tile = first..range.end.min(first + TILE);
                for (register, source) in sources.iter().enumerate() {
                    // SAFETY: the operands have a number for each element, and outlive this; no step
                    // writes an operand, and no result is written where an operand is still read.
                    unsafe {
                        source.load(
                            &mut registers,
                            register,
                            tile.clone(),
                            range.end,
                            &mut held[register],
                        );
                    }
                }
                tile_of(kernel, part, targets, &direct, &mut registers, tile);
            }
        };
        cores::share(self.elements(), kernel.work(), TILE * TILES, &range);
    }
}

/// Which results the last steps may write where they belong: those that stand in no operand's
/// place, are not an operand themselves, and are not there twice.
fn direct(part: &Part, sources: &[Source], targets: &[Target]) -> Vec<bool> {
    let outputs = &part.outputs;
    let is_made =
        |index: usize| outputs[index].is_made && !outputs[..index].contains(&outputs[index]);
    let reuses = |target: &Target| sources.iter().any(|s| std::ptr::eq(s.data(), target.data));
    let direct = targets.iter().enumerate();
    direct
        .map(|(index, target)| is_made(index) && !reuses(target))
        .collect()
}

/// Computes what a tile of the operands becomes.
fn tile_of(
    kernel: &Kernel,
    part: &Part,
    targets: &[Target],
    direct: &[bool],
    registers: &mut Registers,
    tile: Range<usize>,
) {
    let outputs = part.outputs.iter().zip(targets).zip(direct);
    for ((output, target), _) in outputs.clone().filter(|(_, direct)| **direct) {
        // SAFETY: the result has room for each element, is new and so aligned, and this tile of it is
        // this thread's alone.
        unsafe { registers.place(output.register, target.data.add(tile.start * target.size)) };
    }
    kernel.run(part, registers, tile.len());
    for ((output, target), _) in outputs.filter(|(_, direct)| !**direct) {
        // SAFETY: the register holds so many numbers, and the result has room for them.
        unsafe {
            let from = registers.at(output.register);
            let to = target.data.add(tile.start * target.size);
            std::ptr::copy(from, to, tile.len() * target.size);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the numbers, put where MLX would put them.
    use super::*;
    use crate::ops::Op;
    use crate::program::{Instruction, Program};

    fn work(dims: &[i32], op: Op) -> Work {
        let dtype = Dtype::Int32;
        let operands = [0, 1].into_iter().collect();
        let program = Program::whole(2, vec![Instruction { op, operands }], vec![2, 2, 0]).unwrap();
        let mut kernel = Kernel::new(&[dtype, dtype]);
        let part = kernel.add(&program).unwrap();
        let dims = Dims::from_slice(dims);
        let made = (0..3).map(|_| Made {
            dims: dims.clone(),
            dtype,
        });
        Work {
            made: made.collect(),
            dims,
            sizes: vec![4; 2],
            how: How::Tiles(kernel, part),
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
        // Columns of more than one tile, of several matrices, backwards, and of more than are held.
        check(&[15, 170], (0, &[170, 1]), (0, &[1, 15]));
        check(&[3, 30, 40], (0, &[1200, 40, 1]), (0, &[1200, 1, 30]));
        check(&[40, 30], (1199, &[-1, -40]), (0, &[2, 80]));
        if cfg!(not(miri)) {
            check(&[300, 400], (0, &[1, 300]), (0, &[400, 1]));
        }
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
