//! How a fused program is computed for operands of certain types and shapes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mlx_ffi as ffi;
use smallvec::SmallVec;

use super::rows::{self, Rows};
use super::work::{How, Made, Work, call, forget};
use super::{Graph, MOST, Sets};
use crate::array::{Array, Vector};
use crate::control;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host;
use crate::kernel::{self, Kernel};
use crate::ops::{self, Op};
use crate::program::{Instruction, Program, Run};
use crate::stream::{Device, Stream};

/// How many plans a program keeps: of one that runs with ever other shapes the last ones.
const PLANS: usize = 8;

/// Every thread has a tile for each register. What is brought together here takes fewer.
const MOST_REGISTERS: usize = 8 * MOST;

pub(super) type Dims = SmallVec<[i32; 4]>;
pub(super) type Known = SmallVec<[(Dtype, Dims); 4]>;

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
    stages: Option<Stages>,
}

struct Stages {
    each: Vec<Stage>,
    /// The slots of the program's results, among those that stages take and fill.
    results: Vec<u32>,
}

/// Results of one shape, computed together.
struct Stage {
    work: Arc<Work>,
    takes: Vec<u32>,
    fills: Vec<u32>,
    /// The operation that is named where its results cannot be had.
    name: &'static str,
}

/// Computes a fused program.
pub(crate) fn evaluate(program: &Program, operands: &[&Array], run: &Run) -> Result<Vec<Array>> {
    let stream = &run.streams.main;
    if stream.device == Device::Cpu {
        let known = operands
            .iter()
            .map(|x| (x.dtype(), Dims::from_slice(x.dims())));
        let plan = program.plans().find(program, known.collect());
        if let Some(stages) = &plan.stages {
            return staged(stages, operands, stream);
        }
    }
    let slots = program.slots(operands.iter().map(|x| Ok((*x).clone())))?;
    control::now(program, slots, run)
}

