//! The end of the process. MLX's statics are destroyed when it exits, whatever threads still use
//! them, and the BEAM may exit at any moment; so the workers are brought to rest first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{memory, pointer};

/// How long an exit waits for work, which cannot be interrupted within an evaluation.
const PATIENCE: Duration = Duration::from_millis(500);

static HALTING: AtomicBool = AtomicBool::new(false);
static AT_WORK: AtomicUsize = AtomicUsize::new(0);

/// Whether the process is about to exit: a worker must not call MLX any more.
pub(crate) fn is_halting() -> bool {
    HALTING.load(Ordering::SeqCst)
}

/// A worker's thread that may call MLX, until it is dropped.
pub(crate) struct AtWork;

impl AtWork {
    /// For the calling thread, once its streams are there.
    ///
    /// Exit handlers run in the reverse order of their registration, and what MLX destroys at exit
    /// is registered when it is first used: by the streams, and by asking the allocator here. So
    /// the handler registered next runs before them; after an earlier worker's, it does nothing.
    pub(crate) fn begin() -> Self {
        memory::active();
        at_exit();
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Brings the workers to rest, and answers whether they are.
fn wait_for_workers(patience: Duration) -> bool {
    HALTING.store(true, Ordering::SeqCst);
    crate::worker::wake_all();
    let started = Instant::now();
    while AT_WORK.load(Ordering::SeqCst) > 0 {
        if started.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Where a handler is told the exit status, an evaluation that takes too long is left behind: the
/// process ends at once with that status, and nothing is destroyed under the evaluation's feet.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn at_exit() {
    use std::os::raw::{c_int, c_void};

    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    extern "C" fn handler(status: c_int, _argument: *mut c_void) {
        let at_rest = wait_for_workers(PATIENCE);
        pointer::remove_segments();
        if !at_rest {
            // SAFETY: flushes what is buffered for output, and ends the process.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(status);
            }
        }
    }

    // SAFETY: the handler takes what it is declared to take, and never unwinds.
    unsafe { on_exit(handler, std::ptr::null_mut()) };
}

/// Elsewhere an exit waits for the evaluation, which is long only for who computes for long.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn at_exit() {
    extern "C" fn handler() {
        wait_for_workers(PATIENCE * 60);
        pointer::remove_segments();
    }

    // SAFETY: a function without arguments, which never unwinds.
    unsafe { libc::atexit(handler) };
}
