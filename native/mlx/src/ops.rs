//! The op table: one row per operation of MLX.
//!
//! Rows whose body needs more than a line call a function of their family's module. Every row is
//! total: whatever the values of its operands, it neither reads outside an array nor signals.

#[macro_use]
mod macros;
mod check;
pub(crate) mod conv;
mod float;
mod fold;
mod fourier;
mod index;
mod integer;
mod linalg;
mod order;
mod product;
#[cfg(test)]
mod properties;
mod shape;
pub(crate) mod window;

use mlx_ffi as ffi;
use smallvec::{SmallVec, smallvec};

use crate::array::{Array, Vector};
use crate::control;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fuse::plan;
use crate::host::{self, Reduction};
use crate::program::{Body, Program, Run};
use crate::shape::Shape;
use crate::stream::Stream;

/// Something, if the elements are true or false: all of them are the least, any the greatest.
fn truth(x: &Array) -> Option<()> {
    (x.dtype() == Dtype::Bool).then_some(())
}

/// What an operation makes: nearly always one array.
pub type Made = SmallVec<[Array; 1]>;

ops! {
    // Sources
    Constant(dtype: Dtype, bytes: Bytes) => |[], _s| Array::from_bytes(&bytes.0, &Shape::default(), dtype);
    Arange(n: u32, dtype: Dtype) => |[], s| c!(mlx_arange(0.0, f64::from(n), 1.0, dtype), s);
    Eye(rows: u32, cols: u32, diagonal: i32, dtype: Dtype) => |[], s| shape::eye(rows, cols, diagonal, dtype, s);

    // Elementwise, one operand
    Abs => |[x], s| c!(mlx_abs(x), s);
    Arccos => host |[x], s| c!(mlx_arccos(x), s);
    Arccosh => host |[x], s| c!(mlx_arccosh(x), s);
    Arcsin => host |[x], s| c!(mlx_arcsin(x), s);
    Arcsinh => host |[x], s| c!(mlx_arcsinh(x), s);
    Arctan => host |[x], s| c!(mlx_arctan(x), s);
    Arctanh => host |[x], s| c!(mlx_arctanh(x), s);
    Astype(dtype: Dtype) => |[x], s| c!(mlx_astype(x, dtype), s);
    BitwiseInvert => |[x], s| c!(mlx_bitwise_invert(x), s);
    Cbrt => host |[x], s| float::cbrt(x, s);
    Ceil => |[x], s| c!(mlx_ceil(x), s);
    Conjugate => |[x], s| c!(mlx_conjugate(x), s);
    Contiguous => |[x], s| c!(mlx_contiguous(x, false), s);
    Convert(dtype: Dtype) => |[x], s| host::convert(x, dtype, s).unwrap_or_else(|| float::convert(x, dtype, s));
    Cos => host |[x], s| c!(mlx_cos(x), s);
    Cosh => host |[x], s| c!(mlx_cosh(x), s);
    Erf => host |[x], s| c!(mlx_erf(x), s);
    Erfc => host |[x], s| float::erfc(x, s);
    Erfinv => host |[x], s| c!(mlx_erfinv(x), s);
    Exp => host |[x], s| c!(mlx_exp(x), s);
    Expm1 => host |[x], s| c!(mlx_expm1(x), s);
    Floor => |[x], s| c!(mlx_floor(x), s);
    Imag => |[x], s| c!(mlx_imag(x), s);
    Isinf => |[x], s| c!(mlx_isinf(x), s);
    Isnan => |[x], s| c!(mlx_isnan(x), s);
    Log => host |[x], s| c!(mlx_log(x), s);
    Log1p => host |[x], s| c!(mlx_log1p(x), s);
    LogicalNot => |[x], s| c!(mlx_logical_not(x), s);
    Negative => |[x], s| c!(mlx_negative(x), s);
    Real => |[x], s| c!(mlx_real(x), s);
    Reciprocal => |[x], s| c!(mlx_reciprocal(x), s);
    RoundAway => host |[x], s| float::round_away(x, s);
    Rsqrt => host |[x], s| c!(mlx_rsqrt(x), s);
    Sigmoid => host |[x], s| c!(mlx_sigmoid(x), s);
    Sign => |[x], s| c!(mlx_sign(x), s);
    Sin => host |[x], s| c!(mlx_sin(x), s);
    Sinh => host |[x], s| c!(mlx_sinh(x), s);
    Sqrt => |[x], s| c!(mlx_sqrt(x), s);
    Square => |[x], s| c!(mlx_square(x), s);
    Tan => host |[x], s| c!(mlx_tan(x), s);
    Tanh => host |[x], s| c!(mlx_tanh(x), s);
    View(dtype: Dtype) => |[x], s| c!(mlx_view(x, dtype), s);

    // Elementwise, two operands, broadcast against each other
    Add => |[a, b], s| c!(mlx_add(a, b), s);
    Arctan2 => |[a, b], s| c!(mlx_arctan2(a, b), s);
    BitwiseAnd => |[a, b], s| c!(mlx_bitwise_and(a, b), s);
    BitwiseOr => |[a, b], s| c!(mlx_bitwise_or(a, b), s);
    BitwiseXor => |[a, b], s| c!(mlx_bitwise_xor(a, b), s);
    Divide => |[a, b], s| c!(mlx_divide(a, b), s);
    Equal => |[a, b], s| c!(mlx_equal(a, b), s);
    FloorDivide => |[a, b], s| integer::floor_divide(a, b, s);
    Greater => |[a, b], s| c!(mlx_greater(a, b), s);
    GreaterEqual => |[a, b], s| c!(mlx_greater_equal(a, b), s);
    LeftShift => |[a, b], s| c!(mlx_left_shift(a, b), s);
    Less => |[a, b], s| c!(mlx_less(a, b), s);
    LessEqual => |[a, b], s| c!(mlx_less_equal(a, b), s);
    LogicalAnd => |[a, b], s| c!(mlx_logical_and(a, b), s);
    LogicalOr => |[a, b], s| c!(mlx_logical_or(a, b), s);
    Maximum => |[a, b], s| c!(mlx_maximum(a, b), s);
    Minimum => |[a, b], s| c!(mlx_minimum(a, b), s);
    Multiply => |[a, b], s| c!(mlx_multiply(a, b), s);
    NotEqual => |[a, b], s| c!(mlx_not_equal(a, b), s);
    Power => |[a, b], s| c!(mlx_power(a, b), s);
    Remainder => |[a, b], s| integer::remainder(a, b, s);
    RightShift => |[a, b], s| c!(mlx_right_shift(a, b), s);
    Subtract => |[a, b], s| c!(mlx_subtract(a, b), s);

    // Selection
    Where => |[condition, a, b], s| c!(mlx_where(condition, a, b), s);

    // Shape
    AsStrided(dims: Shape, strides: Vec<i64>, offset: u64) => |[x], s| shape::as_strided(x, dims, strides, offset, s);
    BroadcastTo(dims: Shape) => |[x], s| c!(mlx_broadcast_to(x, [dims.dims()]), s);
    ConcatenateAxis(axis: i32) => |xs, s| c!(mlx_concatenate_axis(vector(xs), axis), s);
    ExpandDimsAxes(axes: Vec<i32>) => |[x], s| c!(mlx_expand_dims_axes(x, [axes]), s);
    Flip(axes: Vec<i32>) => |[x], s| c!(mlx_flip_axes(x, [axes]), s);
    Pad(axes: Vec<i32>, lows: Vec<i32>, highs: Vec<i32>) => |[x, value], s| shape::pad(x, value, axes, lows, highs, s);
    Reshape(dims: Shape) => |[x], s| c!(mlx_reshape(x, [dims.dims()]), s);
    Slice(starts: Vec<i32>, stops: Vec<i32>, strides: Vec<i32>) => |[x], s| shape::check_slice(x, starts, stops, strides).and_then(|()| c!(mlx_slice(x, [starts], [stops], [strides]), s));
    SliceDynamic(axes: Vec<i32>, sizes: Vec<i32>) => |[x, start], s| index::slice_dynamic(x, start, axes, sizes, s);
    SliceUpdate(starts: Vec<i32>, stops: Vec<i32>, strides: Vec<i32>) => |[x, update], s| shape::check_slice(x, starts, stops, strides).and_then(|()| c!(mlx_slice_update(x, update, [starts], [stops], [strides]), s));
    SliceUpdateDynamic(axes: Vec<i32>) => |[x, update, start], s| index::slice_update_dynamic(x, update, start, axes, s);
    SqueezeAxes(axes: Vec<i32>) => |[x], s| c!(mlx_squeeze_axes(x, [axes]), s);
    StackAxis(axis: i32) => |xs, s| c!(mlx_stack_axis(vector(xs), axis), s);
    TransposeAxes(axes: Vec<i32>) => |[x], s| c!(mlx_transpose_axes(x, [axes]), s);

    // Reductions
    AllAxes(axes: Vec<i32>, keep: bool) => |[x], s| truth(x).and_then(|()| host::reduce(Reduction::Min, x, axes, keep, s)).unwrap_or_else(|| c!(mlx_all_axes(x, [axes], keep), s));
    AnyAxes(axes: Vec<i32>, keep: bool) => |[x], s| truth(x).and_then(|()| host::reduce(Reduction::Max, x, axes, keep, s)).unwrap_or_else(|| c!(mlx_any_axes(x, [axes], keep), s));
    ArgmaxAxis(axis: i32, keep: bool) => |[x], s| c!(mlx_argmax_axis(x, axis, keep), s);
    ArgminAxis(axis: i32, keep: bool) => |[x], s| c!(mlx_argmin_axis(x, axis, keep), s);
    LogsumexpAxes(axes: Vec<i32>, keep: bool) => |[x], s| c!(mlx_logsumexp_axes(x, [axes], keep), s);
    MaxAxes(axes: Vec<i32>, keep: bool) => |[x], s| host::reduce(Reduction::Max, x, axes, keep, s).unwrap_or_else(|| shape::in_order(x, s).and_then(|x| c!(mlx_max_axes(x, [axes], keep), s)));
    MinAxes(axes: Vec<i32>, keep: bool) => |[x], s| host::reduce(Reduction::Min, x, axes, keep, s).unwrap_or_else(|| shape::in_order(x, s).and_then(|x| c!(mlx_min_axes(x, [axes], keep), s)));
    ProdAxes(axes: Vec<i32>, keep: bool) => |[x], s| host::reduce(Reduction::Prod, x, axes, keep, s).unwrap_or_else(|| shape::in_order(x, s).and_then(|x| c!(mlx_prod_axes(x, [axes], keep), s)));
    SoftmaxAxes(axes: Vec<i32>, precise: bool) => |[x], s| c!(mlx_softmax_axes(x, [axes], precise), s);
    SumAxes(axes: Vec<i32>, keep: bool) => |[x], s| host::reduce(Reduction::Sum, x, axes, keep, s).unwrap_or_else(|| shape::in_order(x, s).and_then(|x| c!(mlx_sum_axes(x, [axes], keep), s)));

    // Reductions by a program of two inputs, the element and what is so far, over the first axis
    Fused(body: Body) => run |xs, r| plan::evaluate(body, xs, r);
    Fold(body: Body) => run |[x, acc], r| fold::fold(x, acc, body, r);

    // Checks: the first operand as it is, or a failure of the operation `op` of their maker's
    CheckBounds(op: Bytes, first: u32, count: u32, of: Shape) => run |[x], r| check::bounds(x, op, &check::Axes { first, count, of }, r);
    CheckFinite(op: Bytes, described: Bytes, nan: bool, infinity: bool) => run |[x, value, operands @ ..], r| check::finite(x, value, operands, op, described, check::Wanted { nan, infinity }, r);
    CheckResult(op: Bytes, dtype: Dtype, dims: Shape) => |[x], _s| check::result(x, op, dtype, dims);

    // Control: programs inside of programs, run by `control` and not from here
    Call(id: u32, results: Vec<(Dtype, Shape)>) => run |_xs, _r| control::misplaced();
    Hook(id: u32) => run |_xs, _r| control::misplaced();
    If(then: Body, otherwise: Body) => run |_xs, _r| control::misplaced();
    Repeat(times: u64, body: Body) => run |_xs, _r| control::misplaced();
    While(condition: Body, body: Body) => run |_xs, _r| control::misplaced();

    // Scans
    Cummax(axis: i32, reverse: bool, inclusive: bool) => |[x], s| order::unless_single(x, axis, inclusive, || c!(mlx_cummax_axis(x, axis, reverse, inclusive), s));
    Cummin(axis: i32, reverse: bool, inclusive: bool) => |[x], s| order::unless_single(x, axis, inclusive, || c!(mlx_cummin_axis(x, axis, reverse, inclusive), s));
    Cumprod(axis: i32, reverse: bool, inclusive: bool) => |[x], s| order::unless_single(x, axis, inclusive, || c!(mlx_cumprod_axis(x, axis, reverse, inclusive, SAME), s));
    Cumsum(axis: i32, reverse: bool, inclusive: bool) => |[x], s| order::unless_single(x, axis, inclusive, || c!(mlx_cumsum_axis(x, axis, reverse, inclusive, SAME), s));

    // Order
    ArgsortAxis(axis: i32) => |[x], s| order::argsort(x, axis, s);
    SortAxis(axis: i32) => |[x], s| order::sort(x, axis, s);

    // Indexing: what is read outside the array is what is nearest, and what is written there is dropped
    Gather(axes: Vec<i32>, sizes: Vec<i32>) => |[x, indices @ ..], s| index::gather(x, indices, axes, sizes, s);
    Scatter(axes: Vec<i32>) => |[x, updates, indices @ ..], s| index::scatter(index::Scatter::Put, x, updates, indices, axes, s);
    ScatterAdd(axes: Vec<i32>) => |[x, updates, indices @ ..], s| index::scatter(index::Scatter::Add, x, updates, indices, axes, s);
    ScatterMax(axes: Vec<i32>) => |[x, updates, indices @ ..], s| index::scatter(index::Scatter::Max, x, updates, indices, axes, s);
    ScatterMin(axes: Vec<i32>) => |[x, updates, indices @ ..], s| index::scatter(index::Scatter::Min, x, updates, indices, axes, s);
    ScatterProd(axes: Vec<i32>) => |[x, updates, indices @ ..], s| index::scatter(index::Scatter::Prod, x, updates, indices, axes, s);
    TakeAlongAxis(axis: i32) => |[x, indices], s| index::take_along_axis(x, indices, axis, s);
    TakeAxis(axis: i32) => |[x, indices], s| index::take_axis(x, indices, axis, s);
    WindowScatter(dims: Vec<i32>, strides: Vec<i32>, max: bool) => |[x, source, init], s| window::scatter(x, source, init, &window::Windows { dims, strides, max }, s);

    // Products
    ConvGeneral(strides: Vec<i32>, pad_lo: Vec<i32>, pad_hi: Vec<i32>, kernel_dilation: Vec<i32>, input_dilation: Vec<i32>, groups: i32, flip: bool)
        => |[x, kernel], s| conv::conv_general(x, kernel, &conv::Window { strides, pad_lo, pad_hi, kernel_dilation, input_dilation }, groups, flip, s);
    Matmul => |[a, b], s| product::matmul(a, b, s);
    Tensordot(axes_a: Vec<i32>, axes_b: Vec<i32>) => |[a, b], s| c!(mlx_tensordot(a, b, [axes_a], [axes_b]), s);

    // Linear algebra
    Cholesky(upper: bool) => cpu |[a], s| linalg::cholesky(a, upper, s);
    Eigh(lower: bool) -> 2 => cpu |[a], s| linalg::eigh(a, lower, s);
    Inv => cpu |[a], s| linalg::inv(a, s);
    Lu -> 3 => cpu |[a], s| linalg::lu(a, s);
    Qr -> 2 => cpu |[a], s| linalg::qr(a, s);
    SolveTriangular(upper: bool) => cpu |[a, b], s| linalg::solve_triangular(a, b, upper, s);
    Svd -> 3 => cpu |[a], s| linalg::svd(a, s);

    // Fourier transforms
    Fft(n: i32, axis: i32) => |[x], s| fourier::of_points(x, n, axis, Dtype::Complex64, s, || {
        c!(mlx_fft_fft(x, n, axis, BACKWARD), s)
    });
    Ifft(n: i32, axis: i32) => |[x], s| fourier::of_points(x, n, axis, Dtype::Complex64, s, || {
        c!(mlx_fft_ifft(x, n, axis, BACKWARD), s)
    });
    Irfft(n: i32, axis: i32) => |[x], s| fourier::of_points(x, n, axis, Dtype::Float32, s, || {
        c!(mlx_fft_irfft(x, n, axis, BACKWARD), s)
    });
    Rfft(n: i32, axis: i32) => |[x], s| fourier::of_points(x, n, axis, Dtype::Complex64, s, || {
        c!(mlx_fft_rfft(x, n, axis, BACKWARD), s)
    });
}

