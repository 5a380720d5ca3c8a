//! Programs of elementwise operations as loops of our own over tiles of elements.
//!
//! A program of scalars compiles to steps over registers, each a tile of numbers of one type. One
//! step is one loop over its tiles, so a run costs a function call per step and tile, and no
//! memory beyond the caches. Values are those of the ops, which a test compares.

mod number;
mod step;

use std::ops::Range;
use std::ptr::NonNull;

use smallvec::SmallVec;

use crate::dtype::Dtype;
use crate::ops::{Bytes, Op};
use crate::program::{Instruction, Program};
pub(crate) use step::{Loop, applied};
use step::{Step, TURNED, step};

/// How many elements a step does at once.
pub(crate) const TILE: usize = 512;

/// Room behind a tile, without which tiles would lie so far apart that they meet in the same places
/// of a cache.
const APART: usize = 24;

/// One number of any type per element, aligned for all of them.
pub(crate) type Tile = [u64; TILE + APART];

/// Programs of scalars over the same inputs, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    steps: Vec<Step>,
    /// The inputs' types; they are in the first registers.
    inputs: Vec<Dtype>,
    /// Registers that never change, with their value's bytes.
    constants: Vec<(usize, Vec<u8>)>,
    /// How many registers there are.
    registers: usize,
    /// Registers for what lives within a part.
    scratch: Vec<usize>,
}

/// One of the programs of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    steps: Range<usize>,
    pub(crate) outputs: Vec<Output>,
}

/// A result of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Output {
    pub(crate) register: usize,
    pub(crate) dtype: Dtype,
    /// Whether a step makes it, and not an input or a constant is it. Nothing else is ever in its
    /// register then.
    pub(crate) is_made: bool,
}

/// What a slot of a program holds, before it has a register.
#[derive(Clone, Copy)]
struct Value {
    dtype: Dtype,
    register: Option<usize>,
    /// The last step that needs it.
    last: usize,
    /// What made it, of what is looked at again: an operation and its operands, as values.
    made: Option<(Bitwise, [usize; 2])>,
}

/// Operations that one step does together.
#[derive(Clone, Copy, PartialEq)]
enum Bitwise {
    LeftShift,
    RightShift,
    Or,
}

/// The registers of a run.
pub(crate) struct Registers {
    /// Theirs alone, and only ever reached through this pointer: a reference to all of them would
    /// end what `places` may do.
    tiles: NonNull<[Tile]>,
    /// Where each register's numbers are: in its tile, or in memory of others.
    places: Vec<*mut u8>,
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: made of a box by `new`, and used no more.
        drop(unsafe { Box::from_raw(self.tiles.as_ptr()) });
    }
}

impl Kernel {
    /// A kernel for inputs of these types.
    pub(crate) fn new(inputs: &[Dtype]) -> Self {
        Self {
            steps: Vec::new(),
            inputs: inputs.to_vec(),
            constants: Vec::new(),
            registers: inputs.len(),
            scratch: Vec::new(),
        }
    }

