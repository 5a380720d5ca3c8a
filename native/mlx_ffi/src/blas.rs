//! Stands between libmlx and OpenBLAS, to share matrix products among threads of the caller's.
//!
//! OpenBLAS gives each of its threads a part, and they wait for each other in a loop: a product takes
//! as long as the thread that gets the least of a core, and where the BEAM wants the cores as well,
//! that is many times as long. Tiles that whoever is free takes do not wait. These functions are
//! exported by the NIF library, which a loader searches ahead of OpenBLAS, so libmlx calls them.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use crate::gemm::next;

/// Has a function called for tiles that make up all `m` rows and `n` columns of a product, each the
/// sum of `k` products, on any threads, and returns once all are done.
pub type Tiles = fn(m: usize, n: usize, k: usize, each: &Tile);

/// Computes some rows and columns.
pub type Tile<'a> = dyn Fn(Range<usize>, Range<usize>) + Sync + 'a;

static TILES: OnceLock<Tiles> = OnceLock::new();

/// Has products shared by `tiles` from now on, and OpenBLAS's own threads do nothing, not even for
/// LAPACK, whose many small products they wait for even longer. The first one to be said stays.
pub fn share_with(tiles: Tiles) {
    if TILES.set(tiles).is_ok() {
        // SAFETY: takes a number of at least one.
        unsafe { openblas_set_num_threads(1) };
    }
}

unsafe extern "C" {
    // OpenBLAS's own. Naming it also keeps a linker from dropping it as not needed.
    fn openblas_set_num_threads(threads: c_int);
}

/// A matrix as BLAS is given it.
#[derive(Clone, Copy)]
struct Matrix {
    at: *const u8,
    leading: c_int,
    /// Bytes of an element.
    size: usize,
    /// Whether the elements of a column lie side by side, and not those of a row.
    by_columns: bool,
}

// SAFETY: an address, of what outlives the product.
unsafe impl Sync for Matrix {}

impl Matrix {
    const COLUMN_MAJOR: c_int = 102;
    /// And its variants: the matrix is what lies there, with rows as columns.
    const TRANSPOSED: Range<c_int> = 112..114;

    fn new<T>(at: *const T, leading: c_int, size: usize, order: c_int, transpose: c_int) -> Self {
        Self {
            at: at.cast(),
            leading,
            size,
            by_columns: (order == Self::COLUMN_MAJOR) != Self::TRANSPOSED.contains(&transpose),
        }
    }

    /// Where a row and column are.
    ///
    /// # Safety
    /// They must be the matrix's.
    unsafe fn at<T>(&self, row: usize, column: usize) -> *mut T {
        let (across, along) = if self.by_columns {
            (column, row)
        } else {
            (row, column)
        };
        let leading = usize::try_from(self.leading).unwrap_or(0);
        // SAFETY: as the caller says.
        unsafe { self.at.add((across * leading + along) * self.size) as *mut T }
    }
}

/// What several threads may read.
struct Shared<T>(T);

// SAFETY: nobody writes to it, or to what it is the address of.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

macro_rules! gemm {
    ($($name:ident: $scalar:ty, $value:ty, $size:literal;)*) => {
        $(
            /// Forwards to OpenBLAS, tile by tile.
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
                let Some(gemm) = gemm else { return };
                let (rows, columns, depth) = (
                    usize::try_from(m).unwrap_or(0),
                    usize::try_from(n).unwrap_or(0),
                    usize::try_from(k).unwrap_or(0),
                );
                let left = Matrix::new(a, lda, $size, order, transpose_a);
                let right = Matrix::new(b, ldb, $size, order, transpose_b);
                let made = Matrix::new(c.cast_const(), ldc, $size, order, 0);
                // Numbers, or addresses of numbers that nobody writes to.
                let (alpha, beta) = (Shared(alpha), Shared(beta));
                let tile = |rows: Range<usize>, columns: Range<usize>| {
                    // SAFETY: the caller's arguments, passed on for a part of the result.
                    unsafe {
                        gemm(
                            order, transpose_a, transpose_b,
                            rows.len() as c_int, columns.len() as c_int, k,
                            *alpha.get(), left.at(rows.start, 0), lda,
                            right.at(0, columns.start), ldb,
                            *beta.get(), made.at(rows.start, columns.start), ldc,
                        );
                    }
                };
                match TILES.get() {
                    Some(tiles) => tiles(rows, columns, depth, &tile),
                    None => tile(0..rows, 0..columns),
                }
            }
        )*
    };
}

gemm! {
    cblas_sgemm: f32, f32, 4;
    cblas_dgemm: f64, f64, 8;
    cblas_cgemm: *const c_void, c_void, 8;
    cblas_zgemm: *const c_void, c_void, 16;
}

/// Where the products are forwarded to.
pub(crate) fn symbol() -> *const c_void {
    next(c"cblas_sgemm")
}
