//! The queue between callers and a worker's thread.
//!
//! Waking a thread takes a system call, several times the cost of posting. A job that nobody waits
//! for need not wake a worker that has just been busy: it takes a nap, looks again by itself, and
//! falls asleep only after a while without work. What a caller waits for wakes it at once.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_queue::SegQueue;

/// How long a nap is: the most that a job nobody waits for lies before it is begun.
const NAP: Duration = Duration::from_micros(200);
/// Naps without work after which the worker sleeps until it is woken.
const NAPS: u32 = 25;
/// Looks before a nap, some microseconds: a caller that reads in a loop comes back soon.
const LOOKS: u32 = if cfg!(miri) { 4 } else { 1024 };

const AWAKE: u8 = 0;
const NAPPING: u8 = 1;
const ASLEEP: u8 = 2;

/// A queue with many senders and one receiving thread.
pub(crate) struct Queue<T> {
    items: SegQueue<T>,
    /// What the receiver has looked at and not taken yet: older than all of `items`.
    seen: Mutex<VecDeque<T>>,
    any_seen: AtomicBool,
    state: AtomicU8,
    closed: AtomicBool,
    receiver: OnceLock<Thread>,
}

/// What the receiver finds.
pub(crate) enum Next<T> {
    /// The oldest item.
    Item(T),
    /// Nothing for a nap's time; asked again, it waits on.
    Idle,
    /// Nothing, and nobody can send any more.
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: SegQueue::new(),
            seen: Mutex::default(),
            any_seen: AtomicBool::new(false),
            state: AtomicU8::new(AWAKE),
            closed: AtomicBool::new(false),
            receiver: OnceLock::new(),
        }
    }

    /// Adds an item. `urgent`: somebody waits for it.
    pub(crate) fn push(&self, item: T, urgent: bool) {
        self.items.push(item);
        self.wake(if urgent { NAPPING } else { ASLEEP });
    }

    /// Says that nothing more will be sent.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake(NAPPING);
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Has the receiver woken by all that is sent, for it waits for something else from now on.
    pub(crate) fn leave(&self) {
        self.state.store(ASLEEP, Ordering::SeqCst);
    }

    fn wake(&self, from: u8) {
        // Either this sees the receiver's state, or the receiver sees the item: both write first
        // and then read, with a fence between.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) >= from
            && let Some(thread) = self.receiver.get()
        {
            thread.unpark();
        }
    }

    /// Names the calling thread as the receiver.
    pub(crate) fn receive_here(&self) {
        let _ = self.receiver.set(thread::current());
    }

    /// The next item, if there is one. For the receiver.
    pub(crate) fn try_next(&self) -> Option<T> {
        if self.any_seen.load(Ordering::Relaxed) {
            let mut seen = self.seen();
            let item = seen.pop_front();
            self.any_seen.store(!seen.is_empty(), Ordering::Relaxed);
            if item.is_some() {
                return item;
            }
        }
        self.items.pop()
    }

    /// How many items there are. For the receiver.
    pub(crate) fn len(&self) -> usize {
        self.seen().len() + self.items.len()
    }

    /// Looks at the items that there are, the oldest first, and leaves them. For the receiver.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&VecDeque<T>) -> R) -> R {
        let mut seen = self.seen();
        // No more than there are now: others may send for ever.
        for _ in 0..self.items.len() {
            seen.extend(self.items.pop());
        }
        self.any_seen.store(!seen.is_empty(), Ordering::Relaxed);
        look(&seen)
    }

    fn seen(&self) -> MutexGuard<'_, VecDeque<T>> {
        // A panic while it was held left it whole: every change is one call.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item, waited for. `naps` counts the naps since the last one.
    pub(crate) fn next(&self, naps: &mut u32) -> Next<T> {
        for _ in 0..LOOKS {
            if let Some(item) = self.try_next() {
                *naps = 0;
                return Next::Item(item);
            }
            spin_loop();
        }
        let asleep = *naps >= NAPS;
        self.state
            .store(if asleep { ASLEEP } else { NAPPING }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.items.is_empty() && !self.closed.load(Ordering::Acquire) {
            if asleep {
                thread::park();
            } else {
                thread::park_timeout(NAP);
            }
        }
        self.state.store(AWAKE, Ordering::Relaxed);
        match self.items.pop() {
            Some(item) => {
                *naps = 0;
                Next::Item(item)
            }
            None if self.closed.load(Ordering::Acquire) && self.items.is_empty() => Next::Closed,
            None => {
                *naps = naps.saturating_add(1);
                Next::Idle
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Oracle: what was sent.
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    fn receive(queue: &Queue<(usize, usize)>) -> Vec<(usize, usize)> {
        queue.receive_here();
        let (mut naps, mut found) = (0, Vec::new());
        loop {
            match queue.next(&mut naps) {
                Next::Item(item) => found.push(item),
                Next::Idle => (),
                Next::Closed => return found,
            }
        }
    }

    #[test]
    fn every_item_comes_once_and_each_sender_s_in_order() {
        let (senders, each) = if cfg!(miri) { (3, 20) } else { (4, 20_000) };
        let queue = Arc::new(Queue::new());
        let receiver = {
            let queue = queue.clone();
            thread::spawn(move || receive(&queue))
        };
        let sending: Vec<_> = (0..senders)
            .map(|sender| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for number in 0..each {
                        queue.push((sender, number), number % 3 == 0);
                        if number % 7 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for sender in sending {
            assert!(sender.join().is_ok());
        }
        queue.close();
        let found = receiver.join().unwrap_or_default();
        assert_eq!(found.len(), senders * each);
        for sender in 0..senders {
            let own = found.iter().filter(|(other, _)| *other == sender);
            assert!(own.map(|(_, number)| *number).eq(0..each), "{sender}");
        }
    }

    #[test]
    fn a_sleeper_is_woken_by_anything_and_by_the_end() {
        let queue = Arc::new(Queue::new());
        let receiver = {
            let queue = queue.clone();
            thread::spawn(move || receive(&queue))
        };
        for urgent in [false, true] {
            let started = Instant::now();
            while queue.state.load(Ordering::Relaxed) != ASLEEP {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "it never sleeps"
                );
                thread::yield_now();
            }
            queue.push((0, 0), urgent);
            while queue.len() > 0 {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "it is not woken"
                );
                thread::yield_now();
            }
        }
        queue.close();
        assert_eq!(receiver.join().map(|found| found.len()).ok(), Some(2));
    }
}
