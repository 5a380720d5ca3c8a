//! BLAS's matrix products and triangular systems themselves, on the thread that asks. OpenBLAS's own
//! threads are to do nothing: see `blas`.

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

/// As in every BLAS: the order, the side, the triangle, whether it is transposed, whether its diagonal
/// is of ones, the sizes m and n of b, alpha, a, b.
pub type Trsm<T> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    T,
    *const T,
    c_int,
    *mut T,
    c_int,
);

/// BLAS's names for where a triangular matrix stands, and what it has.
pub const LEFT: c_int = 141;
/// As above.
pub const UPPER: c_int = 121;
/// As above.
pub const LOWER: c_int = 122;
/// As above: numbers on its diagonal, and not ones.
pub const NOT_UNIT: c_int = 131;

macro_rules! functions {
    ($($name:ident, $symbol:ident: $ty:ty;)*) => {$(
        /// The function of this name, if there is a BLAS.
        pub fn $name() -> Option<$ty> {
            static FOUND: OnceLock<Option<$ty>> = OnceLock::new();
            *FOUND.get_or_init(|| {
                let name = concat!(stringify!($symbol), "\0");
                let symbol = CStr::from_bytes_with_nul(name.as_bytes()).map(next).ok()?;
                // SAFETY: a BLAS defines the symbol with this type; null becomes `None`.
                unsafe { std::mem::transmute::<*mut c_void, Option<$ty>>(symbol) }
            })
        }
    )*};
}

functions! {
    sgemm, cblas_sgemm: Gemm<f32>;
    dgemm, cblas_dgemm: Gemm<f64>;
    strsm, cblas_strsm: Trsm<f32>;
    dtrsm, cblas_dtrsm: Trsm<f64>;
}
