//! Programs of elementwise operations as loops of our own over tiles of elements.
//!
//! A program of scalars compiles to steps over registers, each a tile of numbers of one type. One
//! step is one loop over its tiles, so a run costs a function call per step and tile, and no
//! memory beyond the caches. Values are those of the ops, which a test compares.

mod number;

use std::ops::Range;

use half::{bf16, f16};
use smallvec::SmallVec;

use crate::dtype::Dtype;
use crate::host::{Converted, Function};
use crate::ops::{Bytes, Op};
use crate::program::{Instruction, Program};
use number::{Cast, Fraction, Number, Whole};

/// How many elements a step does at once.
pub(crate) const TILE: usize = 256;

/// One number of any type per element, aligned for all of them.
pub(crate) type Tile = [u64; TILE];

/// A step's loop: where the registers' numbers are, the step, and how many elements.
///
/// # Safety
/// The places that the step names must hold so many numbers of its types, apart from each other.
pub(crate) type Loop = unsafe fn(&[*mut u8], &Step, usize);

#[derive(Debug, Clone)]
pub(crate) struct Step {
    run: Loop,
    /// The registers that it reads.
    from: [usize; 3],
    /// The register that it writes, which is none of those.
    to: usize,
}

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
}

/// The registers of a run.
pub(crate) struct Registers {
    tiles: Vec<Tile>,
    /// Where each register's numbers are: in its tile, or in memory of others.
    places: Vec<*mut u8>,
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
        });
        let mut values: Vec<Value> = inputs.collect();
        let first = self.steps.len();
        let outputs = self.compile(program, (0..values.len()).collect(), &mut values)?;
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
                    for value in &operands {
                        if values[*value].register.is_none() {
                            values[*value].last = self.steps.len();
                        }
                    }
                    self.steps.push(Step { run, from, to });
                    (dtype, None)
                }
            };
            let last = self.steps.len().saturating_sub(1);
            values.push(Value {
                dtype,
                register,
                last,
            });
            slots.push(to);
        }
        let results = program.results().iter();
        Some(results.map(|slot| slots[*slot as usize]).collect())
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
        let mut tiles = vec![[0; TILE]; count];
        let places = tiles.iter_mut().map(|tile| tile.as_mut_ptr().cast());
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
        for place in self
            .bytes_mut(register, TILE * number.len())
            .chunks_exact_mut(number.len().max(1))
        {
            place.copy_from_slice(number);
        }
    }

    /// Copies the first `size` numbers of a register into another; both are in their tiles.
    pub(crate) fn copy(&mut self, from: usize, to: usize, size: usize) {
        let (low, high) = self.tiles.split_at_mut(from.max(to));
        let (source, target) = match (low, high) {
            _ if from == to => return,
            (low, [first, ..]) if from < to => (&low[from], first),
            (low, [first, ..]) => (&*first, &mut low[to]),
            _ => return,
        };
        // Numbers take at most the eight bytes of a place.
        let size = size.min(TILE);
        target[..size].copy_from_slice(&source[..size]);
    }

    /// The first bytes of a register's tile.
    pub(crate) fn bytes_mut(&mut self, register: usize, len: usize) -> &mut [u8] {
        let tile = &mut self.tiles[register];
        let len = len.min(size_of::<Tile>());
        // SAFETY: a tile is plain numbers, and the length is within it.
        unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast(), len) }
    }
}

/// The operand of a step: `size` numbers.
///
/// # Safety
/// As [`Loop`] says. `T` accepts any bits.
unsafe fn read<'a, T: Copy>(
    places: &'a [*mut u8],
    step: &Step,
    operand: usize,
    size: usize,
) -> &'a [T] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(places[step.from[operand]].cast(), size) }
}

/// Where a step writes `size` numbers.
///
/// # Safety
/// As [`Loop`] says.
// The places are borrowed, and not what is there.
#[allow(clippy::mut_from_ref)]
unsafe fn write<'a, T: Copy>(places: &'a [*mut u8], step: &Step, size: usize) -> &'a mut [T] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts_mut(places[step.to].cast(), size) }
}

