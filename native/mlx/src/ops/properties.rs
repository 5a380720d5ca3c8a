//! Oracle: what the table promises. Any row with any attributes and operands, and any program of
//! such rows, gives values or an error: no panic, no signal, no waiting for ever, and no more memory
//! than the limit allows. Each row has a test of its own, which the table makes.
//!
//! A test's cases run in a process of their own, so that one that ends it is found, and made as
//! small as it goes, like any other. MLX_RANDOM=100 tries a hundred times as many. A failure prints
//! the least case and keeps its seed in `proptest-regressions`, from where it is tried again first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod programs;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use super::{Bytes, Op};
use crate::program::{Body, Instruction, Program};
use crate::{Array, Dtype, Error, Input, Promises, Shape, Worker, memory};
use common::instruction;

/// MLX's limit here, and what is the most for all that a case holds at the same time.
const LIMIT: usize = 16 << 20;
const MOST: usize = 24 * LIMIT;

/// How long a case may take that ends by itself, and one that does not once it is stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a loop is given.
const LOOP: Duration = Duration::from_millis(100);

/// Values of an attribute's type; its name says what would make sense.
pub(super) trait Any: Sized {
    fn any(name: &'static str) -> BoxedStrategy<Self>;
}

const EDGES: &[i32] = &[
    i32::MIN,
    i32::MIN + 1,
    -32,
    31,
    32,
    33,
    65_536,
    1 << 30,
    i32::MAX,
];

fn number() -> BoxedStrategy<i32> {
    prop_oneof![12 => -2..4, 2 => select(EDGES), 1 => any::<i32>()].boxed()
}

fn dims() -> BoxedStrategy<Vec<i64>> {
    prop_oneof![
        12 => vec(1..5i64, 0..4),
        2 => vec(0..3i64, 0..5),
        1 => vec(select(&[1, 1, 1, 2][..]), 29..33),
        1 => vec(select(&[0, 1, 3, 70_000, 2_147_483_647][..]), 1..4),
    ]
    .boxed()
}

fn shape() -> BoxedStrategy<Shape> {
    dims()
        .prop_filter_map("a shape", |dims| Shape::new(dims).ok())
        .boxed()
}

impl Any for i32 {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        number()
    }
}

impl Any for u32 {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        prop_oneof![6 => 0..6u32, 1 => Just(1 << 20), 1 => Just(u32::MAX), 1 => any::<u32>()]
            .boxed()
    }
}

impl Any for u64 {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        prop_oneof![6 => 0..6u64, 1 => Just(u64::MAX), 1 => any::<u64>()].boxed()
    }
}

impl Any for bool {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        any::<bool>().boxed()
    }
}

impl Any for Dtype {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        select(Dtype::ALL).boxed()
    }
}

impl Any for Vec<i32> {
    fn any(name: &'static str) -> BoxedStrategy<Self> {
        let axes = subsequence(vec![0, 1, 2, 3], 0..4).prop_shuffle();
        // Sizes and steps that make sense.
        let small = vec(select(&[0, 1, 1, 1, 2, 2, 3][..]), 0..5);
        let sense = match name.starts_with("axes") {
            true => axes.boxed(),
            false => small.boxed(),
        };
        prop_oneof![
            12 => sense,
            3 => vec(number(), 0..5),
            1 => vec(number(), 30..40),
        ]
        .boxed()
    }
}

impl Any for Vec<i64> {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        let edges = select(&[i64::MIN, i64::MAX, 1 << 32, -(1 << 31)][..]);
        let stride = prop_oneof![12 => -3..6i64, 1 => edges, 1 => any::<i64>()];
        prop_oneof![12 => vec(stride.clone(), 0..5), 1 => vec(stride, 30..34)].boxed()
    }
}

impl Any for Shape {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        shape()
    }
}

impl Any for Bytes {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        let sizes = prop_oneof![select(&[1usize, 2, 4, 8][..]), 0..20usize];
        sizes
            .prop_flat_map(|size| vec(any::<u8>(), size))
            .prop_map(Bytes)
            .boxed()
    }
}

impl Any for Vec<(Dtype, Shape)> {
    fn any(name: &'static str) -> BoxedStrategy<Self> {
        vec((Dtype::any(name), shape()), 0..3).boxed()
    }
}

