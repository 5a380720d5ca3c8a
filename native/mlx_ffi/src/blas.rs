//! Stands between libmlx and OpenBLAS, to say how many threads a matrix product is worth.
//!
//! OpenBLAS shares even a product of microseconds among all cores, whose threads then wait for each
//! other in a loop; where the BEAM wants the cores as well, that costs milliseconds. These functions
//! are exported by the NIF library, which a loader searches ahead of OpenBLAS, so libmlx calls them.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Multiplications from which on sharing a product pays: about a tenth of a millisecond of work.
const SHARED: i64 = 4 << 20;

unsafe extern "C" {
    // OpenBLAS's own. Naming them also keeps a linker from dropping it as not needed.
    fn openblas_get_num_threads() -> c_int;
    fn openblas_set_num_threads(threads: c_int);
}

/// What OpenBLAS was set to, by its environment variables or the number of cores.
fn all_threads() -> c_int {
    static ALL: OnceLock<c_int> = OnceLock::new();
    // SAFETY: takes nothing.
    *ALL.get_or_init(|| unsafe { openblas_get_num_threads() }.max(1))
}

fn choose_threads(m: c_int, n: c_int, k: c_int) {
    static CURRENT: AtomicI32 = AtomicI32::new(0);
    let all = all_threads();
    let work = i64::from(m) * i64::from(n) * i64::from(k);
    let wanted = if work < SHARED { 1 } else { all };
    if CURRENT.swap(wanted, Ordering::Relaxed) != wanted {
        // SAFETY: takes a number of at least one.
        unsafe { openblas_set_num_threads(wanted) };
    }
}

/// The next definition of a symbol after this library's own.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! gemm {
    ($($name:ident: $scalar:ty, $value:ty;)*) => {
        $(
            /// Forwards to OpenBLAS.
            ///
            /// # Safety
            /// As the function of the same name in every BLAS.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                order: c_int, transpose_a: c_int, transpose_b: c_int,
                m: c_int, n: c_int, k: c_int,
                alpha: $scalar, a: *const $value, lda: c_int,
                b: *const $value, ldb: c_int,
                beta: $scalar, c: *mut $value, ldc: c_int,
            ) {
                type Gemm = unsafe extern "C" fn(
                    c_int, c_int, c_int, c_int, c_int, c_int,
                    $scalar, *const $value, c_int, *const $value, c_int,
                    $scalar, *mut $value, c_int,
                );
                static NEXT: OnceLock<Option<Gemm>> = OnceLock::new();
                let gemm = NEXT.get_or_init(|| {
                    let name = concat!(stringify!($name), "\0");
                    let symbol = CStr::from_bytes_with_nul(name.as_bytes()).map(next).ok()?;
                    // SAFETY: a BLAS defines the symbol with this type; null becomes `None`.
                    unsafe { std::mem::transmute::<*mut c_void, Option<Gemm>>(symbol) }
                });
                if let Some(gemm) = gemm {
                    choose_threads(m, n, k);
                    // SAFETY: the caller's arguments, passed on.
                    unsafe {
                        gemm(
                            order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta,
                            c, ldc,
                        );
                    }
                }
            }
        )*
    };
}

gemm! {
    cblas_sgemm: f32, f32;
    cblas_dgemm: f64, f64;
    cblas_cgemm: *const c_void, c_void;
    cblas_zgemm: *const c_void, c_void;
}

/// Where the products are forwarded to.
pub(crate) fn symbol() -> *const c_void {
    next(c"cblas_sgemm")
}
