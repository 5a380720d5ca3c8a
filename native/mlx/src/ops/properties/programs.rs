//! Programs of any rows, with programs inside of them, some with slots that are not there.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

use super::common::instruction;
use super::{Operand, operands, property, seen, tried};
use crate::error::Result;
use crate::ops::Op;
use crate::program::{Body, Program};
use crate::{Dtype, Instruction};

/// A program to be: its slots are chosen among those that there are by then, but for a few.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    inputs: usize,
    steps: Vec<(Step, Vec<u8>)>,
    outputs: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Plain(Op),
    If(Draft, Draft),
    Repeat(u64, Draft),
    While(Draft, Draft),
    Fold(Draft),
    Fused(Draft),
}

/// The slot that a number chooses.
fn slot(number: u8, slots: usize) -> u32 {
    match number {
        255 => slots as u32,
        254 => u32::MAX,
        _ => number as u32 % slots.max(1) as u32,
    }
}

impl Draft {
    pub(super) fn build(&self) -> Result<Program> {
        self.after(self.inputs, Vec::new())
    }

    /// The program with other instructions first.
    fn after(&self, inputs: usize, mut instructions: Vec<Instruction>) -> Result<Program> {
        let made = instructions.iter().map(|i| i.op.outputs());
        let mut slots = inputs + made.sum::<usize>();
        for (step, numbers) in &self.steps {
            let operands: Vec<u32> = numbers.iter().map(|number| slot(*number, slots)).collect();
            let op = step.op(operands.len())?;
            slots += op.outputs();
            instructions.push(instruction(op, &operands));
        }
        let outputs = self.outputs.iter().map(|number| slot(*number, slots));
        Program::new(inputs, instructions, outputs.collect())
    }

    /// As a part of an operation of so many operands, which it takes, unless it is a wrong one.
    fn body(&self, operands: usize) -> Result<Body> {
        let wrong = self.inputs == WRONG;
        let inputs = operands + usize::from(wrong);
        Ok(Body(Arc::new(self.after(inputs, Vec::new())?)))
    }

    /// With so many outputs at most, and at least so many.
    fn returning(&self, least: usize, most: usize) -> Self {
        let mut other = self.clone();
        other
            .outputs
            .resize(self.outputs.len().clamp(least, most), 0);
        other
    }
}

const WRONG: usize = 4;

impl Step {
    fn op(&self, operands: usize) -> Result<Op> {
        Ok(match self {
            Self::Plain(op) => op.clone(),
            Self::If(then, otherwise) => {
                let made = then.outputs.len();
                let inputs = operands.saturating_sub(1);
                let otherwise = otherwise.returning(made, made);
                Op::If(then.body(inputs)?, otherwise.body(inputs)?)
            }
            Self::Repeat(times, body) => {
                Op::Repeat(*times, body.returning(0, operands).body(operands)?)
            }
            Self::While(condition, body) => {
                let condition = condition.returning(1, 1).body(operands)?;
                Op::While(condition, body.returning(0, operands).body(operands)?)
            }
            Self::Fold(body) => Op::Fold(body.returning(1, 1).body(2)?),
            Self::Fused(body) => Op::Fused(body.body(operands)?),
        })
    }

    fn ends(&self) -> bool {
        matches!(self, Self::Plain(op) if op.bodies().is_empty())
    }
}

/// Rows that nearly always make sense.
fn simple() -> BoxedStrategy<Op> {
    let bytes = |value: f32| super::Bytes(value.to_ne_bytes().to_vec());
    select(vec![
        Op::Add,
        Op::Multiply,
        Op::Negative,
        Op::Exp,
        Op::Less,
        Op::Where,
        Op::LogicalNot,
        Op::Astype(Dtype::Float32),
        Op::Astype(Dtype::Bool),
        Op::Convert(Dtype::Int32),
        Op::SumAxes(vec![], false),
        Op::Constant(Dtype::Float32, bytes(0.0)),
        Op::Constant(Dtype::Float32, bytes(1.5)),
    ])
    .boxed()
}

/// Programs with others inside, so many deep.
pub(super) fn drafts(depth: u32) -> BoxedStrategy<Draft> {
    let numbers = || {
        let number = prop_oneof![60 => 0..100u8, 1 => Just(255), 1 => Just(254)];
        prop_oneof![
            6 => vec(number.clone(), 1..3),
            2 => vec(number.clone(), 3),
            1 => vec(number, 0..7),
        ]
    };
    let draft = move |step: BoxedStrategy<Step>| {
        let steps = vec((step, numbers()), 0..6);
        (0..=WRONG, steps, vec(0..100u8, 0..4))
            .prop_map(|(inputs, steps, outputs)| Draft {
                inputs,
                steps,
                outputs,
            })
            .boxed()
    };
    let plain = || simple().prop_map(Step::Plain);
    if depth == 0 {
        return draft(plain().boxed());
    }
    let inner = || drafts(depth - 1);
    let times = prop_oneof![8 => 0..4u64, 1 => Just(5000), 1 => Just(u64::MAX)];
    draft(
        prop_oneof![
            6 => plain(),
            1 => (inner(), inner()).prop_map(|(one, other)| Step::If(one, other)),
            1 => (times, inner()).prop_map(|(times, body)| Step::Repeat(times, body)),
            1 => (inner(), inner()).prop_map(|(one, other)| Step::While(one, other)),
            1 => inner().prop_map(Step::Fold),
            1 => inner().prop_map(Step::Fused),
        ]
        .boxed(),
    )
}

fn check((draft, operands): (Draft, Vec<Operand>)) -> TestCaseResult {
    let ends = draft.steps.iter().all(|(step, _)| step.ends());
    let mut instructions = Vec::new();
    seen(&operands, &mut instructions);
    match draft.after(operands.len(), instructions) {
        Ok(program) => tried(program, &operands, ends),
        Err(_refused) => Ok(()),
    }
}

#[test]
#[cfg_attr(miri, ignore = "calls MLX")]
fn of_any_rows() {
    let rows = Op::rows().into_iter().map(|(_, op)| op);
    let any = proptest::strategy::Union::new(rows);
    let step = prop_oneof![any, simple()].prop_map(Step::Plain);
    let steps = vec((step, vec(0..100u8, 1..4)), 1..8);
    let drafts = (steps, vec(0..100u8, 0..5)).prop_map(|(steps, outputs)| Draft {
        inputs: 0,
        steps,
        outputs,
    });
    let all = (drafts, operands());
    let name = concat!(module_path!(), "::of_any_rows");
    property(name, 500, &all, check);
}

#[test]
#[cfg_attr(miri, ignore = "calls MLX")]
fn inside_of_each_other() {
    let all = (drafts(3), operands());
    let name = concat!(module_path!(), "::inside_of_each_other");
    property(name, 200, &all, check);
}
