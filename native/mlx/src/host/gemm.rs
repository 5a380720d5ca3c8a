//! Matrix products on the thread that asks, for kernels that share their work themselves: by the BLAS
//! that MLX uses, or by loops of ours where there is none, or little to gain by it.

use std::ops::{AddAssign, Mul};

use mlx_ffi as ffi;

/// A matrix in memory: its rows one after the other, or its columns, so many numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix<T> {
    pub(super) at: T,
    pub(super) by_rows: bool,
    pub(super) leading: usize,
}

impl<T> Matrix<T> {
    /// How far apart its rows are, and its columns.
    fn steps(&self) -> (usize, usize) {
        if self.by_rows {
            (self.leading, 1)
        } else {
            (1, self.leading)
        }
    }
}

/// Numbers that are summed.
pub(super) trait Sum:
    Copy + Default + PartialEq + Send + Sync + AddAssign + Mul<Output = Self> + 'static
{
    /// BLAS's product, if there is a BLAS.
    ///
    /// # Safety
    /// As of `product`; sizes and distances must fit an i32.
    unsafe fn blas(
        sizes: [i32; 3],
        a: Matrix<*const Self>,
        b: Matrix<*const Self>,
        adds: bool,
        c: Matrix<*mut Self>,
    ) -> bool;
}

macro_rules! sum {
    ($($t:ty, $gemm:ident;)*) => {$(
        impl Sum for $t {
            unsafe fn blas(
                [m, n, k]: [i32; 3],
                a: Matrix<*const Self>,
                b: Matrix<*const Self>,
                adds: bool,
                c: Matrix<*mut Self>,
            ) -> bool {
                let Some(gemm) = ffi::gemm::$gemm() else { return false };
                let order = if c.by_rows { ffi::gemm::BY_ROWS } else { ffi::gemm::BY_COLUMNS };
                let how = |by_rows: bool| {
                    if by_rows == c.by_rows { ffi::gemm::AS_IS } else { ffi::gemm::TRANSPOSED }
                };
                let (one, beta) = (1.0, if adds { 1.0 } else { 0.0 });
                // SAFETY: as the caller says.
                unsafe {
                    gemm(
                        order, how(a.by_rows), how(b.by_rows), m, n, k,
                        one, a.at, a.leading as i32, b.at, b.leading as i32,
                        beta, c.at, c.leading as i32,
                    );
                }
                true
            }
        }
    )*};
}

sum! {
    f32, sgemm;
    f64, dgemm;
}

/// Columns from which on BLAS is worth its packing.
const FEW: usize = 4;

/// Makes `c` the product of `a`, which has `m` rows and `k` columns, and `b`, which has `n` columns, or
/// adds it.
///
/// # Safety
/// The matrices must be there, `c` for nobody else to look at.
pub(super) unsafe fn product<S: Sum>(
    [m, n, k]: [usize; 3],
    a: Matrix<*const S>,
    b: Matrix<*const S>,
    adds: bool,
    c: Matrix<*mut S>,
) {
    let sizes = [m, n, k].map(i32::try_from);
    let fits = [a.leading, b.leading, c.leading]
        .iter()
        .all(|leading| i32::try_from(*leading).is_ok());
    let long = !a.by_rows && (!c.by_rows || n == 1);
    if let [Ok(m), Ok(n), Ok(k)] = sizes
        && fits
        && !(n < FEW as i32 && long)
        // SAFETY: as the caller says.
        && unsafe { S::blas([m, n, k], a, b, adds, c) }
    {
        return;
    }
    // SAFETY: as above.
    unsafe { loops([m, n, k], a, b, adds, c) }
}

/// As `product`: column by column, along the rows.
unsafe fn loops<S: Sum>(
    [m, n, k]: [usize; 3],
    a: Matrix<*const S>,
    b: Matrix<*const S>,
    adds: bool,
    c: Matrix<*mut S>,
) {
    let ((a_row, a_column), (b_row, b_column), (c_row, c_column)) =
        (a.steps(), b.steps(), c.steps());
    for column in 0..n {
        // SAFETY: all of these are within the matrices.
        unsafe {
            let to = c.at.add(column * c_column);
            if !adds {
                for row in 0..m {
                    to.add(row * c_row).write(S::default());
                }
            }
            for depth in 0..k {
                let factor = b.at.add(depth * b_row + column * b_column).read();
                let from = a.at.add(depth * a_column);
                if a_row == 1 && (c_row == 1 || m == 1) {
                    let from = std::slice::from_raw_parts(from, m);
                    let to = std::slice::from_raw_parts_mut(to, m);
                    for (to, x) in to.iter_mut().zip(from) {
                        *to += *x * factor;
                    }
                } else {
                    for row in 0..m {
                        *to.add(row * c_row) += from.add(row * a_row).read() * factor;
                    }
                }
            }
        }
    }
}
