//! Sums at the extremes of windows: the gradient of a pooling. One pass over the windows, on all cores
//! along the axes that no window has more than one element of.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::AddAssign;

use half::{bf16, f16};

use super::call::{Call, call};
use crate::array::Array;
use crate::cores;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::ops::window::Windows;
use crate::stream::{Device, Stream};

/// Windows of a part of the array, which all parts have alike.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// Parts that no window has elements of two of.
    count: usize,
    /// Elements of a part.
    size: usize,
    /// Windows along each axis, and how far apart they are.
    places: Vec<(usize, usize)>,
    /// Where the elements of a window are, from its first one on.
    taps: Vec<usize>,
}

impl Part {
    fn new(shape: &[i32], source: &[i32], windows: &Windows) -> Self {
        let alone = |axis: &usize| windows.dims[*axis] == 1 && windows.strides[*axis] == 1;
        let outer = (0..shape.len()).take_while(alone).count();
        let size = |dims: &[i32]| dims.iter().map(|dim| *dim as usize).product();
        let (mut places, mut taps, mut step) = (Vec::new(), vec![0], 1);
        for axis in (outer..shape.len()).rev() {
            places.push((source[axis] as usize, windows.strides[axis] as usize * step));
            let along = (0..windows.dims[axis] as usize).map(|tap| tap * step);
            taps = along
                .flat_map(|from| taps.iter().map(move |tap| from + tap))
                .collect();
            step *= shape[axis] as usize;
        }
        places.reverse();
        Self {
            count: size(&shape[..outer]),
            size: size(&shape[outer..]),
            places,
            taps,
        }
    }

    fn windows(&self) -> usize {
        self.places.iter().map(|(count, _)| count).product()
    }

    /// Calls `each` with where every window begins.
    fn each(&self, mut each: impl FnMut(usize)) {
        let Some(((inner, step), outer)) = self.places.split_last() else {
            return each(0);
        };
        let rows = outer.iter().map(|(count, _)| count).product();
        for row in 0..rows {
            let (mut rest, mut first) = (row, 0);
            for (count, step) in outer.iter().rev() {
                first += rest % count * step;
                rest /= count;
            }
            for index in 0..*inner {
                each(first + index * step);
            }
        }
    }
}

struct Scatter<T, S> {
    part: Part,
    max: bool,
    types: PhantomData<(T, S)>,
}

/// Where sums belong.
struct Sums<S>(*mut S);

// SAFETY: each part of them is one thread's alone.
unsafe impl<S: Send> Sync for Sums<S> {}

impl<T, S> Call for Scatter<T, S>
where
    T: Copy + PartialOrd + Send + Sync + 'static,
    S: Copy + AddAssign + Send + Sync + 'static,
{
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let part = &self.part;
        let (count, windows) = (part.count, part.windows());
        // SAFETY: the inputs and the result are those of `of`, whose sizes these are.
        let (x, source, init) = unsafe {
            (
                std::slice::from_raw_parts(inputs[0].cast::<T>(), count * part.size),
                std::slice::from_raw_parts(inputs[1].cast::<S>(), count * windows),
                inputs[2].cast::<S>().read(),
            )
        };
        let sums = Sums(out.cast::<S>());
        let work = windows.saturating_mul(part.taps.len()) + part.size;
        cores::share(count, work, 1, &|range| {
            let sums = &sums;
            for index in range {
                let x = &x[index * part.size..][..part.size];
                let source = &source[index * windows..][..windows];
                // SAFETY: there is room for the part, and nobody else has it.
                let to = unsafe {
                    let to = sums.0.add(index * part.size);
                    for index in 0..part.size {
                        to.add(index).write(init);
                    }
                    std::slice::from_raw_parts_mut(to, part.size)
                };
                if self.max {
                    part.add(x, source, to, |x, best| x >= best);
                } else {
                    part.add(x, source, to, |x, best| x <= best);
                }
            }
        });
    }
}

impl Part {
    #[inline(always)]
    fn add<T: Copy + PartialOrd, S: Copy + AddAssign>(
        &self,
        x: &[T],
        source: &[S],
        to: &mut [S],
        wins: impl Fn(T, T) -> bool,
    ) {
        let mut source = source.iter();
        let (first, others) = (self.taps[0], &self.taps[1..]);
        self.each(|start| {
            let mut at = start + first;
            let mut best = x[at];
            for tap in others {
                let number = x[start + tap];
                // What is not a number wins over all.
                if wins(number, best) || number.partial_cmp(&number).is_none() {
                    (at, best) = (start + tap, number);
                }
            }
            if let Some(number) = source.next() {
                to[at] += *number;
            }
        });
    }
}