    /// Compiles a program, if all its operations are elementwise, of types that are known here, and
    /// do not mix them.
    pub(crate) fn add(&mut self, program: &Program) -> Option<Part> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.map(|(register, dtype)| Value {
            dtype: *dtype,
            register: Some(register),
            last: usize::MAX,
            made: None,
        });
        let mut values: Vec<Value> = inputs.collect();
        let first = self.steps.len();
        let outputs = self.compile(program, (0..values.len()).collect(), &mut values)?;
        self.prune(first, &outputs, &mut values);
        let outputs = self.assign(first, &outputs, &mut values)?;
        Some(Part {
            steps: first..self.steps.len(),
            outputs,
        })
    }

    /// The values that a program returns, whose inputs are those in `slots`. Its steps name values.
    fn compile(
        &mut self,
        program: &Program,
        mut slots: Vec<usize>,
        values: &mut Vec<Value>,
    ) -> Option<Vec<usize>> {
        for instruction in program.instructions() {
            let operands = instruction
                .operands
                .iter()
                .map(|slot| slots[*slot as usize]);
            let operands: SmallVec<[usize; 4]> = operands.collect();
            let to = values.len();
            if let Some(chosen) = self.chosen(&instruction.op, &operands, values) {
                slots.push(chosen);
                continue;
            }
            let (dtype, register) = match &instruction.op {
                Op::Fused(body) => {
                    slots.extend(self.compile(&body.0, operands.to_vec(), values)?);
                    continue;
                }
                Op::Constant(dtype, bytes) => {
                    if bytes.0.len() != dtype.size() {
                        return None;
                    }
                    let register = self.fresh();
                    self.constants.push((register, bytes.0.clone()));
                    (*dtype, Some(register))
                }
                op => {
                    let types = operands.iter().map(|value| values[*value].dtype);
                    let types: SmallVec<[Dtype; 4]> = types.collect();
                    let (run, dtype) = step(op, &types)?;
                    let mut from = [operands[0]; 3];
                    from[..operands.len()].copy_from_slice(&operands);
                    let step = Step { run, from, to };
                    let turned = self.turned(op, &operands, values, to);
                    self.steps.push(turned.unwrap_or(step));
                    (dtype, None)
                }
            };
            values.push(Value {
                dtype,
                register,
                last: 0,
                made: bitwise(&instruction.op, &operands),
            });
            slots.push(to);
        }
        let results = program.results().iter();
        Some(results.map(|slot| slots[*slot as usize]).collect())
    }

    /// The bytes of a value that is a constant.
    fn constant(&self, value: &Value) -> Option<&[u8]> {
        let register = value.register?;
        let mut constants = self.constants.iter();
        let found = constants.find(|(place, _)| *place == register)?;
        Some(&found.1)
    }

    /// What a selection is of two values of which a constant chooses one that steps make.
    fn chosen(&self, op: &Op, operands: &[usize], values: &[Value]) -> Option<usize> {
        let (Op::Where, [condition, x, y]) = (op, operands) else {
            return None;
        };
        let is_true = self.constant(&values[*condition])? != [0];
        let chosen = if is_true { *x } else { *y };
        let is_choice = values[*condition].dtype == Dtype::Bool
            && values[*x].dtype == values[*y].dtype
            && values[chosen].register.is_none();
        is_choice.then_some(chosen)
    }

    /// Both shifts of a rotation by a constant, and what is done with its bits, as one step.
    fn turned(&self, op: &Op, operands: &[usize], values: &[Value], to: usize) -> Option<Step> {
        let (Op::BitwiseXor, [x, y]) = (op, operands) else {
            return None;
        };
        [(*x, *y), (*y, *x)].into_iter().find_map(|(both, other)| {
            let (Bitwise::Or, [a, b]) = values[both].made? else {
                return None;
            };
            let (left, right) = match (values[a].made?, values[b].made?) {
                ((Bitwise::LeftShift, left), (Bitwise::RightShift, right)) => (left, right),
                ((Bitwise::RightShift, right), (Bitwise::LeftShift, left)) => (left, right),
                _ => return None,
            };
            let by = |value: usize| {
                let bytes = self.constant(&values[value])?.try_into().ok()?;
                Some(u32::from_ne_bytes(bytes))
            };
            let is_turned = values[both].dtype == Dtype::Uint32
                && left[0] == right[0]
                && (1..32).contains(&by(left[1])?)
                && by(right[1])? == 32 - by(left[1])?;
            let from = [left[0], left[1], other];
            let run = TURNED;
            is_turned.then_some(Step { run, from, to })
        })
    }

    /// Leaves out the steps that nothing needs, and notes of each value the last step that needs it.
    fn prune(&mut self, first: usize, outputs: &[usize], values: &mut [Value]) {
        let mut is_needed = vec![false; values.len()];
        for &output in outputs {
            is_needed[output] = true;
        }
        let mut kept = self.steps.split_off(first);
        kept.reverse();
        kept.retain(|step| {
            let needed = is_needed[step.to];
            for value in step.from {
                is_needed[value] |= needed;
            }
            needed
        });
        kept.reverse();
        for (index, step) in (first..).zip(&kept) {
            for value in step.from {
                if values[value].register.is_none() {
                    values[value].last = index;
                }
            }
        }
        self.steps.append(&mut kept);
    }

    fn fresh(&mut self) -> usize {
        self.registers += 1;
        self.registers - 1
    }

    /// Gives the values registers, which take others once nothing needs them any more.
    fn assign(
        &mut self,
        first: usize,
        outputs: &[usize],
        values: &mut [Value],
    ) -> Option<Vec<Output>> {
        let is_made: Vec<bool> = values
            .iter()
            .map(|value| value.register.is_none())
            .collect();
        for &output in outputs {
            if values[output].register.is_none() {
                values[output].register = Some(self.fresh());
                values[output].last = usize::MAX;
            }
        }
        let mut free = self.scratch.clone();
        for index in first..self.steps.len() {
            let Step { from, to, .. } = self.steps[index];
            // What it reads is still there when it writes.
            if values[to].register.is_none() {
                let register = free.pop().unwrap_or_else(|| {
                    let register = self.fresh();
                    self.scratch.push(register);
                    register
                });
                values[to].register = Some(register);
            }
            let mut places = [0; 3];
            for (place, value) in places.iter_mut().zip(from) {
                *place = values[value].register?;
            }
            let ends = |value: &usize| is_made[*value] && values[*value].last == index;
            let mut ended: SmallVec<[usize; 4]> = from.iter().copied().filter(ends).collect();
            // Nothing ever needs it.
            if is_made[to] && values[to].last == index {
                ended.push(to);
            }
            ended.sort_unstable();
            ended.dedup();
            free.extend(ended.into_iter().filter_map(|value| values[value].register));
            self.steps[index].to = values[to].register?;
            self.steps[index].from = places;
        }
        let output = |value: &usize| {
            Some(Output {
                register: values[*value].register?,
                dtype: values[*value].dtype,
                is_made: is_made[*value],
            })
        };
        outputs.iter().map(output).collect()
    }

    /// How many registers a run takes.
    pub(crate) fn len(&self) -> usize {
        self.registers
    }

    /// How many steps it has.
    pub(crate) fn work(&self) -> usize {
        self.steps.len().max(1)
    }

    /// Registers with the constants in place, and some more for other use.
    pub(crate) fn registers(&self, more: usize) -> Registers {
        let mut registers = Registers::new(self.registers + more);
        for (register, bytes) in &self.constants {
            registers.fill(*register, bytes);
        }
        registers
    }

    /// Computes `size` elements of a part, whose inputs are in the first registers.
    pub(crate) fn run(&self, part: &Part, registers: &mut Registers, size: usize) {
        for step in &self.steps[part.steps.clone()] {
            // SAFETY: registers are made for this kernel, whose steps are of their types, and a step
            // writes a register of its own.
            unsafe { (step.run)(&registers.places, step, size.min(TILE)) };
        }
    }
}

