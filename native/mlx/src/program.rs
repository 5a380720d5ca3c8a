//! Programs: instructions over numbered slots, checked once and run many times.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Array;
use crate::control::{self, Attended};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fuse::{self, plan::Plans};
use crate::ops::{Made, Op};
use crate::shape::Shape;
use crate::stream::Streams;

/// One operation and the slots of its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// What to do.
    pub op: Op,
    /// The slots it is done to.
    pub operands: SmallVec<[u32; 4]>,
}

/// Instructions over slots. The inputs have the first slots; each instruction's results follow in
/// order. A slot is dropped after its last use, so that MLX can reuse its buffer.
#[derive(Debug, PartialEq)]
pub struct Program {
    inputs: usize,
    /// What the inputs must be, where that is to be checked at each run.
    signature: Option<Vec<(Dtype, Shape)>>,
    steps: Vec<Step>,
    outputs: Vec<u32>,
    /// Inputs that nothing uses.
    unused: Vec<u32>,
    /// Whether it runs from its first instruction to its last.
    plain: bool,
    /// How many programs are inside of each other, this one included.
    depth: usize,
    /// How many instructions it was made of.
    len: usize,
    /// Whether its instructions are left as they are.
    whole: bool,
    /// How it is computed, where it is a fused one.
    plans: Plans,
    /// What its maker calls it, which its failures tell.
    label: Option<Arc<[u8]>>,
}

/// A run polls the programs inside of each other, and so needs stack for each.
const DEEPEST: usize = 1024;

/// Beyond so many programs inside of each other, dropping them must not recurse: it happens on
/// whatever thread drops the last handle.
const SHALLOW: usize = 32;

/// An instruction and what ends with it.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) instruction: Instruction,
    /// The slots that no later instruction and no output uses.
    dead: SmallVec<[u32; 2]>,
}

/// What the operations of a run have at hand.
pub struct Run<'a> {
    /// Where they run.
    pub streams: &'a Streams,
    /// Whether nobody wants the results any more.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Who is told of hooks and calls.
    pub(crate) attended: Option<&'a Attended>,
}

/// A program inside of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Body(pub Arc<Program>);

/// A checked program in the hands of Elixir.
#[cfg(feature = "nif")]
pub struct ProgramRef(pub Arc<Program>);

#[cfg(feature = "nif")]
#[rustler::resource_impl]
impl rustler::Resource for ProgramRef {}

impl Program {
    /// Checks that every operand and output is a slot that exists by then, and brings elementwise
    /// instructions together.
    pub fn new(inputs: usize, instructions: Vec<Instruction>, outputs: Vec<u32>) -> Result<Self> {
        let depth = Self::depth(inputs, &instructions, &outputs)?;
        let len = instructions.len();
        let (instructions, outputs) =
            fuse::fuse(inputs, &instructions, &outputs).unwrap_or((instructions, outputs));
        let mut program = Self::with_last_uses(inputs, instructions, outputs);
        (program.depth, program.len) = (depth, len);
        Ok(program)
    }

    /// As `new`, and leaves the instructions as they are.
    pub fn whole(inputs: usize, instructions: Vec<Instruction>, outputs: Vec<u32>) -> Result<Self> {
        let depth = Self::depth(inputs, &instructions, &outputs)?;
        let mut program = Self::with_last_uses(inputs, instructions, outputs);
        (program.depth, program.whole) = (depth, true);
        Ok(program)
    }

    /// How many programs are inside of each other, if all of it fits together.
    fn depth(inputs: usize, instructions: &[Instruction], outputs: &[u32]) -> Result<usize> {
        let mut slots = inputs;
        let mut depth = 1;
        for (index, instruction) in instructions.iter().enumerate() {
            if let Some(slot) = instruction.operands.iter().find(|s| **s as usize >= slots) {
                let name = instruction.op.name();
                return Err(Error::invalid(
                    "program",
                    format!(
                        "instruction {index} ({name}) uses slot {slot}, and only {slots} exist by then"
                    ),
                ));
            }
            control::check(&instruction.op, instruction.operands.len())?;
            for body in instruction.op.bodies() {
                depth = depth.max(body.0.depth + 1);
            }
            slots += instruction.op.outputs();
        }
        if let Some(slot) = outputs.iter().find(|s| **s as usize >= slots) {
            return Err(Error::invalid(
                "program",
                format!("it returns slot {slot}, and only {slots} exist"),
            ));
        }
        if depth > DEEPEST {
            return Err(Error::invalid(
                "program",
                format!(
                    "loops and branches are nested more than {DEEPEST} deep; split the function, or evaluate it operation by operation with `compiler: Nx.Defn.Evaluator`"
                ),
            ));
        }
        Ok(depth)
    }

