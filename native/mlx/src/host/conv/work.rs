//! The blocks of a convolution, each of which one thread computes: what the window sees as a matrix,
//! and its product with the filters, in parts that a cache holds.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::patch::{Along, Input, Listed, Patch, Step, Walk};
use super::sizes::{Blocks, Order, Sizes};
use super::{Number, Operand};
use crate::cores;
use crate::host::gemm::{self, Matrix};
use crate::isa;

/// Places of an image from which on its product is made where it belongs.
const LARGE: usize = 32;

/// A convolution of operands in memory, and room for the result.
pub(super) struct Work<'a, T: Number> {
    pub(super) sizes: &'a Sizes,
    pub(super) order: Order,
    pub(super) blocks: Blocks,
    pub(super) x: Operand<'a, T>,
    pub(super) weights: Operand<'a, T>,
    pub(super) to: *mut T,
    run: Run,
    places: Walk,
    window: Walk,
    /// How far apart weights are along the elements of the window, if BLAS can take them as they are.
    as_is: Option<(bool, usize)>,
}

// SAFETY: the operands are only read, and each part of the result is one thread's.
unsafe impl<T: Number> Sync for Work<'_, T> {}

/// What of the input is copied at once.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Run {
    /// Places along the last axis, or elements of the batch where those come last.
    Places,
    /// Elements of the window along the last axis.
    Taps,
    Channels,
}

/// A part of the result.
#[derive(Clone)]
struct Block {
    group: usize,
    places: Range<usize>,
    /// Of the group.
    filters: Range<usize>,
}

/// Memory of a thread's, which it uses for block after block.
struct Scratch<S> {
    seen: Vec<S>,
    weights: Vec<S>,
    made: Vec<S>,
}

/// Room for so many numbers, whose values are anybody's.
fn room<S>(vec: &mut Vec<S>, size: usize) -> *mut S {
    vec.clear();
    vec.reserve(size);
    vec.as_mut_ptr()
}

impl<'a, T: Number> Work<'a, T> {
    pub(super) fn new(
        sizes: &'a Sizes,
        x: Operand<'a, T>,
        weights: Operand<'a, T>,
        to: *mut T,
    ) -> Self {
        let order = Order::new(sizes, x.strides, weights.strides);
        let blocks = Blocks::new(sizes, size_of::<T::Sum>());
        let run = run(sizes, order, x.strides);
        let spatial = |by: fn(&super::sizes::Axis) -> (usize, isize)| {
            let axes = sizes.axes.iter().enumerate();
            axes.map(move |(axis, it)| {
                let (size, by) = by(it);
                Step {
                    size,
                    offset: 0,
                    axis: Some((axis, by)),
                }
            })
        };
        let other = |size, stride: i64| Step {
            size,
            offset: stride as isize,
            axis: None,
        };
        let mut steps: SmallVec<[Step; 4]> = spatial(|axis| (axis.places, axis.stride)).collect();
        let batch = other(sizes.batch, x.strides[0]);
        steps.insert(
            if order == Order::Turned {
                steps.len()
            } else {
                0
            },
            batch,
        );
        let places = Walk {
            steps,
            first: sizes.axes.iter().map(|axis| -axis.low).collect(),
        };

        let taps: SmallVec<[Step; 4]> = spatial(|axis| (axis.taps, axis.dilation)).collect();
        let last = sizes.axes.len() + 1;
        let channels = other(sizes.channels, x.strides[last]);
        let window = |channels_last: bool| {
            let mut steps = taps.clone();
            steps.insert(if channels_last { steps.len() } else { 0 }, channels);
            Walk {
                steps,
                first: smallvec![0; sizes.axes.len()],
            }
        };
        let as_is = |channels_last| as_is::<T>(sizes, weights.strides, channels_last);
        let channels_last = match run {
            Run::Channels => true,
            Run::Taps => false,
            Run::Places => as_is(false).is_none() && as_is(true).is_some(),
        };
        Self {
            sizes,
            order,
            blocks,
            x,
            weights,
            to,
            run,
            places,
            window: window(channels_last),
            as_is: as_is(channels_last),
        }
    }

