//! Reductions over axes, on all cores.
//!
//! MLX adds one float after the other, so the error grows with their number, and uses one core. Here
//! floats are added and multiplied in f64. The order is fixed by the shape alone: the same elements
//! have the same result, whoever computes it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};
use smallvec::SmallVec;

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::isa::{self, Job};
use crate::stream::{Device, Stream};

/// Elements that are reduced side by side, to be vectors.
const LANES: usize = 16;
/// Elements of a row that are reduced as one piece; what comes of the pieces is reduced in turn.
pub(crate) const PIECE: usize = if cfg!(miri) { 1 << 10 } else { 1 << 14 };
/// Neighbours that are reduced side by side, where what is reduced lies apart.
const COLUMNS: usize = 256;

/// What becomes of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reduction {
    Sum,
    Prod,
    Max,
    Min,
}

/// How elements of a type become one.
trait Reducer: Send + Sync + 'static {
    type Element: Copy + Send + Sync;
    type Sum: Copy + Send + Sync;
    const NONE: Self::Sum;
    fn of(x: Self::Element) -> Self::Sum;
    fn join(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn made(sum: Self::Sum) -> Self::Element;
}

struct Sum<T>(PhantomData<T>);
struct Prod<T>(PhantomData<T>);
struct Max<T>(PhantomData<T>);
struct Min<T>(PhantomData<T>);

macro_rules! reducers {
    ($($name:ident $($t:ty, $sum:ty, $none:expr, $of:expr, $made:expr);* => $join:expr;)*) => {$($(
        impl Reducer for $name<$t> {
            type Element = $t;
            type Sum = $sum;
            const NONE: $sum = $none;
            #[inline(always)]
            fn of(x: $t) -> $sum { $of(x) }
            #[inline(always)]
            fn join(a: $sum, b: $sum) -> $sum { $join(a, b) }
            #[inline(always)]
            fn made(sum: $sum) -> $t { $made(sum) }
        }
    )*)*};
}

macro_rules! whole {
    ($($t:ty),*) => {
        reducers! { $(
            Max $t, $t, <$t>::MIN, |x| x, |x| x => |a: $t, b: $t| a.max(b);
            Min $t, $t, <$t>::MAX, |x| x, |x| x => |a: $t, b: $t| a.min(b);
        )* }
    };
}

whole!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! wrapping {
    ($($t:ty),*) => {
        reducers! { $(
            Sum $t, $t, 0, |x| x, |x| x => |a: $t, b: $t| a.wrapping_add(b);
            Prod $t, $t, 1, |x| x, |x| x => |a: $t, b: $t| a.wrapping_mul(b);
        )* }
    };
}

wrapping!(u32, u64, i32, i64);

macro_rules! fraction {
    ($($t:ty, $wide:ty, $of:expr, $made:expr;)*) => {
        reducers! { $(
            // Infinity beyond the largest, and NaN as soon as there is one.
            Max $t, $wide, <$wide>::NEG_INFINITY, $of, $made => |a: $wide, b: $wide| if a.is_nan() || a > b { a } else { b };
            Min $t, $wide, <$wide>::INFINITY, $of, $made => |a: $wide, b: $wide| if a.is_nan() || a < b { a } else { b };
        )* }
    };
}

fraction! {
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
}

reducers! {
    Sum f32, f64, 0.0, f64::from, |x| x as f32; f64, f64, 0.0, |x| x, |x| x => |a: f64, b: f64| a + b;
    Prod f32, f64, 1.0, f64::from, |x| x as f32; f64, f64, 1.0, |x| x, |x| x => |a: f64, b: f64| a * b;
}

/// Elements as so many times `count` times `inner`, of which those in the middle become one.
#[derive(Debug, Clone, Copy)]
struct Pass {
    outer: usize,
    count: usize,
    inner: usize,
}

/// What is in a pass, in pieces: `size` elements of the middle, or rows of `COLUMNS` neighbours.
impl Pass {
    fn piece(&self) -> usize {
        if self.inner == 1 {
            PIECE
        } else {
            (PIECE / self.columns()).max(1)
        }
    }

    fn pieces(&self) -> usize {
        self.count.div_ceil(self.piece())
    }

    fn columns(&self) -> usize {
        self.inner.min(COLUMNS)
    }