    fn with_last_uses(inputs: usize, instructions: Vec<Instruction>, outputs: Vec<u32>) -> Self {
        let made = instructions.iter().map(|i| i.op.outputs());
        let slots = inputs + made.sum::<usize>();
        let len = instructions.len();
        let mut used = vec![false; slots];
        for &slot in &outputs {
            used[slot as usize] = true;
        }
        let mut end = slots;
        let mut steps: Vec<Step> = Vec::with_capacity(instructions.len());
        for instruction in instructions.into_iter().rev() {
            let start = end - instruction.op.outputs();
            let own = (start..end).map(|slot| slot as u32);
            let mut dead: SmallVec<[u32; 2]> = own.filter(|slot| !used[*slot as usize]).collect();
            for &slot in &instruction.operands {
                if !std::mem::replace(&mut used[slot as usize], true) {
                    dead.push(slot);
                }
            }
            end = start;
            steps.push(Step { instruction, dead });
        }
        steps.reverse();
        let plain = !steps.iter().any(|step| step.instruction.op.is_control());
        let unused = (0..inputs as u32).filter(|s| !used[*s as usize]).collect();
        Self {
            inputs,
            signature: None,
            steps,
            outputs,
            unused,
            plain,
            depth: 1,
            len,
            whole: false,
            plans: Plans::default(),
            label: None,
        }
    }

    /// Has each run check the types and shapes of its inputs.
    #[must_use]
    pub fn with_signature(mut self, signature: Vec<(Dtype, Shape)>) -> Self {
        self.signature = Some(signature);
        self
    }

    /// Has the failures of its runs name it. The bytes mean something to its maker alone.
    #[must_use]
    pub fn with_label(mut self, label: Arc<[u8]>) -> Self {
        self.label = Some(label);
        self
    }

    /// A failure of this program. An operand's own is not one, and does not come here.
    pub fn failure(&self, error: Error) -> Error {
        error.labelled(self.label.as_ref())
    }

