//! Host kernels: functions of ours that MLX calls on the CPU, in the middle of its lazy graph.
//!
//! They stand in where MLX has no operation, or one with other values. MLX's functions of f64 are
//! as precise as those of f32, some even less, and those of f32 are off by several units in the
//! last place. The ones here are rounded correctly, but for a few f32 in a million that come as the
//! next one; and faster.

mod call;
mod conv;
mod convert;
mod gemm;
mod index;
mod lanes;
mod order;
mod product;
mod reduce;
mod triangular;
mod window;

pub(crate) use call::{Call, SMALL, call};
pub(crate) use conv::conv;
pub(crate) use convert::{Converted, convert};
pub(crate) use index::{Merged, gather, scatter, take, take_along};
pub(crate) use order::{argsort, is_far, sort};
pub(crate) use product::product;
pub(crate) use reduce::{PIECE, Reduction, Rows, reduce, rows};
pub(crate) use triangular::solve_triangular;
pub(crate) use window::window_scatter;

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlx_ffi as ffi;

use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::halves::Half;
use crate::isa::{self, Job, Level};
use crate::kernel::{self, Loop};
use crate::stream::{Device, Stream};

/// How many elements are held at once.
const MOST: usize = 256;
/// About how many additions a function takes.
const WORK: usize = 8;

/// A function of one element.
pub(crate) trait Function {
    type In: Copy + Default;
    type Out: Copy;

    fn of(x: Self::In) -> Self::Out;

    /// The function of each element.
    fn all(from: &[Self::In], to: &mut [Self::Out]) {
        for (to, x) in to.iter_mut().zip(from) {
            *to = Self::of(*x);
        }
    }
}

/// Elements that lie `stride` apart, and room for the function of each.
struct Elements<F: Function> {
    from: *const F::In,
    stride: isize,
    to: *mut F::Out,
    size: usize,
}

// SAFETY: each part of them is one thread's alone.
unsafe impl<F: Function> Sync for Elements<F> {}

impl<F: Function> Elements<F> {
    fn part(&self, range: Range<usize>) -> Self {
        // SAFETY: a part of them is within them.
        let (from, to) = unsafe {
            (
                self.from.offset(range.start as isize * self.stride),
                self.to.add(range.start),
            )
        };
        Self {
            from,
            to,
            size: range.len(),
            ..*self
        }
    }
}

impl<F: Function> Elements<F> {
    fn each(&self) {
        let mut held = [F::In::default(); MOST];
        for first in (0..self.size).step_by(MOST) {
            let held = &mut held[..MOST.min(self.size - first)];
            for (index, x) in (first..).zip(held.iter_mut()) {
                // SAFETY: there is such an element. All of these are read before any is written over.
                *x = unsafe { self.from.offset(index as isize * self.stride).read() };
            }
            // SAFETY: there is room for the function of each, and nobody else has it.
            let to = unsafe { std::slice::from_raw_parts_mut(self.to.add(first), held.len()) };
            F::all(held, to);
        }
    }
}

/// Computes `size` elements, as `mlx_ffi_map_fn` wants it.
///
/// # Safety
/// `from` must hold as many elements of `F::In`, `stride` apart, and `to` have room for as many of
/// `F::Out`. They may be the same if `stride` is 1 and the elements have the same size.
unsafe extern "C" fn run<F: Function>(
    from: *const c_void,
    stride: isize,
    to: *mut c_void,
    size: usize,
) {
    let elements = Elements::<F> {
        from: from.cast(),
        stride,
        to: to.cast(),
        size,
    };
    let each = || cores::share(size, WORK, 16 * MOST, &|range| elements.part(range).each());
    // No function panics; a panic would end the process here, in the middle of C++.
    if catch_unwind(AssertUnwindSafe(each)).is_err() {
        // SAFETY: as the caller says, and all zeros is a number of every type.
        unsafe { elements.to.write_bytes(0, size) };
    }
}