    /// How many pieces of columns there are in all.
    fn items(&self) -> usize {
        self.outer * self.pieces() * self.inner.div_ceil(COLUMNS)
    }
}

/// Some pieces of a pass: `sums` has room for one result for each piece and column.
struct Pieces<'a, T, S, F, J> {
    pass: Pass,
    items: Range<usize>,
    from: &'a [T],
    sums: *mut S,
    none: S,
    of: F,
    join: J,
}

impl<T: Copy, S: Copy, F: Fn(T) -> S, J: Fn(S, S) -> S> Job for Pieces<'_, T, S, F, J> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Pass { count, inner, .. } = self.pass;
        let (pieces, columns, piece) = (
            self.pass.pieces(),
            inner.div_ceil(COLUMNS),
            self.pass.piece(),
        );
        for item in self.items.clone() {
            let (row, column) = (item / columns, item % columns * COLUMNS);
            let (outer, first) = (row / pieces, row % pieces * piece);
            let rows = piece.min(count - first);
            let from = &self.from[(outer * count + first) * inner + column..];
            let width = COLUMNS.min(inner - column);
            // SAFETY: there is a place for each piece and column, and these are this thread's alone.
            let to = unsafe {
                std::slice::from_raw_parts_mut(self.sums.add(row * inner + column), width)
            };
            if inner == 1 {
                to[0] = lanes(&from[..rows], self.none, &self.of, &self.join);
                continue;
            }
            to.fill(self.none);
            for row in 0..rows {
                for (to, x) in to.iter_mut().zip(&from[row * inner..][..width]) {
                    *to = (self.join)(*to, (self.of)(*x));
                }
            }
        }
    }
}

/// What becomes of neighbours, side by side and then of those.
#[inline(always)]
fn lanes<T: Copy, S: Copy>(
    from: &[T],
    none: S,
    of: impl Fn(T) -> S,
    join: impl Fn(S, S) -> S,
) -> S {
    let mut lanes = [none; LANES];
    let (whole, rest) = from.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = join(*lane, of(*x));
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = join(*lane, of(*x));
    }
    let used = if whole.is_empty() { rest.len() } else { LANES };
    let mut sum = none;
    for lane in &lanes[..used] {
        sum = join(sum, *lane);
    }
    sum
}

/// A pointer that threads may have, since each of them writes places of its own.
struct Places<S>(*mut S);
// SAFETY: see above.
unsafe impl<S: Send> Sync for Places<S> {}

impl<S> Places<S> {
    fn get(&self) -> *mut S {
        self.0
    }
}

/// One result for each element of `outer` and `inner`.
fn reduced<T, S>(
    pass: Pass,
    from: &[T],
    none: S,
    of: impl Fn(T) -> S + Copy + Sync,
    join: impl Fn(S, S) -> S + Copy + Sync,
) -> Vec<S>
where
    T: Copy + Sync,
    S: Copy + Send + Sync,
{
    let (pieces, inner) = (pass.pieces(), pass.inner);
    let mut sums = vec![none; pass.outer * pieces * inner];
    let places = Places(sums.as_mut_ptr());
    // About as many elements to a core at a time as in a piece.
    let size = (pass.count.min(pass.piece()) * pass.columns()).max(1);
    let each = |items: Range<usize>| {
        isa::run(Pieces {
            pass,
            items,
            from,
            sums: places.get(),
            none,
            of,
            join,
        });
    };
    cores::share(pass.items(), size, (PIECE / size).max(1), &each);
    if pieces == 1 {
        return sums;
    }
    let mut joined = vec![none; pass.outer * inner];
    for (outer, to) in joined.chunks_mut(inner).enumerate() {
        for piece in sums[outer * pieces * inner..][..pieces * inner].chunks(inner) {
            for (to, sum) in to.iter_mut().zip(piece) {
                *to = join(*to, *sum);
            }
        }
    }
    joined
}

/// The passes that reduce everything, the last axes first.
struct Reduce<R> {
    passes: Passes,
    elements: usize,
    reducer: PhantomData<R>,
}

impl<R: Reducer> Call for Reduce<R> {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        // SAFETY: the only input has so many elements, in rows.
        let from = unsafe { std::slice::from_raw_parts(inputs[0].cast(), self.elements) };
        let [first, others @ ..] = &self.passes[..] else {
            return;
        };
        let mut sums = reduced(*first, from, R::NONE, R::of, R::join);
        for pass in others {
            sums = reduced(*pass, &sums, R::NONE, |sum| sum, R::join);
        }
        let out = out.cast::<R::Element>();
        for (index, sum) in sums.into_iter().enumerate() {
            // SAFETY: there is room for each result.
            unsafe { out.add(index).write(R::made(sum)) };
        }
    }
}

