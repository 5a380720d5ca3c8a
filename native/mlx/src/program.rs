//! Programs: instructions over numbered slots, checked once and run many times.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
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
}

#[derive(Debug, PartialEq)]
struct Step {
    instruction: Instruction,
    /// The slots that no later instruction and no output uses.
    dead: SmallVec<[u32; 2]>,
}

/// What the operations of a run have at hand.
pub struct Run<'a> {
    /// Where they run.
    pub streams: &'a Streams,
    /// Whether nobody wants the results any more.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// A program inside of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Body(pub Arc<Program>);

impl Program {
    /// Checks that every operand and output is a slot that exists by then.
    pub fn new(inputs: usize, instructions: Vec<Instruction>, outputs: Vec<u32>) -> Result<Self> {
        let mut slots = inputs;
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
            slots += instruction.op.outputs();
        }
        if let Some(slot) = outputs.iter().find(|s| **s as usize >= slots) {
            return Err(Error::invalid(
                "program",
                format!("it returns slot {slot}, and only {slots} exist"),
            ));
        }
        Ok(Self::with_last_uses(inputs, instructions, outputs, slots))
    }

    fn with_last_uses(
        inputs: usize,
        instructions: Vec<Instruction>,
        outputs: Vec<u32>,
        slots: usize,
    ) -> Self {
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
        let unused = (0..inputs as u32).filter(|s| !used[*s as usize]).collect();
        Self {
            inputs,
            signature: None,
            steps,
            outputs,
            unused,
        }
    }

    /// Has each run check the types and shapes of its inputs.
    #[must_use]
    pub fn with_signature(mut self, signature: Vec<(Dtype, Shape)>) -> Self {
        self.signature = Some(signature);
        self
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

    /// How many instructions it has.
    pub fn len(&self) -> usize {
        self.steps.len()
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
        let run = Run { streams, cancelled };
        if inputs.len() != self.inputs {
            let (wanted, found) = (self.inputs, inputs.len());
            return Err(Error::invalid(
                "program",
                format!("it takes {wanted} arrays, and {found} were given"),
            ));
        }
        let mut slots: Vec<Option<Array>> = Vec::with_capacity(self.inputs + self.steps.len());
        for (index, input) in inputs.enumerate() {
            let input = input?;
            self.check(index, &input)?;
            slots.push(Some(input));
        }
        for &slot in &self.unused {
            slots[slot as usize] = None;
        }
        for step in &self.steps {
            if cancelled() {
                return Err(Error::Cancelled);
            }
            let mut made = Made::new();
            {
                let operands = step.instruction.operands.iter();
                let operands: SmallVec<[&Array; 4]> = operands
                    .filter_map(|s| slots[*s as usize].as_ref())
                    .collect();
                step.instruction.op.eval(&operands, &run, &mut made)?;
            }
            slots.extend(made.into_iter().map(Some));
            for &slot in &step.dead {
                slots[slot as usize] = None;
            }
        }
        let outputs = self.outputs.iter();
        Ok(outputs
            .filter_map(|slot| slots[*slot as usize].clone())
            .collect())
    }
}

#[cfg(feature = "nif")]
mod terms {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::{Body, Instruction, Program};
    use crate::ops::Op;
    use rustler::{Decoder, Error, NifResult, Term};

    /// Programs inside of programs, and so on: decoding recurses, and a file may hold anything.
    const DEEPEST: usize = 16;

    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }

    /// `{inputs, [instruction], [output]}`.
    impl<'a> Decoder<'a> for Body {
        fn decode(term: Term<'a>) -> NifResult<Self> {
            let depth = DEPTH.get();
            if depth == DEEPEST {
                let reason = format!("programs are nested more than {DEEPEST} deep");
                return Err(Error::Term(Box::new(reason)));
            }
            DEPTH.set(depth + 1);
            let decoded = body(term);
            DEPTH.set(depth);
            decoded
        }
    }

    fn body(term: Term) -> NifResult<Body> {
        let (inputs, instructions, outputs): (usize, Vec<Instruction>, Vec<u32>) = term.decode()?;
        let program = Program::new(inputs, instructions, outputs)
            .map_err(|error| Error::Term(Box::new(error.to_string())))?;
        Ok(Body(Arc::new(program)))
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
