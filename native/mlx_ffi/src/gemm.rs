//! BLAS's matrix products themselves, on the thread that asks. OpenBLAS's own threads are to do
//! nothing: see `blas`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// BLAS's names for how a matrix lies.
pub const BY_ROWS: c_int = 101;
/// As above: column after column.
pub const BY_COLUMNS: c_int = 102;
/// And for which one of the two is meant.
pub const AS_IS: c_int = 111;
/// As above: with rows as columns.
pub const TRANSPOSED: c_int = 112;

/// The next definition of a symbol after this library's own.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    #[cfg(miri)]
    return std::ptr::null_mut();
    // SAFETY: the name is a C string.
    #[cfg(not(miri))]
    unsafe {
        libc::dlsym(libc::RTLD_NEXT, name.as_ptr())
    }
}

/// As in every BLAS: the order, which one of a and of b is meant, the sizes m, n and k, alpha, a and
/// how far apart its rows or columns are, b, beta, c.
pub type Gemm<T> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    T,
    *const T,
    c_int,
    *const T,
    c_int,
    T,
    *mut T,
    c_int,
);

macro_rules! gemm {
    ($($name:ident, $symbol:ident: $scalar:ty;)*) => {$(
        /// The function of this name, if there is a BLAS.
        pub fn $name() -> Option<Gemm<$scalar>> {
            static FOUND: OnceLock<Option<Gemm<$scalar>>> = OnceLock::new();
            *FOUND.get_or_init(|| {
                let name = concat!(stringify!($symbol), "\0");
                let symbol = CStr::from_bytes_with_nul(name.as_bytes()).map(next).ok()?;
                // SAFETY: a BLAS defines the symbol with this type; null becomes `None`.
                unsafe { std::mem::transmute::<*mut c_void, Option<Gemm<$scalar>>>(symbol) }
            })
        }
    )*};
}

gemm! {
    sgemm, cblas_sgemm: f32;
    dgemm, cblas_dgemm: f64;
}
