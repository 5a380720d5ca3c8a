//! The loops of a kernel's steps, by operation and types.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::number::{self, Fraction, Number, Whole};
use crate::dtype::Dtype;
use crate::host::{Converted, Function};
use crate::isa::{self, Job, Level};
use crate::ops::Op;

/// A step's loop: where the registers' numbers are, the step, and how many elements.
///
/// # Safety
/// The places that the step names must hold so many numbers of its types, apart from each other.
pub(crate) type Loop = unsafe fn(&[*mut u8], &Step, usize);

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(super) run: Loop,
    /// The registers that it reads.
    pub(super) from: [usize; 3],
    /// The register that it writes, which is none of those.
    pub(super) to: usize,
}

/// The operand of a step: `size` numbers.
///
/// # Safety
/// As [`Loop`] says. `T` accepts any bits.
unsafe fn read<'a, T: Copy>(
    places: &'a [*mut u8],
    step: &Step,
    operand: usize,
    size: usize,
) -> &'a [T] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(places[step.from[operand]].cast(), size) }
}

/// Where a step writes `size` numbers.
///
/// # Safety
/// As [`Loop`] says.
// The places are borrowed, and not what is there.
#[allow(clippy::mut_from_ref)]
unsafe fn write<'a, T: Copy>(places: &'a [*mut u8], step: &Step, size: usize) -> &'a mut [T] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts_mut(places[step.to].cast(), size) }
}

trait Map<A, B> {
    fn of(x: A) -> B;
}

trait Zip<A, B> {
    fn of(x: A, y: A) -> B;
}

/// What a step is given, to do it for each of its numbers.
pub(crate) struct Numbers<'a, L> {
    places: &'a [*mut u8],
    step: &'a Step,
    size: usize,
    each: PhantomData<L>,
}

/// What a loop does, compiled for what processors there are.
///
/// # Safety
/// As [`Loop`] says.
unsafe fn each<L>(places: &[*mut u8], step: &Step, size: usize)
where
    for<'a> Numbers<'a, L>: Job,
{
    isa::run(Numbers {
        places,
        step,
        size,
        each: PhantomData::<L>,
    });
}

struct Mapped<A, B, F>(A, B, F);

impl<A: Number, B: Number, F: Map<A, B>> Job for Numbers<'_, Mapped<A, B, F>> {
    const WIDEST: Level = A::WIDEST;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            places, step, size, ..
        } = self;
        // SAFETY: as the caller of the loop says.
        let (x, to) = unsafe {
            (
                read::<A>(places, step, 0, size),
                write::<B>(places, step, size),
            )
        };
        for (to, x) in to.iter_mut().zip(x) {
            *to = F::of(*x);
        }
    }
}

struct Zipped<A, B, F>(A, B, F);

impl<A: Number, B: Number, F: Zip<A, B>> Job for Numbers<'_, Zipped<A, B, F>> {
    const WIDEST: Level = A::WIDEST;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            places, step, size, ..
        } = self;
        // SAFETY: as the caller of the loop says.
        let (x, y) = unsafe {
            (
                read::<A>(places, step, 0, size),
                read::<A>(places, step, 1, size),
            )
        };
        // SAFETY: as the caller of the loop says.
        let to = unsafe { write::<B>(places, step, size) };
        for ((to, x), y) in to.iter_mut().zip(x).zip(y) {
            *to = F::of(*x, *y);
        }
    }
}

/// A choice between numbers, whatever their type, as bits: of a choice between values the compiler
/// makes one between places, and no vectors.
trait Bits: Copy {
    fn selected(condition: u8, x: Self, y: Self) -> Self;
}

macro_rules! bits {
    ($($t:ty),*) => {
        $(impl Bits for $t {
            #[inline(always)]
            fn selected(condition: u8, x: Self, y: Self) -> Self {
                let mask = <$t>::from(condition != 0).wrapping_neg();
                x & mask | y & !mask
            }
        })*
    };
}

bits!(u8, u16, u32, u64);

struct Selected<T>(T);

