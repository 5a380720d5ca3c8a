//! Arrays: owned handles to MLX's.

use std::fmt;
use std::os::raw::c_int;

use mlx_ffi as ffi;

use crate::dtype::Dtype;
use crate::error::{Error, Result, check};
use crate::memory;
use crate::shape::Shape;
use crate::stream::{Device, Stream, Streams};

/// An array, computed or still to be computed. A clone is another handle to the same array.
pub struct Array(ffi::mlx_array);

// SAFETY: a handle is a shared pointer with an atomic count. What MLX keeps per thread is touched
// only when an array is built or evaluated, and the worker that owns its stream does both.
unsafe impl Send for Array {}

impl Array {
    /// The only way to make one: `call` fills in an empty handle and answers mlx-c's status.
    /// A result larger than the memory limit is refused here, while it is still unevaluated:
    /// MLX dereferences what its allocator returns without looking.
    pub(crate) fn build(
        op: &'static str,
        call: impl FnOnce(*mut ffi::mlx_array) -> c_int,
    ) -> Result<Self> {
        // SAFETY: an empty handle needs no other.
        let mut array = Self(unsafe { ffi::mlx_array_new() });
        check(call(&mut array.0), op)?;
        let dims = array.dims();
        if dims.contains(&0) {
            // Some of MLX's kernels divide by an axis of nothing, so nothing is not computed.
            let shape = Shape::new(dims.iter().map(|dim| i64::from(*dim)).collect())?;
            return Self::from_bytes(&[], &shape, array.dtype());
        }
        // MLX's own product wraps.
        let dims = dims.iter().map(|dim| *dim as usize);
        let bytes = dims.fold(array.dtype().size(), usize::saturating_mul);
        let limit = memory::largest_array();
        if bytes > limit {
            return Err(Error::OutOfMemory { op, bytes, limit });
        }
        Ok(array)
    }

    /// Whether `len` bytes are what an array of this shape and type takes, and may be had.
    pub fn check_bytes(len: usize, shape: &Shape, dtype: Dtype) -> Result<()> {
        let op = "from_binary";
        let bytes = shape.size() * dtype.size();
        if len == bytes {
            Self::check_size(op, shape, dtype).map(|_| ())
        } else {
            let dims = shape.dims();
            Err(Error::invalid(
                op,
                format!(
                    "a {dtype:?} array of shape {dims:?} takes {bytes} bytes, and the binary has {len}"
                ),
            ))
        }
    }

    /// How many bytes an array of this shape and type takes, if they may be had.
    pub fn check_size(op: &'static str, shape: &Shape, dtype: Dtype) -> Result<usize> {
        let (bytes, limit) = (shape.size() * dtype.size(), memory::largest_array());
        if bytes > limit {
            return Err(Error::OutOfMemory { op, bytes, limit });
        }
        Ok(bytes)
    }

    /// An array with a copy of `bytes`, which are in native byte order and row-major. A bool is true
    /// unless its byte is zero.
    pub fn from_bytes(bytes: &[u8], shape: &Shape, dtype: Dtype) -> Result<Self> {
        let op = "from_binary";
        Self::check_bytes(bytes.len(), shape, dtype)?;
        // C++ has no bools of another byte than 0 and 1.
        let truths: Vec<u8>;
        let bytes = if dtype == Dtype::Bool && bytes.iter().any(|byte| *byte > 1) {
            truths = bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
            &truths[..]
        } else {
            bytes
        };
        let dims = shape.dims();
        // SAFETY: `bytes` holds exactly the elements of the shape; MLX copies them.
        let raw = unsafe {
            ffi::mlx_array_new_data(
                bytes.as_ptr().cast(),
                dims.as_ptr(),
                dims.len() as c_int,
                dtype.raw(),
            )
        };
        if raw.ctx.is_null() {
            return Err(Error::native(op));
        }
        Ok(Self(raw))
    }

    /// An array whose bytes `fill` writes, which are zeros before. Where that fails, there is none.
    pub(crate) fn filled(
        op: &'static str,
        shape: &Shape,
        dtype: Dtype,
        streams: &Streams,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let bytes = Self::check_size(op, shape, dtype)?;
        let dims = shape.dims();
        // On the CPU, whatever the device: that is where it is written.
        let stream = streams.pick(true);
        let array = Self::build(op, |res| {
            // SAFETY: the shape is live for the call.
            unsafe { ffi::mlx_zeros(res, dims.as_ptr(), dims.len(), dtype.raw(), stream.raw()) }
        })?;
        array.eval()?;
        if bytes == 0 {
            return Ok(array);
        }
        if !array.is_row_contiguous() || array.nbytes() != bytes {
            return Err(Error::invalid(op, "a new array is not laid out in rows"));
        }
        // SAFETY: the buffer has as many bytes, all of them zero, and nobody else has the array.
        fill(unsafe { std::slice::from_raw_parts_mut(array.data()?.cast_mut(), bytes) })?;
        Ok(array)
    }

