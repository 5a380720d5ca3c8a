//! Convolutions, on all cores. MLX spreads all that the window sees out in memory, on one core, before
//! one large product; with groups or dilations it adds up one number after the other.

mod patch;
mod sizes;
#[cfg(test)]
mod tests;
mod work;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::{bf16, f16};
use mlx_ffi as ffi;

use self::sizes::{Axis, Order, Sizes};
use self::work::Work;
use super::gemm::Sum;
use crate::array::{Array, Vector};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::halves::Half;
use crate::ops::conv::Window;
use crate::shape::Shape;
use crate::stream::{Device, Stream};

/// Numbers that are convolved, and what their products are summed as.
trait Number: Copy + Send + Sync + 'static {
    type Sum: Sum;
    /// Whether they are sums themselves.
    const IS_SUM: bool;

    fn wide(self) -> Self::Sum;

    /// # Safety
    /// So many must be there, and room for them.
    unsafe fn copy(from: *const Self, to: *mut Self::Sum, count: usize);

    /// # Safety
    /// As of `copy`.
    unsafe fn store(from: *const Self::Sum, to: *mut Self, count: usize);
}

macro_rules! sums {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Sum = Self;
            const IS_SUM: bool = true;
            #[inline(always)]
            fn wide(self) -> Self {
                self
            }
            #[inline(always)]
            unsafe fn copy(from: *const Self, to: *mut Self, count: usize) {
                // SAFETY: as the caller says; the one is an operand, the other is not.
                unsafe { patch::copy_sums(from, to, count) }
            }
            unsafe fn store(from: *const Self, to: *mut Self, count: usize) {
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from, count) }
            }
        }
    )*};
}

sums!(f32, f64);

macro_rules! halves {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Sum = f32;
            const IS_SUM: bool = false;
            #[inline(always)]
            fn wide(self) -> f32 {
                Half::wide(self)
            }
            #[inline(always)]
            unsafe fn copy(from: *const Self, to: *mut f32, count: usize) {
                for index in 0..count {
                    // SAFETY: as the caller says.
                    unsafe { to.add(index).write(Half::wide(from.add(index).read())) }
                }
            }
            unsafe fn store(from: *const f32, to: *mut Self, count: usize) {
                for index in 0..count {
                    // SAFETY: as above.
                    unsafe { to.add(index).write(Half::narrow(from.add(index).read())) }
                }
            }
        }
    )*};
}

halves!(f16, bf16);

/// An array in memory.
struct Operand<'a, T> {
    at: *const T,
    strides: &'a [i64],
}

/// What MLX holds on to.
struct Payload {
    sizes: Sizes,
    dtype: Dtype,
}

impl Payload {
    /// # Safety
    /// The inputs must be those of `conv`.
    unsafe fn strides(&self, inputs: *const ffi::mlx_ffi_input) -> [&[i64]; 2] {
        let axes = self.sizes.axes.len() + 2;
        // SAFETY: there are two inputs, with a stride for each axis.
        [0, 1]
            .map(|index| unsafe { std::slice::from_raw_parts((*inputs.add(index)).strides, axes) })
    }

    /// # Safety
    /// The inputs must be those of `conv`, which have numbers of this type, and there be room for the
    /// result.
    unsafe fn run<T: Number>(&self, inputs: *const ffi::mlx_ffi_input, to: *mut c_void) {
        // SAFETY: as the caller says.
        let [x, weights] = unsafe { self.strides(inputs) };
        let at = |index: usize| {
            // SAFETY: there are two inputs.
            let input = unsafe { &*inputs.add(index) };
            input.data.cast::<T>()
        };
        if self.sizes.depth() == 0 {
            // SAFETY: there is room for the result, and all zeros is a number.
            unsafe { to.cast::<T>().write_bytes(0, self.size()) };
            return;
        }
        let x = Operand {
            at: at(0),
            strides: x,
        };
        let weights = Operand {
            at: at(1),
            strides: weights,
        };
        Work::new(&self.sizes, x, weights, to.cast::<T>()).all();
    }

    fn size(&self) -> usize {
        let Sizes {
            batch,
            groups,
            filters,
            ..
        } = self.sizes;
        batch * groups * filters * self.sizes.image()
    }
}

unsafe extern "C" fn forget(payload: *mut c_void) {
    // SAFETY: it was made by `conv`, and this is its only end.
    drop(unsafe { Box::from_raw(payload.cast::<Payload>()) });
}