impl<T: Bits> Job for Numbers<'_, Selected<T>> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            places, step, size, ..
        } = self;
        // SAFETY: as the caller of the loop says.
        let (x, y) = unsafe {
            (
                read::<T>(places, step, 1, size),
                read::<T>(places, step, 2, size),
            )
        };
        // SAFETY: as the caller of the loop says.
        let (condition, to) = unsafe {
            (
                read::<u8>(places, step, 0, size),
                write::<T>(places, step, size),
            )
        };
        for (((to, condition), x), y) in to.iter_mut().zip(condition).zip(x).zip(y) {
            *to = T::selected(*condition, *x, *y);
        }
    }
}

struct Cast<A, B>(A, B);

impl<A: number::Cast, B: number::Cast> Job for Numbers<'_, Cast<A, B>> {
    // Of those that vectors have an instruction for.
    const WIDEST: Level = match (A::WIDEST, B::WIDEST) {
        (Level::Plain, _) | (_, Level::Plain) => Level::Plain,
        _ => Level::Avx2,
    };

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            places, step, size, ..
        } = self;
        // SAFETY: as the caller of the loop says.
        let (x, to) = unsafe {
            (
                read::<A>(places, step, 0, size),
                write::<B>(places, step, size),
            )
        };
        for (to, x) in to.iter_mut().zip(x) {
            *to = x.cast();
        }
    }
}

/// The first operand turned to the left by the second, and then the third's bits turned over where it
/// has ones: what random numbers are made of.
struct Turned;

impl Job for Numbers<'_, Turned> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            places, step, size, ..
        } = self;
        // SAFETY: as the caller of the loop says.
        let (x, by, y) = unsafe {
            (
                read::<u32>(places, step, 0, size),
                read::<u32>(places, step, 1, size),
                read::<u32>(places, step, 2, size),
            )
        };
        // SAFETY: as the caller of the loop says.
        let to = unsafe { write::<u32>(places, step, size) };
        for (((to, x), by), y) in to.iter_mut().zip(x).zip(by).zip(y) {
            *to = (x.wrapping_shl(*by) | x.wrapping_shr(by.wrapping_neg())) ^ y;
        }
    }
}

pub(super) const TURNED: Loop = each::<Turned>;

/// A loop over a function of the host's.
///
/// # Safety
/// As [`Loop`] says.
pub(crate) unsafe fn applied<F: Function>(places: &[*mut u8], step: &Step, size: usize) {
    // SAFETY: as the caller says.
    let (x, to) = unsafe {
        (
            read::<F::In>(places, step, 0, size),
            write::<F::Out>(places, step, size),
        )
    };
    F::all(x, to);
}

/// A loop that changes nothing, for numbers of so many bytes.
fn copy(size: usize) -> Loop {
    unsafe fn copy<T: Copy>(places: &[*mut u8], step: &Step, size: usize) {
        // SAFETY: as the caller says.
        let (x, to) = unsafe {
            (
                read::<T>(places, step, 0, size),
                write::<T>(places, step, size),
            )
        };
        to.copy_from_slice(x);
    }
    match size {
        1 => copy::<u8>,
        2 => copy::<u16>,
        4 => copy::<u32>,
        _ => copy::<u64>,
    }
}

