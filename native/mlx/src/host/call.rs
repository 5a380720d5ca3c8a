//! Arrays from others by a function of ours that sees all of them, laid out in rows.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_ffi as ffi;
use smallvec::SmallVec;

use crate::array::{Array, Vector};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::shape::Shape;
use crate::stream::Stream;

/// Elements up to which telling MLX takes longer than doing it.
pub(crate) const SMALL: usize = 1 << 12;

/// A function of arrays.
pub(crate) trait Call: Send + Sync + 'static {
    /// Whether the result may be written over the first input, of the same shape and type, if nobody
    /// else needs that.
    const REUSES: bool = false;

    /// Writes the result's elements.
    ///
    /// # Safety
    /// There must be the inputs that it was made for, each of whole rows, and room for the result.
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void);
}

/// What MLX holds on to.
struct Payload<C> {
    call: C,
    inputs: usize,
    /// How many bytes the result takes.
    len: usize,
}

/// The array of this shape and type that `call` makes: at once if that is less than what MLX takes.
pub(crate) fn call<C: Call>(
    name: &'static CStr,
    inputs: &[&Array],
    (dims, dtype): (&[i32], Dtype),
    call: C,
    s: &Stream,
) -> Result<Array> {
    let shape = Shape::new(dims.iter().map(|dim| i64::from(*dim)).collect())?;
    let len = Array::check_size("host", &shape, dtype)?;
    if let Some(places) = at_hand(inputs, shape.size()) {
        let mut made = vec![0_u64; len.div_ceil(size_of::<u64>())];
        // SAFETY: the inputs are computed and in rows, and there is room for the result.
        let bytes = unsafe {
            call.run(&places, made.as_mut_ptr().cast());
            std::slice::from_raw_parts(made.as_ptr().cast(), len)
        };
        return Array::from_bytes(bytes, &shape, dtype);
    }
    let rows = inputs.iter().map(|x| x.in_rows(s));
    let rows: SmallVec<[Array; 2]> = rows.collect::<Result<_>>()?;
    let vector = Vector::new(rows.iter());
    let payload = Box::new(Payload {
        call,
        inputs: inputs.len(),
        len,
    });
    Array::build("host", |res| {
        // SAFETY: the handles are live for the call; the inputs are in rows, and the payload, which
        // is freed by `forget`, knows how many there are and what the result takes.
        unsafe {
            ffi::mlx_ffi_call(
                res,
                vector.raw(),
                dims.as_ptr(),
                dims.len(),
                dtype.raw(),
                C::REUSES,
                name.as_ptr(),
                Some(run::<C>),
                Box::into_raw(payload).cast(),
                Some(forget::<C>),
                s.raw(),
            )
        }
    })
}

/// Where the inputs are, if they are computed, in rows, and few.
fn at_hand(inputs: &[&Array], made: usize) -> Option<SmallVec<[*const c_void; 2]>> {
    let sizes = inputs.iter().map(|x| x.size());
    if made.saturating_add(sizes.sum()) > SMALL {
        return None;
    }
    inputs.iter().map(|x| Some(x.rows()?.cast())).collect()
}

unsafe extern "C" fn forget<C: Call>(payload: *mut c_void) {
    // SAFETY: it was made by `call`, and this is its only end.
    drop(unsafe { Box::from_raw(payload.cast::<Payload<C>>()) });
}

unsafe extern "C" fn run<C: Call>(
    payload: *mut c_void,
    inputs: *const *const c_void,
    out: *mut c_void,
) {
    // SAFETY: the payload is that of `call`, and there are as many inputs as it says.
    let (payload, inputs) = unsafe {
        let payload = &*payload.cast::<Payload<C>>();
        (payload, std::slice::from_raw_parts(inputs, payload.inputs))
    };
    // SAFETY: they are what `call` was given.
    let each = || unsafe { payload.call.run(inputs, out) };
    // Nothing here panics; a panic would end the process, in the middle of C++.
    if catch_unwind(AssertUnwindSafe(each)).is_err() {
        // SAFETY: there is room for so many bytes, which have what was there before.
        unsafe { out.cast::<u8>().write_bytes(0, payload.len) };
    }
}
