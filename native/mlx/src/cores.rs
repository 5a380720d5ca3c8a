//! The machine's cores, for loops over many elements.

use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements, times what is done with each, from which on it is worth asking other cores.
const SHARED: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };

/// Ranges that each core has of a loop, so that none waits long for another that came late.
const RANGES: usize = 8;

/// The other cores' threads, if there are any and they can be had. A pool that rayon makes by itself
/// panics otherwise.
static CORES: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let others = std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
    let name = |index| format!("mlx core {index}");
    let pool = ThreadPoolBuilder::new()
        .num_threads(others)
        .thread_name(name);
    // None would mean as many as there are cores.
    (others > 0).then(|| pool.build().ok()).flatten()
});

/// Has `each` done for all of `0..count`, in ranges of some times `chunk` if other cores take part.
/// `work` is what an element takes, about as much as that many additions.
// Not generic: rayon's share of the code is large.
pub(crate) fn share(count: usize, work: usize, chunk: usize, each: &(dyn Fn(Range<usize>) + Sync)) {
    let is_shared = count > chunk && count.saturating_mul(work) >= SHARED;
    let Some(cores) = is_shared.then(|| CORES.as_ref()).flatten() else {
        return each(0..count);
    };
    let chunks = count.div_ceil(chunk);
    let others = cores.current_num_threads().min(chunks - 1);
    let size = chunk * (chunks / (RANGES * (others + 1))).max(1);
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let first = next.fetch_add(size, Ordering::Relaxed);
            if first >= count {
                return;
            }
            each(first..count.min(first + size));
        }
    };
    // This thread begins before any other has woken up.
    cores.in_place_scope(|scope| {
        for _ in 0..others {
            scope.spawn(|_| take());
        }
        take();
    });
}