impl Registers {
    fn new(count: usize) -> Self {
        let tiles = NonNull::from(Box::leak(vec![[0; TILE + APART]; count].into_boxed_slice()));
        let first: *mut Tile = tiles.as_ptr().cast();
        let places = (0..count).map(|index| first.wrapping_add(index).cast());
        let places = places.collect();
        Self { tiles, places }
    }

    /// Has a register's numbers lie elsewhere.
    ///
    /// # Safety
    /// From now on every run needs room for as many numbers there as it computes, aligned, and apart
    /// from all other registers; a register that a step writes must be free to be written.
    pub(crate) unsafe fn place(&mut self, register: usize, place: *mut u8) {
        self.places[register] = place;
    }

    /// Where a register's numbers are.
    pub(crate) fn at(&self, register: usize) -> *const u8 {
        self.places[register]
    }

    /// The same number in every place of a register.
    pub(crate) fn fill(&mut self, register: usize, number: &[u8]) {
        fn all<const N: usize>(places: &mut [u8], number: &[u8]) {
            if let Ok(number) = <[u8; N]>::try_from(number) {
                places.as_chunks_mut::<N>().0.fill(number);
            }
        }
        let places = self.hold(register, TILE * number.len());
        match number.len() {
            1 => all::<1>(places, number),
            2 => all::<2>(places, number),
            4 => all::<4>(places, number),
            _ => all::<8>(places, number),
        }
    }

