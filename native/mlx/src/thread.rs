//! The threads that do workers' jobs.
//!
//! MLX takes back neither a stream nor what it started for one. So a thread whose worker is gone
//! keeps its streams and waits for the next worker of its device: as many streams exist as were in
//! use at the same time, however many come and go. A worker that was stopped is not in use, whatever
//! handles name what it made.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::halt::{self, AtWork};
use crate::memory;
use crate::message::Message;
use crate::pressure::Pressure;
use crate::queue::{Next, Queue};
use crate::stream::{Device, Streams};
use crate::worker::Input;

/// MLX walks deep graphs recursively in places.
const STACK: usize = 64 << 20;
/// For a device; each is a thread of ours and, on a CPU, one of MLX's.
const MOST_THREADS: usize = 512;

/// Messages after which a thread looks after the workers it had that were stopped, and the longest
/// that it waits for that with nothing else to do.
const MESSAGES: usize = 1024;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What a worker's handles and its thread share.
pub(crate) struct State {
    pub(crate) device: Device,
    pub(crate) queue: Queue<Message>,
    /// Instructions posted and not yet done.
    pub(crate) queued: AtomicUsize,
    pub(crate) stopped: AtomicBool,
    pub(crate) pressure: Arc<Pressure>,
}

impl State {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            queue: Queue::new(),
            queued: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            pressure: Arc::default(),
        }
    }
}

/// A worker that a thread is to serve.
pub(crate) struct Assignment {
    state: Arc<State>,
    ready: Box<dyn FnOnce(Result<()>) + Send>,
}

impl Assignment {
    pub(crate) fn new(state: Arc<State>, ready: impl FnOnce(Result<()>) + Send + 'static) -> Self {
        let ready = Box::new(ready);
        Self { state, ready }
    }
}

/// The threads that there are.
struct Threads {
    /// Those that wait for a worker, the last one to come on top.
    idle: Vec<(Device, Sender<Assignment>)>,
    /// The device of each.
    all: Vec<Device>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    idle: Vec::new(),
    all: Vec::new(),
});

impl Threads {
    fn get() -> MutexGuard<'static, Self> {
        // A panic while it was held left it whole: every change is one call.
        THREADS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&mut self, device: Device) -> Option<Sender<Assignment>> {
        let last = self.idle.iter().rposition(|(other, _)| *other == device)?;
        Some(self.idle.remove(last).1)
    }

    fn begin(&mut self, device: Device) -> Result<()> {
        if self.all.iter().filter(|other| **other == device).count() >= MOST_THREADS {
            return Err(Error::invalid(
                "stream",
                format!("{MOST_THREADS} streams are in use, and more cannot be had"),
            ));
        }
        self.all.push(device);
        Ok(())
    }

    fn end(&mut self, device: Device) {
        if let Some(index) = self.all.iter().position(|other| *other == device) {
            self.all.swap_remove(index);
        }
    }
}

/// Finds a thread for a worker of the device, or starts one.
pub(crate) fn assign(device: Device, mut assignment: Assignment) -> Result<()> {
    loop {
        let mut threads = Threads::get();
        let Some(thread) = threads.take(device) else {
            threads.begin(device)?;
            break;
        };
        match thread.send(assignment) {
            Ok(()) => return Ok(()),
            Err(SendError(unsent)) => assignment = unsent,
        }
    }
    let spawned = thread::Builder::new()
        .name(format!("mlx {device:?}").to_lowercase())
        .stack_size(STACK)
        .spawn(move || {
            live(device, assignment);
            Threads::get().end(device);
        });
    spawned.map(drop).map_err(|error| {
        Threads::get().end(device);
        Error::invalid("stream", format!("a thread cannot be started: {error}"))
    })
}