/// The sums, if the stream is a CPU's and the numbers are floats, summed as singles or doubles.
pub(crate) fn window_scatter(
    x: &Array,
    source: &Array,
    init: &Array,
    windows: &Windows,
    s: &Stream,
) -> Option<Result<Array>> {
    if s.device != Device::Cpu || x.size() == 0 {
        return None;
    }
    match (x.dtype(), source.dtype()) {
        (Dtype::Float32, Dtype::Float32) => Some(of::<f32, f32>(x, source, init, windows, s)),
        (Dtype::Float64, Dtype::Float64) => Some(of::<f64, f64>(x, source, init, windows, s)),
        (Dtype::Float16, Dtype::Float32) => Some(of::<f16, f32>(x, source, init, windows, s)),
        (Dtype::Bfloat16, Dtype::Float32) => Some(of::<bf16, f32>(x, source, init, windows, s)),
        _ => None,
    }
}

fn of<T, S>(x: &Array, source: &Array, init: &Array, windows: &Windows, s: &Stream) -> Result<Array>
where
    T: Copy + PartialOrd + Send + Sync + 'static,
    S: Copy + AddAssign + Send + Sync + 'static,
{
    let scatter = Scatter::<T, S> {
        part: Part::new(x.dims(), source.dims(), windows),
        max: windows.max,
        types: PhantomData,
    };
    let result = (x.dims(), source.dtype());
    call(c"WindowScatter", &[x, source, init], result, scatter, s)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the same by operations of MLX's.
    use super::*;
    use crate::ops::window::by_index;
    use crate::shape::Shape;
    use crate::stream::Streams;

    fn numbers(dims: &[i64], factor: usize) -> Array {
        let shape = Shape::new(dims.to_vec()).unwrap();
        let number = |index: usize| (index * factor % 11) as f32;
        let bytes = (0..shape.size()).flat_map(|index| number(index).to_ne_bytes());
        let bytes: Vec<u8> = bytes.collect();
        Array::from_bytes(&bytes, &shape, Dtype::Float32).unwrap()
    }

    #[test]
    fn axes_of_single_elements_are_parts() {
        let windows = Windows {
            dims: &[1, 1, 2, 2],
            strides: &[1, 1, 2, 3],
            max: true,
        };
        let part = Part::new(&[3, 4, 6, 5], &[3, 4, 3, 2], &windows);
        let wanted = Part {
            count: 12,
            size: 30,
            places: vec![(3, 10), (2, 3)],
            taps: vec![0, 1, 5, 6],
        };
        assert_eq!(part, wanted);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn sums_are_those_by_index() {
        let streams = Streams::new(Device::Cpu).unwrap();
        let s = &streams.main;
        let cases: [(&[i64], &[i32], &[i32]); 7] = [
            (&[2, 3, 8, 6], &[1, 1, 2, 2], &[1, 1, 2, 2]),
            (&[8, 16, 32, 32], &[1, 1, 3, 2], &[1, 1, 1, 2]),
            (&[2, 9, 7, 3], &[1, 3, 3, 1], &[1, 2, 1, 1]),
            (&[13], &[4], &[3]),
            (&[4, 5], &[2, 5], &[1, 1]),
            (&[4, 5], &[1, 1], &[2, 1]),
            (&[], &[], &[]),
        ];
        for (dims, window, strides) in cases {
            for max in [true, false] {
                let windows = Windows {
                    dims: window,
                    strides,
                    max,
                };
                let axes = dims.iter().zip(window).zip(strides);
                let places =
                    axes.map(|((size, dim), by)| (size - i64::from(*dim)) / i64::from(*by) + 1);
                let places: Vec<i64> = places.collect();
                let (x, source) = (numbers(dims, 7), numbers(&places, 3));
                let init = numbers(&[], 1);
                let made = window_scatter(&x, &source, &init, &windows, s)
                    .unwrap()
                    .unwrap();
                let wanted = by_index(&x, &source, &init, &windows, s).unwrap();
                let [made, wanted] = [made, wanted].map(|x| x.bytes(None, &streams).unwrap());
                assert_eq!(&*made, &*wanted, "{dims:?} {window:?} {strides:?} {max}");
            }
        }
    }
}
