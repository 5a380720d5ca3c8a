//! Arrays: made from binaries, read, evaluated, freed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use mlx::{Alive, Array, Dtype, Input, Promise, Result, Shape, Worker};
use rustler::{Atom, Binary, Encoder, Env, LocalPid, OwnedEnv, ResourceArc, Term};

use crate::reply::Caller;
use crate::terms::{ArrayRef, BytesRef, DeviceTerm, Failure, WorkerRef, atoms, reason};

/// The BEAM keeps binaries up to this size on a process's heap, where nothing else may hold them.
const HEAP_BINARY: usize = 64;

/// An array with the binary's bytes. `[array]`, `{:pressure, [array]}`, `:busy` or an error.
#[rustler::nif]
fn from_binary<'a>(
    env: Env<'a>,
    worker: ResourceArc<WorkerRef>,
    dtype: Dtype,
    shape: Term<'a>,
    binary: Term<'a>,
) -> Term<'a> {
    match make(&worker.0, dtype, shape, binary) {
        Ok(Some(array)) => handles(env, [array], &worker.0, has_pressure(&worker.0, env.pid())),
        Ok(None) => atoms::busy().encode(env),
        Err(error) => Failure(error).encode(env),
    }
}

fn make(worker: &Worker, dtype: Dtype, shape: Term, binary: Term) -> Result<Option<Arc<Promise>>> {
    let op = "from_binary";
    let shape = decode_shape(op, shape)?;
    let bytes: Binary = binary
        .decode()
        .map_err(|_| mlx::Error::invalid(op, "the data must be a binary"))?;
    let len = bytes.len();
    Array::check_bytes(len, &shape, dtype)?;
    let promise = if len <= HEAP_BINARY {
        let bytes = bytes.to_vec();
        worker.make(len, move || Array::from_bytes(&bytes, &shape, dtype))
    } else {
        // Holds on to the binary, so that the worker makes the only copy.
        let held = OwnedEnv::new();
        let binary = held.save(binary);
        worker.make(len, move || {
            held.run(|env| match binary.load(env).decode::<Binary>() {
                Ok(bytes) => Array::from_bytes(&bytes, &shape, dtype),
                Err(_) => Err(mlx::Error::invalid(op, "the data must be a binary")),
            })
        })
    };
    Ok(promise.ok())
}

pub(super) fn decode_shape(op: &'static str, shape: Term) -> Result<Shape> {
    shape.decode().map_err(|error| {
        let reason = reason(error).unwrap_or_else(|| format!("{shape:?} is not a shape"));
        mlx::Error::invalid(op, reason)
    })
}

/// Answers with the values as a binary, of at most `limit` elements.
#[rustler::nif]
fn to_binary_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    array: ResourceArc<ArrayRef>,
    limit: Option<usize>,
) -> Term<'a> {
    let worker = array.worker.clone();
    read(
        env,
        reference,
        &[array],
        move |context, inputs| {
            let array = inputs[0].get()?;
            Ok((array.bytes(limit, &context.streams)?, worker))
        },
        |env, (bytes, worker)| {
            if bytes.len() <= HEAP_BINARY {
                // This is the worker's thread, so the array goes here and now.
                let mut copy = rustler::NewBinary::new(env, bytes.len());
                copy.copy_from_slice(&bytes);
                return copy.into();
            }
            let resource = BytesRef::new(bytes, worker);
            resource.make_binary(env, BytesRef::bytes).to_term(env)
        },
    )
}

/// Answers `true` once all of them are computed.
#[rustler::nif]
fn eval_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    arrays: Vec<ResourceArc<ArrayRef>>,
) -> Term<'a> {
    read(
        env,
        reference,
        &arrays,
        |_, inputs| {
            let arrays: Vec<Array> = inputs.iter().map(Input::get).collect::<Result<_>>()?;
            Array::eval_all(&arrays)
        },
        |env, ()| true.encode(env),
    )
}

/// Answers `{type, [size]}`.
#[rustler::nif]
fn describe_async<'a>(env: Env<'a>, reference: Term<'a>, array: ResourceArc<ArrayRef>) -> Term<'a> {
    read(
        env,
        reference,
        &[array],
        |_, inputs| {
            let array = inputs[0].get()?;
            Ok((array.dtype(), array.dims().to_vec()))
        },
        |env, described| described.encode(env),
    )
}

