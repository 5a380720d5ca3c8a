//! The NIF surface: terms to core types and back, nothing else.
//!
//! No function here waits: what only makes arrays hands out promises at once, and the `*_async`
//! ones answer the reference they are given with `{reference, {:ok, value}}` or
//! `{reference, {:error, {kind, op, message, operands}}}`, exactly once.

#![deny(unsafe_code)]

mod nif;
mod reply;
mod terms;

rustler::init!("Elixir.Mlx.NIF");