macro_rules! functions {
    ($($name:ident: $bound:ident |$($x:ident),+| -> $out:ident, $body:expr;)*) => {
        $(functions!(@one $name: $bound |$($x),+| -> $out, $body);)*
    };
    (@one $name:ident: $bound:ident |$x:ident| -> same, $body:expr) => {
        struct $name;
        impl<T: $bound> Map<T, T> for $name {
            #[inline]
            fn of($x: T) -> T { $body }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident| -> bool, $body:expr) => {
        struct $name;
        impl<T: $bound> Map<T, u8> for $name {
            #[inline]
            fn of($x: T) -> u8 { ($body).into() }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident, $y:ident| -> same, $body:expr) => {
        struct $name;
        impl<T: $bound> Zip<T, T> for $name {
            #[inline]
            fn of($x: T, $y: T) -> T { $body }
        }
    };
    (@one $name:ident: $bound:ident |$x:ident, $y:ident| -> bool, $body:expr) => {
        struct $name;
        impl<T: $bound> Zip<T, u8> for $name {
            #[inline]
            fn of($x: T, $y: T) -> u8 { ($body).into() }
        }
    };
}

functions! {
    Abs: Number |x| -> same, x.abs();
    Negative: Number |x| -> same, x.negative();
    Sign: Number |x| -> same, x.sign();
    Square: Number |x| -> same, x.multiply(x);
    BitwiseInvert: Whole |x| -> same, x.invert();
    Floor: Fraction |x| -> same, x.floor();
    Ceil: Fraction |x| -> same, x.ceil();
    Sqrt: Fraction |x| -> same, x.sqrt();
    Reciprocal: Fraction |x| -> same, T::ONE.divide(x);
    Isnan: Fraction |x| -> bool, x.is_nan();
    Isinf: Fraction |x| -> bool, x.is_infinite();
    LogicalNot: Number |x| -> bool, x == T::ZERO;
    Add: Number |x, y| -> same, x.add(y);
    Subtract: Number |x, y| -> same, x.subtract(y);
    Multiply: Number |x, y| -> same, x.multiply(y);
    Minimum: Number |x, y| -> same, x.minimum(y);
    Maximum: Number |x, y| -> same, x.maximum(y);
    Equal: Number |x, y| -> bool, x == y;
    NotEqual: Number |x, y| -> bool, x != y;
    Greater: Number |x, y| -> bool, x > y;
    GreaterEqual: Number |x, y| -> bool, x >= y;
    Less: Number |x, y| -> bool, x < y;
    LessEqual: Number |x, y| -> bool, x <= y;
    BitwiseAnd: Whole |x, y| -> same, x.and(y);
    BitwiseOr: Whole |x, y| -> same, x.or(y);
    BitwiseXor: Whole |x, y| -> same, x.xor(y);
    LeftShift: Whole |x, y| -> same, x.left_shift(y);
    RightShift: Whole |x, y| -> same, x.right_shift(y);
    FloorDivide: Whole |x, y| -> same, x.quotient(y);
    Divide: Fraction |x, y| -> same, x.divide(y);
    Power: Fraction |x, y| -> same, x.power(y);
    Arctan2: Fraction |x, y| -> same, x.arctan2(y);
    Remainder: Fraction |x, y| -> same, x.remainder(y);
}

/// An expression for each type of a kind, `None` for the others.
macro_rules! by_type {
    ($kind:ident $dtype:expr, $t:ident => $body:expr) => {
        by_type!(@$kind $dtype, $t, $body)
    };
    (@whole $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Int8 i8, Int16 i16, Int32 i32, Int64 i64)
    };
    (@fraction $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64)
    };
    (@number $dtype:expr, $t:ident, $body:expr) => {
        by_type!(@match $dtype, $t, $body; Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Int8 i8, Int16 i16, Int32 i32, Int64 i64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64)
    };
    (@match $dtype:expr, $t:ident, $body:expr; $($name:ident $ty:ty),*) => {
        match $dtype {
            $(Dtype::$name => { type $t = $ty; Some($body) })*
            _ => None,
        }
    };
}

/// The loop of an operation on operands of these types, and the type of its result.
pub(super) fn step(op: &Op, types: &[Dtype]) -> Option<(Loop, Dtype)> {
    let (run, dtype) = match (op, types) {
        (Op::Where, [Dtype::Bool, x, y]) if x == y => {
            let run: Option<Loop> = match x.size() {
                _ if *x == Dtype::Complex64 => None,
                1 => Some(each::<Selected<u8>>),
                2 => Some(each::<Selected<u16>>),
                4 => Some(each::<Selected<u32>>),
                _ => Some(each::<Selected<u64>>),
            };
            (run, *x)
        }
        (Op::Astype(to), [from]) => (cast(*from, *to), *to),
        (Op::Convert(to), [from]) => {
            let run = by_type!(fraction *from, E => {
                by_type!(whole *to, I => applied::<Converted<E, I>> as Loop)?
            });
            (run, *to)
        }
        (Op::View(to), [from]) if to.size() == from.size() => (Some(copy(to.size())), *to),
        (_, [x]) => one(op, *x)?,
        (_, [x, y]) if x == y => two(op, *x)?,
        _ => return None,
    };
    Some((run?, dtype))
}

type Found = Option<(Option<Loop>, Dtype)>;

