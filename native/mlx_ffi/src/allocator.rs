//! Stands between libmlx and its own allocator, so that the memory limit holds.
//!
//! libmlx asks for its allocator by this symbol, which a loader finds here first, as it finds the
//! functions of `blas`. Where a loader binds symbols to libraries, as on macOS, it does not: there
//! MLX's allocator for Metal refuses by itself.

#[cfg(not(target_os = "macos"))]
use std::ffi::c_void;

/// The allocator of `cpp/allocator.cpp`.
///
/// # Safety
/// For C++ alone: answers a reference to a `mlx::core::allocator::Allocator`, or throws.
#[cfg(not(target_os = "macos"))]
#[unsafe(export_name = "_ZN3mlx4core9allocator9allocatorEv")]
pub unsafe extern "C-unwind" fn allocator() -> *mut c_void {
    // SAFETY: takes nothing.
    unsafe { mlx_ffi_allocator() }
}

#[cfg(not(target_os = "macos"))]
unsafe extern "C-unwind" {
    fn mlx_ffi_allocator() -> *mut c_void;
}
