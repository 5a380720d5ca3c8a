//! The machine's cores, for loops over many elements.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, Thread};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements, times what is done with each, from which on it is worth asking other cores.
const SHARED: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };

/// Ranges that each core has of a loop, so that none waits long for another that came late.
const RANGES: usize = 8;

/// The other cores' threads, if there are any and they can be had. A pool that rayon makes by itself
/// panics otherwise.
static CORES: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let wanted = std::env::var("RAYON_NUM_THREADS").ok();
    let wanted = wanted.and_then(|count| count.parse().ok());
    let all = wanted.filter(|count: &usize| *count > 0).or_else(|| {
        let cores = thread::available_parallelism().ok()?;
        Some(cores.get())
    });
    let others = all.unwrap_or(1) - 1;
    let name = |index| format!("mlx core {index}");
    let pool = ThreadPoolBuilder::new()
        .num_threads(others)
        .thread_name(name);
    // None would mean as many as there are cores.
    (others > 0).then(|| pool.build().ok()).flatten()
});

/// How many take part in what is shared.
pub(crate) fn count() -> usize {
    1 + CORES.as_ref().map_or(0, ThreadPool::current_num_threads)
}

type Each<'a> = dyn Fn(Range<usize>) + Sync + 'a;

/// A loop that threads take ranges of. Whoever comes once its caller is done finds it closed: the
/// caller waits for those that have begun, and not for the system to give the others a core.
struct Loop {
    each: *const Each<'static>,
    count: usize,
    size: usize,
    next: AtomicUsize,
    /// How many others are at it, and `CLOSED` once nobody may begin.
    others: AtomicUsize,
    panicked: AtomicBool,
    caller: Thread,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

// SAFETY: `each` is shared between threads, which it is made for, and not used once the loop is closed
// and nobody is at it.
unsafe impl Send for Loop {}
// SAFETY: as above.
unsafe impl Sync for Loop {}

impl Loop {
    fn take(&self, each: &Each) {
        loop {
            let first = self.next.fetch_add(self.size, Ordering::Relaxed);
            if first >= self.count {
                return;
            }
            each(first..self.count.min(first + self.size));
        }
    }

    fn help(&self) {
        let begin = |others| (others & CLOSED == 0).then_some(others + 1);
        let begun = self
            .others
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, begin);
        if begun.is_err() {
            return;
        }
        // SAFETY: the caller waits for this thread, so what it lent is there.
        let each = unsafe { &*self.each };
        if catch_unwind(AssertUnwindSafe(|| self.take(each))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        if self.others.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
            self.caller.unpark();
        }
    }

    fn close(&self) {
        self.others.fetch_or(CLOSED, Ordering::Relaxed);
        while self.others.load(Ordering::Acquire) != CLOSED {
            thread::park();
        }
    }
}

/// Has `each` done for all of `0..count`, in ranges of some times `chunk` if other cores take part.
/// `work` is what an element takes, about as much as that many additions.
pub(crate) fn share(count: usize, work: usize, chunk: usize, each: &Each) {
    let is_shared = count > chunk && count.saturating_mul(work) >= SHARED;
    let Some(cores) = is_shared.then(|| CORES.as_ref()).flatten() else {
        return each(0..count);
    };
    let chunks = count.div_ceil(chunk);
    let others = cores.current_num_threads().min(chunks - 1);
    let lent: *const Each = each;
    let shared = Arc::new(Loop {
        // SAFETY: the same pointer; `close` is what keeps it from being used for longer.
        each: unsafe { std::mem::transmute::<*const Each, *const Each<'static>>(lent) },
        count,
        size: chunk * (chunks / (RANGES * (others + 1))).max(1),
        next: AtomicUsize::new(0),
        others: AtomicUsize::new(0),
        panicked: AtomicBool::new(false),
        caller: thread::current(),
    });
    for _ in 0..others {
        let shared = Arc::clone(&shared);
        cores.spawn(move || shared.help());
    }
    // This thread begins before any other has woken up.
    let mine = catch_unwind(AssertUnwindSafe(|| shared.take(each)));
    shared.close();
    if let Err(panic) = mine {
        resume_unwind(panic);
    }
    assert!(
        !shared.panicked.load(Ordering::Relaxed),
        "another thread panicked"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_is_done_once_by_whoever_comes() {
        for (count, chunk) in [(1 << 16, 64), ((1 << 17) + 5, 1000), (70_000, 69_999)] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            share(count, 1, chunk, &|range| {
                for place in &seen[range] {
                    place.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(seen.iter().all(|place| place.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn nobody_is_at_it_once_it_is_done() {
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            let mut lent = vec![0_u8; 1 << 16];
            let place = Mutex::new(&mut lent);
            share(1 << 16, 1, 1 << 10, &|range| {
                let mut place = place.lock().unwrap_or_else(|broken| broken.into_inner());
                place[range].fill(1);
            });
            assert!(lent.iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn a_panic_is_the_callers_and_the_threads_go_on() {
        for bad in [0, (1 << 16) - 1] {
            let shared = || {
                share(1 << 16, 1, 1 << 8, &|range| {
                    assert!(!range.contains(&bad), "bad")
                });
            };
            assert!(catch_unwind(AssertUnwindSafe(shared)).is_err());
        }
        share(1 << 16, 1, 1 << 8, &|_| ());
    }
}