fn one(op: &Op, dtype: Dtype) -> Found {
    macro_rules! of {
        ($kind:ident $name:ident) => {
            (by_type!($kind dtype, T => each::<Mapped<T, T, $name>> as Loop), dtype)
        };
        ($kind:ident $name:ident bool) => {
            (by_type!($kind dtype, T => each::<Mapped<T, u8, $name>> as Loop), Dtype::Bool)
        };
    }
    if let Some(function) = op.hosted() {
        return Some((function.tile(dtype), dtype));
    }
    Some(match op {
        Op::LogicalNot if dtype == Dtype::Bool => (Some(each::<Mapped<u8, u8, LogicalNot>>), dtype),
        Op::Abs => of!(number Abs),
        Op::Negative => of!(number Negative),
        Op::Sign => of!(number Sign),
        Op::Square => of!(number Square),
        Op::BitwiseInvert => of!(whole BitwiseInvert),
        Op::Floor => of!(fraction Floor),
        Op::Ceil => of!(fraction Ceil),
        Op::Sqrt => of!(fraction Sqrt),
        Op::Reciprocal => of!(fraction Reciprocal),
        Op::Isnan => of!(fraction Isnan bool),
        Op::Isinf => of!(fraction Isinf bool),
        Op::LogicalNot => of!(number LogicalNot bool),
        _ => return None,
    })
}

fn two(op: &Op, dtype: Dtype) -> Found {
    macro_rules! of {
        ($kind:ident $name:ident) => {
            (by_type!($kind dtype, T => each::<Zipped<T, T, $name>> as Loop), dtype)
        };
        ($kind:ident $name:ident bool) => {
            (by_type!($kind dtype, T => each::<Zipped<T, u8, $name>> as Loop), Dtype::Bool)
        };
    }
    if dtype == Dtype::Bool {
        // Of two bools, the lesser is their conjunction.
        let run: Loop = match op {
            Op::LogicalAnd => each::<Zipped<u8, u8, Minimum>>,
            Op::LogicalOr => each::<Zipped<u8, u8, Maximum>>,
            Op::Equal => each::<Zipped<u8, u8, Equal>>,
            Op::NotEqual => each::<Zipped<u8, u8, NotEqual>>,
            _ => return None,
        };
        return Some((Some(run), dtype));
    }
    Some(match op {
        Op::Add => of!(number Add),
        Op::Subtract => of!(number Subtract),
        Op::Multiply => of!(number Multiply),
        Op::Minimum => of!(number Minimum),
        Op::Maximum => of!(number Maximum),
        Op::Equal => of!(number Equal bool),
        Op::NotEqual => of!(number NotEqual bool),
        Op::Greater => of!(number Greater bool),
        Op::GreaterEqual => of!(number GreaterEqual bool),
        Op::Less => of!(number Less bool),
        Op::LessEqual => of!(number LessEqual bool),
        Op::BitwiseAnd => of!(whole BitwiseAnd),
        Op::BitwiseOr => of!(whole BitwiseOr),
        Op::BitwiseXor => of!(whole BitwiseXor),
        Op::LeftShift => of!(whole LeftShift),
        Op::RightShift => of!(whole RightShift),
        Op::FloorDivide => of!(whole FloorDivide),
        Op::Divide => of!(fraction Divide),
        Op::Power => of!(fraction Power),
        Op::Arctan2 => of!(fraction Arctan2),
        Op::Remainder => of!(fraction Remainder),
        _ => return None,
    })
}

struct IsTrue;

impl<T: Number> Map<T, u8> for IsTrue {
    fn of(x: T) -> u8 {
        (x != T::ZERO).into()
    }
}

/// `None` from floats to integers, which C leaves undefined.
fn cast(from: Dtype, to: Dtype) -> Option<Loop> {
    let is_whole = |dtype: Dtype| dtype.is_integer() || dtype == Dtype::Bool;
    match (from, to) {
        _ if from == to => Some(copy(from.size())),
        (_, Dtype::Bool) => by_type!(number from, T => each::<Mapped<T, u8, IsTrue>> as Loop),
        (Dtype::Bool, _) => by_type!(number to, T => each::<Cast<u8, T>> as Loop),
        _ if is_whole(from) || !is_whole(to) => {
            by_type!(number from, A => by_type!(number to, B => each::<Cast<A, B>> as Loop)?)
        }
        _ => None,
    }
}
