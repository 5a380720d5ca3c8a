//! Workers: threads that own an MLX stream and do whatever touches it.
//!
//! MLX keeps streams per thread, so what a worker builds only that worker can evaluate. Callers
//! post jobs and go on; a job that reads is answered through a function of the caller's, exactly
//! once: also when the job panics, and when the worker was stopped before the job's turn came.
//!
//! Arrays are dropped on the thread even after a stop, until the last [`Worker`] handle is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use crate::array::Array;
use crate::context::{Context, LAZY_BYTES};
use crate::control::Attendant;
use crate::error::{Error, Result};
use crate::message::{Attend, Job, Message, Run};
use crate::pointer::Segment;
use crate::program::Program;
use crate::promise::{Alive, Promise};
use crate::stream::Device;
use crate::thread::{self, Assignment, State, caught};
use crate::tiles;
use crate::version;

/// Queued instructions beyond which a caller is asked to wait.
const QUEUE_LIMIT: usize = 16_384;

/// What is posted with so many bytes counts as an instruction more: a full queue holds as much as
/// may lie unevaluated.
const BYTES: usize = LAZY_BYTES / QUEUE_LIMIT;

/// The queue has reached its limit: wait with [`Worker::call`] and post again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// The operands of a run. A few need no memory of their own: eager operations have a few.
pub type Inputs = SmallVec<[Input; 4]>;
/// The results of a run.
pub type Promises = SmallVec<[Arc<Promise>; 1]>;

/// Every worker, to be woken when the process exits.
static WORKERS: Mutex<Vec<Weak<State>>> = Mutex::new(Vec::new());

pub(crate) fn wake_all() {
    let workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    for state in workers.iter().filter_map(Weak::upgrade) {
        state.queue.push(Message::Wake, true);
    }
}

fn register(state: &Arc<State>) {
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers.retain(|state| state.strong_count() > 0);
    workers.push(Arc::downgrade(state));
}

/// A handle to a worker's thread.
#[derive(Clone)]
pub struct Worker(Arc<Handle>);

