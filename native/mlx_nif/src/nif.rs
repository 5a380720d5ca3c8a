//! The functions, by noun.

mod array;
mod memory;
mod pointer;
mod program;
mod worker;