/// Answers with an array of the worker that has the same elements. For arrays of another one.
#[rustler::nif]
fn copy_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    array: ResourceArc<ArrayRef>,
    worker: ResourceArc<WorkerRef>,
) -> Term<'a> {
    let (from, device, pid) = (array.worker.clone(), worker.0.device(), env.pid());
    read(
        env,
        reference,
        &[array],
        move |context, inputs| context.detach(&inputs[0].get()?, device),
        move |env, copy| {
            let copy = [Promise::ready(copy)];
            handles(env, copy, &worker.0, has_pressure(&from, pid))
        },
    )
}

/// The handles of a worker's promises, and whether garbage is worth collecting: `[array]` or
/// `{:pressure, [array]}`.
pub(super) fn handles<'a>(
    env: Env<'a>,
    promises: impl IntoIterator<Item = Arc<Promise>>,
    worker: &Worker,
    pressure: bool,
) -> Term<'a> {
    let arrays: Vec<_> = promises
        .into_iter()
        .map(|promise| ArrayRef::new(promise, worker))
        .collect();
    if pressure {
        (atoms::pressure(), arrays).encode(env)
    } else {
        arrays.encode(env)
    }
}

/// Whether the process is to collect its garbage.
pub(super) fn has_pressure(worker: &Worker, pid: LocalPid) -> bool {
    worker.take_pressure(|| {
        let mut hasher = DefaultHasher::new();
        pid.hash(&mut hasher);
        hasher.finish()
    })
}

/// Posts a job that reads arrays of one worker and answers the caller. `:ok` or an error.
pub(super) fn read<'a, T: 'static>(
    env: Env<'a>,
    reference: Term<'a>,
    arrays: &[ResourceArc<ArrayRef>],
    job: impl FnOnce(&mut mlx::Context, &[Input]) -> Result<T> + Send + 'static,
    encode: impl for<'b> FnOnce(Env<'b>, T) -> Term<'b> + Send + 'static,
) -> Term<'a> {
    let Some(first) = arrays.first() else {
        return Failure(mlx::Error::invalid("eval", "no array was given")).encode(env);
    };
    if arrays
        .iter()
        .any(|array| !array.worker.is_same(&first.worker))
    {
        return Failure(mlx::Error::invalid(
            "eval",
            "the arrays belong to different workers",
        ))
        .encode(env);
    }
    let pid = env.pid();
    let alive: Alive = Arc::new(move || OwnedEnv::new().run(|env| pid.is_alive(env)));
    let inputs = arrays.iter().map(|array| array.waited_for(alive.clone()));
    let inputs: Result<Vec<Input>> = inputs.collect();
    let inputs = match inputs {
        Ok(inputs) => inputs,
        Err(error) => return Failure(error).encode(env),
    };
    ask(
        env,
        reference,
        &first.worker,
        move |context| {
            let done = job(context, &inputs)?;
            inputs.iter().for_each(Input::note);
            Ok(done)
        },
        encode,
    )
}

/// Posts a job that answers the caller. `:ok`.
pub(super) fn ask<'a, T: 'static>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: &Worker,
    job: impl FnOnce(&mut mlx::Context) -> Result<T> + Send + 'static,
    encode: impl for<'b> FnOnce(Env<'b>, T) -> Term<'b> + Send + 'static,
) -> Term<'a> {
    // Its thread may be busy with another worker by now.
    if worker.is_stopped() {
        return Failure(mlx::Error::Stopped).encode(env);
    }
    let caller = Caller::new(env, reference);
    let pid = env.pid();
    worker.call(
        move |context| {
            // Nothing is computed for a process that has died meanwhile.
            if !OwnedEnv::new().run(|env| pid.is_alive(env)) {
                return Err(mlx::Error::Cancelled);
            }
            job(context)
        },
        move |result| caller.reply_with(result, encode),
    );
    atoms::ok().encode(env)
}

/// Frees the array once the jobs already posted are done.
#[rustler::nif]
fn deallocate(array: ResourceArc<ArrayRef>) -> Atom {
    if array.promise.close() {
        return atoms::already_deallocated();
    }
    array.worker.release(array.promise.clone());
    atoms::ok()
}

#[rustler::nif]
fn device(array: ResourceArc<ArrayRef>) -> DeviceTerm {
    DeviceTerm(array.worker.device())
}