type Dims = SmallVec<[i32; 4]>;
type Passes = SmallVec<[Pass; 2]>;

/// The axes that are left, and the passes over an array of this shape.
fn passes(dims: &[i32], axes: &[i32], keep: bool) -> Option<(Dims, Passes)> {
    let rank = dims.len() as i32;
    let mut gone: SmallVec<[bool; 8]> = SmallVec::from_elem(false, dims.len());
    for axis in axes {
        let axis = if *axis < 0 { axis + rank } else { *axis };
        let gone = gone.get_mut(usize::try_from(axis).ok()?)?;
        // MLX has something to say of an axis that is named twice.
        if std::mem::replace(gone, true) {
            return None;
        }
    }
    let left = dims.iter().zip(&gone);
    let left = left.filter_map(|(dim, gone)| match gone {
        true => keep.then_some(1),
        false => Some(*dim),
    });
    let left = left.collect();
    let (mut passes, mut inner, mut axis) = (SmallVec::new(), 1, dims.len());
    let product = |dims: &[i32]| dims.iter().map(|dim| *dim as usize).product::<usize>();
    while axis > 0 {
        let end = axis;
        let is_gone = gone[end - 1];
        while axis > 0 && gone[axis - 1] == is_gone {
            axis -= 1;
        }
        let (count, outer) = (product(&dims[axis..end]), product(&dims[..axis]));
        if is_gone {
            passes.push(Pass {
                outer,
                count,
                inner,
            });
        } else {
            inner *= count;
        }
    }
    Some((left, passes))
}

/// How rows of a type are reduced piece by piece, each with the bits that `reduce` has for it.
///
/// # Safety
/// There must be so many elements or sums, and room for what is made of them, of the type that it was
/// asked for. A sum takes at most the place of a u64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    /// The sum of so many elements, at most a piece.
    pub(crate) piece: unsafe fn(*const u8, usize, *mut u64),
    /// What so many sums, those of a row's pieces, become.
    pub(crate) joined: unsafe fn(*const u64, usize, *mut u8),
    /// So many rows of so many elements.
    pub(crate) rows: unsafe fn(*const u8, usize, *mut u8, usize),
}

/// The sum of a piece.
struct One<'a, R: Reducer>(&'a [R::Element], &'a mut R::Sum);

impl<R: Reducer> Job for One<'_, R> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        *self.1 = lanes(self.0, R::NONE, R::of, R::join);
    }
}

unsafe fn piece<R: Reducer>(from: *const u8, count: usize, to: *mut u64) {
    // SAFETY: as `Rows` says.
    let (from, to) = unsafe {
        (
            std::slice::from_raw_parts(from.cast::<R::Element>(), count),
            to.cast::<R::Sum>(),
        )
    };
    let mut sum = R::NONE;
    isa::run(One::<R>(from, &mut sum));
    // SAFETY: as `Rows` says.
    unsafe { to.write(sum) };
}

unsafe fn joined<R: Reducer>(from: *const u64, count: usize, to: *mut u8) {
    let sum = |index| {
        // SAFETY: as `Rows` says: `piece` has written them.
        unsafe { from.add(index).cast::<R::Sum>().read() }
    };
    // As `reduced` does it.
    let made = match count {
        1 => sum(0),
        _ => (0..count).map(sum).fold(R::NONE, R::join),
    };
    // SAFETY: as `Rows` says.
    unsafe { to.cast::<R::Element>().write(R::made(made)) };
}

/// Rows that are reduced on their own.
struct Each<'a, R: Reducer>(&'a [R::Element], &'a mut [R::Element], usize);

impl<R: Reducer> Job for Each<'_, R> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self(from, to, count) = self;
        for (from, to) in from.chunks_exact(count).zip(to) {
            let mut sum = R::NONE;
            // `lanes` is called in one place, to be made vectors of.
            for piece in from.chunks(PIECE) {
                let one = lanes(piece, R::NONE, R::of, R::join);
                sum = if count <= PIECE {
                    one
                } else {
                    R::join(sum, one)
                };
            }
            *to = R::made(sum);
        }
    }
}

