//! What callers post to a worker's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::Array;
use crate::context::Context;
use crate::control::Attendant;
use crate::error::{Error, Result};
use crate::halt;
use crate::program::Program;
use crate::promise::Promise;
use crate::task::{Done, Task};
use crate::thread::{State, caught};
use crate::wanted::Wanted;
use crate::worker::{Input, Inputs, Promises};

pub(crate) type Job = Box<dyn FnOnce(Option<&mut Context>) + Send>;

pub(crate) struct Run {
    pub(crate) program: Arc<Program>,
    pub(crate) inputs: Inputs,
    pub(crate) outputs: Promises,
}

/// A run that its caller attends.
pub(crate) struct Attend {
    pub(crate) number: u64,
    pub(crate) program: Arc<Program>,
    pub(crate) inputs: Inputs,
    pub(crate) attendant: Box<dyn Attendant + Send>,
    pub(crate) done: Done,
}

pub(crate) enum Message {
    Run(Run),
    Attend(Attend),
    Answer(u64, Result<Inputs>),
    Abandon(u64),
    Job { weight: usize, job: Job },
    Release(Arc<Promise>),
    Drop(Array),
    Wake,
}

impl Message {
    /// Instructions, or what takes about as long.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Run(run) => run.program.len().max(1),
            Self::Attend(attend) => attend.program.len().max(1),
            Self::Job { weight, .. } => *weight,
            Self::Answer(..) | Self::Abandon(_) | Self::Release(_) | Self::Drop(_) | Self::Wake => {
                0
            }
        }
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Job { weight: 0, .. }
                | Self::Attend(_)
                | Self::Answer(..)
                | Self::Abandon(_)
                | Self::Wake
        )
    }
}

impl Run {
    fn perform(&self, context: &mut Context, state: &State) -> Result<()> {
        let wanted = Wanted::new(&self.outputs, &state.queue);
        let is_stopped = || state.stopped.load(Ordering::Relaxed);
        let cancelled = || wanted.by_nobody() || is_stopped() || halt::is_halting();
        let arrays = self.inputs.iter().map(Input::get);
        let made = self.program.run(arrays, &context.streams, &cancelled)?;
        context.track(self.program.len(), &made, &self.outputs);
        for (promise, array) in self.outputs.iter().zip(made) {
            promise.fill(Ok(array));
        }
        Ok(())
    }

    pub(crate) fn run(self, context: Option<&mut Context>, state: &State) {
        let done = match context {
            None => Err(Error::Stopped),
            Some(context) => caught(|| self.perform(context, state)),
        };
        if let Err(error) = done {
            // Whatever it was that it gave up.
            let error = match state.stopped.load(Ordering::Relaxed) {
                true => Error::Stopped,
                false => error,
            };
            for promise in &self.outputs {
                promise.fill(Err(error.clone()));
            }
        }
    }
}

impl Attend {
    pub(crate) fn begin(self, context: Option<&mut Context>) {
        let Some(context) = context else {
            return (self.done)(Err(self.program.failure(Error::Stopped)));
        };
        let inputs = self.inputs.iter().map(Input::get).collect();
        let streams = context.streams.clone();
        let task = Task::new(self.program, inputs, streams, self.attendant, self.done);
        context.tasks.insert(self.number, task);
        context.go_on(self.number);
    }
}
