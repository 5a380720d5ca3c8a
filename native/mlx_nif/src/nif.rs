//! The functions, by noun.

mod array;
mod attend;
mod memory;
mod pointer;
mod program;
mod worker;