    pub(crate) fn raw(&self) -> ffi::mlx_array {
        self.0
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        // SAFETY: the handle is live.
        Dtype::from_raw(unsafe { ffi::mlx_array_dtype(self.0) })
    }

    /// The axes' sizes.
    pub fn dims(&self) -> &[i32] {
        // SAFETY: MLX keeps the shape as long as the array; an array of rank 0 may have none.
        unsafe {
            match ffi::mlx_array_ndim(self.0) {
                0 => &[],
                rank => std::slice::from_raw_parts(ffi::mlx_array_shape(self.0), rank),
            }
        }
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        // SAFETY: the handle is live.
        unsafe { ffi::mlx_array_size(self.0) }
    }

    /// The size in bytes.
    pub fn nbytes(&self) -> usize {
        // SAFETY: the handle is live.
        unsafe { ffi::mlx_array_nbytes(self.0) }
    }

    /// Whether the values are there.
    pub fn is_available(&self) -> bool {
        let mut available = false;
        // SAFETY: the handle is live, and so is the place written to.
        unsafe { ffi::_mlx_array_is_available(&mut available, self.0) };
        available
    }

    /// Computes the values and waits for them. For the thread that built the array.
    pub fn eval(&self) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { ffi::mlx_array_eval(self.0) }, "eval")
    }

    /// Begins to compute the values of all of them together, and does not wait.
    pub fn eval_async(arrays: &[Self]) -> Result<()> {
        Self::each_device(arrays, |vector| {
            // SAFETY: the vector is live.
            check(unsafe { ffi::mlx_async_eval(vector.raw()) }, "eval")
        })
    }

    /// Computes the values of all of them together and waits.
    pub fn eval_all(arrays: &[Self]) -> Result<()> {
        Self::each_device(arrays, |vector| {
            // SAFETY: the vector is live.
            check(unsafe { ffi::mlx_eval(vector.raw()) }, "eval")
        })
    }

    /// MLX brings what it evaluates together on the stream of one of them. That may be a GPU's, which
    /// has no f64, so these go by themselves.
    fn each_device(arrays: &[Self], eval: impl Fn(Vector) -> Result<()>) -> Result<()> {
        let (wide, others): (Vec<&Self>, Vec<&Self>) = arrays
            .iter()
            .partition(|array| array.dtype() == Dtype::Float64);
        for part in [others, wide] {
            if !part.is_empty() {
                eval(Vector::new(part.into_iter()))?;
            }
        }
        Ok(())
    }

    /// The same elements for another worker, which is on `device`: evaluated, and where another
    /// device's reading would move the memory, a copy.
    pub(crate) fn detached(&self, device: Device, streams: &Streams) -> Result<Self> {
        self.eval()?;
        // MLX takes note of it where it is first asked, which two threads must not do at once.
        if !self.is_available() {
            self.eval()?;
        }
        if streams.main.device == Device::Cpu || streams.main.device == device {
            return Ok(self.clone());
        }
        // A buffer of a GPU leaves it for good when another device reads it; this one stays.
        let copy = self.duplicate(streams.pick(self.dtype() == Dtype::Float64))?;
        copy.eval()?;
        if !copy.is_available() {
            copy.eval()?;
        }
        copy.data()?;
        Ok(copy)
    }

    /// The same elements in a buffer of their own.
    fn duplicate(&self, stream: &Stream) -> Result<Self> {
        let op = "copy";
        // MLX's own copies share the buffer, and so does all that changes nothing; a selection
        // does not look.
        // SAFETY: makes an array of one value.
        let all = Self(unsafe { ffi::mlx_array_new_bool(true) });
        Self::build(op, |res| {
            // SAFETY: the handles are live for the call.
            unsafe { ffi::mlx_where(res, all.0, self.0, self.0, stream.raw()) }
        })
    }

    /// Where the elements of an evaluated array are, for the host.
    fn data(&self) -> Result<*const u8> {
        // SAFETY: the array is evaluated, so it has a buffer.
        let data = unsafe { ffi::mlx_array_data_uint8(self.0) };
        if data.is_null() && self.nbytes() > 0 {
            return Err(Error::invalid(
                "to_binary",
                "an evaluated array has no data",
            ));
        }
        Ok(data)
    }

    /// Where the elements are, and how many of them apart along each axis, if they are computed
    /// already. For arrays in the host's memory.
    pub(crate) fn lies(&self) -> Option<(*const u8, &[i64])> {
        if !self.is_available() {
            return None;
        }
        let data = self.data().ok()?;
        // SAFETY: MLX keeps a stride for each axis as long as the array, as 64 bits, with a sign.
        let strides = unsafe {
            match ffi::mlx_array_ndim(self.0) {
                0 => &[],
                rank => std::slice::from_raw_parts(ffi::mlx_array_strides(self.0).cast(), rank),
            }
        };
        Some((data, strides))
    }

    /// Where the elements are, if they are computed already and lie in rows.
    pub(crate) fn rows(&self) -> Option<*const u8> {
        let (data, _) = self.lies()?;
        self.is_row_contiguous().then_some(data)
    }

    /// The same elements laid out in rows, once computed.
    pub(crate) fn in_rows(&self, stream: &Stream) -> Result<Self> {
        Self::build("contiguous", |res| {
            // SAFETY: both handles are live for the call.
            unsafe { ffi::mlx_contiguous(res, self.0, false, stream.raw()) }
        })
    }

    fn is_row_contiguous(&self) -> bool {
        let mut contiguous = false;
        // SAFETY: the handle is live, and so is the place written to.
        unsafe { ffi::_mlx_array_is_row_contiguous(&mut contiguous, self.0) };
        contiguous
    }

    /// The values as bytes, computed if need be; at most `limit` elements of them.
    pub fn bytes(&self, limit: Option<usize>, streams: &Streams) -> Result<Bytes> {
        let stream = streams.pick(self.dtype() == Dtype::Float64);
        let mut array = self.clone();
        let wanted = limit.map_or(array.size(), |limit| limit.min(array.size()));
        if wanted < array.size() && !array.dims().is_empty() {
            array = Self::first(&array, wanted, stream)?;
            if stream.device != Device::Cpu && array.dtype() != Dtype::Float64 {
                // What a GPU's buffer shares with this part would leave the GPU with it.
                array = array.duplicate(stream)?;
            }
        }
        array.eval()?;
        if !array.is_row_contiguous() {
            array = array.in_rows(stream)?;
            array.eval()?;
        }
        let len = wanted * array.dtype().size();
        let data = array.data()?;
        Ok(Bytes { array, data, len })
    }

    /// Whole rows that begin with the first `wanted` elements and are less than twice as many.
    fn first(array: &Self, wanted: usize, stream: &Stream) -> Result<Self> {
        let dims = array.dims();
        let rank = dims.len();
        let mut stop = dims.to_vec();
        let mut below = 1;
        for axis in (0..rank).rev() {
            // At most the size of the axis, so it fits.
            let rows = wanted.div_ceil(below).min(dims[axis] as usize);
            stop[axis] = rows as c_int;
            below *= dims[axis] as usize;
        }
        let (start, stride) = (vec![0; rank], vec![1; rank]);
        Self::build("to_binary", |res| {
            // SAFETY: the handles and the bounds are live for the call.
            unsafe {
                ffi::mlx_slice(
                    res,
                    array.0,
                    start.as_ptr(),
                    rank,
                    stop.as_ptr(),
                    rank,
                    stride.as_ptr(),
                    rank,
                    stream.raw(),
                )
            }
        })
    }
}

