//! How a fused program is computed for operands of certain types and shapes.

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use mlx_ffi as ffi;
use rayon::prelude::*;
use smallvec::SmallVec;

use super::{Graph, Sets};
use crate::array::{Array, Vector};
use crate::control;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Part, Registers, TILE};
use crate::ops::{self, Op};
use crate::program::{Program, Run};
use crate::stream::{Device, Stream};

/// Numbers, times steps, from which on it is worth asking other cores.
const SHARED: usize = 1 << 16;
/// Tiles that a core takes at a time.
const TILES: usize = 16;
/// How many plans a program keeps: of one that runs with ever other shapes the last ones.
const PLANS: usize = 8;

type Dims = SmallVec<[i32; 4]>;
type Known = SmallVec<[(Dtype, Dims); 4]>;

/// The plans of a program.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<Arc<Plan>>>);

/// Plans are not part of what a program is.
impl PartialEq for Plans {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plans")
    }
}

struct Plan {
    operands: Known,
    /// Nothing where it is left to MLX.
    stages: Option<Vec<Stage>>,
}

/// Results of one shape, computed together.
struct Stage {
    work: Arc<Work>,
    takes: Vec<u32>,
    fills: Vec<u32>,
    dtypes: Vec<ffi::mlx_dtype>,
    /// The operation that is named where its results cannot be had.
    name: &'static str,
}

/// What a host kernel is given.
struct Work {
    kernel: Kernel,
    part: Part,
    dims: Dims,
    /// The sizes of the operands' and the results' numbers.
    sizes: Vec<usize>,
    made: Vec<usize>,
}

/// Computes a fused program.
pub(crate) fn evaluate(program: &Program, operands: &[&Array], run: &Run) -> Result<Vec<Array>> {
    let known = operands
        .iter()
        .map(|x| (x.dtype(), Dims::from_slice(x.dims())));
    let known: Known = known.collect();
    let plan = program.plans().find(program, known);
    let stream = &run.streams.main;
    match &plan.stages {
        Some(stages) if stream.device == Device::Cpu => staged(program, stages, operands, stream),
        _ => {
            let slots = program.slots(operands.iter().map(|x| Ok((*x).clone())))?;
            control::now(program, slots, run)
        }
    }
}

fn staged(
    program: &Program,
    stages: &[Stage],
    operands: &[&Array],
    stream: &Stream,
) -> Result<Vec<Array>> {
    let mut slots: Vec<Option<Array>> = operands.iter().map(|x| Some((*x).clone())).collect();
    let lost = || Error::invalid("", "a plan of a fused program misses a slot");
    for stage in stages {
        let takes = stage
            .takes
            .iter()
            .map(|slot| slots.get(*slot as usize)?.as_ref());
        let takes: Option<Vec<&Array>> = takes.collect();
        let made = stage.make(&takes.ok_or_else(lost)?, stream)?;
        for (slot, array) in stage.fills.iter().zip(made) {
            let slot = *slot as usize;
            if slots.len() <= slot {
                slots.resize_with(slot + 1, || None);
            }
            slots[slot] = Some(array);
        }
    }
    let results = program.results().iter();
    results
        .map(|slot| {
            slots
                .get(*slot as usize)
                .cloned()
                .flatten()
                .ok_or_else(lost)
        })
        .collect()
}

impl Plans {
    fn find(&self, program: &Program, operands: Known) -> Arc<Plan> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = plans.iter().position(|plan| plan.operands == operands) {
            let plan = plans[index].clone();
            // Those in use stay.
            plans[..=index].rotate_right(1);
            return plan;
        }
        let stages = stages(program, &operands);
        let plan = Arc::new(Plan { operands, stages });
        plans.insert(0, plan.clone());
        plans.truncate(PLANS);
        plan
    }
}

/// The common shape of two, as arrays broadcast.
fn broadcast(a: &[i32], b: &[i32]) -> Option<Dims> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let mut dims = Dims::from_slice(long);
    let shift = long.len() - short.len();
    for (dim, other) in dims[shift..].iter_mut().zip(short) {
        match (*dim, *other) {
            (1, other) => *dim = other,
            (dim, other) if dim == other || other == 1 => (),
            _ => return None,
        }
    }
    Some(dims)
}

/// What each slot holds, if all of it can be computed here.
fn described(program: &Program, operands: &Known) -> Option<Known> {
    let mut known = operands.clone();
    for instruction in program.instructions() {
        let made = match &instruction.op {
            Op::Constant(dtype, _) => (*dtype, Dims::new()),
            op => {
                let slots = instruction
                    .operands
                    .iter()
                    .map(|slot| &known[*slot as usize]);
                let types: SmallVec<[Dtype; 4]> = slots.clone().map(|(dtype, _)| *dtype).collect();
                let mut dims = slots.map(|(_, dims)| dims);
                let dims = dims.try_fold(Dims::new(), |all, dims| broadcast(&all, dims));
                (kernel::result(op, &types)?, dims?)
            }
        };
        known.push(made);
    }
    let empty = |(_, dims): &(Dtype, Dims)| dims.contains(&0);
    (!known.iter().any(empty)).then_some(known)
}