pub(crate) type Run = unsafe extern "C" fn(*const c_void, isize, *mut c_void, usize);

fn map(x: &Array, dtype: Dtype, name: &'static CStr, run: Run, s: &Stream) -> Result<Array> {
    Array::build("host", |res| {
        // SAFETY: the handles are live for the call, the name is static, and the function fits
        // the types of both arrays.
        unsafe { ffi::mlx_ffi_map(res, x.raw(), dtype.raw(), name.as_ptr(), Some(run), s.raw()) }
    })
}

/// A function of a real number, in double and in single precision.
pub(crate) trait Real {
    fn f64(x: f64) -> f64;
    fn f32(x: f32) -> f32;

    /// As `f32`, for a loop that is to become vector instructions, with FMA.
    #[inline(always)]
    fn lane(x: f32) -> f32 {
        Self::f32(x)
    }

    /// For what `lane` is not made.
    #[inline(always)]
    fn is_rare(_x: f32) -> bool {
        false
    }

    /// The function of each element.
    fn f32s(from: &[f32], to: &mut [f32]) {
        for (to, x) in to.iter_mut().zip(from) {
            *to = Self::f32(*x);
        }
    }
}

/// Numbers, and room for a function of each.
struct Singles<'a, R>(&'a [f32], &'a mut [f32], PhantomData<R>);

impl<R: Real> Job for Singles<'_, R> {
    const WIDEST: Level = Level::Avx512;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self(from, to, _) = self;
        if !FMA {
            for (to, x) in to.iter_mut().zip(from) {
                *to = R::f32(*x);
            }
            return;
        }
        for (to, x) in to.iter_mut().zip(from) {
            *to = R::lane(*x);
        }
        if from.iter().fold(false, |any, x| any | R::is_rare(*x)) {
            for (to, x) in to.iter_mut().zip(from).filter(|(_, x)| R::is_rare(**x)) {
                *to = R::f32(*x);
            }
        }
    }
}

/// A floating type and how a function applies to it: half precision by way of f32.
pub(crate) trait Float: Copy + Default {
    fn apply<R: Real>(from: &[Self], to: &mut [Self]);
    fn wide(self) -> f64;

    /// Towards zero, of what is not high; 0 of what is.
    fn low(self) -> i32;

    /// Whether an i32 is too small for it.
    fn is_high(self) -> bool;
}

macro_rules! whole {
    () => {
        #[inline(always)]
        fn low(self) -> i32 {
            let held = if self.is_high() { 0.0 } else { self };
            // SAFETY: it is a number that an i32 holds. Vectors have an instruction for this alone,
            // and not for what `as` does with all others.
            unsafe { held.to_int_unchecked() }
        }
        #[inline(always)]
        fn is_high(self) -> bool {
            self.is_nan() || self.abs() >= 2_147_483_648.0
        }
    };
}

impl Float for f64 {
    fn apply<R: Real>(from: &[Self], to: &mut [Self]) {
        for (to, x) in to.iter_mut().zip(from) {
            *to = R::f64(*x);
        }
    }
    fn wide(self) -> f64 {
        self
    }
    whole!();
}

impl Float for f32 {
    fn apply<R: Real>(from: &[Self], to: &mut [Self]) {
        R::f32s(from, to);
    }
    fn wide(self) -> f64 {
        self.into()
    }
    whole!();
}

macro_rules! half {
    ($($half:ty),*) => {
        $(impl Float for $half {
            fn apply<R: Real>(from: &[Self], to: &mut [Self]) {
                let (mut singles, mut made) = ([0.0; MOST], [0.0; MOST]);
                for (from, to) in from.chunks(MOST).zip(to.chunks_mut(MOST)) {
                    let (singles, made) = (&mut singles[..from.len()], &mut made[..from.len()]);
                    from.convert_to_f32_slice(singles);
                    R::f32s(singles, made);
                    to.convert_from_f32_slice(made);
                }
            }
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn low(self) -> i32 {
                Half::wide(self).low()
            }
            #[inline(always)]
            fn is_high(self) -> bool {
                Half::wide(self).is_high()
            }
        })*
    };
}