impl Clone for Array {
    fn clone(&self) -> Self {
        // SAFETY: an empty handle needs no other; both are live for the call.
        unsafe {
            let mut raw = ffi::mlx_array_new();
            ffi::mlx_array_set(&mut raw, self.0);
            Self(raw)
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used no more.
        unsafe { ffi::mlx_array_free(self.0) };
    }
}

/// As Nx writes it: `f32[2][3]`.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bits) = self.dtype().parts();
        write!(f, "{kind}{bits}")?;
        self.dims().iter().try_for_each(|dim| write!(f, "[{dim}]"))
    }
}

/// The values of an evaluated, contiguous array, which stays alive with them.
#[derive(Debug)]
pub struct Bytes {
    array: Array,
    data: *const u8,
    len: usize,
}

// SAFETY: the array is evaluated, nothing writes to its buffer while a handle to it is held, and
// the handle itself is only ever dropped.
unsafe impl Send for Bytes {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// The array that holds the bytes.
    pub fn into_array(self) -> Array {
        self.array
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `data` points to `len` bytes of the array's buffer, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// A vector of arrays, for the calls that take many.
pub(crate) struct Vector(ffi::mlx_vector_array);

impl Vector {
    pub(crate) fn new<'a>(arrays: impl Iterator<Item = &'a Array>) -> Self {
        let handles: Vec<ffi::mlx_array> = arrays.map(|array| array.0).collect();
        // SAFETY: the handles are live; the vector takes handles of its own.
        Self(unsafe { ffi::mlx_vector_array_new_data(handles.as_ptr(), handles.len()) })
    }

    pub(crate) fn raw(&self) -> ffi::mlx_vector_array {
        self.0
    }

    /// The arrays of a vector that `call` fills in.
    pub(crate) fn build(
        op: &'static str,
        call: impl FnOnce(*mut ffi::mlx_vector_array) -> c_int,
    ) -> Result<Vec<Array>> {
        // SAFETY: an empty vector needs no other.
        let mut vector = Self(unsafe { ffi::mlx_vector_array_new() });
        check(call(&mut vector.0), op)?;
        // SAFETY: the vector is live.
        let size = unsafe { ffi::mlx_vector_array_size(vector.0) };
        (0..size)
            .map(|index| {
                Array::build(op, |res| {
                    // SAFETY: the vector is live and the index within it.
                    unsafe { ffi::mlx_vector_array_get(res, vector.0, index) }
                })
            })
            .collect()
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        // SAFETY: the vector is live and used no more.
        unsafe { ffi::mlx_vector_array_free(self.0) };
    }
}