    /// Computes all of it.
    pub(super) fn all(&self) {
        let Sizes {
            batch,
            groups,
            filters,
            ..
        } = *self.sizes;
        let (places, depth) = (batch * self.sizes.image(), self.sizes.depth());
        let Blocks { pieces, .. } = self.blocks;
        let wide = places.div_ceil(self.blocks.places);
        let high = filters.div_ceil(self.blocks.filters);
        let part = |index: usize, each: usize, of: usize| index * each..of.min((index + 1) * each);
        let block = |index: usize| Block {
            group: index / (wide * high),
            filters: part(index / wide % high, self.blocks.filters, filters),
            places: part(index % wide, self.blocks.places, places),
        };
        let count = groups * high * wide;
        let size = self.blocks.places * self.blocks.filters;
        let work = (size * depth / pieces / 4).max(1);
        if pieces == 1 {
            cores::share(count, work, 1, &|blocks| {
                let mut scratch = Scratch::new();
                for index in blocks {
                    self.block(&block(index), 0..depth, &mut scratch);
                }
            });
            return;
        }
        let mut parts: Vec<T::Sum> = Vec::new();
        let parts = Parts(room(&mut parts, count * pieces * size));
        let parts = &parts;
        let deep = depth.div_ceil(self.blocks.depth);
        cores::share(count * pieces, work, 1, &|range| {
            let mut scratch = Scratch::new();
            for index in range {
                let piece = index % pieces;
                let first = deep * piece / pieces * self.blocks.depth;
                let end = deep * (piece + 1) / pieces * self.blocks.depth;
                let block = block(index / pieces);
                // SAFETY: there is room for a block per piece.
                unsafe {
                    let to = parts.0.add(index * size);
                    let to = (self.staged(&block, to), true);
                    self.sum(&block, first..end.min(depth), to, &mut scratch);
                }
            }
        });
        cores::share(count, size * pieces, 1, &|range| {
            for index in range {
                let block = block(index);
                let size = block.places.len() * block.filters.len();
                let each = self.blocks.places * self.blocks.filters;
                // SAFETY: these are the block's pieces, all of them computed.
                unsafe {
                    let sums = parts.0.add(index * pieces * each);
                    let sums = std::slice::from_raw_parts_mut(sums, pieces * each);
                    let (sums, others) = sums.split_at_mut(each);
                    for other in others.chunks_exact(each) {
                        for (sum, x) in sums[..size].iter_mut().zip(other) {
                            *sum += *x;
                        }
                    }
                    self.store(&block, sums.as_ptr());
                }
            }
        });
    }

    /// Where a block is put together before it is stored.
    fn staged(&self, block: &Block, at: *mut T::Sum) -> Matrix<*mut T::Sum> {
        let by_rows = self.order.is_by_rows();
        Matrix {
            at,
            by_rows,
            leading: if by_rows {
                block.filters.len()
            } else {
                block.places.len()
            },
        }
    }

    fn block(&self, block: &Block, depth: Range<usize>, scratch: &mut Scratch<T::Sum>) {
        let image = self.sizes.image();
        let whole = self.order != Order::Images || self.sizes.batch == 1 || image >= LARGE;
        if T::IS_SUM && whole {
            let leading = self.apart();
            let (place, filter) = (self.place(block.places.start), self.filter(block));
            let to = Matrix {
                // SAFETY: the result has such an element.
                at: unsafe { self.to.add(place + filter) }.cast(),
                by_rows: self.order.is_by_rows(),
                leading,
            };
            // SAFETY: the block is this thread's.
            return unsafe { self.sum(block, depth, (to, false), scratch) };
        }
        let size = block.places.len() * block.filters.len();
        let made = room(&mut scratch.made, size);
        let to = self.staged(block, made);
        // SAFETY: there is room for the block, which is written before it is read.
        unsafe {
            self.sum(block, depth, (to, true), scratch);
            self.store(block, made);
        }
    }

    /// How far apart places are in the result, or filters, if places lie side by side.
    fn apart(&self) -> usize {
        let filters = self.sizes.groups * self.sizes.filters;
        match self.order {
            Order::Rows | Order::Turned => filters,
            Order::Images => self.sizes.image(),
            Order::Planes => self.sizes.batch * self.sizes.image(),
        }
    }

    /// Where a place's results begin.
    fn place(&self, place: usize) -> usize {
        match self.order {
            Order::Rows | Order::Turned => place * self.apart(),
            Order::Planes => place,
            Order::Images => {
                let image = self.sizes.image();
                place / image * image * self.sizes.groups * self.sizes.filters + place % image
            }
        }
    }

    /// How far a block's filters are into a place's results.
    fn filter(&self, block: &Block) -> usize {
        let filter = block.group * self.sizes.filters + block.filters.start;
        if self.order.is_by_rows() {
            filter
        } else {
            filter * self.apart()
        }
    }