unsafe fn each<R: Reducer>(from: *const u8, count: usize, to: *mut u8, rows: usize) {
    // SAFETY: as `Rows` says.
    let (from, to) = unsafe {
        (
            std::slice::from_raw_parts(from.cast::<R::Element>(), rows * count),
            std::slice::from_raw_parts_mut(to.cast::<R::Element>(), rows),
        )
    };
    isa::run(Each::<R>(from, to, count));
}

/// An expression for the reducer of a reduction and a type, `None` where there is none.
macro_rules! by_type {
    ($reduction:expr, $dtype:expr, $r:ident => $body:expr) => {
        match $reduction {
            Reduction::Sum => by_type!(@sums $dtype, $r, $body, Sum),
            Reduction::Prod => by_type!(@sums $dtype, $r, $body, Prod),
            Reduction::Max => by_type!(@all $dtype, $r, $body, Max),
            Reduction::Min => by_type!(@all $dtype, $r, $body, Min),
        }
    };
    (@sums $dtype:expr, $r:ident, $body:expr, $name:ident) => {
        by_type!(@match $dtype, $r, $body, $name: Uint32 u32, Uint64 u64, Int32 i32, Int64 i64,
            Float32 f32, Float64 f64)
    };
    (@all $dtype:expr, $r:ident, $body:expr, $name:ident) => {
        by_type!(@match $dtype, $r, $body, $name: Bool u8, Uint8 u8, Uint16 u16, Uint32 u32,
            Uint64 u64, Int8 i8, Int16 i16, Int32 i32, Int64 i64, Float16 f16, Bfloat16 bf16,
            Float32 f32, Float64 f64)
    };
    (@match $dtype:expr, $r:ident, $body:expr, $reducer:ident: $($name:ident $t:ty),*) => {
        match $dtype {
            $(Dtype::$name => { type $r = $reducer<$t>; Some($body) })*
            _ => None,
        }
    };
}

/// How rows of elements of a type are reduced, each with the bits that `reduce` has for it.
pub(crate) fn rows(reduction: Reduction, dtype: Dtype) -> Option<Rows> {
    by_type!(reduction, dtype, R => Rows {
        piece: piece::<R>,
        joined: joined::<R>,
        rows: each::<R>,
    })
}

