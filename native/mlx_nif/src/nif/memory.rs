//! Memory counters and limits, in bytes.

use mlx::memory;
use rustler::{Encoder, Env, Term};

use crate::terms::{Failure, atoms};

/// `{active, cache, peak, limit}`.
#[rustler::nif]
fn memory() -> (usize, usize, usize, usize) {
    (
        memory::active(),
        memory::cache(),
        memory::peak(),
        memory::limit(),
    )
}

#[rustler::nif]
fn memory_set_limit(env: Env, bytes: usize) -> Term {
    answer(env, memory::set_limit(bytes))
}

/// Waits for what is being computed, the first time.
#[rustler::nif(schedule = "DirtyIo")]
fn memory_cache_limit(env: Env) -> Term {
    answer(env, memory::cache_limit())
}

/// Waits for what is being computed, as clearing does.
#[rustler::nif(schedule = "DirtyIo")]
fn memory_set_cache_limit(env: Env, bytes: usize) -> Term {
    answer(env, memory::set_cache_limit(bytes))
}

#[rustler::nif(schedule = "DirtyIo")]
fn memory_clear_cache(env: Env) -> Term {
    answer(env, memory::clear_cache().map(|()| true))
}

#[rustler::nif]
fn memory_reset_peak(env: Env) -> Term {
    answer(env, memory::reset_peak().map(|()| true))
}

fn answer<T: Encoder>(env: Env, result: mlx::Result<T>) -> Term {
    match result {
        Ok(value) => (atoms::ok(), value).encode(env),
        Err(error) => Failure(error).encode(env),
    }
}
