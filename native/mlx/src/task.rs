//! Runs that somebody attends, between the polls of their worker.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::array::Array;
use crate::control::{self, Answer, Attendant, Attended, Running};
use crate::error::{Error, Result};
use crate::program::{Program, Run};
use crate::stream::Streams;
use crate::thread;
use crate::worker::Promises;

/// What becomes of a task's results.
pub(crate) type Done = Box<dyn FnOnce(Result<Promises>) + Send>;

/// A run that somebody attends, between two polls.
pub(crate) struct Task {
    program: Arc<Program>,
    running: Running<'static>,
    answer: Answer,
    yielded: Rc<Cell<bool>>,
    done: Option<Done>,
}

impl Task {
    pub(crate) fn new(
        program: Arc<Program>,
        inputs: Vec<Result<Array>>,
        streams: Rc<Streams>,
        attendant: Box<dyn Attendant>,
        done: Done,
    ) -> Self {
        let (answer, yielded) = (Answer::default(), Rc::new(Cell::new(false)));
        let attended = Attended {
            attendant,
            answer: answer.clone(),
            yielded: yielded.clone(),
        };
        let whole = program.clone();
        let running = Box::pin(async move {
            let run = Run {
                streams: &streams,
                cancelled: &crate::halt::is_halting,
                attended: Some(&attended),
            };
            let slots = program.slots(inputs.into_iter())?;
            let performed = control::perform(&program, slots, &run).await;
            performed.map_err(|error| program.failure(error))
        });
        Self {
            program: whole,
            running,
            answer,
            yielded,
            done: Some(done),
        }
    }

    /// Hands over what the task waits for.
    pub(crate) fn answer(&self, answer: Result<Vec<Array>>) {
        *self.answer.borrow_mut() = Some(answer);
    }

    /// Whether it gave way to others and can go on.
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded.get()
    }

    /// Goes on until it waits again. Answers its arrays once it is over.
    pub(crate) fn poll(&mut self) -> Option<Result<Vec<Array>>> {
        self.yielded.set(false);
        let mut context = TaskContext::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            self.running.as_mut().poll(&mut context)
        }));
        match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(result)) => Some(result),
            Err(payload) => Some(Err(thread::panicked(payload.as_ref() as &(dyn Any + Send)))),
        }
    }

    /// Tells its caller how it ended.
    pub(crate) fn finish(mut self, result: Result<Promises>) {
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl Drop for Task {
    /// Every caller is answered, also of a task that was stopped in the middle.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(self.program.failure(Error::Stopped)));
        }
    }
}
