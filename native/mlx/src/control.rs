//! Control flow: operations that hold programs, and those that wait for the caller.
//!
//! A run is a future that the worker polls. It is pending while it waits for an answer of the
//! caller's, and now and then within a loop, so that the worker can serve others; what it holds
//! stays in it. Runs that nobody attends are finished at once, for later jobs count on their
//! results.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::looped::{Looped, Until};
use crate::ops::Op;
use crate::program::{Program, Run, Slots};
use crate::promise::Promise;
use crate::shape::Shape;
use crate::worker::Promises;

/// Instructions in a counted loop after which its values are computed: a graph must not grow with
/// the number of iterations.
const LOOP_OPS: usize = 512;

/// Whoever a run reports to. `false`: nobody is there any more.
pub trait Attendant {
    /// Hands over what a hook is called with, computed.
    fn hook(&self, id: u32, values: Promises) -> bool;
    /// Asks for an answer, which comes as `Worker::answer`.
    fn call(&self, id: u32, values: Promises) -> bool;
}

pub(crate) type Answer = Rc<RefCell<Option<Result<Vec<Array>>>>>;

/// The attendant of a run, and the answer to its last question.
pub(crate) struct Attended {
    pub(crate) attendant: Box<dyn Attendant>,
    pub(crate) answer: Answer,
    pub(crate) yielded: Rc<Cell<bool>>,
}

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<Vec<Array>>> + 'a>>;

/// Whether an operation can have so many operands. For those that hold programs.
pub(crate) fn check(op: &Op, operands: usize) -> Result<()> {
    let takes = |body: &crate::program::Body, inputs: usize| body.0.inputs() == inputs;
    let fine = match op {
        Op::If(then, otherwise) => {
            operands > 0
                && takes(then, operands - 1)
                && takes(otherwise, operands - 1)
                && then.0.outputs() == otherwise.0.outputs()
        }
        Op::Fused(body) => takes(body, operands) && body.0.is_flat(),
        Op::Repeat(_, body) => takes(body, operands) && body.0.outputs() <= operands,
        Op::While(condition, body) => {
            takes(condition, operands)
                && condition.0.outputs() == 1
                && takes(body, operands)
                && body.0.outputs() <= operands
        }
        _ => true,
    };
    if fine {
        return Ok(());
    }
    let name = op.name();
    Err(Error::invalid(
        "program",
        format!("{name} has {operands} operands, and programs of other inputs or outputs"),
    ))
}

/// What a row of the op table answers that is not for the table to evaluate.
pub(crate) fn misplaced() -> Result<Array> {
    Err(Error::invalid("", "only a program can hold it"))
}

/// Runs a program to its end. One that would wait for a caller fails: nobody attends it.
pub(crate) fn now(program: &Program, slots: Slots, run: &Run) -> Result<Vec<Array>> {
    if program.is_plain() {
        return program.run_plain(slots, run);
    }
    let mut running = perform(program, slots, run);
    match running
        .as_mut()
        .poll(&mut TaskContext::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result,
        Poll::Pending => Err(unattended()),
    }
}

fn unattended() -> Error {
    Error::invalid("program", "it calls a function, and nobody attends the run")
}

pub(crate) fn perform<'a>(program: &'a Program, mut slots: Slots, run: &'a Run<'a>) -> Running<'a> {
    Box::pin(async move {
        if program.is_plain() {
            return program.run_plain(slots, run);
        }
        for step in program.steps() {
            if !step.instruction.op.is_control() {
                step.perform(&mut slots, run)?;
                continue;
            }
            if (run.cancelled)() {
                return Err(Error::Cancelled);
            }
            let operands = step.take(&mut slots);
            let made = control(&step.instruction.op, operands, run).await?;
            step.put(made.into_iter(), &mut slots);
        }
        Ok(program.collect(&slots))
    })
}