    fn check(&self, index: usize, input: &Array) -> Result<()> {
        let wanted = self
            .signature
            .as_ref()
            .and_then(|signature| signature.get(index));
        match wanted {
            Some((dtype, shape)) if input.dtype() != *dtype || input.dims() != shape.dims() => {
                Err(Error::invalid(
                    "program",
                    format!(
                        "input {index} is a {dtype:?} array of shape {:?}, and a {:?} array of shape {:?} was given",
                        shape.dims(),
                        input.dtype(),
                        input.dims(),
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Its instructions, in order.
    pub(crate) fn instructions(&self) -> impl ExactSizeIterator<Item = &Instruction> {
        self.steps.iter().map(|step| &step.instruction)
    }

    /// The slots that it returns.
    pub(crate) fn results(&self) -> &[u32] {
        &self.outputs
    }

    /// How many arrays it takes.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many arrays it returns.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// How many instructions it was made of.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its instructions are left as they are.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Whether it only hands its inputs on.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds all instructions to MLX's graph and returns the outputs, still to be computed.
    /// Gives up at the next instruction once `cancelled` says so.
    pub fn run(
        &self,
        inputs: impl ExactSizeIterator<Item = Result<Array>>,
        streams: &Streams,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Array>> {
        let attended = None;
        let run = Run {
            streams,
            cancelled,
            attended,
        };
        let slots = self.slots(inputs)?;
        control::now(self, slots, &run).map_err(|error| self.failure(error))
    }

    /// The inputs in their slots.
    pub(crate) fn slots(
        &self,
        inputs: impl ExactSizeIterator<Item = Result<Array>>,
    ) -> Result<Slots> {
        if inputs.len() != self.inputs {
            let (wanted, found) = (self.inputs, inputs.len());
            return Err(Error::invalid(
                "program",
                format!("it takes {wanted} arrays, and {found} were given"),
            ));
        }
        let mut slots: Slots = Vec::with_capacity(self.inputs + self.steps.len());
        for (index, input) in inputs.enumerate() {
            let input = input?;
            self.check(index, &input)
                .map_err(|error| self.failure(error))?;
            slots.push(Some(input));
        }
        for &slot in &self.unused {
            slots[slot as usize] = None;
        }
        Ok(slots)
    }

    /// Whether it runs from its first instruction to its last.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether no program was inside of it.
    pub(crate) fn is_flat(&self) -> bool {
        self.depth == 1
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs a plain program.
    pub(crate) fn run_plain(&self, mut slots: Slots, run: &Run) -> Result<Vec<Array>> {
        for step in &self.steps {
            step.perform(&mut slots, run)?;
        }
        Ok(self.collect(&slots))
    }

    /// The outputs.
    pub(crate) fn collect(&self, slots: &Slots) -> Vec<Array> {
        let outputs = self.outputs.iter();
        outputs
            .filter_map(|slot| slots[*slot as usize].clone())
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.depth <= SHALLOW {
            return;
        }
        let mut steps = std::mem::take(&mut self.steps);
        while let Some(step) = steps.pop() {
            for body in step.instruction.op.into_bodies() {
                if let Some(mut program) = Arc::into_inner(body.0) {
                    steps.append(&mut program.steps);
                }
            }
        }
    }
}

/// The values of a run so far.
pub(crate) type Slots = Vec<Option<Array>>;

impl Step {
    /// Adds a plain instruction to MLX's graph.
    pub(crate) fn perform(&self, slots: &mut Slots, run: &Run) -> Result<()> {
        if (run.cancelled)() {
            return Err(Error::Cancelled);
        }
        let mut made = Made::new();
        {
            let operands = self.instruction.operands.iter();
            let operands: SmallVec<[&Array; 4]> = operands
                .filter_map(|s| slots[*s as usize].as_ref())
                .collect();
            self.instruction.op.eval(&operands, run, &mut made)?;
        }
        self.put(made.into_iter(), slots);
        Ok(())
    }

    /// The operands; those that nothing uses later are taken, so that their buffers can be reused.
    pub(crate) fn take(&self, slots: &mut Slots) -> Vec<Array> {
        let mut operands: Vec<Array> = Vec::with_capacity(self.instruction.operands.len());
        for (index, slot) in self.instruction.operands.iter().enumerate() {
            let again = self.instruction.operands[index + 1..].contains(slot);
            let place = &mut slots[*slot as usize];
            let array = if self.dead.contains(slot) && !again {
                place.take()
            } else {
                place.clone()
            };
            operands.extend(array);
        }
        operands
    }

    /// The results into their slots; what nothing uses any more is dropped.
    pub(crate) fn put(&self, made: impl Iterator<Item = Array>, slots: &mut Slots) {
        slots.extend(made.map(Some));
        for &slot in &self.dead {
            slots[slot as usize] = None;
        }
    }
}

#[cfg(feature = "nif")]
mod terms {
    use super::{Body, Instruction, ProgramRef};
    use crate::ops::Op;
    use rustler::{Decoder, NifResult, ResourceArc, Term};

    /// A program that was built before. Decoding one from its instructions would recurse, on the
    /// small stack of a scheduler and as deep as whoever wrote it likes.
    impl<'a> Decoder<'a> for Body {
        fn decode(term: Term<'a>) -> NifResult<Self> {
            let program: ResourceArc<ProgramRef> = term.decode()?;
            Ok(Self(program.0.clone()))
        }
    }

    /// `{op, [slot]}`.
    impl<'a> Decoder<'a> for Instruction {
        fn decode(term: Term<'a>) -> NifResult<Self> {
            let (op, operands): (Term, Term) = term.decode()?;
            let op: Op = op.decode()?;
            let operands = operands
                .decode::<rustler::ListIterator>()?
                .map(|slot| slot.decode())
                .collect::<NifResult<_>>()?;
            Ok(Self { op, operands })
        }
    }
}
