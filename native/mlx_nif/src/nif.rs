//! The functions, by noun.

mod array;
mod memory;
mod program;
mod worker;