async fn control(op: &Op, operands: Vec<Array>, run: &Run<'_>) -> Result<Vec<Array>> {
    match op {
        Op::If(then, otherwise) => {
            let (predicate, rest) = operands
                .split_first()
                .ok_or_else(|| Error::invalid("if", "it has no predicate"))?;
            let body = if is_true(predicate, run)? {
                then
            } else {
                otherwise
            };
            enter(&body.0, rest.to_vec(), run).await
        }
        Op::While(condition, body) => {
            let mut values = operands;
            let until = Until::Fails(&condition.0);
            if let Some(looped) = Looped::new(&until, &body.0, &values, run) {
                return through(looped?, run).await;
            }
            while let [holds] = &enter(&condition.0, values.clone(), run).await?[..] {
                // Together, so that what both need is computed once.
                let mut all = values[..body.0.outputs()].to_vec();
                all.push(holds.clone());
                Array::eval_all(&all)?;
                drop(all);
                if !is_true(holds, run)? {
                    break;
                }
                values = again(&body.0, values, run).await?;
                give_way(run).await;
            }
            values.truncate(body.0.outputs());
            Ok(values)
        }
        Op::Repeat(times, body) => {
            let mut values = operands;
            if let Some(looped) = Looped::new(&Until::Times(*times), &body.0, &values, run) {
                return through(looped?, run).await;
            }
            let mut pending = 0;
            for _ in 0..*times {
                values = again(&body.0, values, run).await?;
                pending += body.0.len();
                if pending > LOOP_OPS {
                    Array::eval_async(&values)?;
                    pending = 0;
                    give_way(run).await;
                }
            }
            values.truncate(body.0.outputs());
            Ok(values)
        }
        Op::Hook(id) => {
            let attended = run.attended.ok_or_else(unattended)?;
            Array::eval_all(&operands)?;
            if !attended.attendant.hook(*id, promises(operands)) {
                return Err(Error::Cancelled);
            }
            // For whoever reads what the hook before was called with.
            give_way(run).await;
            Ok(Vec::new())
        }
        Op::Call(id, results) => {
            let attended = run.attended.ok_or_else(unattended)?;
            Array::eval_all(&operands)?;
            if !attended.attendant.call(*id, promises(operands)) {
                return Err(Error::Cancelled);
            }
            let answer = poll_fn(|_| match attended.answer.borrow_mut().take() {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            });
            fitting(answer.await?, results)
        }
        _ => misplaced().map(|_| Vec::new()),
    }
}

async fn through(mut looped: Looped, run: &Run<'_>) -> Result<Vec<Array>> {
    while looped.go_on() {
        if (run.cancelled)() {
            return Err(Error::Cancelled);
        }
        give_way(run).await;
    }
    looped.results()
}

async fn enter(program: &Program, inputs: Vec<Array>, run: &Run<'_>) -> Result<Vec<Array>> {
    let slots = program.slots(inputs.into_iter().map(Ok))?;
    perform(program, slots, run).await
}

/// The values of a loop after its body has run once more; what the body does not return stays.
async fn again(body: &Program, mut values: Vec<Array>, run: &Run<'_>) -> Result<Vec<Array>> {
    if (run.cancelled)() {
        return Err(Error::Cancelled);
    }
    let kept = values[body.outputs()..].to_vec();
    // The values are the body's alone now, and it can reuse their buffers.
    let slots = body.slots(std::mem::take(&mut values).into_iter().map(Ok))?;
    values = perform(body, slots, run).await?;
    values.extend(kept);
    Ok(values)
}

fn is_true(predicate: &Array, run: &Run) -> Result<bool> {
    let bytes = predicate.bytes(Some(1), run.streams)?;
    Ok(bytes.iter().any(|byte| *byte != 0))
}

/// Lets the worker serve others, where somebody attends the run.
async fn give_way(run: &Run<'_>) {
    let Some(attended) = run.attended else {
        return;
    };
    let mut yielded = false;
    poll_fn(|_| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        attended.yielded.set(true);
        Poll::Pending
    })
    .await;
}

/// The caller's answer, if it has the types and shapes that were announced.
fn fitting(answer: Vec<Array>, wanted: &[(Dtype, Shape)]) -> Result<Vec<Array>> {
    let fits = |(array, (dtype, shape)): (&Array, &(Dtype, Shape))| {
        array.dtype() == *dtype && array.dims() == shape.dims()
    };
    if answer.len() == wanted.len() && answer.iter().zip(wanted).all(fits) {
        return Ok(answer);
    }
    Err(Error::invalid(
        "call",
        format!("it answered {answer:?}, and {wanted:?} was announced"),
    ))
}

pub(crate) fn promises(arrays: Vec<Array>) -> Promises {
    let promise = |array| {
        let promise = Promise::default();
        promise.fill(Ok(array));
        Arc::new(promise)
    };
    arrays.into_iter().map(promise).collect()
}