impl Any for Body {
    fn any(_: &'static str) -> BoxedStrategy<Self> {
        let body = programs::drafts(1).prop_filter_map("a program", |draft| draft.build().ok());
        body.prop_map(|program| Self(Arc::new(program))).boxed()
    }
}

/// Another look at an operand: not row by row, or one element in many places.
#[derive(Debug, Clone, Copy)]
enum View {
    Reversed,
    Flipped,
    Every(i32),
    Spread(i64),
    Overlapping,
}

impl View {
    /// The operation, and the shape that it makes.
    fn op(self, dims: &[i64]) -> (Op, Vec<i64>) {
        let axes = 0..dims.len() as i32;
        let ints = |dims: &[i64]| dims.iter().map(|dim| *dim as i32).collect::<Vec<_>>();
        let shape = |dims: &[i64]| Shape::new(dims.to_vec()).unwrap();
        match self {
            Self::Reversed => {
                let made = dims.iter().rev().copied().collect();
                (Op::TransposeAxes(axes.rev().collect()), made)
            }
            Self::Flipped => (Op::Flip(axes.collect()), dims.to_vec()),
            Self::Every(step) => {
                let made = dims
                    .iter()
                    .map(|dim| (dim + i64::from(step) - 1) / i64::from(step));
                let op = Op::Slice(vec![0; dims.len()], ints(dims), vec![step; dims.len()]);
                (op, made.collect())
            }
            Self::Spread(times) => {
                let made = [&[times], dims].concat();
                (Op::BroadcastTo(shape(&made)), made)
            }
            Self::Overlapping => {
                let made = vec![2, (dims.iter().product::<i64>() - 1).max(0)];
                (Op::AsStrided(shape(&made), vec![1, 1], 0), made)
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Operand {
    dtype: Dtype,
    dims: Vec<i64>,
    /// What the elements' bytes are made of, over and over.
    bytes: Vec<u8>,
    views: Vec<View>,
}

impl Operand {
    fn array(&self) -> crate::Result<Array> {
        let shape = Shape::new(self.dims.clone())?;
        let len = shape.size() * self.dtype.size();
        let mut bytes: Vec<u8> = self.bytes.iter().copied().cycle().take(len).collect();
        if self.dtype == Dtype::Bool {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        Array::from_bytes(&bytes, &shape, self.dtype)
    }
}

/// Operands, most of them alike: else nearly everything would be refused.
pub(super) fn operands() -> BoxedStrategy<Vec<Operand>> {
    let small = prop_oneof![
        8 => vec(1..5i64, 0..4),
        3 => (2..4i64).prop_map(|dim| vec![dim, dim]),
        3 => vec(0..3i64, 0..5),
        1 => vec(select(&[1, 1, 1, 2][..]), 29..33),
    ];
    let dtypes =
        prop_oneof![3 => select(Dtype::ALL), 2 => Just(Dtype::Float32), 1 => Just(Dtype::Int32)];
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..40),
        Just(vec![0]),
        Just(vec![255]),
        Just(vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        Just([0.5f32, -1.0, 3.0, 2.0].map(f32::to_ne_bytes).concat()),
    ];
    let view = select(
        &[
            View::Reversed,
            View::Flipped,
            View::Every(2),
            View::Spread(3),
            View::Overlapping,
        ][..],
    );
    let own = (
        small.clone(),
        dtypes.clone(),
        bytes,
        vec(view, 0..2),
        0..10,
        0..10,
    );
    let count =
        prop_oneof![1 => Just(0usize), 4 => Just(1), 4 => Just(2), 2 => Just(3), 1 => 4..6usize];
    (count, small, dtypes)
        .prop_flat_map(move |(count, dims, dtype)| {
            let own = own
                .clone()
                .prop_map(move |(other, kind, bytes, views, a, b)| Operand {
                    dtype: if a < 7 { dtype } else { kind },
                    dims: if b < 7 { dims.clone() } else { other },
                    bytes,
                    views,
                });
            vec(own, count)
        })
        .boxed()
}

/// Slots 0 and on for the operands, and instructions for what is seen of them; answers where that is.
pub(super) fn seen(operands: &[Operand], instructions: &mut Vec<Instruction>) -> Vec<u32> {
    let mut next = operands.len() as u32;
    let each = operands.iter().enumerate().map(|(index, operand)| {
        let (mut slot, mut dims) = (index as u32, operand.dims.clone());
        for view in &operand.views {
            if dims.len() > 31 || dims.iter().product::<i64>() > 1 << 12 {
                break;
            }
            let (op, made) = view.op(&dims);
            instructions.push(instruction(op, &[slot]));
            (slot, dims, next) = (next, made, next + 1);
        }
        slot
    });
    each.collect()
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

fn worker() -> Worker {
    WORKER.with_borrow_mut(|worker| {
        let worker = worker.get_or_insert_with(common::worker);
        memory::set_limit(LIMIT).unwrap();
        worker.clone()
    })
}

/// Runs the program, reads what it makes, and says what is not as it should be. What may go on for
/// ever is stopped, and must be over then.
pub(super) fn tried(program: Program, operands: &[Operand], ends: bool) -> TestCaseResult {
    let w = worker();
    memory::reset_peak().unwrap();
    let before = memory::active();
    let arrays = operands.iter().cloned();
    let arrays: Vec<_> = arrays
        .map(|operand| w.make(0, move || operand.array()).unwrap())
        .collect();
    let arrays: Vec<_> = arrays.iter().collect();
    let made = w.run(Arc::new(program), common::inputs(&arrays)).unwrap();
    let outcomes = read(&w, made, if ends { PATIENCE } else { LOOP });
    let outcomes = match outcomes {
        Some(outcomes) => outcomes,
        None => {
            return Err(TestCaseError::fail(
                "it goes on for ever, also when it is stopped",
            ));
        }
    };
    for outcome in outcomes {
        match outcome {
            Ok((wanted, found)) => prop_assert_eq!(wanted, found, "bytes of a result"),
            Err(error) => {
                let panicked = matches!(&error, Error::Panic { .. });
                prop_assert!(!panicked, "{}", error);
            }
        }
    }
    let held = memory::peak().saturating_sub(before);
    prop_assert!(held < MOST, "it held {} bytes at the same time", held);
    Ok(())
}

type Sizes = crate::Result<(usize, usize)>;

/// How many bytes each result should have and has.
fn read(w: &Worker, made: Promises, patience: Duration) -> Option<Vec<Sizes>> {
    let inputs: Vec<Input> = made.iter().map(|made| Input::new(made.clone())).collect();
    drop(made);
    let (reply, replied) = channel();
    w.call(
        move |context| {
            let read = |input: &Input| {
                let array = input.get()?;
                let dims = array.dims().iter().map(|dim| *dim as usize);
                let wanted = dims.product::<usize>() * array.dtype().size();
                Ok((wanted, array.bytes(None, &context.streams)?.len()))
            };
            Ok(inputs.iter().map(read).collect::<Vec<Sizes>>())
        },
        move |outcomes| drop(reply.send(outcomes)),
    );
    let outcomes = replied.recv_timeout(patience).or_else(|_| {
        w.stop();
        WORKER.take();
        replied.recv_timeout(PATIENCE)
    });
    // A panic outside of the run, or a worker that was stopped.
    Some(outcomes.ok()?.unwrap_or_else(|error| vec![Err(error)]))
}

/// Runs cases in a process of their own; `name` is the test's own path.
pub(super) fn property<S: Strategy>(
    name: &'static str,
    cases: u64,
    strategy: &S,
    test: impl Fn(S::Value) -> TestCaseResult,
) {
    let config = Config {
        cases: common::count(cases) as u32,
        test_name: Some(name),
        source_file: Some(file!()),
        fork: true,
        // Both waits, and then some: this is for who does not come back from a call.
        timeout: 3 * PATIENCE.as_millis() as u32,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    if let Err(failure) = TestRunner::new(config).run(strategy, test) {
        panic!("{failure}");
    }
}

/// What the test of a row does.
pub(super) fn row(name: &'static str, ops: BoxedStrategy<Op>) {
    property(
        name,
        24,
        &(ops, operands(), any::<bool>()),
        |(op, operands, fuse)| {
            let mut instructions = Vec::new();
            let slots = seen(&operands, &mut instructions);
            let first = (operands.len() + instructions.len()) as u32;
            let outputs = (first..first + op.outputs() as u32).collect();
            let ends = op.bodies().is_empty();
            instructions.push(instruction(op, &slots));
            let new = if fuse { Program::new } else { Program::whole };
            match new(operands.len(), instructions, outputs) {
                Ok(program) => tried(program, &operands, ends),
                Err(_refused) => Ok(()),
            }
        },
    );
}
