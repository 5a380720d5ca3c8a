//! What the tests share: a worker, and arrays from and to Rust values.
#![allow(dead_code)]

pub mod draft;

use std::sync::Arc;
use std::sync::mpsc::channel;

use mlx::{
    Array, Context, Device, Dtype, Error, Input, Inputs, Instruction, Op, Program, Promise,
    Promises, Result, Shape, Worker,
};

pub fn worker() -> Worker {
    let (ready, is_ready) = channel();
    let worker = Worker::start(Device::Cpu, move |state| ready.send(state).unwrap()).unwrap();
    is_ready.recv().unwrap().unwrap();
    worker
}

/// Does a job and waits for its result.
pub fn call<T: Send + 'static>(
    worker: &Worker,
    job: impl FnOnce(&mut Context) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (reply, replied) = channel();
    worker.call(job, move |result| reply.send(result).unwrap());
    replied.recv().expect("exactly one reply")
}

pub trait Element: Copy {
    const DTYPE: Dtype;
    /// Appends the bytes: a vector for each of millions takes minutes under a sanitizer.
    fn append_to(self, bytes: &mut Vec<u8>);
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;
            fn append_to(self, bytes: &mut Vec<u8>) { bytes.extend_from_slice(&self.to_ne_bytes()); }
            fn from_bytes(bytes: &[u8]) -> Self { Self::from_ne_bytes(bytes.try_into().unwrap()) }
        }
    )*};
}

elements!(u8 => Uint8, u32 => Uint32, u64 => Uint64, i8 => Int8, i32 => Int32, i64 => Int64, f32 => Float32, f64 => Float64);

pub fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| value.append_to(&mut bytes));
    bytes
}

pub fn array<T: Element>(worker: &Worker, dims: &[i64], values: &[T]) -> Arc<Promise> {
    let bytes = bytes_of(values);
    let shape = Shape::new(dims.to_vec()).unwrap();
    worker
        .make(bytes.len(), move || {
            Array::from_bytes(&bytes, &shape, T::DTYPE)
        })
        .unwrap()
}

pub fn read<T: Element>(worker: &Worker, promise: &Arc<Promise>) -> Result<Vec<T>> {
    let input = Input::new(promise.clone());
    let (dtype, bytes) = call(worker, move |context| {
        let array = input.get()?;
        let dtype = array.dtype();
        Ok((dtype, array.bytes(None, &context.streams)?.to_vec()))
    })?;
    assert_eq!(dtype, T::DTYPE);
    Ok(bytes.chunks(dtype.size()).map(T::from_bytes).collect())
}

pub fn instruction(op: Op, operands: &[u32]) -> Instruction {
    Instruction {
        op,
        operands: operands.iter().copied().collect(),
    }
}

pub fn inputs(promises: &[&Arc<Promise>]) -> Inputs {
    promises.iter().map(|p| Input::new((*p).clone())).collect()
}

/// Runs one operation.
pub fn run(worker: &Worker, op: Op, operands: &[&Arc<Promise>]) -> Promises {
    let slots: Vec<u32> = (0..operands.len() as u32).collect();
    let outputs = op.outputs() as u32;
    let first = operands.len() as u32;
    let program = Program::new(
        operands.len(),
        vec![instruction(op, &slots)],
        (first..first + outputs).collect(),
    )
    .unwrap();
    worker.run(Arc::new(program), inputs(operands)).unwrap()
}

/// Runs one operation and reads its first result.
pub fn value<T: Element>(worker: &Worker, op: Op, operands: &[&Arc<Promise>]) -> Result<Vec<T>> {
    read(worker, &run(worker, op, operands)[0])
}

pub fn failure(worker: &Worker, op: Op, operands: &[&Arc<Promise>]) -> Error {
    let made = run(worker, op, operands);
    let input = Input::new(made[0].clone());
    call(worker, move |_| input.get().and_then(|array| array.eval())).unwrap_err()
}

/// Numbers that look random, the same ones every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// How many random ones a test tries, many more where MLX_RANDOM says so.
pub fn count(few: u64) -> u64 {
    let times = std::env::var("MLX_RANDOM")
        .ok()
        .and_then(|n| n.parse().ok());
    few * times.unwrap_or(1)
}

/// An array's type, shape and elements.
pub type Contents = (Dtype, Vec<i32>, Vec<u8>);

pub fn contents(w: &Worker, made: &Arc<Promise>) -> Result<Contents> {
    let input = Input::new(made.clone());
    call(w, move |context| {
        let array = input.get()?;
        let bytes = array.bytes(None, &context.streams)?.to_vec();
        Ok((array.dtype(), array.dims().to_vec(), bytes))
    })
}

/// Whether they are the same, whichever NaN a NaN is.
pub fn same(a: &Contents, b: &Contents) -> bool {
    let dtype = a.0;
    let nan = |x: &[u8]| match (dtype, x) {
        (Dtype::Float16, &[a, b]) => half::f16::from_ne_bytes([a, b]).is_nan(),
        (Dtype::Bfloat16, &[a, b]) => half::bf16::from_ne_bytes([a, b]).is_nan(),
        (Dtype::Float32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]).is_nan(),
        (Dtype::Float64, x) => f64::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        _ => false,
    };
    let numbers = |x: &Contents| x.2.len() / dtype.size();
    let each = |x: &'_ Contents, i: usize| x.2[i * dtype.size()..][..dtype.size()].to_vec();
    (a.0, &a.1) == (b.0, &b.1)
        && (0..numbers(a)).all(|i| {
            let (a, b) = (each(a, i), each(b, i));
            a == b || nan(&a) && nan(&b)
        })
}