    /// Places that lie side by side in the result, or as far apart as all others.
    fn stretches(&self, places: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<T> {
        let image = match self.order {
            Order::Images => self.sizes.image(),
            _ => usize::MAX,
        };
        let mut next = places.start;
        std::iter::from_fn(move || {
            let start = next;
            next = places.end.min(start.saturating_add(image - start % image));
            (start < places.end).then_some(start..next)
        })
    }

    /// Writes what was staged.
    ///
    /// # Safety
    /// `made` must hold the block.
    unsafe fn store(&self, block: &Block, made: *const T::Sum) {
        let (apart, filter) = (self.apart(), self.filter(block));
        let (places, filters) = (block.places.len(), block.filters.len());
        // SAFETY: the block's elements are there in both, and the result's are this thread's.
        let copy = |from: usize, to: usize, size: usize| unsafe {
            T::store(made.add(from), self.to.add(to), size);
        };
        if self.order.is_by_rows() {
            for (index, place) in block.places.clone().enumerate() {
                copy(index * filters, self.place(place) + filter, filters);
            }
            return;
        }
        for stretch in self.stretches(block.places.clone()) {
            let to = self.place(stretch.start) + filter;
            let from = stretch.start - block.places.start;
            for index in 0..filters {
                copy(index * places + from, to + index * apart, stretch.len());
            }
        }
    }

    /// Sums some elements of the window for a block's places, times its filters.
    ///
    /// # Safety
    /// There must be room for the block at `to`, this thread's alone, be it staged or the result.
    unsafe fn sum(
        &self,
        block: &Block,
        depth: Range<usize>,
        (to, staged): (Matrix<*mut T::Sum>, bool),
        scratch: &mut Scratch<T::Sum>,
    ) {
        let by_places = self.run == Run::Places;
        let places = self.places.list(block.places.clone(), by_places);
        let mut first = depth.start;
        while first < depth.end {
            let part = first..depth.end.min(first + self.blocks.depth);
            let window = self.window.list(part.clone(), !by_places);
            let seen = room(&mut scratch.seen, block.places.len() * part.len());
            self.see(block.group, &places, &window, seen);
            let weights = self.filters(block, part.clone(), &mut scratch.weights);
            let seen = Matrix {
                at: seen.cast_const(),
                by_rows: !by_places,
                leading: if by_places {
                    block.places.len()
                } else {
                    part.len()
                },
            };
            // What is staged has no images apart.
            let all = block.places.clone();
            let stretches: SmallVec<[Range<usize>; 8]> = if staged {
                smallvec![all]
            } else {
                self.stretches(all).collect()
            };
            for stretch in stretches {
                let index = stretch.start - block.places.start;
                let seen = Matrix {
                    // SAFETY: a place among those seen.
                    at: unsafe {
                        seen.at
                            .add(index * if by_places { 1 } else { seen.leading })
                    },
                    ..seen
                };
                let to = Matrix {
                    // SAFETY: a place among the block's.
                    at: unsafe {
                        if staged {
                            to.at
                        } else {
                            let from = self.place(block.places.start);
                            to.at.add(self.place(stretch.start) - from)
                        }
                    },
                    ..to
                };
                let sizes = [stretch.len(), block.filters.len(), part.len()];
                // SAFETY: the three are there, and the result is this thread's.
                unsafe { gemm::product(sizes, seen, weights, first > depth.start, to) };
            }
            first = part.end;
        }
    }

    /// Fills a matrix with what the window sees.
    fn see(&self, group: usize, places: &Listed, window: &Listed, to: *mut T::Sum) {
        let axes = self.sizes.axes.len();
        let strides = self.x.strides[1..=axes]
            .iter()
            .map(|stride| *stride as isize);
        let strides: SmallVec<[isize; 4]> = strides.collect();
        let channel = self.x.strides[axes + 1] as isize;
        let first = (group * self.sizes.channels) as isize * channel;
        let last = &self.sizes.axes[axes - 1];
        let (rows, runs, along) = match self.run {
            Run::Places if self.order == Order::Turned => {
                (window, places, Along::Memory(self.x.strides[0] as isize))
            }
            Run::Places => (window, places, Along::Axis(last.stride)),
            Run::Taps => (places, window, Along::Axis(last.dilation)),
            Run::Channels => (places, window, Along::Memory(channel)),
        };
        isa::run(Patch {
            input: Input {
                // The group's, which is within the input if it has elements.
                at: self.x.at.wrapping_offset(first),
                axes: &self.sizes.axes,
                strides: &strides,
            },
            rows,
            runs,
            along,
            to,
        });
    }

    /// The block's filters, as they are or packed.
    fn filters(
        &self,
        block: &Block,
        part: Range<usize>,
        packed: &mut Vec<T::Sum>,
    ) -> Matrix<*const T::Sum> {
        let filter = block.group * self.sizes.filters + block.filters.start;
        let of_filter = self.weights.strides[0] as isize;
        let at = self.weights.at.wrapping_offset(filter as isize * of_filter);
        if let Some((by_rows, leading)) = self.as_is {
            let step = if by_rows { leading } else { 1 };
            return Matrix {
                at: at.wrapping_add(part.start * step).cast(),
                by_rows,
                leading,
            };
        }
        let (filters, depth) = (block.filters.len(), part.len());
        let to = room(packed, filters * depth);
        let by_rows = of_filter.unsigned_abs() <= 1;
        let mut index = part.start;
        while index < part.end {
            // Along the innermost axis of the window.
            let inner = self.window.steps.last().map_or(1, |step| step.size);
            let size = (inner - index % inner).min(part.end - index);
            let (offset, step) = self.weight(index);
            let at = at.wrapping_offset(offset);
            let row = index - part.start;
            // SAFETY: these are weights, and there is room for each.
            unsafe {
                if by_rows {
                    for depth in 0..size {
                        for filter in 0..filters {
                            let from =
                                at.offset(depth as isize * step + filter as isize * of_filter);
                            to.add((row + depth) * filters + filter)
                                .write(from.read().wide());
                        }
                    }
                } else {
                    for filter in 0..filters {
                        let at = at.offset(filter as isize * of_filter);
                        for index in 0..size {
                            let from = at.offset(index as isize * step);
                            to.add(filter * depth + row + index)
                                .write(from.read().wide());
                        }
                    }
                }
            }
            index += size;
        }
        Matrix {
            at: to.cast_const(),
            by_rows,
            leading: if by_rows { filters } else { depth },
        }
    }

    /// Where a filter has an element of the window, and how far from there the next one is.
    fn weight(&self, index: usize) -> (isize, isize) {
        let (mut rest, mut offset, mut inner) = (index, 0, 0);
        for (position, step) in self.window.steps.iter().rev().enumerate() {
            let channel = self.sizes.axes.len();
            let axis = step.axis.map_or(channel, |(axis, _)| axis);
            let stride = self.weights.strides[axis + 1] as isize;
            offset += (rest % step.size) as isize * stride;
            rest /= step.size;
            if position == 0 {
                inner = stride;
            }
        }
        (offset, inner)
    }
}

impl<S> Scratch<S> {
    fn new() -> Self {
        Self {
            seen: Vec::new(),
            weights: Vec::new(),
            made: Vec::new(),
        }
    }
}

/// Sums of pieces.
struct Parts<S>(*mut S);

// SAFETY: each piece is one thread's, until all are done.
unsafe impl<S: Send> Sync for Parts<S> {}

/// What is copied at once: what takes least, by the sizes of the runs and how far apart their
/// elements are.
fn run(sizes: &Sizes, order: Order, x: &[i64]) -> Run {
    /// What an element takes that is the next one in memory, or not, and what a run does.
    const NEXT: f64 = 0.15;
    const ELSE: f64 = 0.6;
    const EACH: f64 = 6.0;
    let axes = sizes.axes.len();
    let (last, stride) = (&sizes.axes[axes - 1], x[axes] as isize);
    let cost =
        |size: usize, step: isize| EACH / size.max(1) as f64 + if step == 1 { NEXT } else { ELSE };
    let along = |step: isize| if last.spread == 1 { step * stride } else { 0 };
    let places = if order == Order::Turned {
        cost(sizes.batch, x[0] as isize)
    } else {
        cost(last.places, along(last.stride))
    };
    let taps = cost(last.taps, along(last.dilation));
    let channels = cost(sizes.channels, x[axes + 1] as isize);
    if places <= taps && places <= channels {
        Run::Places
    } else if taps <= channels {
        Run::Taps
    } else {
        Run::Channels
    }
}

/// Whether weights are a matrix that BLAS takes, by rows, and how far apart those or its columns are.
fn as_is<T: Number>(sizes: &Sizes, strides: &[i64], channels_last: bool) -> Option<(bool, usize)> {
    let axes = sizes.axes.len();
    let taps = sizes.axes.iter().zip(&strides[1..]);
    let taps = taps.map(|(axis, stride)| (axis.taps, *stride));
    let channel = (sizes.channels, strides[axes + 1]);
    let mut window: SmallVec<[(usize, i64); 4]> = taps.collect();
    window.insert(if channels_last { window.len() } else { 0 }, channel);
    // From the innermost on, each axis goes on where the one before ends.
    let (mut first, mut next) = (None, 0);
    for (size, stride) in window.into_iter().rev().filter(|(size, _)| *size > 1) {
        let step = *first.get_or_insert(stride);
        if first.is_some() && next != 0 && stride != next {
            return None;
        }
        next = stride * size as i64;
        if step < 1 {
            return None;
        }
    }
    let (filter, depth) = (strides[0], sizes.depth() as i64);
    let step = first.unwrap_or(1);
    let single = sizes.filters == 1;
    if !T::IS_SUM {
        None
    } else if step == 1 && (single || filter >= depth) {
        Some((false, if single { depth } else { filter } as usize))
    } else if (single || filter == 1) && (step >= sizes.filters as i64) {
        Some((true, step as usize))
    } else {
        None
    }
}
