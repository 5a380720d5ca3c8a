//! Raw bindings to mlx-c, compiled here against the MLX that is linked.
//!
//! Every function is declared as mlx-c's headers say; the safe layer above is the crate `mlx`.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unnecessary_transmutes,
    clippy::all
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The MLX version whose headers this crate was compiled against.
pub const HEADER_VERSION: &str = env!("MLX_VERSION");
