//! The machine's cores, for loops over many elements.

use std::ops::Range;
use std::sync::LazyLock;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements, times what is done with each, from which on it is worth asking other cores.
const SHARED: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };

/// The other cores' threads, if they can be had. A pool that rayon makes by itself panics otherwise.
static CORES: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let name = |index| format!("mlx core {index}");
    ThreadPoolBuilder::new().thread_name(name).build().ok()
});

/// How many take part in what is shared.
pub(crate) fn count() -> usize {
    CORES.as_ref().map_or(1, ThreadPool::current_num_threads)
}

/// Has `each` done for all of `0..count`, in ranges of `chunk` if other cores take part. `work` is
/// what an element takes, about as much as that many additions.
// Not generic: rayon's share of the code is large.
pub(crate) fn share(count: usize, work: usize, chunk: usize, each: &(dyn Fn(Range<usize>) + Sync)) {
    let is_shared = count > chunk && count.saturating_mul(work) >= SHARED;
    let Some(cores) = is_shared.then(|| CORES.as_ref()).flatten() else {
        return each(0..count);
    };
    let chunks = (0..count.div_ceil(chunk)).into_par_iter();
    cores.install(|| {
        chunks.for_each(|index| each(index * chunk..count.min((index + 1) * chunk)));
    });
}