    /// Copies the first `size` numbers of a register into another; both are in their tiles.
    pub(crate) fn copy(&mut self, from: usize, to: usize, size: usize) {
        if from == to {
            return;
        }
        let (from, to) = (self.tile(from), self.tile(to));
        // Numbers take at most the eight bytes of a place.
        let size = size.min(TILE);
        // SAFETY: they are two tiles, each of so many places at least.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u64>(), to.cast(), size) };
    }

    /// Has a register's numbers lie in its tile, whose first bytes these are.
    pub(crate) fn hold(&mut self, register: usize, len: usize) -> &mut [u8] {
        self.places[register] = self.tile(register).cast();
        self.bytes_mut(register, len)
    }

    /// The first bytes of a register's tile.
    pub(crate) fn bytes_mut(&mut self, register: usize, len: usize) -> &mut [u8] {
        let len = len.min(size_of::<Tile>());
        // SAFETY: a tile is plain numbers, the length is within it, and this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.tile(register).cast(), len) }
    }

    /// A register's own tile.
    fn tile(&self, register: usize) -> *mut Tile {
        assert!(register < self.tiles.len(), "no register {register}");
        // SAFETY: it is one of the tiles.
        unsafe { self.tiles.as_ptr().cast::<Tile>().add(register) }
    }
}

/// What a value notes of what made it.
fn bitwise(op: &Op, operands: &[usize]) -> Option<(Bitwise, [usize; 2])> {
    let op = match op {
        Op::LeftShift => Bitwise::LeftShift,
        Op::RightShift => Bitwise::RightShift,
        Op::BitwiseOr => Bitwise::Or,
        _ => return None,
    };
    Some((op, operands.try_into().ok()?))
}

/// Whether a kernel can do an operation, of some types at least.
pub(crate) fn knows(op: &Op) -> bool {
    Dtype::ALL.iter().any(|dtype| {
        let select = [Dtype::Bool, *dtype, *dtype];
        [&select[..], &select[1..], &select[2..]]
            .iter()
            .any(|types| step(op, types).is_some())
    })
}

/// What an operation makes of constants, as another one, if a kernel can do it.
pub(crate) fn constant(op: &Op, operands: &[&Op]) -> Option<Op> {
    let slots = 0..operands.len() as u32;
    let constants = operands.iter().map(|op| ((*op).clone(), SmallVec::new()));
    let last = (op.clone(), slots.clone().collect());
    let instructions = constants.chain([last]);
    let instructions = instructions.map(|(op, operands)| Instruction { op, operands });
    let program = Program::whole(0, instructions.collect(), vec![slots.end]).ok()?;
    let mut kernel = Kernel::new(&[]);
    let part = kernel.add(&program)?;
    let mut registers = kernel.registers(0);
    kernel.run(&part, &mut registers, 1);
    let Output {
        register, dtype, ..
    } = part.outputs[0];
    let bytes = registers.bytes_mut(register, dtype.size()).to_vec();
    Some(Op::Constant(dtype, Bytes(bytes)))
}

/// The type that an operation makes of operands of these types, if a kernel can do it.
pub(crate) fn result(op: &Op, types: &[Dtype]) -> Option<Dtype> {
    step(op, types).map(|(_, dtype)| dtype)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
