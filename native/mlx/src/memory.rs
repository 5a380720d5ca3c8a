//! MLX's memory counters and limits, in bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

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

counters! {
    /// Held by live arrays.
    active = mlx_get_active_memory;
    /// Held for reuse.
    cache = mlx_get_cache_memory;
    /// The most that live arrays held since the last reset.
    peak = mlx_get_peak_memory;
    /// Above this, MLX waits for running work before it allocates.
    limit = mlx_get_memory_limit;
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

/// Sets how much MLX keeps for reuse and answers the limit before.
pub fn set_cache_limit(bytes: usize) -> Result<usize> {
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
