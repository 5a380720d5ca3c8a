//! MLX's memory counters and limits, in bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx_ffi as ffi;

use crate::error::{Result, check};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $call:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name() -> usize {
                let mut bytes = 0;
                // SAFETY: writes to one live place.
                unsafe { ffi::$call(&mut bytes) };
                bytes
            }
        )*
    };
}

/// Held by live arrays.
pub fn active() -> usize {
    // SAFETY: takes nothing.
    counted().saturating_sub(unsafe { ffi::mlx_ffi_missing_memory() })
}

counters! {
    /// As MLX counts it: with what could not be had.
    counted = mlx_get_active_memory;
    /// Held for reuse.
    cache = mlx_get_cache_memory;
    /// The most that live arrays held since the last reset.
    peak = mlx_get_peak_memory;
    /// What live arrays may hold: beyond it, a worker is refused memory.
    limit = mlx_get_memory_limit;
}

/// Holds what the calling thread allocates to the limit.
pub(crate) fn limit_thread() {
    // SAFETY: takes nothing.
    unsafe { ffi::mlx_ffi_limit_thread() }
}

/// A copy of the limit: it is compared with each result's size, and asking MLX takes a lock.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The largest array that may be made.
pub fn largest_array() -> usize {
    match LARGEST.load(Ordering::Relaxed) {
        0 => {
            let bytes = limit();
            LARGEST.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Sets the memory limit and answers the one before.
pub fn set_limit(bytes: usize) -> Result<usize> {
    let mut before = 0;
    // SAFETY: writes to one live place.
    let status = unsafe { ffi::mlx_set_memory_limit(&mut before, bytes) };
    check(status, "memory")?;
    LARGEST.store(bytes.max(1), Ordering::Relaxed);
    Ok(before)
}

/// Sets how much MLX keeps for reuse and answers the limit before. Waits for what is being computed.
pub fn set_cache_limit(bytes: usize) -> Result<usize> {
    let mut known = cache_limit_known();
    let before = replace_cache_limit(bytes)?;
    *known = Some(bytes);
    Ok(before)
}

/// How much MLX keeps for reuse at most. Waits for what is being computed, the first time.
pub fn cache_limit() -> Result<usize> {
    let mut known = cache_limit_known();
    if let Some(bytes) = *known {
        return Ok(bytes);
    }
    // MLX tells it only in exchange for another one; this one has nothing freed.
    let bytes = replace_cache_limit(usize::MAX)?;
    replace_cache_limit(bytes)?;
    *known = Some(bytes);
    Ok(bytes)
}

fn cache_limit_known() -> MutexGuard<'static, Option<usize>> {
    static KNOWN: Mutex<Option<usize>> = Mutex::new(None);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn replace_cache_limit(bytes: usize) -> Result<usize> {
    let mut before = 0;
    // SAFETY: writes to one live place.
    let status = unsafe { ffi::mlx_set_cache_limit(&mut before, bytes) };
    check(status, "memory")?;
    Ok(before)
}

/// Gives what is kept for reuse back to the system.
pub fn clear_cache() -> Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { ffi::mlx_clear_cache() }, "memory")
}

/// Starts the peak anew.
pub fn reset_peak() -> Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { ffi::mlx_reset_peak_memory() }, "memory")
}