fn staged(stages: &Stages, operands: &[&Array], stream: &Stream) -> Result<Vec<Array>> {
    let mut slots: Vec<Option<Array>> = operands.iter().map(|x| Some((*x).clone())).collect();
    let lost = || Error::invalid("", "a plan of a fused program misses a slot");
    for stage in &stages.each {
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
    let results = stages.results.iter();
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

/// How many elements an array of these sizes has; more than there are numbers is the greatest.
pub(super) fn size(dims: &[i32]) -> usize {
    let sizes = dims.iter().map(|dim| *dim as usize);
    sizes.fold(1, usize::saturating_mul)
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

/// What is left of the axes of what is reduced.
fn left(dims: &[i32], axes: &[i32], keep: bool) -> Option<Dims> {
    let mut left = Dims::from_slice(dims);
    for axis in axes {
        let axis = if *axis < 0 {
            axis + dims.len() as i32
        } else {
            *axis
        };
        // Of those that are gone there is no other use for the size.
        *left.get_mut(usize::try_from(axis).ok()?)? = if keep { 1 } else { GONE };
    }
    left.retain(|dim| *dim != GONE);
    Some(left)
}

const GONE: i32 = -1;

/// The program with the instructions of those inside of it in their place.
fn flat(program: &Program) -> Option<Program> {
    let mut instructions = Vec::new();
    let mut slots: Vec<u32> = (0..program.inputs() as u32).collect();
    let mut next = slots.len() as u32;
    for Instruction { op, operands } in program.instructions() {
        let from = operands.iter().map(|slot| slots[*slot as usize]);
        let from: SmallVec<[u32; 4]> = from.collect();
        let Op::Fused(body) = op else {
            slots.extend(next..next + op.outputs() as u32);
            next += op.outputs() as u32;
            let op = op.clone();
            instructions.push(Instruction { op, operands: from });
            continue;
        };
        let mut inner = from.to_vec();
        for Instruction { op, operands } in body.0.instructions() {
            let operands = operands.iter().map(|slot| inner[*slot as usize]).collect();
            inner.extend(next..next + op.outputs() as u32);
            next += op.outputs() as u32;
            let op = op.clone();
            instructions.push(Instruction { op, operands });
        }
        slots.extend(body.0.results().iter().map(|slot| inner[*slot as usize]));
    }
    let results = program.results().iter();
    let results = results.map(|slot| slots[*slot as usize]).collect();
    Program::whole(program.inputs(), instructions, results).ok()
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
                if let [dtype] = types[..]
                    && let Some((reduction, axes, keep)) = op.reduction(dtype)
                {
                    host::rows(reduction, dtype)?;
                    known.push((dtype, left(dims.next()?, axes, keep)?));
                    continue;
                }
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
fn stages(program: &Program, operands: &Known) -> Option<Stages> {
    let program = &flat(program)?;
    let known = described(program, operands)?;
    let instructions: Vec<_> = program.instructions().cloned().collect();
    let reduces = |index: usize| {
        let slot = instructions[index].operands.first();
        slot.is_some_and(|slot| {
            let dtype = known[*slot as usize].0;
            instructions[index].op.reduction(dtype).is_some()
        })
    };
    let rows = match (0..instructions.len()).any(reduces) {
        true => Some(rows::Shape::of(program, &known)?),
        false => None,
    };
    let graph = Graph::new(operands.len(), &instructions, program.results());
    let constant = |index: usize| graph.is_constant(index);
    // What no stage makes, and nothing brings.
    let mut makers = program
        .results()
        .iter()
        .map(|slot| graph.makers[*slot as usize]);
    if makers.any(|maker| maker.is_some_and(constant)) {
        return None;
    }
    let dims = |index: usize| &known[graph.firsts[index]].1;
    let mut sets = Sets::new(instructions.len());
    let mut by_rows = None;
    if let Some(shape) = &rows {
        let reduced = rows::Shape::reduced(program, &known);
        let each = (0..instructions.len()).filter(|index| !constant(*index));
        for index in each.filter(|i| shape.holds(dims(*i), reduced[graph.firsts[*i]])) {
            sets.unite(*by_rows.get_or_insert(index), index);
        }
    }
    for index in (0..instructions.len()).filter(|index| !constant(*index)) {
        for source in graph.sources(index) {
            if !constant(source) && dims(source) == dims(index) {
                sets.unite(index, source);
            }
        }
    }
    let by_rows = by_rows.map(|index| sets.find(index));
    let mut groups = sets.groups(usize::MAX);
    groups.retain(|members| !constant(members[0]));
    let order = graph.ordered(&groups, constant);
    // Something that is not computed row by row stands between two that are.
    if order.len() < groups.len() {
        return None;
    }
    let mut stages = Vec::with_capacity(groups.len());
    for group in order {
        let piece = graph.piece(&groups[group])?;
        // Nothing needs it.
        if piece.fills.is_empty() {
            continue;
        }
        let takes = piece.takes.iter().map(|slot| known[*slot as usize].clone());
        let takes: Known = takes.collect();
        let types: Vec<Dtype> = takes.iter().map(|(dtype, _)| *dtype).collect();
        let (dims, how) = match &rows {
            Some(shape) if by_rows == Some(sets.find(groups[group][0])) => {
                let known = described(&piece.program, &takes)?;
                let rows = Rows::new(&piece.program, &known, shape)?;
                (shape.dims().clone(), How::Rows(rows))
            }
            _ => {
                let mut kernel = Kernel::new(&types);
                let part = kernel.add(&piece.program)?;
                if kernel.len() > MOST_REGISTERS {
                    return None;
                }
                (dims(groups[group][0]).clone(), How::Tiles(kernel, part))
            }
        };
        let made = piece.fills.iter().map(|slot| {
            let (dtype, dims) = known[*slot as usize].clone();
            Made { dims, dtype }
        });
        let work = Work {
            dims,
            sizes: types.iter().map(|dtype| dtype.size()).collect(),
            made: made.collect(),
            how,
        };
        stages.push(Stage {
            work: Arc::new(work),
            takes: piece.takes,
            fills: piece.fills,
            name: instructions[*groups[group].last()?].op.variant(),
        });
    }
    Some(Stages {
        each: stages,
        results: program.results().to_vec(),
    })
}

impl Stage {
    /// The results: at once if that is less than what MLX takes, else still to be computed.
    fn make(&self, operands: &[&Array], stream: &Stream) -> Result<Vec<Array>> {
        if self.work.is_small()
            && let Some(made) = self.work.now(operands)
        {
            return made;
        }
        let inputs = Vector::new(operands.iter().copied());
        let output = |made: &Made| ffi::mlx_ffi_output {
            shape: made.dims.as_ptr(),
            rank: made.dims.len(),
            dtype: made.dtype.raw(),
        };
        let outputs: SmallVec<[_; 4]> = self.work.made.iter().map(output).collect();
        let made = Vector::build("fused", |res| {
            // SAFETY: the handles and the shapes are live for the call; the operands broadcast to the
            // work's shape and have the types that the payload was made for, which is freed by
            // `forget`.
            unsafe {
                ffi::mlx_ffi_elements(
                    res,
                    inputs.raw(),
                    self.work.dims.len(),
                    outputs.as_ptr(),
                    outputs.len(),
                    self.work.reuses(),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: stages by hand.
    use super::*;
    use crate::program::Body;

    fn of(op: Op, operands: &[u32]) -> Instruction {
        let operands = operands.iter().copied().collect();
        Instruction { op, operands }
    }

    fn known(dims: &[&[i32]]) -> Known {
        let each = dims
            .iter()
            .map(|dims| (Dtype::Float32, Dims::from_slice(dims)));
        each.collect()
    }

    /// exp(x) + y, and its square.
    fn program() -> Program {
        let instructions = vec![
            of(Op::Exp, &[0]),
            of(Op::Add, &[2, 1]),
            of(Op::Square, &[3]),
        ];
        Program::whole(2, instructions, vec![3, 4]).unwrap()
    }

    /// A file may have anything in what is fused.
    #[test]
    fn a_program_within_may_have_operations_of_several_results() {
        let inner = vec![of(Op::Qr, &[0]), of(Op::Matmul, &[1, 2])];
        let inner = Program::whole(1, inner, vec![3]).unwrap();
        let outer = vec![
            of(Op::Abs, &[0]),
            of(Op::Fused(Body(Arc::new(inner))), &[1]),
            of(Op::Exp, &[2]),
        ];
        let outer = Program::whole(1, outer, vec![3]).unwrap();
        let flat = flat(&outer).unwrap();
        let found: Vec<_> = flat
            .instructions()
            .map(|step| (step.op.clone(), step.operands.to_vec()))
            .collect();
        let wanted = [
            (Op::Abs, vec![0]),
            (Op::Qr, vec![1]),
            (Op::Matmul, vec![2, 3]),
            (Op::Exp, vec![4]),
        ];
        assert_eq!(found, wanted);
        assert_eq!(flat.results(), [5]);
    }

    #[test]
    fn what_is_smaller_comes_first() {
        let shapes = |dims: &[&[i32]]| {
            let stages = stages(&program(), &known(dims))?;
            let of = |stage: &Stage| {
                (
                    stage.work.dims.to_vec(),
                    stage.takes.clone(),
                    stage.fills.clone(),
                )
            };
            Some(stages.each.iter().map(of).collect::<Vec<_>>())
        };
        assert_eq!(
            shapes(&[&[2, 3], &[2, 3]]),
            Some(vec![(vec![2, 3], vec![0, 1], vec![3, 4])])
        );
        assert_eq!(
            shapes(&[&[3], &[2, 3]]),
            Some(vec![
                (vec![3], vec![0], vec![2]),
                (vec![2, 3], vec![1, 2], vec![3, 4])
            ])
        );
        // What does not fit, or is nothing, is left to MLX.
        assert_eq!(shapes(&[&[4], &[2, 3]]), None);
        assert_eq!(shapes(&[&[0], &[2, 1]]), None);
    }

    #[test]
    fn the_plans_in_use_stay() {
        let (program, plans) = (program(), Plans::default());
        let plan = |size: i32| plans.find(&program, known(&[&[size], &[size]]));
        let first = plan(1);
        for size in 2..12 {
            plan(size);
            assert!(Arc::ptr_eq(&first, &plan(1)), "{size}");
        }
        let second = Arc::downgrade(&plan(2));
        (3..12).for_each(|size| drop(plan(size)));
        assert!(second.upgrade().is_none());
        assert_eq!(plans.0.lock().map(|plans| plans.len()).ok(), Some(PLANS));
    }

    fn names(program: &Program) -> Vec<&'static str> {
        program.instructions().map(|i| i.op.variant()).collect()
    }

    #[test]
    fn connected_elementwise_instructions_become_one_and_others_stay() {
        let instructions = vec![
            of(Op::Exp, &[0]),
            of(Op::Flip(vec![0]), &[1]),
            of(Op::Add, &[1, 2]),
            of(Op::Negative, &[3]),
        ];
        let program = Program::new(1, instructions, vec![4]).unwrap();
        assert_eq!(names(&program), ["Fused", "Flip", "Fused"]);
    }

    /// exp(x) over its sum along an axis, and the sum along another.
    fn reducing(keep: bool) -> Program {
        let instructions = vec![
            of(Op::Exp, &[0]),
            of(Op::SumAxes(vec![1], keep), &[1]),
            of(Op::Divide, &[1, 2]),
            of(Op::SumAxes(vec![0], keep), &[3]),
        ];
        Program::new(1, instructions, vec![3, 4]).unwrap()
    }

    /// What the first instruction holds.
    fn first(program: &Program) -> &Program {
        let bodies = program.instructions().next().unwrap().op.bodies();
        &bodies[0].0
    }

    #[test]
    fn reductions_of_the_same_axes_are_among_what_is_fused() {
        let program = reducing(true);
        assert_eq!(names(&program), ["Fused", "SumAxes"]);
        let body = first(&program);
        assert_eq!(names(body), ["Fused", "SumAxes", "Fused"]);
        let by_rows = |dims: &[i32]| {
            let stages = stages(body, &known(&[dims]))?;
            Some(stages.each.iter().all(|stage| !stage.work.reuses()))
        };
        assert_eq!(by_rows(&[5, 7]), Some(true));
        // Not the last axis, a row of one element, and rows that are too long or too few to be seen
        // again.
        for dims in [&[5, 7, 2][..], &[5, 1], &[100, 1 << 17], &[2, 1 << 15]] {
            assert_eq!(by_rows(dims), None, "{dims:?}");
        }
        // A row without its axis would meet the columns.
        let program = reducing(false);
        assert!(stages(first(&program), &known(&[&[7, 7]])).is_none());
    }
}