half!(f16, bf16);

/// A function of a type.
pub(crate) struct Applied<E, R>(E, R);

impl<E: Float, R: Real> Function for Applied<E, R> {
    type In = E;
    type Out = E;
    fn of(x: E) -> E {
        let mut y = [x];
        Self::all(&[x], &mut y);
        y[0]
    }
    fn all(from: &[E], to: &mut [E]) {
        E::apply::<R>(from, to);
    }
}

macro_rules! unary {
    ($($name:ident => $f64:expr, $f32:expr $(, $lane:ident $(unless $rare:ident)?)?;)*) => {
        /// The functions of one number that the host computes, by the names of their ops.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Unary { $($name),* }

        $(
            pub(crate) struct $name;
            impl Real for $name {
                #[inline]
                fn f64(x: f64) -> f64 { $f64(x) }
                #[inline]
                fn f32(x: f32) -> f32 { $f32(x) }
                $(
                    #[inline(always)]
                    fn lane(x: f32) -> f32 { lanes::$lane(x.into()) as f32 }
                    fn f32s(from: &[f32], to: &mut [f32]) {
                        isa::run(Singles(from, to, PhantomData::<Self>));
                    }
                    $(
                        #[inline(always)]
                        fn is_rare(x: f32) -> bool { lanes::$rare(x) }
                    )?
                )?
            }
        )*

        impl Unary {
            fn of<E: Float>(self) -> Run {
                match self { $(Self::$name => run::<Applied<E, $name>>,)* }
            }

            fn tile_of<E: Float>(self) -> Loop {
                match self { $(Self::$name => kernel::applied::<Applied<E, $name>>,)* }
            }

            fn name(self) -> &'static CStr {
                match self {
                    $(Self::$name => {
                        const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                        CStr::from_bytes_until_nul(NAME).unwrap_or_default()
                    })*
                }
            }
        }
    };
}

unary! {
    Arccos => pxfm::f_acos, pxfm::f_acosf;
    Arccosh => pxfm::f_acosh, pxfm::f_acoshf;
    Arcsin => pxfm::f_asin, pxfm::f_asinf;
    Arcsinh => pxfm::f_asinh, pxfm::f_asinhf;
    Arctan => pxfm::f_atan, pxfm::f_atanf;
    Arctanh => pxfm::f_atanh, pxfm::f_atanhf;
    Cbrt => pxfm::f_cbrt, pxfm::f_cbrtf;
    Cos => pxfm::f_cos, pxfm::f_cosf, cos unless is_far;
    Cosh => pxfm::f_cosh, pxfm::f_coshf, cosh;
    Erf => pxfm::f_erf, pxfm::f_erff, erf;
    Erfc => pxfm::f_erfc, pxfm::f_erfcf;
    Erfinv => pxfm::f_erfinv, pxfm::f_erfinvf;
    Exp => pxfm::f_exp, pxfm::f_expf, exp;
    Expm1 => pxfm::f_expm1, pxfm::f_expm1f, expm1;
    Log => pxfm::f_log, pxfm::f_logf, log;
    Log1p => pxfm::f_log1p, pxfm::f_log1pf, log1p;
    RoundAway => f64::round, f32::round;
    Rsqrt => pxfm::f_rsqrt, pxfm::f_rsqrtf, rsqrt;
    Sigmoid => sigmoid, |x: f32| sigmoid(x.into()) as f32, sigmoid;
    Sin => pxfm::f_sin, pxfm::f_sinf, sin unless is_far;
    Sinh => pxfm::f_sinh, pxfm::f_sinhf, sinh;
    Tan => pxfm::f_tan, pxfm::f_tanf, tan unless is_far;
    Tanh => pxfm::f_tanh, pxfm::f_tanhf, tanh;
}

