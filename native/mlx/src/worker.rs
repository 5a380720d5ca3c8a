//! Workers: threads that own an MLX stream and do whatever touches it.
//!
//! MLX keeps streams per thread, so what a worker builds only that worker can evaluate. Callers
//! post jobs and go on; a job that reads is answered through a function of the caller's, exactly
//! once: also when the job panics, and when the worker was stopped before the job's turn came.
//!
//! The thread ends when the last [`Worker`] handle is gone, and never before: arrays are dropped
//! on it even after a stop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use smallvec::SmallVec;

use crate::array::Array;
use crate::context::Context;
use crate::control::Attendant;
use crate::error::{Error, Result};
use crate::halt::{self, AtWork};
use crate::pointer::Segment;
use crate::program::Program;
use crate::promise::Promise;
use crate::queue::{Next, Queue};
use crate::stream::{Device, Streams};
use crate::task::{Done, Task};
use crate::version;

/// MLX walks deep graphs recursively in places.
const STACK: usize = 64 << 20;
/// Queued instructions beyond which a caller is asked to wait.
const QUEUE_LIMIT: usize = 16_384;

/// The queue has reached its limit: wait with [`Worker::call`] and post again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

type Job = Box<dyn FnOnce(Option<&mut Context>) + Send>;

/// The operands of a run. A few need no memory of their own: eager operations have a few.
pub type Inputs = SmallVec<[Input; 4]>;
/// The results of a run.
pub type Promises = SmallVec<[Arc<Promise>; 1]>;

struct Run {
    program: Arc<Program>,
    inputs: Inputs,
    outputs: Promises,
}

/// A run that its caller attends.
struct Attend {
    number: u64,
    program: Arc<Program>,
    inputs: Inputs,
    attendant: Box<dyn Attendant + Send>,
    done: Done,
}

enum Message {
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
    fn weight(&self) -> usize {
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
    fn is_urgent(&self) -> bool {
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
    fn perform(&self, context: &mut Context) -> Result<()> {
        let unwanted = || self.outputs.iter().all(|promise| promise.is_abandoned());
        let cancelled = || unwanted() || halt::is_halting();
        let arrays = self.inputs.iter().map(Input::get);
        let made = self.program.run(arrays, &context.streams, &cancelled)?;
        context.track(self.program.len(), &made, &self.outputs);
        for (promise, array) in self.outputs.iter().zip(made) {
            promise.fill(Ok(array));
        }
        Ok(())
    }

    fn run(self, context: Option<&mut Context>) {
        let done = match context {
            None => Err(Error::Stopped),
            Some(context) => caught(|| self.perform(context)),
        };
        if let Err(error) = done {
            for promise in &self.outputs {
                promise.fill(Err(error.clone()));
            }
        }
    }
}

impl Attend {
    fn begin(self, context: Option<&mut Context>) {
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

struct State {
    device: Device,
    queue: Queue<Message>,
    /// Instructions posted and not yet done.
    queued: AtomicUsize,
    stopped: AtomicBool,
    pressure: Arc<AtomicBool>,
}

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
pub struct Input(Arc<Promise>);

impl Input {
    /// Announces that a job will read `promise`.
    pub fn new(promise: Arc<Promise>) -> Self {
        promise.acquire();
        Self(promise)
    }

    /// The array, once the job's turn has come.
    pub fn get(&self) -> Result<Array> {
        self.0.get()
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
        self.0.release();
    }
}

impl Worker {
    /// Starts the thread. `ready` is told once its stream is there, or why it is not; in the
    /// latter case the worker answers like a stopped one.
    pub fn start(
        device: Device,
        ready: impl FnOnce(Result<()>) + Send + 'static,
    ) -> std::io::Result<Self> {
        version::prepare();
        let state = Arc::new(State {
            device,
            queue: Queue::new(),
            queued: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            pressure: Arc::default(),
        });
        register(&state);
        let shared = state.clone();
        thread::Builder::new()
            .name(format!("mlx {device:?}").to_lowercase())
            .stack_size(STACK)
            .spawn(move || {
                shared.queue.receive_here();
                let streams = Streams::new(device);
                let at_work = AtWork::begin();
                let mut context = match streams {
                    Ok(streams) => {
                        ready(Ok(()));
                        Some(Context::new(streams, shared.pressure.clone()))
                    }
                    Err(error) => {
                        shared.stopped.store(true, Ordering::Release);
                        ready(Err(error));
                        None
                    }
                };
                work(&shared, &mut context);
                if halt::is_halting() {
                    // Neither its arrays nor its streams are freed: that would call MLX.
                    if let Some(context) = &context {
                        context.streams.synchronize();
                    }
                    drop(at_work);
                    loop {
                        thread::park();
                    }
                }
            })?;
        Ok(Self(Arc::new(Handle(state))))
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
    /// Answers true to one caller only.
    pub fn take_pressure(&self) -> bool {
        self.state().pressure.load(Ordering::Relaxed)
            && self.state().pressure.swap(false, Ordering::Relaxed)
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
        let result = promise.clone();
        self.post(
            1 + bytes / (1 << 16),
            move |context| {
                let made = make()?;
                context.grow(made.nbytes());
                Ok(made)
            },
            move |made| result.fill(made),
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

fn work(state: &State, context: &mut Option<Context>) {
    let mut naps = 0;
    while !halt::is_halting() {
        let yielded = context.as_ref().map(Context::yielded).unwrap_or_default();
        let message = if yielded.is_empty() {
            match state.queue.next(&mut naps) {
                Next::Item(message) => message,
                Next::Idle => {
                    if let Some(context) = context {
                        context.idle();
                    }
                    continue;
                }
                Next::Closed => return,
            }
        } else {
            // One message, and then whoever gave way for it.
            if let Some(context) = context {
                for number in yielded {
                    context.go_on(number);
                }
            }
            match state.queue.try_next() {
                Some(message) => message,
                None => continue,
            }
        };
        if state.stopped.load(Ordering::Acquire) {
            // Frees what the stream holds; what handles still name goes with them.
            *context = None;
        }
        let weight = message.weight();
        match message {
            Message::Run(run) => run.run(context.as_mut()),
            Message::Attend(attend) => attend.begin(context.as_mut()),
            Message::Answer(number, answer) => {
                if let Some(context) = context {
                    let answer = answer.and_then(|inputs| inputs.iter().map(Input::get).collect());
                    if let Some(task) = context.tasks.get(&number) {
                        task.answer(answer);
                    }
                    context.go_on(number);
                }
            }
            Message::Abandon(number) => {
                if let Some(task) = context.as_mut().and_then(|c| c.tasks.remove(&number)) {
                    task.finish(Err(Error::Cancelled));
                }
            }
            // What panics here is a reply; the job it answers has been caught before.
            Message::Job { job, .. } => {
                let _ = catch_unwind(AssertUnwindSafe(|| job(context.as_mut())));
            }
            Message::Release(promise) => promise.empty(),
            Message::Drop(array) => drop(array),
            Message::Wake => (),
        }
        state.queued.fetch_sub(weight, Ordering::Relaxed);
    }
}

/// What `job` answers, or its panic as an error.
fn caught<T>(job: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
}

pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Error {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::Panic { message }
}