unsafe extern "C" fn place(
    payload: *mut c_void,
    inputs: *const ffi::mlx_ffi_input,
    strides: *mut i64,
) {
    // SAFETY: the payload is that of `conv`, and the result has as many axes as the inputs.
    unsafe {
        let payload = &*payload.cast::<Payload>();
        let [x, weights] = payload.strides(inputs);
        let strides = std::slice::from_raw_parts_mut(strides, x.len());
        Order::new(&payload.sizes, x, weights).strides(&payload.sizes, strides);
    }
}

unsafe extern "C" fn run(payload: *mut c_void, inputs: *const ffi::mlx_ffi_input, to: *mut c_void) {
    // SAFETY: the payload is that of `conv`.
    let payload = unsafe { &*payload.cast::<Payload>() };
    // SAFETY: what is there is what `conv` was given.
    let each = || unsafe {
        match payload.dtype {
            Dtype::Float64 => payload.run::<f64>(inputs, to),
            Dtype::Float16 => payload.run::<f16>(inputs, to),
            Dtype::Bfloat16 => payload.run::<bf16>(inputs, to),
            _ => payload.run::<f32>(inputs, to),
        }
    };
    // Nothing here panics; a panic would end the process, in the middle of C++.
    if catch_unwind(AssertUnwindSafe(each)).is_err() {
        let len = payload.size() * payload.dtype.size();
        // SAFETY: there is room for so many bytes, which have what was there before.
        unsafe { to.cast::<u8>().write_bytes(0, len) };
    }
}

/// The convolution of `x`, with its channels last, with filters, theirs last as well, if the stream is
/// a CPU's and the numbers are floats.
pub(crate) fn conv(
    x: &Array,
    weights: &Array,
    window: &Window,
    groups: i32,
    s: &Stream,
) -> Option<Result<Array>> {
    let dtype = x.dtype();
    let floats = [
        Dtype::Float64,
        Dtype::Float32,
        Dtype::Float16,
        Dtype::Bfloat16,
    ];
    if s.device != Device::Cpu || weights.dtype() != dtype || !floats.contains(&dtype) {
        return None;
    }
    let (sizes, dims) = Sizes::new(x.dims(), weights.dims(), window, groups)?;
    let shape = Shape::new(dims.iter().map(|dim| i64::from(*dim)).collect());
    if let Err(error) = shape.and_then(|shape| Array::check_size("conv", &shape, dtype)) {
        return Some(Err(error));
    }
    let inputs = Vector::new([x, weights].into_iter());
    let payload = Box::new(Payload { sizes, dtype });
    Some(Array::build("conv", |res| {
        // SAFETY: the handles and the shape are live for the call, and the payload, which `forget`
        // frees, is made for such inputs and a result of this shape.
        unsafe {
            ffi::mlx_ffi_placed(
                res,
                inputs.raw(),
                dims.as_ptr(),
                dims.len(),
                dtype.raw(),
                c"Conv".as_ptr(),
                Some(place),
                Some(run),
                Box::into_raw(payload).cast(),
                Some(forget),
                s.raw(),
            )
        }
    }))
}

impl Sizes {
    /// The sizes of a convolution and the shape of its result, if the operands fit each other.
    fn new(x: &[i32], weights: &[i32], window: &Window, groups: i32) -> Option<(Self, Vec<i32>)> {
        let ([batch, inputs @ .., channels], [filters, taps @ .., each]) = (x, weights) else {
            return None;
        };
        let fits = inputs.len() == taps.len()
            && !inputs.is_empty()
            && groups > 0
            && filters % groups == 0
            && i64::from(*channels) == i64::from(*each) * i64::from(groups);
        if !fits {
            return None;
        }
        let mut dims = vec![*batch];
        let mut axes = smallvec::SmallVec::new();
        for (index, (input, taps)) in inputs.iter().zip(taps).enumerate() {
            let of = |list: &[i32]| list.get(index).map(|number| i64::from(*number));
            let (stride, dilation) = (of(window.strides)?, of(window.kernel_dilation)?);
            let (spread, low) = (of(window.input_dilation)?, of(window.pad_lo)?);
            let (input, taps) = (i64::from(*input), i64::from(*taps));
            let size = (input - 1) * spread + 1 + low + of(window.pad_hi)?;
            let reach = (taps - 1) * dilation + 1;
            if input < 1 || taps < 1 || size < reach {
                return None;
            }
            let places = (size - reach) / stride + 1;
            dims.push(i32::try_from(places).ok()?);
            axes.push(Axis {
                input: input as usize,
                taps: taps as usize,
                places: places as usize,
                stride: stride as isize,
                dilation: dilation as isize,
                spread: spread as isize,
                low: low as isize,
            });
        }
        dims.push(*filters);
        let sizes = Self {
            batch: *batch as usize,
            groups: groups as usize,
            channels: *each as usize,
            filters: (filters / groups) as usize,
            axes,
        };
        Some((sizes, dims))
    }
}
