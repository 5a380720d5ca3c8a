//! Results that are handed out before they are computed.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::pointer::Segment;

/// Whether whoever waits for a job still does.
pub type Alive = Arc<dyn Fn() -> bool + Send + Sync>;

/// The place of a result: empty until its worker fills it, once.
///
/// Its jobs come to the worker in the order in which they were posted, so whoever posts a job that
/// reads a promise may count on the job that fills it having run.
#[derive(Default)]
pub struct Promise {
    state: Mutex<State>,
    /// Set where the owner is done with it; no job posted later may use it.
    closed: AtomicBool,
    /// Jobs posted that will read it.
    readers: AtomicUsize,
    /// Jobs posted that will read it if whoever waits for them still does.
    waiting: Mutex<Vec<Alive>>,
    /// Set once its worker has seen that the array is computed: any other may use it then.
    computed: AtomicBool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Pending,
    Ready {
        array: Array,
        /// Copies of it that other processes may read, which go with it.
        segments: Vec<Segment>,
    },
    Failed(Error),
}

impl From<Array> for State {
    fn from(array: Array) -> Self {
        let segments = Vec::new();
        Self::Ready { array, segments }
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, closed) = (&*self.state(), self.is_closed());
        f.debug_struct("Promise")
            .field("state", state)
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}

impl Promise {
    /// One that is filled already, with an array that its worker need not have made: evaluated, so
    /// that any may use it.
    pub fn ready(array: Array) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(array.into()),
            computed: AtomicBool::new(true),
            ..Self::default()
        })
    }

    /// The array, or why there is none.
    pub fn get(&self) -> Result<Array> {
        match &*self.state() {
            State::Ready { array, .. } => Ok(array.clone()),
            State::Failed(error) => Err(error.clone()),
            State::Pending => Err(Error::invalid(
                "promise",
                "it is read before the job that fills it has run",
            )),
        }
    }

    /// Its array as the operand of another worker of the device, if it is known to be computed. It
    /// stays what it is there, whatever becomes of this one.
    pub fn lend(&self) -> Option<Arc<Self>> {
        if !self.computed.load(Ordering::Acquire) {
            return None;
        }
        match &*self.state() {
            State::Ready { array, .. } => Some(Self::ready(array.clone())),
            _ => None,
        }
    }

    /// Takes note of whether the array is computed. For the worker: asking changes what MLX keeps.
    pub(crate) fn note(&self) {
        let computed = match &*self.state() {
            State::Ready { array, .. } => array.is_available(),
            _ => false,
        };
        if computed {
            self.computed.store(true, Ordering::Release);
        }
    }

    /// Fills it in. For the worker.
    pub fn fill(&self, result: Result<Array>) {
        *self.state() = match result {
            Ok(array) => array.into(),
            Err(error) => State::Failed(error),
        };
    }

    /// Holds `replacement`, which has the same elements, in place of its array. For the worker.
    pub(crate) fn replace(&self, replacement: Array) {
        if let State::Ready { array, .. } = &mut *self.state() {
            *array = replacement;
        }
    }

    /// Keeps the segment as long as its array. For the worker.
    pub(crate) fn attach(&self, segment: Segment) {
        if let State::Ready { segments, .. } = &mut *self.state() {
            segments.push(segment);
        }
    }

    /// Gives up the array. For the worker.
    pub fn empty(&self) {
        self.fill(Err(Error::Deallocated));
    }

    /// Marks it as not to be used by any later job, and answers whether it already was.
    pub fn close(&self) -> bool {
        self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether nobody can use it any more, but for jobs already posted.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether neither an owner nor a job posted can still read it, or will.
    pub fn is_abandoned(&self) -> bool {
        // In this order: an owner posts its last job before it is gone, so whoever sees it gone sees
        // the job. The other way round the job may come in between.
        !self.is_held() && self.readers() == 0
    }

    /// Whether an owner can still read it, or somebody who is alive waits for it.
    pub(crate) fn is_held(&self) -> bool {
        !self.is_closed() || self.waiting().iter().any(|alive| alive())
    }

    /// How many jobs will read it, whether or not anybody wants what they make of it.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }

    pub(crate) fn wait(&self, alive: Alive) {
        self.waiting().push(alive);
    }

    pub(crate) fn waited(&self, alive: &Alive) {
        let mut waiting = self.waiting();
        if let Some(index) = waiting.iter().position(|other| Arc::ptr_eq(other, alive)) {
            waiting.swap_remove(index);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Alive>> {
        // A panic while it was held left it whole: every change is one call.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acquire(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        self.readers.fetch_sub(1, Ordering::Release);
    }

    /// Its array, if that is still to be computed.
    pub fn unevaluated(&self) -> Option<Array> {
        match &*self.state() {
            State::Ready { array, .. } if !array.is_available() => Some(array.clone()),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held left it whole: every change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    //! Oracle: who can still read it.
    use super::*;
    use std::thread;

    #[test]
    fn is_abandoned_once_neither_owner_nor_job_can_read_it() {
        let promise = Arc::new(Promise::default());
        assert!(!promise.is_abandoned());
        let alive: Arc<AtomicBool> = Arc::new(AtomicBool::new(true));
        let waits: Alive = {
            let alive = alive.clone();
            Arc::new(move || alive.load(Ordering::SeqCst))
        };
        promise.acquire();
        promise.wait(waits.clone());
        assert!(!promise.close() && promise.close());
        assert!(!promise.is_abandoned());
        let other = promise.clone();
        assert!(thread::spawn(move || other.release()).join().is_ok());
        assert!(!promise.is_abandoned());
        alive.store(false, Ordering::SeqCst);
        assert!(promise.is_abandoned());
        alive.store(true, Ordering::SeqCst);
        promise.waited(&waits);
        assert!(promise.is_abandoned());
    }

    /// The other order of the two looks of `is_abandoned` fails within the first hundreds of rounds.
    #[test]
    fn an_owner_that_posts_a_job_and_goes_is_not_overlooked() {
        let rounds = if cfg!(miri) { 50 } else { 50_000 };
        let promises: Vec<Promise> = (0..rounds).map(|_| Promise::default()).collect();
        let asking = AtomicUsize::new(0);
        let overlooked = thread::scope(|scope| {
            scope.spawn(|| {
                for (round, promise) in promises.iter().enumerate() {
                    while asking.load(Ordering::Acquire) < round {
                        thread::yield_now();
                    }
                    promise.acquire();
                    promise.close();
                }
            });
            let asks = promises.iter().enumerate().filter(|(round, promise)| {
                asking.store(*round, Ordering::Release);
                loop {
                    let closed = promise.is_closed();
                    if promise.is_abandoned() {
                        return true;
                    }
                    if closed {
                        return false;
                    }
                }
            });
            asks.count()
        });
        assert_eq!(overlooked, 0);
    }

    #[test]
    fn a_failure_is_everybody_s() {
        let promise = Arc::new(Promise::default());
        assert!(matches!(promise.get(), Err(Error::InvalidArgument { .. })));
        promise.fill(Err(Error::Stopped));
        let readers = [0; 3].map(|_| {
            let promise = promise.clone();
            thread::spawn(move || promise.get().err())
        });
        for reader in readers {
            assert_eq!(reader.join().ok().flatten(), Some(Error::Stopped));
        }
        assert!(promise.lend().is_none() && promise.unevaluated().is_none());
        promise.empty();
        assert_eq!(promise.get().err(), Some(Error::Deallocated));
    }
}