/// What all handles share; the thread goes when it does.
struct Handle(Arc<State>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// A promise that a job will read: while one lives, the promise's own job is not given up.
pub struct Input(Arc<Promise>, Option<Alive>);

impl Input {
    /// Announces that a job will read `promise`.
    pub fn new(promise: Arc<Promise>) -> Self {
        promise.acquire();
        Self(promise, None)
    }

    /// As `new`, for a job that somebody waits for. It counts only as long as he is alive.
    pub fn waited_for(promise: Arc<Promise>, alive: Alive) -> Self {
        promise.wait(alive.clone());
        Self(promise, Some(alive))
    }

    /// The array, once the job's turn has come.
    pub fn get(&self) -> Result<Array> {
        self.0.get()
    }

    /// Takes note of whether the array is computed, for workers that would borrow it. For the worker
    /// that owns it.
    pub fn note(&self) {
        self.0.note();
    }

    /// The promise, if it counts as read as long as this lives.
    pub(crate) fn counted(&self) -> Option<&Arc<Promise>> {
        self.1.is_none().then_some(&self.0)
    }

    pub(crate) fn replace(&self, array: Array) {
        self.0.replace(array);
    }

    pub(crate) fn attach(&self, segment: Segment) {
        self.0.attach(segment);
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        match &self.1 {
            None => self.0.release(),
            Some(alive) => self.0.waited(alive),
        }
    }
}

impl Worker {
    /// Starts the thread. `ready` is told once its stream is there, or why it is not; in the
    /// latter case the worker answers like a stopped one.
    pub fn start(device: Device, ready: impl FnOnce(Result<()>) + Send + 'static) -> Result<Self> {
        version::prepare();
        tiles::share_products();
        let state = Arc::new(State::new(device));
        register(&state);
        let handle = Self(Arc::new(Handle(state.clone())));
        thread::assign(device, Assignment::new(state, ready))?;
        Ok(handle)
    }

    fn state(&self) -> &State {
        &self.0.0
    }

    /// The device it computes on.
    pub fn device(&self) -> Device {
        self.state().device
    }

    /// Whether `other` is a handle to the same thread.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends it for callers: jobs queued and posted from now on are answered [`Error::Stopped`].
    pub fn stop(&self) {
        self.state().stopped.store(true, Ordering::Release);
        self.send(Message::Wake);
    }

    /// Whether [`Worker::stop`] was called, or its stream could not be made.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped.load(Ordering::Acquire)
    }

    /// Whether memory has grown so much since the last time that garbage is worth collecting.
    /// Answers true once to each caller, who is told apart by a number.
    pub fn take_pressure(&self, caller: impl FnOnce() -> u64) -> bool {
        self.state().pressure.take(caller)
    }

    /// Does `job` on the worker and passes its result to `reply`, there.
    /// For callers that wait: their number bounds the queue, and the worker is woken for them.
    pub fn call<T: 'static>(
        &self,
        job: impl FnOnce(&mut Context) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        self.post(0, job, reply);
    }

    /// Runs `program` and hands out its results at once, to be filled in.
    pub fn run(
        &self,
        program: Arc<Program>,
        inputs: Inputs,
    ) -> std::result::Result<Promises, Busy> {
        self.room()?;
        let outputs: Promises = (0..program.outputs()).map(|_| Arc::default()).collect();
        let results = outputs.clone();
        self.send(Message::Run(Run {
            program,
            inputs,
            outputs,
        }));
        Ok(results)
    }

    /// Runs `program` for a caller that attends it, who is told of hooks and calls, and in the end of
    /// the results. Answers the run's number.
    pub fn attend(
        &self,
        program: Arc<Program>,
        inputs: Inputs,
        attendant: impl FnOnce(u64) -> Box<dyn Attendant + Send>,
        done: impl FnOnce(Result<Promises>) + Send + 'static,
    ) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.send(Message::Attend(Attend {
            number,
            program,
            inputs,
            attendant: attendant(number),
            done: Box::new(done),
        }));
        number
    }

    /// Answers the call that the run of this number waits for.
    pub fn answer(&self, number: u64, answer: Result<Inputs>) {
        self.send(Message::Answer(number, answer));
    }

    /// Gives up the run of this number, wherever it is.
    pub fn abandon(&self, number: u64) {
        self.send(Message::Abandon(number));
    }

    /// Makes an array on the worker and hands it out at once. `bytes` is what the job holds.
    pub fn make(
        &self,
        bytes: usize,
        make: impl FnOnce() -> Result<Array> + Send + 'static,
    ) -> std::result::Result<Arc<Promise>, Busy> {
        self.room()?;
        let promise = Arc::new(Promise::default());
        let (result, wanted) = (promise.clone(), promise.clone());
        self.post(
            1 + bytes / BYTES,
            move |context| {
                if wanted.is_abandoned() {
                    return Err(Error::Cancelled);
                }
                let made = make()?;
                context.grow(made.nbytes());
                Ok(made)
            },
            move |made| {
                result.fill(made);
                result.note();
            },
        );
        Ok(promise)
    }

    /// Empties `promise` after the jobs already posted.
    pub fn release(&self, promise: Arc<Promise>) {
        self.send(Message::Release(promise));
    }

    /// Drops `array` on the thread that owns it.
    pub fn discard(&self, array: Array) {
        self.send(Message::Drop(array));
    }

    fn room(&self) -> std::result::Result<(), Busy> {
        if self.state().queued.load(Ordering::Relaxed) < QUEUE_LIMIT {
            Ok(())
        } else {
            Err(Busy)
        }
    }

    fn post<T: 'static>(
        &self,
        weight: usize,
        job: impl FnOnce(&mut Context) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let job: Job = Box::new(move |context| {
            reply(match context {
                None => Err(Error::Stopped),
                Some(context) => caught(|| job(context)),
            });
        });
        self.send(Message::Job { weight, job });
    }

    fn send(&self, message: Message) {
        self.state()
            .queued
            .fetch_add(message.weight(), Ordering::Relaxed);
        let urgent = message.is_urgent();
        self.state().queue.push(message, urgent);
    }
}