/// A scan keeps its operand's type.
const SAME: ffi::mlx_optional_dtype = ffi::mlx_optional_dtype {
    value: ffi::MLX_BOOL,
    has_value: false,
};
const BACKWARD: ffi::mlx_fft_norm = ffi::MLX_FFT_NORM_BACKWARD;

impl Op {
    /// How many arrays it makes.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Call(_, results) => results.len(),
            Self::Hook(_) => 0,
            Self::Fused(body)
            | Self::If(body, _)
            | Self::Repeat(_, body)
            | Self::While(_, body) => body.0.outputs(),
            _ => self.fixed_outputs(),
        }
    }

    /// Whether it decides what runs, or waits.
    pub(crate) fn is_control(&self) -> bool {
        matches!(
            self,
            Self::Call(..) | Self::Hook(_) | Self::If(..) | Self::Repeat(..) | Self::While(..)
        )
    }

    /// The programs inside of it.
    pub(crate) fn bodies(&self) -> SmallVec<[&Body; 2]> {
        match self {
            Self::Fold(body) | Self::Fused(body) | Self::Repeat(_, body) => smallvec![body],
            Self::If(one, other) | Self::While(one, other) => smallvec![one, other],
            _ => SmallVec::new(),
        }
    }

    /// The programs that were inside of it.
    pub(crate) fn into_bodies(self) -> SmallVec<[Body; 2]> {
        match self {
            Self::Fold(body) | Self::Fused(body) | Self::Repeat(_, body) => smallvec![body],
            Self::If(one, other) | Self::While(one, other) => smallvec![one, other],
            _ => SmallVec::new(),
        }
    }

    /// Its name on the wire.
    pub fn name(&self) -> String {
        snake_case(self.variant())
    }

    /// Adds it to MLX's graph, on the stream that can run it.
    pub fn eval(&self, operands: &[&Array], run: &Run, made: &mut Made) -> Result<()> {
        let streams = run.streams;
        let is_f64 = |array: &&Array| array.dtype() == Dtype::Float64;
        // A GPU has no f64 and no linear algebra; asking is only worth it where there is a choice.
        let needs_cpu = streams.cpu.is_some()
            && (self.needs_cpu()
                || self.makes_f64()
                || operands.iter().any(is_f64)
                || self.lacks_kernel(operands));
        let called = self.call(operands, streams.pick(needs_cpu), run, made);
        // The instruction of it that failed has been named.
        if matches!(self, Self::Fused(_)) {
            return called;
        }
        called.map_err(|error| error.within(self.variant(), described(operands)))
    }

    /// Whether each element of its result depends on one element of each operand only.
    fn is_elementwise(&self) -> bool {
        match self {
            Self::Astype(_)
            | Self::Convert(_)
            | Self::View(_)
            | Self::Constant(..)
            | Self::CheckFinite(..) => true,
            Self::Fused(body) => body.0.instructions().all(|i| i.op.is_elementwise()),
            Self::Matmul => false,
            _ => !self.has_attributes() && !self.needs_cpu(),
        }
    }

    /// What it makes of the elements along which axes, and whether those are left with a size of one,
    /// if it is a reduction that the host does for elements of this type.
    pub(crate) fn reduction(&self, dtype: Dtype) -> Option<(Reduction, &[i32], bool)> {
        let is_bool = dtype == Dtype::Bool;
        Some(match self {
            Self::AllAxes(axes, keep) if is_bool => (Reduction::Min, axes, *keep),
            Self::AnyAxes(axes, keep) if is_bool => (Reduction::Max, axes, *keep),
            Self::MaxAxes(axes, keep) => (Reduction::Max, axes, *keep),
            Self::MinAxes(axes, keep) => (Reduction::Min, axes, *keep),
            Self::ProdAxes(axes, keep) => (Reduction::Prod, axes, *keep),
            Self::SumAxes(axes, keep) => (Reduction::Sum, axes, *keep),
            _ => return None,
        })
    }

    /// Whether GPUs have no kernel for operands of these types. MLX finds out while it computes,
    /// and is not itself afterwards.
    fn lacks_kernel(&self, operands: &[&Array]) -> bool {
        let Some(dtype) = operands.first().map(|array| array.dtype()) else {
            return matches!(self, Self::Eye(_, _, _, dtype) if dtype.size() == 8);
        };
        match self {
            Self::Scatter(_) | Self::ScatterMax(_) | Self::ScatterMin(_) | Self::ScatterProd(_) => {
                dtype.size() == 8
            }
            Self::ScatterAdd(_) => dtype.size() == 8 && dtype != Dtype::Complex64,
            Self::Matmul => dtype.is_integer(),
            Self::Arccosh
            | Self::Arcsinh
            | Self::Arctanh
            | Self::Cbrt
            | Self::Expm1
            | Self::Sigmoid => dtype == Dtype::Complex64,
            _ => false,
        }
    }

    fn makes_f64(&self) -> bool {
        matches!(
            self,
            Self::Astype(Dtype::Float64)
                | Self::View(Dtype::Float64)
                | Self::Constant(Dtype::Float64, _)
                | Self::Arange(_, Dtype::Float64)
                | Self::Eye(_, _, _, Dtype::Float64)
        )
    }
}

