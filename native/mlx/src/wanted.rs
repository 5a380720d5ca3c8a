//! Whether anybody still wants the results of a run.
//!
//! They are wanted while a handle names one of them or somebody waits for it, which is quickly seen.
//! A job in the queue that will read them wants them as well, but only if somebody wants what it
//! makes; and that may be another job in the queue.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::message::Message;
use crate::promise::Promise;
use crate::queue::Queue;

/// How long a run goes on before the queue is looked through for it, and again.
const PATIENCE: Duration = Duration::from_millis(20);
/// Looking takes at most this share of a run's time.
const SHARE: u32 = 20;

/// The results of a run that is under way.
pub(crate) struct Wanted<'a> {
    outputs: &'a [Arc<Promise>],
    queue: &'a Queue<Message>,
    next: Cell<Option<Instant>>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(outputs: &'a [Arc<Promise>], queue: &'a Queue<Message>) -> Self {
        let next = Cell::new(None);
        Self {
            outputs,
            queue,
            next,
        }
    }

    /// Whether the run may be given up.
    pub(crate) fn by_nobody(&self) -> bool {
        if self.outputs.iter().any(|promise| promise.is_held()) {
            return false;
        }
        self.outputs.iter().all(|promise| promise.readers() == 0) || self.by_no_other_run()
    }

    fn by_no_other_run(&self) -> bool {
        let now = Instant::now();
        let Some(next) = self.next.get() else {
            self.next.set(Some(now + PATIENCE));
            return false;
        };
        if now < next {
            return false;
        }
        let nobody = self
            .queue
            .look(|messages| abandoned(self.outputs, messages));
        let pause = PATIENCE.max(now.elapsed() * SHARE);
        self.next.set(Some(Instant::now() + pause));
        nobody
    }
}

/// Whether all that reads the promises is jobs among `messages` whose own results nobody wants.
fn abandoned<'a, M>(promises: &[Arc<Promise>], messages: M) -> bool
where
    M: IntoIterator<Item = &'a Message>,
    M::IntoIter: DoubleEndedIterator,
{
    // How many of a promise's readers count for nothing.
    let mut idle: HashMap<*const Promise, usize> = HashMap::new();
    let mut given_up = HashSet::new();
    let is_wanted = |promise: &Arc<Promise>, idle: &HashMap<*const Promise, usize>| {
        let readers = idle.get(&Arc::as_ptr(promise)).copied().unwrap_or(0);
        promise.is_held() || promise.readers() > readers
    };
    // What reads a result was posted after what makes it.
    for message in messages.into_iter().rev() {
        let inputs = match message {
            Message::Run(run) if !run.outputs.iter().any(|p| is_wanted(p, &idle)) => &run.inputs,
            Message::Attend(attend) if given_up.contains(&attend.number) => &attend.inputs,
            Message::Abandon(number) => {
                given_up.insert(*number);
                continue;
            }
            _ => continue,
        };
        for promise in inputs.iter().filter_map(|input| input.counted()) {
            *idle.entry(Arc::as_ptr(promise)).or_default() += 1;
        }
    }
    !promises.iter().any(|promise| is_wanted(promise, &idle))
}