trait Map<A, B> {
    fn of(x: A) -> B;
}

trait Zip<A, B> {
    fn of(x: A, y: A) -> B;
}

unsafe fn map<A: Number, B: Number, F: Map<A, B>>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, to) = unsafe {
        (
            read::<A>(places, step, 0, size),
            write::<B>(places, step, size),
        )
    };
    for (to, x) in to.iter_mut().zip(x) {
        *to = F::of(*x);
    }
}

unsafe fn zip<A: Number, B: Number, F: Zip<A, B>>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, y) = unsafe {
        (
            read::<A>(places, step, 0, size),
            read::<A>(places, step, 1, size),
        )
    };
    // SAFETY: as the caller says.
    let to = unsafe { write::<B>(places, step, size) };
    for ((to, x), y) in to.iter_mut().zip(x).zip(y) {
        *to = F::of(*x, *y);
    }
}

unsafe fn select<T: Number>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, y) = unsafe {
        (
            read::<T>(places, step, 1, size),
            read::<T>(places, step, 2, size),
        )
    };
    // SAFETY: as the caller says.
    let (condition, to) = unsafe {
        (
            read::<u8>(places, step, 0, size),
            write::<T>(places, step, size),
        )
    };
    for (((to, condition), x), y) in to.iter_mut().zip(condition).zip(x).zip(y) {
        *to = if *condition != 0 { *x } else { *y };
    }
}

/// A loop over a function of the host's.
///
/// # Safety
/// As [`Loop`] says.
pub(crate) unsafe fn applied<F: Function>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, to) = unsafe {
        (
            read::<F::In>(places, step, 0, size),
            write::<F::Out>(places, step, size),
        )
    };
    for (to, x) in to.iter_mut().zip(x) {
        *to = F::of(*x);
    }
}

/// A loop that changes nothing, for numbers of so many bytes.
fn copy(size: usize) -> Loop {
    unsafe fn copy<T: Copy>(places: &[*mut u8], step: &Step, size: usize) {
        // SAFETY: as the caller says.
        let (x, to) = unsafe {
            (
                read::<T>(places, step, 0, size),
                write::<T>(places, step, size),
            )
        };
        to.copy_from_slice(x);
    }
    match size {
        1 => copy::<u8>,
        2 => copy::<u16>,
        4 => copy::<u32>,
        _ => copy::<u64>,
    }
}

