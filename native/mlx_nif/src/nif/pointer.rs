//! Memory that is named to others, and memory that others name.

use mlx::{Array, Dtype, Promise, Result, Shape, Streams, pointer};
use rustler::{Encoder, Env, ResourceArc, Term};

use super::array::{ask, decode_shape, handles, has_pressure, read};
use crate::terms::{ArrayRef, Failure, WorkerRef};

/// Answers `{address, bytes}`. The array stays there until it is freed.
#[rustler::nif]
fn address_async<'a>(env: Env<'a>, reference: Term<'a>, array: ResourceArc<ArrayRef>) -> Term<'a> {
    read(
        env,
        reference,
        &[array],
        |context, inputs| pointer::address(&inputs[0], &context.streams),
        |env, place| place.encode(env),
    )
}

/// Answers `{name, bytes}` of a segment of shared memory, a copy that goes when the array is freed.
#[rustler::nif]
fn share_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    array: ResourceArc<ArrayRef>,
    permissions: u32,
) -> Term<'a> {
    read(
        env,
        reference,
        &[array],
        move |context, inputs| pointer::share(&inputs[0], permissions, &context.streams),
        |env, named| named.encode(env),
    )
}

/// Answers with an array that has a copy of the memory at an address.
#[rustler::nif]
fn from_address_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: ResourceArc<WorkerRef>,
    dtype: Dtype,
    shape: Term<'a>,
    address: u64,
) -> Term<'a> {
    copied(env, reference, worker, shape, move |shape, streams| {
        pointer::from_address(address, shape, dtype, streams)
    })
}

/// Answers with an array that has a copy of shared memory.
#[rustler::nif]
fn from_shared_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: ResourceArc<WorkerRef>,
    dtype: Dtype,
    shape: Term<'a>,
    name: String,
) -> Term<'a> {
    copied(env, reference, worker, shape, move |shape, streams| {
        pointer::from_shared(&name, shape, dtype, streams)
    })
}

/// Posts the making of an array that is a copy. The caller waits for it, for only until then need
/// the memory be there.
fn copied<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: ResourceArc<WorkerRef>,
    shape: Term<'a>,
    copy: impl FnOnce(&Shape, &Streams) -> Result<Array> + Send + 'static,
) -> Term<'a> {
    let shape = match decode_shape("from_pointer", shape) {
        Ok(shape) => shape,
        Err(error) => return Failure(error).encode(env),
    };
    let (at, pid) = (worker.0.clone(), env.pid());
    ask(
        env,
        reference,
        &at,
        move |context| {
            let array = copy(&shape, &context.streams)?;
            context.grow(array.nbytes());
            Ok(array)
        },
        move |env, array| {
            let array = [Promise::ready(array)];
            handles(env, array, &worker.0, has_pressure(&worker.0, pid))
        },
    )
}