/// What has the same shape and is connected is computed together. What is smaller comes before it:
/// computed within, it would be computed again for each element.
fn stages(program: &Program, operands: &Known) -> Option<Vec<Stage>> {
    let known = described(program, operands)?;
    let instructions: Vec<_> = program.instructions().cloned().collect();
    let graph = Graph::new(operands.len(), &instructions, program.results());
    let constant = |index: usize| graph.is_constant(index);
    let dims = |index: usize| &known[graph.firsts[index]].1;
    let mut sets = Sets::new(instructions.len());
    for index in (0..instructions.len()).filter(|index| !constant(*index)) {
        for source in graph.sources(index) {
            if !constant(source) && dims(source) == dims(index) {
                sets.unite(index, source);
            }
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of = vec![usize::MAX; instructions.len()];
    for index in (0..instructions.len()).filter(|index| !constant(*index)) {
        let set = sets.find(index);
        if group_of[set] == usize::MAX {
            group_of[set] = groups.len();
            groups.push(Vec::new());
        }
        groups[group_of[set]].push(index);
    }
    let order = graph.ordered(&groups, constant);
    let stages = order.into_iter().map(|group| {
        let piece = graph.piece(&groups[group])?;
        let types = piece.takes.iter().map(|slot| known[*slot as usize].0);
        let types: Vec<Dtype> = types.collect();
        let mut kernel = Kernel::new(&types);
        let part = kernel.add(&piece.program)?;
        let made = part.outputs.iter().map(|output| output.dtype);
        let made: Vec<Dtype> = made.collect();
        let work = Work {
            dims: dims(groups[group][0]).clone(),
            sizes: types.iter().map(|dtype| dtype.size()).collect(),
            made: made.iter().map(|dtype| dtype.size()).collect(),
            kernel,
            part,
        };
        Some(Stage {
            work: Arc::new(work),
            takes: piece.takes,
            fills: piece.fills,
            dtypes: made.iter().map(|dtype| dtype.raw()).collect(),
            name: instructions[*groups[group].last()?].op.variant(),
        })
    });
    stages.collect()
}

impl Stage {
    fn make(&self, operands: &[&Array], stream: &Stream) -> Result<Vec<Array>> {
        let inputs = Vector::new(operands.iter().copied());
        let dims = &self.work.dims;
        let made = Vector::build("fused", |res| {
            // SAFETY: the handles are live for the call; the operands broadcast to the shape and
            // have the types that the payload was made for, which is freed by `forget`.
            unsafe {
                ffi::mlx_ffi_elements(
                    res,
                    inputs.raw(),
                    dims.as_ptr(),
                    dims.len(),
                    self.dtypes.as_ptr(),
                    self.dtypes.len(),
                    c"Fused".as_ptr(),
                    Some(call),
                    Arc::into_raw(self.work.clone()).cast_mut().cast(),
                    Some(forget),
                    stream.raw(),
                )
            }
        });
        made.map_err(|error| error.within(self.name, ops::described(operands)))
    }
}

unsafe extern "C" fn forget(payload: *mut c_void) {
    // SAFETY: it was made by `Stage::make`, and this is its only end.
    drop(unsafe { Arc::from_raw(payload.cast::<Work>()) });
}

unsafe extern "C" fn call(
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
            std::slice::from_raw_parts(inputs, work.sizes.len()),
            std::slice::from_raw_parts(outputs, work.made.len()),
        )
    };
    // Nothing here panics; a panic would end the process, in the middle of C++.
    let _ = catch_unwind(AssertUnwindSafe(|| work.run(inputs, outputs)));
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
    fn run(&self, inputs: &[ffi::mlx_ffi_input], outputs: &[*mut c_void]) {
        let elements: usize = self.dims.iter().map(|dim| *dim as usize).product();
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
        let range = |first: usize, end: usize| {
            let mut registers = self.kernel.registers(0);
            for (register, source) in sources.iter().enumerate() {
                if matches!(source.layout, Layout::One) {
                    // SAFETY: it has one number of that size.
                    let number = unsafe { std::slice::from_raw_parts(source.data, source.size) };
                    registers.fill(register, number);
                }
            }
            for first in (first..end).step_by(TILE) {
                let size = TILE.min(end - first);
                self.tile(&sources, &targets, &direct, &mut registers, first, size);
            }
        };
        if elements * self.kernel.work() < SHARED {
            return range(0, elements);
        }
        let chunk = TILE * TILES;
        (0..elements.div_ceil(chunk))
            .into_par_iter()
            .for_each(|index| {
                range(index * chunk, elements.min((index + 1) * chunk));
            });
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