/// `FloorDivide` as `floor_divide`, the name that crosses the border.
pub fn snake_case(variant: &str) -> String {
    let mut name = String::with_capacity(variant.len() + 4);
    for (index, letter) in variant.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// `f32[2][3], s32[3]`.
pub(crate) fn described(operands: &[&Array]) -> String {
    let each: Vec<String> = operands.iter().map(|array| format!("{array:?}")).collect();
    each.join(", ")
}

fn wrong_operands(count: usize) -> Error {
    Error::invalid("", format!("it does not take {count} operands"))
}

fn vector(arrays: &[&Array]) -> Vector {
    Vector::new(arrays.iter().copied())
}

/// The bytes of a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

#[cfg(feature = "nif")]
impl<'a> rustler::Decoder<'a> for Bytes {
    fn decode(term: rustler::Term<'a>) -> rustler::NifResult<Self> {
        Ok(Self(term.decode::<rustler::Binary>()?.as_slice().to_vec()))
    }
}

/// How an attribute reaches a row's body: numbers and types by value, the rest by reference.
trait Attribute<'a> {
    type Got;
    fn get(&'a self) -> Self::Got;
}

macro_rules! attributes {
    ($($ty:ty => $got:ty, |$value:ident| $body:expr;)*) => {
        $(impl<'a> Attribute<'a> for $ty {
            type Got = $got;
            fn get(&'a self) -> $got { let $value = self; $body }
        })*
    };
}

attributes! {
    i32 => i32, |v| *v;
    u32 => u32, |v| *v;
    u64 => u64, |v| *v;
    bool => bool, |v| *v;
    Dtype => Dtype, |v| *v;
    Vec<i32> => &'a [i32], |v| v;
    Vec<i64> => &'a [i64], |v| v;
    Shape => &'a Shape, |v| v;
    Bytes => &'a Bytes, |v| v;
    Body => &'a Program, |v| &v.0;
    Vec<(Dtype, Shape)> => &'a [(Dtype, Shape)], |v| v;
}

/// What mlx-c takes in place of an argument of ours.
trait Raw {
    type Raw;
    fn raw(&self) -> Self::Raw;
}

macro_rules! raw {
    ($($ty:ty => $raw:ty, |$value:ident| $body:expr;)*) => {
        $(impl Raw for $ty {
            type Raw = $raw;
            fn raw(&self) -> $raw { let $value = self; $body }
        })*
    };
}

raw! {
    i32 => i32, |v| *v;
    f64 => f64, |v| *v;
    usize => usize, |v| *v;
    bool => bool, |v| *v;
    Dtype => ffi::mlx_dtype, |v| Dtype::raw(*v);
    Array => ffi::mlx_array, |v| Array::raw(v);
    &Array => ffi::mlx_array, |v| Array::raw(v);
    &&Array => ffi::mlx_array, |v| Array::raw(v);
    Vector => ffi::mlx_vector_array, |v| v.raw();
    ffi::mlx_optional_dtype => ffi::mlx_optional_dtype, |v| *v;
    ffi::mlx_fft_norm => ffi::mlx_fft_norm, |v| *v;
}

/// What a row's body may answer.
trait Push {
    fn push(self, made: &mut Made);
}

impl Push for Array {
    fn push(self, made: &mut Made) {
        made.push(self);
    }
}

impl Push for Vec<Array> {
    fn push(self, made: &mut Made) {
        made.extend(self);
    }
}

impl<const N: usize> Push for [Array; N] {
    fn push(self, made: &mut Made) {
        made.extend(self);
    }
}
