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

use std::ops::Range;

pub mod allocator;
#[cfg(blas = "openblas")]
pub mod blas;
pub mod gemm;

#[cfg(blas = "other")]
mod blas {
    //! A BLAS that is not OpenBLAS: naming a symbol of it keeps a linker from dropping it.

    use std::ffi::c_void;

    unsafe extern "C" {
        fn cblas_sgemm();
    }

    pub(crate) fn symbol() -> *const c_void {
        cblas_sgemm as *const c_void
    }
}

/// Has matrix products shared, where it is OpenBLAS that makes them: see `blas::Tiles`.
#[allow(unused_variables)]
pub fn share_products(
    tiles: fn(usize, usize, usize, &(dyn Fn(Range<usize>, Range<usize>) + Sync)),
) {
    #[cfg(all(blas = "openblas", not(miri)))]
    blas::share_with(tiles);
}

/// The file of the BLAS that was linked ahead of libmlx, or `None` where MLX's own serves.
pub fn blas_file() -> Option<String> {
    #[cfg(any(blas = "none", miri))]
    return None;
    #[cfg(not(any(blas = "none", miri)))]
    {
        // SAFETY: all zeros is a value of this struct of pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: writes to one live place.
        let found = unsafe { libc::dladdr(blas::symbol(), &mut info) } != 0;
        // SAFETY: the loader keeps the name as long as the library, which is never unloaded.
        (found && !info.dli_fname.is_null()).then(|| unsafe {
            std::ffi::CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .into_owned()
        })
    }
}

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The MLX version whose headers this crate was compiled against.
pub const HEADER_VERSION: &str = env!("MLX_VERSION");
