//! Elements as keys: unsigned integers of their size, in their order.

use half::{bf16, f16};

use super::sort::{Key, Long, Short};

/// A type whose elements have keys of the same size.
pub(super) trait Element: Copy + Send + Sync + 'static {
    type Key: Key;
    /// A key with where it was.
    type Placed: Key;

    /// In the order of elements; different for zeros of both signs, the same for all NaNs.
    fn key(self) -> Self::Key;
    fn of(key: Self::Key) -> Self;
    fn placed(key: Self::Key, index: u32) -> Self::Placed;
    fn index(placed: Self::Placed) -> u32;

    /// The keys of the lesser and of the greater zero, and of NaN, of a type that has them.
    const FLOAT: Option<[Self::Key; 3]> = None;
}

/// The highest bit of an unsigned type.
macro_rules! highest {
    ($key:ty) => {
        (1 as $key).rotate_right(1)
    };
}

macro_rules! element {
    ($t:ty, $key:ty, $placed:ident, |$x:ident| $to:expr, |$k:ident| $of:expr $(, $float:expr)?) => {
        impl Element for $t {
            type Key = $key;
            type Placed = $placed;
            #[inline(always)]
            fn key(self) -> $key { let $x = self; $to }
            #[inline(always)]
            fn of($k: $key) -> Self { $of }
            #[inline(always)]
            fn placed(key: $key, index: u32) -> $placed { $placed::new(key.into(), index) }
            #[inline(always)]
            fn index(placed: $placed) -> u32 { placed.index() }
            $(const FLOAT: Option<[$key; 3]> = Some($float);)?
        }
    };
}

macro_rules! elements {
    (unsigned $($t:ty, $placed:ident;)*) => {
        $(element!($t, $t, $placed, |x| x, |key| key);)*
    };
    (signed $($t:ty, $key:ty, $placed:ident;)*) => {
        // The sign, turned over, is the highest bit.
        $(element!($t, $key, $placed, |x| x as $key ^ highest!($key), |key| (key ^ highest!($key)) as $t);)*
    };
    (float $($t:ty, $key:ty, $placed:ident;)*) => {
        $(element!(
            $t, $key, $placed,
            |x| {
                let bits = x.to_bits();
                let above = bits | highest!($key);
                let key = if bits & highest!($key) == 0 { above } else { !bits };
                if x.is_nan() { <$key>::MAX } else { key }
            },
            |key| {
                let is_below = key & highest!($key) == 0;
                <$t>::from_bits(if is_below { !key } else { key ^ highest!($key) })
            },
            [highest!($key) - 1, highest!($key), <$key>::MAX]
        );)*
    };
}

elements! { unsigned u8, Short; u16, Short; u32, Short; u64, Long; }
elements! { signed i8, u8, Short; i16, u16, Short; i32, u32, Short; i64, u64, Long; }
elements! { float f16, u16, Short; bf16, u16, Short; f32, u32, Short; f64, u64, Long; }

/// The key by which an element is compared.
#[inline(always)]
pub(super) fn equal<T: Element>(x: T) -> T::Key {
    let key = x.key();
    match T::FLOAT {
        Some([lesser, greater, _]) if key == lesser => greater,
        _ => key,
    }
}
