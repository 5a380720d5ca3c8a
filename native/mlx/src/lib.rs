//! The safe core of Mlx: what a Rust program needs to compute with MLX and never crash.
//!
//! [`Worker`] is a thread that owns an MLX stream; everything that builds or evaluates arrays is a
//! job of a worker. [`Program`] is a list of [`Op`]s over numbered slots, checked once and run many
//! times. [`Promise`] is a result that the worker has yet to fill in. Knows nothing of the BEAM,
//! but for the decoders that the feature `nif` adds.
//!
//! Unsafe code is confined to the modules that call mlx-c or the system: `array`, `error`, `fuse`, `halt`,
//! `host`, `kernel`, `memory`, `ops`, `pointer`, `stream` and `version`.

#![deny(unsafe_code)]
// The op table's macro takes its rows one after the other.
#![recursion_limit = "512"]

// What integration tests share says `mlx`, and tests in here share it too.
#[cfg(test)]
extern crate self as mlx;

#[allow(unsafe_code)]
pub mod array;
pub mod context;
pub mod control;
#[allow(unsafe_code)]
mod cores;
pub mod dtype;
#[allow(unsafe_code)]
pub mod error;
#[allow(unsafe_code)]
mod fuse;
#[allow(unsafe_code)]
mod halt;
mod halves;
#[allow(unsafe_code)]
mod host;
#[allow(unsafe_code)]
mod isa;
#[allow(unsafe_code)]
mod kernel;
mod looped;
#[allow(unsafe_code)]
pub mod memory;
mod message;
#[allow(unsafe_code)]
pub mod ops;
#[allow(unsafe_code)]
pub mod pointer;
mod pressure;
pub mod program;
pub mod promise;
mod queue;
pub mod shape;
#[allow(unsafe_code)]
pub mod stream;
mod task;
#[cfg(feature = "nif")]
pub mod terms;
mod thread;
mod tiles;
#[allow(unsafe_code)]
pub mod version;
mod wanted;
pub mod worker;

pub use array::{Array, Bytes};
pub use context::Context;
pub use control::Attendant;
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use ops::Op;
pub use program::{Instruction, Program};
pub use promise::{Alive, Promise};
pub use shape::Shape;
pub use stream::{Device, Stream, Streams};
pub use worker::{Busy, Input, Inputs, Promises, Worker};