/// 1 / (1 + exp(-x)), without losing the small values of negative numbers.
fn sigmoid(x: f64) -> f64 {
    let small = pxfm::f_exp(-x.abs());
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

impl Unary {
    /// The function of complex numbers, if it has one.
    fn complex(self) -> Option<Run> {
        // SAFETY: a table of functions that never changes.
        let table = unsafe { &ffi::mlx_ffi_complex };
        match self {
            Self::Arccos => table.arccos,
            Self::Arccosh => table.arccosh,
            Self::Arcsin => table.arcsin,
            Self::Arcsinh => table.arcsinh,
            Self::Arctan => table.arctan,
            Self::Arctanh => table.arctanh,
            Self::Cbrt => table.cbrt,
            Self::Cos => table.cos,
            Self::Cosh => table.cosh,
            Self::Exp => table.exp,
            Self::Expm1 => table.expm1,
            Self::Log => table.log,
            Self::Log1p => table.log1p,
            Self::Rsqrt => table.rsqrt,
            Self::Sigmoid => table.sigmoid,
            Self::Sin => table.sin,
            Self::Sinh => table.sinh,
            Self::Tan => table.tan,
            Self::Tanh => table.tanh,
            Self::Erf | Self::Erfc | Self::Erfinv | Self::RoundAway => None,
        }
    }

    /// The function as a step of a kernel, where the elements are floats.
    pub(crate) fn tile(self, dtype: Dtype) -> Option<Loop> {
        Some(match dtype {
            Dtype::Float64 => self.tile_of::<f64>(),
            Dtype::Float32 => self.tile_of::<f32>(),
            Dtype::Float16 => self.tile_of::<f16>(),
            Dtype::Bfloat16 => self.tile_of::<bf16>(),
            _ => return None,
        })
    }
}

/// The function of every element, if the stream is a CPU's and the elements are floats, or complex.
pub(crate) fn unary(function: Unary, x: &Array, s: &Stream) -> Option<Result<Array>> {
    if s.device != Device::Cpu {
        return None;
    }
    let dtype = x.dtype();
    let run = match dtype {
        Dtype::Float64 => function.of::<f64>(),
        Dtype::Float32 => function.of::<f32>(),
        Dtype::Float16 => function.of::<f16>(),
        Dtype::Bfloat16 => function.of::<bf16>(),
        Dtype::Complex64 => function.complex()?,
        _ => return None,
    };
    Some(map(x, dtype, function.name(), run, s))
}

#[cfg(test)]
mod tests {
    //! Oracle: the function itself, element by element.
    use super::*;

    #[test]
    fn elements_are_read_before_they_are_written_over() {
        let numbers: Vec<f32> = (0..9).map(|i| i as f32 / 4.0).collect();
        let wanted: Vec<f32> = numbers.iter().map(|x| pxfm::f_expf(*x)).collect();
        let mut place = numbers.clone();
        let at = place.as_mut_ptr();
        // SAFETY: as many elements are there, one after the other.
        unsafe { run::<Applied<f32, Exp>>(at.cast(), 1, at.cast(), 9) };
        assert_eq!(place, wanted);

        let mut backwards = vec![0f32; 5];
        // SAFETY: from the last on, every second is within.
        unsafe {
            let last = numbers.as_ptr().add(8);
            run::<Applied<f32, Exp>>(last.cast(), -2, backwards.as_mut_ptr().cast(), 5);
        }
        let every: Vec<f32> = wanted.iter().rev().step_by(2).copied().collect();
        assert_eq!(backwards, every);

        let mut none = [7f32];
        // SAFETY: nothing is read or written.
        unsafe {
            run::<Applied<f32, Exp>>(numbers.as_ptr().cast(), 1, none.as_mut_ptr().cast(), 0)
        };
        assert_eq!(none, [7.0]);
    }
}