/// The reduction of an array, if the stream is a CPU's and the elements are of a type that is
/// reduced here.
pub(crate) fn reduce(
    reduction: Reduction,
    x: &Array,
    axes: &[i32],
    keep: bool,
    s: &Stream,
) -> Option<Result<Array>> {
    let (dims, dtype) = (x.dims(), x.dtype());
    if s.device != Device::Cpu || dims.contains(&0) || axes.is_empty() {
        return None;
    }
    let (left, mut passes) = passes(dims, axes, keep)?;
    let mut elements = x.size();
    // Each is two numbers, which a sum does not mix.
    let is_complex = dtype == Dtype::Complex64 && matches!(reduction, Reduction::Sum);
    let parts = if is_complex { Dtype::Float32 } else { dtype };
    if is_complex {
        elements *= 2;
        passes.iter_mut().for_each(|pass| pass.inner *= 2);
    }
    by_type!(reduction, parts, R => {
        let reducer = PhantomData::<R>;
        let reduce = Reduce {
            passes,
            elements,
            reducer,
        };
        call(c"Reduce", &[x], (&left, dtype), reduce, s)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: sums by hand, one element after the other.

    use super::*;
    use crate::shape::Shape;
    use crate::stream::Streams;

    /// Numbers of which no sum is rounded.
    fn numbers(dims: &[i32]) -> Vec<f32> {
        let size: usize = dims.iter().map(|dim| *dim as usize).product();
        (0..size).map(|i| (i * 37 % 101) as f32 - 50.0).collect()
    }

    /// What numbers of such a shape become over these axes, and the dims that are left.
    fn joined(
        dims: &[i32],
        axes: &[i32],
        none: f32,
        join: fn(f32, f32) -> f32,
    ) -> (Vec<i32>, Vec<f32>) {
        let kept = |axis: usize| !axes.contains(&(axis as i32));
        let left = (0..dims.len()).filter(|axis| kept(*axis));
        let left: Vec<i32> = left.map(|axis| dims[axis]).collect();
        let mut made = vec![none; left.iter().map(|dim| *dim as usize).product()];
        for (index, value) in numbers(dims).into_iter().enumerate() {
            let (mut rest, mut place, mut step) = (index, 0, 1);
            for axis in (0..dims.len()).rev() {
                let dim = dims[axis] as usize;
                if kept(axis) {
                    place += rest % dim * step;
                    step *= dim;
                }
                rest /= dim;
            }
            made[place] = join(made[place], value);
        }
        (left, made)
    }

    fn check(dims: &[i32], axes: &[i32]) {
        let streams = Streams::new(Device::Cpu).unwrap();
        let bytes: Vec<u8> = numbers(dims).iter().flat_map(|x| x.to_ne_bytes()).collect();
        let shape = Shape::new(dims.iter().map(|dim| i64::from(*dim)).collect()).unwrap();
        let x = Array::from_bytes(&bytes, &shape, Dtype::Float32).unwrap();
        for (reduction, none, join) in [
            (Reduction::Sum, 0.0, (|a, b| a + b) as fn(f32, f32) -> f32),
            (Reduction::Max, f32::NEG_INFINITY, f32::max),
            (Reduction::Min, f32::INFINITY, f32::min),
        ] {
            let (left, wanted) = joined(dims, axes, none, join);
            let made = reduce(reduction, &x, axes, false, &streams.main)
                .unwrap()
                .unwrap();
            assert_eq!(made.dims(), left);
            let bytes = made.bytes(None, &streams).unwrap();
            let (made, _) = bytes.as_chunks::<4>();
            let made: Vec<f32> = made.iter().map(|x| f32::from_ne_bytes(*x)).collect();
            assert_eq!(made, wanted, "{reduction:?} of {dims:?} over {axes:?}");
        }
    }

    /// Without MLX, so that Miri sees who reads and writes where.
    #[test]
    fn cores_share_what_is_reduced() {
        let piece = PIECE as i32;
        for (dims, axes) in [
            (&[5][..], &[0][..]),
            (&[4 * piece + 600], &[0]),
            (&[5, piece], &[1]),
            (&[2 * piece / COLUMNS as i32 + 2, 300], &[0]),
            (&[2, 70, 3], &[1]),
            (&[4, 5, 6, 7], &[0, 2]),
            (&[4, 5, 6, 7], &[1, 3]),
        ] {
            let (_, wanted) = joined(dims, axes, 0.0, |a, b| a + b);
            let from = numbers(dims);
            let (_, passes) = passes(dims, axes, false).unwrap();
            let sum = Reduce::<Sum<f32>> {
                passes,
                elements: from.len(),
                reducer: PhantomData,
            };
            let mut made = vec![f32::NAN; wanted.len()];
            // SAFETY: there are so many elements, and room for each result.
            unsafe { sum.run(&[from.as_ptr().cast()], made.as_mut_ptr().cast()) };
            assert_eq!(made, wanted, "{dims:?} over {axes:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn shapes_and_axes() {
        for (dims, axes) in [
            (&[5][..], &[0][..]),
            (&[1000], &[0]),
            (&[70_001], &[0]),
            (&[3, 40_000], &[1]),
            (&[40_000, 3], &[0]),
            (&[2, 700, 300], &[1]),
            (&[700, 600], &[0]),
            (&[4, 5, 6, 7], &[0, 2]),
            (&[4, 5, 6, 7], &[1, 3]),
            (&[4, 5, 6, 7], &[0, 1, 2, 3]),
            (&[30, 1, 50, 40], &[0, 2, 3]),
            (&[1, 1], &[0, 1]),
            (&[257, 17], &[-1]),
        ] {
            let rank = dims.len() as i32;
            let axes: Vec<i32> = axes
                .iter()
                .map(|a| if *a < 0 { a + rank } else { *a })
                .collect();
            check(dims, &axes);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn what_mlx_objects_to_is_left_to_it() {
        let streams = Streams::new(Device::Cpu).unwrap();
        let x = Array::from_bytes(&[0; 8], &Shape::new(vec![2]).unwrap(), Dtype::Float32).unwrap();
        for axes in [&[1][..], &[-2], &[0, 0], &[i32::MIN], &[i32::MAX]] {
            assert!(reduce(Reduction::Sum, &x, axes, false, &streams.main).is_none());
        }
    }
}
