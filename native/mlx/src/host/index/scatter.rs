//! Parts of an array written: the elements of each part's update, one update after the other.
//!
//! Cores share the elements of a part and not the parts, so the order in which an element meets its
//! updates is always that of the updates.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::places::{HELD, OUTSIDE, Part, Places};
use super::{Indices, by_size, call, size};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::halves::Half;
use crate::host::Call;
use crate::isa::{self, Job};
use crate::stream::{Device, Stream};

/// Elements that are copied as one piece.
const PIECE: usize = 1 << 12;
/// Elements of a run that one core takes at least, which are some cache lines.
const COLUMNS: usize = 64;

/// What becomes of an element that meets an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Merged {
    Put,
    Add,
}

trait Merge: Send + Sync + 'static {
    type Element: Copy + Send + Sync;
    fn merged(x: Self::Element, update: Self::Element) -> Self::Element;
}

struct Put<T>(PhantomData<fn() -> T>);
struct Add<T>(PhantomData<fn() -> T>);

impl<T: Copy + Send + Sync + 'static> Merge for Put<T> {
    type Element = T;
    #[inline(always)]
    fn merged(_x: T, update: T) -> T {
        update
    }
}

macro_rules! add {
    ($($t:ty, |$x:ident, $y:ident| $sum:expr;)*) => {$(
        impl Merge for Add<$t> {
            type Element = $t;
            #[inline(always)]
            fn merged($x: $t, $y: $t) -> $t { $sum }
        }
    )*};
}

add! {
    u8, |x, y| x.wrapping_add(y);
    u16, |x, y| x.wrapping_add(y);
    u32, |x, y| x.wrapping_add(y);
    u64, |x, y| x.wrapping_add(y);
    f16, |x, y| Half::narrow(x.wide() + y.wide());
    bf16, |x, y| Half::narrow(x.wide() + y.wide());
    f32, |x, y| x + y;
    f64, |x, y| x + y;
    [f32; 2], |x, y| [x[0] + y[0], x[1] + y[1]];
}

struct Scatter<M> {
    places: Places,
    part: Part,
    /// How many elements the array has.
    size: usize,
    merge: PhantomData<M>,
}

/// The array and the updates, and what they become.
struct Elements<T> {
    x: *const T,
    updates: *const T,
    to: *mut T,
}

// SAFETY: each element of the result is one thread's alone.
unsafe impl<T: Sync + Send> Sync for Elements<T> {}

/// Some columns of each run, of all updates.
struct Columns<'a, M: Merge> {
    scatter: &'a Scatter<M>,
    elements: &'a Elements<M::Element>,
    indices: &'a Indices<'a>,
    columns: Range<usize>,
}

impl<M: Merge> Job for Columns<'_, M> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self {
            scatter: Scatter { places, part, .. },
            elements: Elements { updates, to, .. },
            indices,
            columns,
        } = self;
        let mut held = [0; HELD];
        for first in (0..places.count).step_by(HELD) {
            let held = &mut held[..HELD.min(places.count - first)];
            // SAFETY: the places are within these indices.
            unsafe { places.within(indices.get(), first, held) };
            for (index, begin) in (first..).zip(&*held) {
                if *begin == OUTSIDE {
                    continue;
                }
                part.each(|offset, at| {
                    // SAFETY: the part lies within the array from there on, and these columns of it
                    // are this thread's; there is an update for each part.
                    let (to, updates) = unsafe {
                        let to = to.add(begin + offset + columns.start);
                        let updates = updates.add(index * part.size + at + columns.start);
                        (
                            std::slice::from_raw_parts_mut(to, columns.len()),
                            std::slice::from_raw_parts(updates, columns.len()),
                        )
                    };
                    for (to, update) in to.iter_mut().zip(updates) {
                        *to = M::merged(*to, *update);
                    }
                });
            }
        }
    }
}

impl<M: Merge> Call for Scatter<M> {
    const REUSES: bool = true;

    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let [x, updates, indices @ ..] = inputs else {
            return;
        };
        let elements = Elements::<M::Element> {
            x: x.cast(),
            updates: updates.cast(),
            to: out.cast(),
        };
        if elements.x != elements.to.cast_const() {
            cores::share(self.size, 1, PIECE, &|range| {
                let Elements { x, to, .. } = &elements;
                let (x, to) = (x.wrapping_add(range.start), to.wrapping_add(range.start));
                // SAFETY: the array and the result have so many elements, and these are this thread's.
                unsafe { std::ptr::copy_nonoverlapping(x, to, range.len()) };
            });
        }
        let indices = Indices(indices);
        let work = self.places.count * (self.part.size / self.part.run.max(1));
        cores::share(self.part.run, work, COLUMNS, &|columns| {
            isa::run(Columns {
                scatter: self,
                elements: &elements,
                indices: &indices,
                columns,
            });
        });
    }
}

/// The array with the updates of its parts, if the stream is a CPU's and they are of whole elements of
/// some axes.
pub(crate) fn scatter(
    merged: Merged,
    x: &Array,
    updates: &Array,
    indices: &[&Array],
    axes: &[i32],
    s: &Stream,
) -> Option<Result<Array>> {
    let (dims, dtype) = (x.dims(), x.dtype());
    let (batch, sizes) = updates
        .dims()
        .split_at_checked(updates.dims().len().checked_sub(dims.len())?)?;
    let places = Places::new(indices, axes, dims, sizes)?;
    let is_fit = batch == indices.first()?.dims() && updates.dtype() == dtype;
    if s.device != Device::Cpu || !is_fit || size(dims) == 0 || updates.size() == 0 {
        return None;
    }
    let inputs = [x, updates];
    let inputs: Vec<&Array> = inputs.into_iter().chain(indices.iter().copied()).collect();
    let part = Part::new(sizes, dims);
    macro_rules! scatter {
        ($merge:ty) => {{
            let scatter = Scatter {
                places,
                part,
                size: size(dims),
                merge: PhantomData::<$merge>,
            };
            Some(call(c"Scatter", &inputs, (dims, dtype), scatter, s))
        }};
    }
    macro_rules! put {
        ($t:ty) => {
            scatter!(Put<$t>)
        };
    }
    match (merged, dtype) {
        (Merged::Put, _) => by_size!(dtype, put),
        (Merged::Add, Dtype::Uint8 | Dtype::Int8) => scatter!(Add<u8>),
        (Merged::Add, Dtype::Uint16 | Dtype::Int16) => scatter!(Add<u16>),
        (Merged::Add, Dtype::Uint32 | Dtype::Int32) => scatter!(Add<u32>),
        (Merged::Add, Dtype::Uint64 | Dtype::Int64) => scatter!(Add<u64>),
        (Merged::Add, Dtype::Float16) => scatter!(Add<f16>),
        (Merged::Add, Dtype::Bfloat16) => scatter!(Add<bf16>),
        (Merged::Add, Dtype::Float32) => scatter!(Add<f32>),
        (Merged::Add, Dtype::Float64) => scatter!(Add<f64>),
        (Merged::Add, Dtype::Complex64) => scatter!(Add<[f32; 2]>),
        // Which MLX has as an or.
        (Merged::Add, Dtype::Bool) => None,
    }
}