macro_rules! functions {
    ($($name:ident: $bound:ident |$($x:ident),+| -> $out:ident, $body:expr;)*) => {
        $(functions!(@one $name: $bound |$($x),+| -> $out, $body);)*
    };
    (@one $name:ident: $bound:ident |$x:ident| -> same, $body:expr) => {
        struct $name;
        impl<T: $bound> Map<T, T> for $name {
            #[inline]
            fn of($x: T) -> T { $body }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident| -> bool, $body:expr) => {
        struct $name;
        impl<T: $bound> Map<T, u8> for $name {
            #[inline]
            fn of($x: T) -> u8 { ($body).into() }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident, $y:ident| -> same, $body:expr) => {
        struct $name;
        impl<T: $bound> Zip<T, T> for $name {
            #[inline]
            fn of($x: T, $y: T) -> T { $body }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident, $y:ident| -> bool, $body:expr) => {
        struct $name;
        impl<T: $bound> Zip<T, u8> for $name {
            #[inline]
            fn of($x: T, $y: T) -> u8 { ($body).into() }
        }
    };
}

functions! {
    Abs: Number |x| -> same, x.abs();
    Negative: Number |x| -> same, x.negative();
    Sign: Number |x| -> same, x.sign();
    Square: Number |x| -> same, x.multiply(x);
    BitwiseInvert: Whole |x| -> same, x.invert();
    Floor: Fraction |x| -> same, x.floor();
    Ceil: Fraction |x| -> same, x.ceil();
    Sqrt: Fraction |x| -> same, x.sqrt();
    Reciprocal: Fraction |x| -> same, T::ONE.divide(x);
    Isnan: Fraction |x| -> bool, x.is_nan();
    Isinf: Fraction |x| -> bool, x.is_infinite();
    LogicalNot: Number |x| -> bool, x == T::ZERO;
    Add: Number |x, y| -> same, x.add(y);
    Subtract: Number |x, y| -> same, x.subtract(y);
    Multiply: Number |x, y| -> same, x.multiply(y);
    Minimum: Number |x, y| -> same, x.minimum(y);
    Maximum: Number |x, y| -> same, x.maximum(y);
    Equal: Number |x, y| -> bool, x == y;
    NotEqual: Number |x, y| -> bool, x != y;
    Greater: Number |x, y| -> bool, x > y;
    GreaterEqual: Number |x, y| -> bool, x >= y;
    Less: Number |x, y| -> bool, x < y;
    LessEqual: Number |x, y| -> bool, x <= y;
    BitwiseAnd: Whole |x, y| -> same, x.and(y);
    BitwiseOr: Whole |x, y| -> same, x.or(y);
    BitwiseXor: Whole |x, y| -> same, x.xor(y);
    LeftShift: Whole |x, y| -> same, x.left_shift(y);
    RightShift: Whole |x, y| -> same, x.right_shift(y);
    FloorDivide: Whole |x, y| -> same, x.quotient(y);
    Divide: Fraction |x, y| -> same, x.divide(y);
    Power: Fraction |x, y| -> same, x.power(y);
    Arctan2: Fraction |x, y| -> same, x.arctan2(y);
    Remainder: Fraction |x, y| -> same, x.remainder(y);
}

/// An expression for each type of a kind, `None` for the others.
macro_rules! by_type {
    ($kind:ident $dtype:expr, $t:ident => $body:expr) => {
        by_type!(@$kind $dtype, $t, $body)
    };
    (@whole $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Int8 i8, Int16 i16, Int32 i32, Int64 i64)
    };
    (@fraction $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64)
    };
    (@number $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Int8 i8, Int16 i16, Int32 i32, Int64 i64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64)
    };
    (@match $dtype:expr, $t:ident, $body:expr; $($name:ident $ty:ty),*) => {
        match $dtype {
            $(Dtype::$name => { type $t = $ty; Some($body) })*
            _ => None,
        }
    };
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

/// The loop of an operation on operands of these types, and the type of its result.
fn step(op: &Op, types: &[Dtype]) -> Option<(Loop, Dtype)> {
    let (run, dtype) = match (op, types) {
        (Op::Where, [Dtype::Bool, x, y]) if x == y => {
            let run = match x {
                Dtype::Bool => Some(select::<u8> as Loop),
                _ => by_type!(number *x, T => select::<T> as Loop),
            };
            (run, *x)
        }
        (Op::Astype(to), [from]) => (cast(*from, *to), *to),
        (Op::Convert(to), [from]) => {
            let run = by_type!(fraction *from, E => {
                by_type!(whole *to, I => applied::<Converted<E, I>> as Loop)?
            });
            (run, *to)
        }
        (Op::View(to), [from]) if to.size() == from.size() => (Some(copy(to.size())), *to),
        (_, [x]) => one(op, *x)?,
        (_, [x, y]) if x == y => two(op, *x)?,
        _ => return None,
    };
    Some((run?, dtype))
}

type Found = Option<(Option<Loop>, Dtype)>;

fn one(op: &Op, dtype: Dtype) -> Found {
    macro_rules! of {
        ($kind:ident $name:ident) => {
            (by_type!($kind dtype, T => map::<T, T, $name> as Loop), dtype)
        };
        ($kind:ident $name:ident bool) => {
            (by_type!($kind dtype, T => map::<T, u8, $name> as Loop), Dtype::Bool)
        };
    }
    if let Some(function) = op.hosted() {
        return Some((function.tile(dtype), dtype));
    }
    Some(match op {
        Op::LogicalNot if dtype == Dtype::Bool => (Some(map::<u8, u8, LogicalNot>), dtype),
        Op::Abs => of!(number Abs),
        Op::Negative => of!(number Negative),
        Op::Sign => of!(number Sign),
        Op::Square => of!(number Square),
        Op::BitwiseInvert => of!(whole BitwiseInvert),
        Op::Floor => of!(fraction Floor),
        Op::Ceil => of!(fraction Ceil),
        Op::Sqrt => of!(fraction Sqrt),
        Op::Reciprocal => of!(fraction Reciprocal),
        Op::Isnan => of!(fraction Isnan bool),
        Op::Isinf => of!(fraction Isinf bool),
        Op::LogicalNot => of!(number LogicalNot bool),
        _ => return None,
    })
}

fn two(op: &Op, dtype: Dtype) -> Found {
    macro_rules! of {
        ($kind:ident $name:ident) => {
            (by_type!($kind dtype, T => zip::<T, T, $name> as Loop), dtype)
        };
        ($kind:ident $name:ident bool) => {
            (by_type!($kind dtype, T => zip::<T, u8, $name> as Loop), Dtype::Bool)
        };
    }
    if dtype == Dtype::Bool {
        // Of two bools, the lesser is their conjunction.
        let run: Loop = match op {
            Op::LogicalAnd => zip::<u8, u8, Minimum>,
            Op::LogicalOr => zip::<u8, u8, Maximum>,
            Op::Equal => zip::<u8, u8, Equal>,
            Op::NotEqual => zip::<u8, u8, NotEqual>,
            _ => return None,
        };
        return Some((Some(run), dtype));
    }
    Some(match op {
        Op::Add => of!(number Add),
        Op::Subtract => of!(number Subtract),
        Op::Multiply => of!(number Multiply),
        Op::Minimum => of!(number Minimum),
        Op::Maximum => of!(number Maximum),
        Op::Equal => of!(number Equal bool),
        Op::NotEqual => of!(number NotEqual bool),
        Op::Greater => of!(number Greater bool),
        Op::GreaterEqual => of!(number GreaterEqual bool),
        Op::Less => of!(number Less bool),
        Op::LessEqual => of!(number LessEqual bool),
        Op::BitwiseAnd => of!(whole BitwiseAnd),
        Op::BitwiseOr => of!(whole BitwiseOr),
        Op::BitwiseXor => of!(whole BitwiseXor),
        Op::LeftShift => of!(whole LeftShift),
        Op::RightShift => of!(whole RightShift),
        Op::FloorDivide => of!(whole FloorDivide),
        Op::Divide => of!(fraction Divide),
        Op::Power => of!(fraction Power),
        Op::Arctan2 => of!(fraction Arctan2),
        Op::Remainder => of!(fraction Remainder),
        _ => return None,
    })
}

unsafe fn convert<A: Cast, B: Cast>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, to) = unsafe {
        (
            read::<A>(places, step, 0, size),
            write::<B>(places, step, size),
        )
    };
    for (to, x) in to.iter_mut().zip(x) {
        *to = x.cast();
    }
}

struct IsTrue;

impl<T: Number> Map<T, u8> for IsTrue {
    fn of(x: T) -> u8 {
        (x != T::ZERO).into()
    }
}

/// `None` from floats to integers, which C leaves undefined.
fn cast(from: Dtype, to: Dtype) -> Option<Loop> {
    let is_whole = |dtype: Dtype| dtype.is_integer() || dtype == Dtype::Bool;
    match (from, to) {
        _ if from == to => Some(copy(from.size())),
        (_, Dtype::Bool) => by_type!(number from, T => map::<T, u8, IsTrue> as Loop),
        (Dtype::Bool, _) => by_type!(number to, T => convert::<u8, T> as Loop),
        _ if is_whole(from) || !is_whole(to) => {
            by_type!(number from, A => by_type!(number to, B => convert::<A, B> as Loop)?)
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
