//! Triangular systems by BLAS. MLX inverts the matrix, and multiplies by that.

use std::ffi::c_void;
use std::marker::PhantomData;

use mlx_ffi::gemm::{self, Trsm};

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::stream::{Device, Stream};

/// Columns that are solved for at once.
const COLUMNS: usize = 64;

trait Number: Copy + PartialEq + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    fn trsm() -> Option<Trsm<Self>>;
}

macro_rules! numbers {
    ($($t:ty, $trsm:ident;)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = <$t>::NAN;
            fn trsm() -> Option<Trsm<Self>> {
                gemm::$trsm()
            }
        }
    )*};
}

numbers! {
    f32, strsm;
    f64, dtrsm;
}

struct Triangular<T> {
    count: usize,
    rows: usize,
    columns: usize,
    upper: bool,
    trsm: Trsm<T>,
    number: PhantomData<T>,
}

/// Where the solutions belong.
struct To<T>(*mut T);

// SAFETY: each column is one thread's alone.
unsafe impl<T: Send> Sync for To<T> {}

impl<T: Number> Call for Triangular<T> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let Self {
            count,
            rows,
            columns,
            ..
        } = *self;
        // SAFETY: the inputs are those of `of`, whose sizes these are, and the result is as large as
        // the second one.
        let a = unsafe {
            let size = count * rows * columns;
            out.cast::<T>()
                .copy_from_nonoverlapping(inputs[1].cast::<T>(), size);
            std::slice::from_raw_parts(inputs[0].cast::<T>(), count * rows * rows)
        };
        let to = To(out.cast::<T>());
        let wide = columns.div_ceil(COLUMNS);
        let work = rows * rows * COLUMNS.min(columns) / 4;
        cores::share(count * wide, work.max(1), 1, &|parts| {
            let to = &to;
            for part in parts {
                let (index, column) = (part / wide, part % wide * COLUMNS);
                let a = &a[index * rows * rows..][..rows * rows];
                let pivots = || a.iter().step_by(rows + 1);
                let mut pivotless;
                let a = if pivots().all(|pivot| *pivot != T::ZERO) {
                    a
                } else {
                    pivotless = a.to_vec();
                    for pivot in pivotless.iter_mut().step_by(rows + 1) {
                        if *pivot == T::ZERO {
                            *pivot = T::NAN;
                        }
                    }
                    &pivotless
                };
                let triangle = if self.upper { gemm::UPPER } else { gemm::LOWER };
                let size = COLUMNS.min(columns - column);
                // SAFETY: there are so many rows and columns, and this thread has them alone.
                unsafe {
                    (self.trsm)(
                        gemm::BY_ROWS,
                        gemm::LEFT,
                        triangle,
                        gemm::AS_IS,
                        gemm::NOT_UNIT,
                        rows as i32,
                        size as i32,
                        T::ONE,
                        a.as_ptr(),
                        rows as i32,
                        to.0.add(index * rows * columns + column),
                        columns as i32,
                    );
                }
            }
        });
    }
}

/// Of A X = B with a triangular A, if the stream is a CPU's, the numbers are floats, and each A has a B.
/// NaN stands in for a pivot of zero.
pub(crate) fn solve_triangular(
    a: &Array,
    b: &Array,
    upper: bool,
    s: &Stream,
) -> Option<Result<Array>> {
    if s.device != Device::Cpu || b.dtype() != a.dtype() {
        return None;
    }
    match a.dtype() {
        Dtype::Float32 => of::<f32>(a, b, upper, s),
        Dtype::Float64 => of::<f64>(a, b, upper, s),
        _ => None,
    }
}

fn of<T: Number>(a: &Array, b: &Array, upper: bool, s: &Stream) -> Option<Result<Array>> {
    let ([outer @ .., rows, other], [others @ .., same, columns]) = (a.dims(), b.dims()) else {
        return None;
    };
    if outer != others || rows != other || rows != same || b.size() == 0 {
        return None;
    }
    let triangular = Triangular::<T> {
        count: outer.iter().map(|dim| *dim as usize).product(),
        rows: *rows as usize,
        columns: *columns as usize,
        upper,
        trsm: T::trsm()?,
        number: PhantomData,
    };
    let result = (b.dims(), b.dtype());
    Some(call(c"Triangular", &[a, b], result, triangular, s))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the product of the matrix and its solution.
    use super::*;
    use crate::shape::Shape;
    use crate::stream::Streams;

    const COUNT: usize = 3;

    fn array(dims: &[usize], number: impl Fn(usize) -> f64) -> Array {
        let shape = Shape::new(dims.iter().map(|dim| *dim as i64).collect()).unwrap();
        let bytes = (0..shape.size()).flat_map(|index| number(index).to_ne_bytes());
        Array::from_bytes(&bytes.collect::<Vec<u8>>(), &shape, Dtype::Float64).unwrap()
    }

    fn solved(rows: usize, columns: usize, a: &dyn Fn(usize) -> f64, upper: bool) -> Vec<f64> {
        let streams = Streams::new(Device::Cpu).unwrap();
        let b = |index: usize| (index % 7) as f64 - 3.0;
        let (a, b) = (
            array(&[COUNT, rows, rows], a),
            array(&[COUNT, rows, columns], b),
        );
        let made = solve_triangular(&a, &b, upper, &streams.main).unwrap();
        let bytes = made.unwrap().bytes(None, &streams).unwrap();
        let (numbers, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty());
        numbers.iter().map(|x| f64::from_ne_bytes(*x)).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn products_are_what_was_given() {
        for (rows, columns) in [(1, 1), (2, 1), (5, 3), (40, 200)] {
            for upper in [true, false] {
                // Whatever is in the other triangle.
                let a = |index: usize| {
                    let (row, column) = (index / rows % rows, index % rows);
                    match (row == column, (row < column) == upper) {
                        (true, _) => 2.0 + (index % 3) as f64,
                        (_, true) => (index % 5) as f64 / 100.0,
                        _ => f64::NAN,
                    }
                };
                let x = solved(rows, columns, &a, upper);
                for index in 0..COUNT * rows * columns {
                    let (matrix, row) = (index / columns / rows, index / columns % rows);
                    let along = if upper { row..rows } else { 0..row + 1 };
                    let product = |at: usize| {
                        a((matrix * rows + row) * rows + at)
                            * x[(matrix * rows + at) * columns + index % columns]
                    };
                    let sum: f64 = along.map(product).sum();
                    let wanted = (index % 7) as f64 - 3.0;
                    assert!(
                        (sum - wanted).abs() < 1e-12,
                        "{rows} {columns} {upper} {index}"
                    );
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn a_pivot_of_zero_is_none() {
        let a = |index: usize| if index == 0 { 0.0 } else { 1.0 };
        let x = solved(2, 1, &a, false);
        assert!(x[0].is_nan() && x[1].is_nan());
        assert!(x[2..].iter().all(|x| x.is_finite()));
    }
}