/// One worker after the other, with the same streams.
fn live(device: Device, first: Assignment) {
    memory::limit_thread();
    let streams = match Streams::new(device) {
        Ok(streams) => Rc::new(streams),
        Err(error) => {
            let Assignment { state, ready } = first;
            state.queue.receive_here();
            state.stopped.store(true, Ordering::Release);
            ready(Err(error));
            return refuse_all(&state);
        }
    };
    let (assign, assigned) = channel();
    let mut stopped = Stopped::default();
    let mut next = Some(first);
    while let Some(Assignment { state, ready }) = next {
        state.queue.receive_here();
        let at_work = AtWork::begin();
        let mut context = Some(Context::new(streams.clone(), state.pressure.clone()));
        ready(Ok(()));
        work(&state, &mut context, &mut stopped);
        if halt::is_halting() {
            // Neither its arrays nor its streams are freed: that would call MLX.
            streams.synchronize();
            drop(at_work);
            loop {
                thread::park();
            }
        }
        drop(context);
        if state.stopped.load(Ordering::Acquire) {
            stopped.add(state);
        }
        // What it began goes on in threads of MLX's and of OpenBLAS's, which no exit may meet there.
        streams.synchronize();
        drop(at_work);
        Threads::get().idle.push((device, assign.clone()));
        next = stopped.wait(&assigned);
    }
}

/// Workers of a thread that were stopped, and that somebody still has handles to: of arrays, which
/// have to be freed, or to post what is to be refused. The thread does that beside its work.
#[derive(Default)]
struct Stopped(Vec<Arc<State>>);

impl Stopped {
    fn add(&mut self, state: Arc<State>) {
        state.queue.leave();
        self.0.push(state);
        self.serve();
    }

    /// Refuses and frees what was posted meanwhile. For a thread that may call MLX.
    fn serve(&mut self) {
        self.0.retain(|state| {
            // Before it is emptied: what was sent before the end is not missed.
            let closed = state.queue.is_closed();
            while let Some(message) = state.queue.try_next() {
                perform(message, &mut None, state);
            }
            !closed
        });
    }

    /// The next worker for the thread.
    fn wait(&mut self, assigned: &Receiver<Assignment>) -> Option<Assignment> {
        let mut pause = Duration::from_millis(1);
        while !self.0.is_empty() {
            match assigned.recv_timeout(pause) {
                Ok(assignment) => return Some(assignment),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => pause = LONGEST_PAUSE.min(2 * pause),
            }
            let at_work = AtWork::begin();
            if !halt::is_halting() {
                self.serve();
            }
            drop(at_work);
        }
        assigned.recv().ok()
    }
}

/// Refuses what is posted until nobody can post any more.
fn refuse_all(state: &State) {
    let mut naps = 0;
    loop {
        match state.queue.next(&mut naps) {
            Next::Item(message) => perform(message, &mut None, state),
            Next::Idle => (),
            Next::Closed => return,
        }
    }
}

/// Does what is posted until nobody can post any more, or the worker is stopped.
fn work(state: &State, context: &mut Option<Context>, stopped: &mut Stopped) {
    let mut naps = 0;
    let mut done: usize = 0;
    // What was posted before a run gave way comes before it goes on: how many that still are.
    let mut ahead = None;
    while !halt::is_halting() && !state.stopped.load(Ordering::Acquire) {
        done += 1;
        if done.is_multiple_of(MESSAGES) {
            stopped.serve();
        }
        let yielded = context.as_ref().map(Context::yielded).unwrap_or_default();
        let message = if yielded.is_empty() {
            ahead = None;
            match state.queue.next(&mut naps) {
                Next::Item(message) => message,
                Next::Idle => {
                    if let Some(context) = context {
                        context.idle();
                    }
                    stopped.serve();
                    continue;
                }
                Next::Closed => return,
            }
        } else {
            let left: usize = ahead.unwrap_or_else(|| state.queue.len());
            let next = if left > 0 {
                state.queue.try_next()
            } else {
                None
            };
            let Some(message) = next else {
                ahead = None;
                if let Some(context) = context {
                    for number in yielded {
                        context.go_on(number);
                    }
                }
                continue;
            };
            ahead = Some(left - 1);
            message
        };
        if state.stopped.load(Ordering::Acquire) {
            // Frees what the stream holds; what handles still name goes with them.
            *context = None;
        }
        perform(message, context, state);
    }
}

fn perform(message: Message, context: &mut Option<Context>, state: &State) {
    let weight = message.weight();
    match message {
        Message::Run(run) => run.run(context.as_mut(), state),
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

/// What `job` answers, or its panic as an error.
pub(crate) fn caught<T>(job: impl FnOnce() -> Result<T>) -> Result<T> {
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
