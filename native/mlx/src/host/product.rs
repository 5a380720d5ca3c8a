//! Products of matrices of integers, on all cores. MLX has none. They are exact, and wrap as the
//! type does, which is the same for a signed type and the unsigned one of its size.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::isa::{self, Job};
use crate::stream::{Device, Stream};

/// Rows of the result that are summed at once. A row's part is two vectors of 32 bytes.
const ROWS: usize = 4;
/// Elements of a row and a column that are multiplied before the next rows are.
const DEPTH: usize = 256;
/// Rows of the result that one core takes at a time.
const BLOCK: usize = 64;

trait Whole: Copy + Send + Sync + 'static {
    const ZERO: Self;
    fn plus_product(self, a: Self, b: Self) -> Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! whole {
    ($($t:ty),*) => {$(
        impl Whole for $t {
            const ZERO: Self = 0;
            #[inline(always)]
            fn plus_product(self, a: Self, b: Self) -> Self {
                self.wrapping_add(a.wrapping_mul(b))
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}

whole!(u8, u16, u32, u64);

#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    rows: usize,
    depth: usize,
    columns: usize,
}

/// Matrices, and room for their product.
struct Matrices<'a, T> {
    left: &'a [T],
    right: &'a [T],
    to: *mut T,
    sizes: Sizes,
}

// SAFETY: each part of the result is one thread's alone.
unsafe impl<T: Sync> Sync for Matrices<'_, T> {}

/// Blocks of the result, `BLOCK` rows times `N` columns each.
struct Blocks<'a, T, const N: usize> {
    matrices: &'a Matrices<'a, T>,
    blocks: Range<usize>,
}

impl<T: Whole, const N: usize> Job for Blocks<'_, T, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Sizes {
            rows,
            depth,
            columns,
            ..
        } = self.matrices.sizes;
        let (high, wide) = (rows.div_ceil(BLOCK), columns.div_ceil(N));
        for block in self.blocks {
            let (batch, block) = (block / (high * wide), block % (high * wide));
            let (top, column) = (block / wide * BLOCK, block % wide * N);
            let part = Part {
                left: &self.matrices.left[batch * rows * depth..],
                right: &self.matrices.right[batch * depth * columns..],
                // SAFETY: there is room for all of the batch's matrices.
                to: unsafe { self.matrices.to.add(batch * rows * columns) },
                depth,
                columns,
                column,
                width: N.min(columns - column),
            };
            part.sum::<N>(top..rows.min(top + BLOCK));
        }
    }
}

/// Some columns of a matrix's product.
struct Part<'a, T> {
    left: &'a [T],
    right: &'a [T],
    to: *mut T,
    depth: usize,
    columns: usize,
    column: usize,
    width: usize,
}

impl<T: Whole> Part<'_, T> {
    #[inline(always)]
    fn sum<const N: usize>(&self, rows: Range<usize>) {
        let mut panel = [[T::ZERO; N]; DEPTH];
        for first in (0..self.depth).step_by(DEPTH) {
            let panel = &mut panel[..DEPTH.min(self.depth - first)];
            for (to, row) in panel.iter_mut().zip(first..) {
                let from = &self.right[row * self.columns + self.column..][..self.width];
                to[..self.width].copy_from_slice(from);
            }
            let whole = rows.len() / ROWS * ROWS;
            for row in rows.clone().take(whole).step_by(ROWS) {
                self.rows::<ROWS, N>(row, first, panel);
            }
            for row in rows.clone().skip(whole) {
                self.rows::<1, N>(row, first, panel);
            }
        }
    }

    /// Adds the products of some elements of the rows to those before.
    #[inline(always)]
    fn rows<const R: usize, const N: usize>(&self, row: usize, first: usize, panel: &[[T; N]]) {
        let mut held = [[T::ZERO; R]; DEPTH];
        for index in 0..R {
            let from = &self.left[(row + index) * self.depth + first..][..panel.len()];
            for (to, from) in held.iter_mut().zip(from) {
                to[index] = *from;
            }
        }
        let mut sums = [[T::ZERO; N]; R];
        for (right, left) in panel.iter().zip(&held) {
            for (sums, left) in sums.iter_mut().zip(left) {
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = sum.plus_product(*left, *right);
                }
            }
        }
        for (index, sums) in sums.iter().enumerate() {
            // SAFETY: so many elements of this row are there, and this thread's alone.
            let to = unsafe { self.to.add((row + index) * self.columns + self.column) };
            for (index, sum) in sums[..self.width].iter().enumerate() {
                // SAFETY: as above; but for the first time, they were written before.
                unsafe {
                    let to = to.add(index);
                    to.write(if first == 0 {
                        *sum
                    } else {
                        to.read().plus(*sum)
                    });
                }
            }
        }
    }
}

struct Product<T, const N: usize>(Sizes, PhantomData<T>);

impl<T: Whole, const N: usize> Call for Product<T, N> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let sizes = self.0;
        let Sizes {
            batch,
            rows,
            depth,
            columns,
        } = sizes;
        // SAFETY: the inputs have so many elements each, in rows.
        let (left, right) = unsafe {
            (
                std::slice::from_raw_parts(inputs[0].cast::<T>(), batch * rows * depth),
                std::slice::from_raw_parts(inputs[1].cast::<T>(), batch * depth * columns),
            )
        };
        if depth == 0 {
            // SAFETY: there is room for each sum, and all zeros is a number.
            unsafe { out.cast::<T>().write_bytes(0, batch * rows * columns) };
            return;
        }
        let matrices = Matrices {
            left,
            right,
            to: out.cast::<T>(),
            sizes,
        };
        let count = batch * rows.div_ceil(BLOCK) * columns.div_ceil(N);
        let work = BLOCK.min(rows) * N * depth / 4;
        cores::share(count, work.max(1), 1, &|blocks| {
            let matrices = &matrices;
            isa::run(Blocks::<T, N> { matrices, blocks });
        });
    }
}

/// The products of integer matrices, if the stream is a CPU's and that is what they are.
pub(crate) fn product(a: &Array, b: &Array, s: &Stream) -> Option<Result<Array>> {
    let dtype = a.dtype();
    if s.device != Device::Cpu || b.dtype() != dtype {
        return None;
    }
    Some(match dtype {
        Dtype::Uint8 | Dtype::Int8 => of::<u8, 64>(a, b, s),
        Dtype::Uint16 | Dtype::Int16 => of::<u16, 32>(a, b, s),
        Dtype::Uint32 | Dtype::Int32 => of::<u32, 16>(a, b, s),
        Dtype::Uint64 | Dtype::Int64 => of::<u64, 8>(a, b, s),
        _ => return None,
    })
}

fn of<T: Whole, const N: usize>(a: &Array, b: &Array, s: &Stream) -> Result<Array> {
    let ([outer @ .., rows, depth], [others @ .., other, columns]) = (a.dims(), b.dims()) else {
        return Err(Error::invalid("", "it takes matrices: two axes or more"));
    };
    if outer != others || depth != other {
        return Err(Error::invalid(
            "",
            "it takes as many columns as the other has rows, and batches of one size",
        ));
    }
    let size = |dim: &i32| *dim as usize;
    let sizes = Sizes {
        batch: outer.iter().map(size).product(),
        rows: size(rows),
        depth: size(depth),
        columns: size(columns),
    };
    let mut dims = outer.to_vec();
    dims.extend([*rows, *columns]);
    let product = Product::<T, N>(sizes, PhantomData);
    call(c"Product", &[a, b], (&dims, a.dtype()), product, s)
}
