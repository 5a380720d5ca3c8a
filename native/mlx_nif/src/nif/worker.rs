//! Workers, and what MLX says of the machine.

use mlx::Worker;
use rustler::{Encoder, Env, ResourceArc, Term};

use crate::reply::Caller;
use crate::terms::{ArrayRef, DeviceTerm, Failure, WorkerRef, atoms};

/// Starts a worker: answers it at once, and later the reference with `true` or an error.
#[rustler::nif]
fn worker_start_async<'a>(env: Env<'a>, reference: Term<'a>, device: DeviceTerm) -> Term<'a> {
    let caller = Caller::new(env, reference);
    match Worker::start(device.0, move |ready| caller.reply(ready.map(|()| true))) {
        Ok(worker) => (atoms::ok(), ResourceArc::new(WorkerRef(worker))).encode(env),
        Err(error) => Failure(error).encode(env),
    }
}

/// Answers `true` after the jobs already posted.
#[rustler::nif]
fn worker_sync_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: ResourceArc<WorkerRef>,
) -> Term<'a> {
    if worker.0.is_stopped() {
        return Failure(mlx::Error::Stopped).encode(env);
    }
    let caller = Caller::new(env, reference);
    worker.0.call(
        |context| {
            context.settle();
            Ok(true)
        },
        move |done| caller.reply(done),
    );
    atoms::ok().encode(env)
}

/// Answers all queued and later jobs of the worker `:stopped`.
#[rustler::nif]
fn worker_stop(worker: ResourceArc<WorkerRef>) -> bool {
    worker.0.stop();
    true
}

/// Whether `worker_stop` was called.
#[rustler::nif]
fn worker_stopped(worker: ResourceArc<WorkerRef>) -> bool {
    worker.0.is_stopped()
}

/// The worker that an array belongs to.
#[rustler::nif]
fn worker_of(array: ResourceArc<ArrayRef>) -> ResourceArc<WorkerRef> {
    ResourceArc::new(WorkerRef(array.worker.clone()))
}

/// The device of a worker.
#[rustler::nif]
fn worker_device(worker: ResourceArc<WorkerRef>) -> DeviceTerm {
    DeviceTerm(worker.0.device())
}

/// Whether the array belongs to the worker.
#[rustler::nif]
fn worker_owns(worker: ResourceArc<WorkerRef>, array: ResourceArc<ArrayRef>) -> bool {
    array.worker.is_same(&worker.0)
}

/// Panics inside a job, and answers as every job that panics does. For tests.
#[rustler::nif]
#[allow(clippy::panic)]
fn worker_panic_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: ResourceArc<WorkerRef>,
) -> Term<'a> {
    let caller = Caller::new(env, reference);
    worker.0.call(
        |_| -> mlx::Result<bool> { panic!("provoked") },
        move |done| caller.reply(done),
    );
    atoms::ok().encode(env)
}

/// How many GPUs MLX can use. The first call may start the GPU's runtime.
#[rustler::nif(schedule = "DirtyIo")]
fn gpu_count() -> u32 {
    mlx::Device::gpu_count()
}

/// The versions of the headers and of the library, and the file that serves BLAS.
#[rustler::nif]
fn versions() -> (&'static str, String, String) {
    (
        mlx::version::HEADERS,
        mlx::version::library(),
        mlx::version::blas(),
    )
}
