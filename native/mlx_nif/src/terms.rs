//! Resources, and the terms that core types become.

use std::sync::Arc;

use mlx::{Alive, Bytes, Device, Error, Input, Promise, Worker};
use rustler::{Atom, Decoder, Encoder, Env, NifResult, Resource, ResourceArc, Term};

pub mod atoms {
    rustler::atoms! {
        ok, error, busy, hook, call, scattered, pressure, already_deallocated, cpu, gpu,
    }
}

/// A promise and the worker that fills it.
pub struct ArrayRef {
    pub promise: Arc<Promise>,
    pub worker: Worker,
}

#[rustler::resource_impl]
impl Resource for ArrayRef {}

impl ArrayRef {
    pub fn new(promise: Arc<Promise>, worker: &Worker) -> ResourceArc<Self> {
        let worker = worker.clone();
        ResourceArc::new(Self { promise, worker })
    }

    /// The promise as a job's operand, unless its owner has deallocated it.
    pub fn input(&self) -> mlx::Result<Input> {
        if self.promise.is_closed() {
            return Err(Error::Deallocated);
        }
        Ok(Input::new(self.promise.clone()))
    }

    /// As `input`, for a job that a process waits for.
    pub fn waited_for(&self, alive: Alive) -> mlx::Result<Input> {
        if self.promise.is_closed() {
            return Err(Error::Deallocated);
        }
        Ok(Input::waited_for(self.promise.clone(), alive))
    }

    /// As `input`, for a job of `worker`. Nothing where the array is another one's and on another
    /// device, or not known to be computed.
    pub fn lent(&self, worker: &Worker) -> mlx::Result<Option<Input>> {
        let input = self.input()?;
        if self.worker.is_same(worker) {
            return Ok(Some(input));
        }
        if self.worker.device() != worker.device() {
            return Ok(None);
        }
        Ok(self.promise.lend().map(Input::new))
    }
}

impl Drop for ArrayRef {
    /// Runs on a scheduler: neither waits nor frees, for both are the worker's.
    fn drop(&mut self) {
        self.promise.close();
        self.worker.release(self.promise.clone());
    }
}

/// A worker. The thread outlives this handle as long as arrays of it are held.
pub struct WorkerRef(pub Worker);

#[rustler::resource_impl]
impl Resource for WorkerRef {}

/// The bytes behind a binary that was made without copying.
pub struct BytesRef {
    bytes: Option<Bytes>,
    worker: Worker,
}

#[rustler::resource_impl]
impl Resource for BytesRef {}

impl BytesRef {
    pub fn new(bytes: Bytes, worker: Worker) -> ResourceArc<Self> {
        let bytes = Some(bytes);
        ResourceArc::new(Self { bytes, worker })
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl Drop for BytesRef {
    /// The array goes back to the thread that owns it.
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.worker.discard(bytes.into_array());
        }
    }
}

/// A device as `:cpu` or `{:gpu, index}`.
pub struct DeviceTerm(pub Device);

impl Encoder for DeviceTerm {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self.0 {
            Device::Cpu => atoms::cpu().encode(env),
            Device::Gpu(index) => (atoms::gpu(), index).encode(env),
        }
    }
}

impl<'a> Decoder<'a> for DeviceTerm {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        if let Ok((kind, index)) = term.decode::<(Atom, u32)>()
            && kind == atoms::gpu()
        {
            return Ok(Self(Device::Gpu(index)));
        }
        match term.decode::<Atom>()? {
            kind if kind == atoms::cpu() => Ok(Self(Device::Cpu)),
            _ => Err(rustler::Error::BadArg),
        }
    }
}

/// `{:error, {kind, op, message, operands, label}}`.
pub struct Failure(pub Error);

impl Encoder for Failure {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let kind = atom(env, self.0.kind());
        let op = self.0.op().map(mlx::ops::snake_case);
        let label = self.0.label().map(|label| {
            let mut binary = rustler::NewBinary::new(env, label.len());
            binary.copy_from_slice(label);
            Term::from(binary)
        });
        let described = (kind, op, self.0.to_string(), self.0.operands(), label);
        (atoms::error(), described).encode(env)
    }
}

fn atom<'a>(env: Env<'a>, name: &str) -> Term<'a> {
    match Atom::from_str(env, name) {
        Ok(atom) => atom.encode(env),
        Err(_) => atoms::error().encode(env),
    }
}

/// Why a term was not what a decoder of ours wanted, where the decoder says it.
pub fn reason(error: rustler::Error) -> Option<String> {
    match error {
        rustler::Error::Term(reason) => {
            rustler::OwnedEnv::new().run(|env| reason.encode(env).decode().ok())
        }
        _ => None,
    }
}
