//! Host kernels: functions of ours that MLX calls on the CPU, in the middle of its lazy graph.
//!
//! They stand in where MLX has no operation, or one with other values. MLX's functions of f64 are
//! as precise as those of f32, some even less, and those of f32 are off by several units in the
//! last place; the ones here are rounded correctly, and faster.

mod convert;

pub(crate) use convert::{Converted, convert};

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::{bf16, f16};
use mlx_ffi as ffi;

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::kernel::{self, Loop};
use crate::stream::{Device, Stream};

/// A function of one element.
pub(crate) trait Function {
    type In: Copy;
    type Out: Copy;
    fn of(x: Self::In) -> Self::Out;
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
    let (from, to) = (from.cast::<F::In>(), to.cast::<F::Out>());
    let each = || {
        for index in 0..size {
            // SAFETY: as the caller says; an element is read before it is written over.
            unsafe {
                let x = from.offset(index as isize * stride).read();
                to.add(index).write(F::of(x));
            }
        }
    };
    // No function panics; a panic would end the process here, in the middle of C++.
    if catch_unwind(AssertUnwindSafe(each)).is_err() {
        // SAFETY: as the caller says, and all zeros is a number of every type.
        unsafe { to.write_bytes(0, size) };
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
}

/// A floating type and how a function applies to it: half precision by way of f32.
pub(crate) trait Float: Copy {
    fn apply<R: Real>(self) -> Self;
    fn wide(self) -> f64;
}

impl Float for f64 {
    fn apply<R: Real>(self) -> Self {
        R::f64(self)
    }
    fn wide(self) -> f64 {
        self
    }
}

impl Float for f32 {
    fn apply<R: Real>(self) -> Self {
        R::f32(self)
    }
    fn wide(self) -> f64 {
        self.into()
    }
}

macro_rules! half {
    ($($half:ty),*) => {
        $(impl Float for $half {
            fn apply<R: Real>(self) -> Self {
                Self::from_f32(R::f32(self.into()))
            }
            fn wide(self) -> f64 {
                self.into()
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
        x.apply::<R>()
    }
}

macro_rules! unary {
    ($($name:ident => $f64:expr, $f32:expr;)*) => {
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
    Cos => pxfm::f_cos, pxfm::f_cosf;
    Cosh => pxfm::f_cosh, pxfm::f_coshf;
    Erf => pxfm::f_erf, pxfm::f_erff;
    Erfc => pxfm::f_erfc, pxfm::f_erfcf;
    Erfinv => pxfm::f_erfinv, pxfm::f_erfinvf;
    Exp => pxfm::f_exp, pxfm::f_expf;
    Expm1 => pxfm::f_expm1, pxfm::f_expm1f;
    Log => pxfm::f_log, pxfm::f_logf;
    Log1p => pxfm::f_log1p, pxfm::f_log1pf;
    RoundAway => f64::round, f32::round;
    Rsqrt => pxfm::f_rsqrt, pxfm::f_rsqrtf;
    Sigmoid => sigmoid, |x: f32| sigmoid(x.into()) as f32;
    Sin => pxfm::f_sin, pxfm::f_sinf;
    Sinh => pxfm::f_sinh, pxfm::f_sinhf;
    Tan => pxfm::f_tan, pxfm::f_tanf;
    Tanh => pxfm::f_tanh, pxfm::f_tanhf;
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
