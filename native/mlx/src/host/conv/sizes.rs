//! What a convolution consists of, and the blocks in which it is computed: by its shape alone, so
//! that its sums are the same on any number of cores.

use smallvec::SmallVec;

/// An axis that the window moves along.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Elements of the input.
    pub(super) input: usize,
    /// Elements of the window.
    pub(super) taps: usize,
    /// Elements of the result: places of the window.
    pub(super) places: usize,
    pub(super) stride: isize,
    pub(super) dilation: isize,
    /// How far apart the elements of the input are, with zeros in between.
    pub(super) spread: isize,
    /// Zeros ahead of the input, or less than none where elements are cut off.
    pub(super) low: isize,
}

#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels and filters of a group.
    pub(super) channels: usize,
    pub(super) filters: usize,
    pub(super) axes: SmallVec<[Axis; 3]>,
}

impl Sizes {
    /// Places of the window in an image.
    pub(super) fn image(&self) -> usize {
        self.axes.iter().map(|axis| axis.places).product()
    }

    /// Numbers that a result is the sum of.
    pub(super) fn depth(&self) -> usize {
        let taps: usize = self.axes.iter().map(|axis| axis.taps).product();
        self.channels * taps
    }
}

/// The order in which the axes of the result lie in memory, outermost first. It is that of the input's
/// where it can be: whoever takes the result as it took the input finds it in rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// Batch, places, filters: channels last.
    Rows,
    /// Batch, filters, places: channels first.
    Images,
    /// Filters, batch, places: of a gradient with respect to weights, channels first.
    Planes,
    /// Places, batch, filters: of the same, channels last.
    Turned,
}

impl Order {
    /// `x`: how far apart the input's elements are along batch, axes and channels. `weights`: along
    /// filters, axes and channels.
    pub(super) fn new(sizes: &Sizes, x: &[i64], weights: &[i64]) -> Self {
        let last = sizes.axes.len() + 1;
        let image = sizes.image();
        let channels = sizes.groups * sizes.channels;
        let step = |size: usize, stride: i64| (size > 1).then_some(stride.unsigned_abs());
        let least = |strides: &[i64], size: &dyn Fn(&Axis) -> usize| {
            let axes = sizes.axes.iter().zip(&strides[1..last]);
            axes.filter_map(|(axis, stride)| step(size(axis), *stride))
                .min()
        };
        let (batch, channel) = (step(sizes.batch, x[0]), step(channels, x[last]));
        let place = least(x, &|axis| axis.input);
        if image == 1 {
            return Self::Rows;
        }
        let Some(place) = place else {
            return Self::Images;
        };
        if batch.is_some_and(|batch| batch < place && channel.is_none_or(|other| batch < other)) {
            return Self::Turned;
        }
        match (batch, channel) {
            (_, Some(channel)) if channel < place => Self::Rows,
            (Some(batch), Some(channel)) if channel > batch => Self::Planes,
            (_, Some(_)) => Self::Images,
            // Of one channel nobody knows but by the weights.
            (_, None) => {
                let filter = step(sizes.groups * sizes.filters, weights[0]);
                match (filter, least(weights, &|axis| axis.taps)) {
                    (Some(filter), Some(tap)) if filter < tap => Self::Rows,
                    _ => Self::Images,
                }
            }
        }
    }

    /// How far apart the result's elements are along batch, axes and filters.
    pub(super) fn strides(self, sizes: &Sizes, strides: &mut [i64]) {
        let (batch, image) = (sizes.batch as i64, sizes.image() as i64);
        let filters = (sizes.groups * sizes.filters) as i64;
        let (of_batch, of_place, of_filter) = match self {
            Self::Rows => (image * filters, filters, 1),
            Self::Images => (filters * image, 1, image),
            Self::Planes => (image, 1, batch * image),
            Self::Turned => (filters, batch * filters, 1),
        };
        let last = sizes.axes.len() + 1;
        (strides[0], strides[last]) = (of_batch, of_filter);
        let mut step = of_place;
        for (stride, axis) in strides[1..last].iter_mut().zip(&sizes.axes).rev() {
            *stride = step;
            step *= axis.places as i64;
        }
    }

    /// Whether the filters of a place lie side by side, and not the places of a filter.
    pub(super) fn is_by_rows(self) -> bool {
        matches!(self, Self::Rows | Self::Turned)
    }
}

/// A product of a block is that of so many places, filters and elements of the window. All pieces of a
/// window are summed by themselves where there are few blocks otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Blocks {
    pub(super) places: usize,
    pub(super) filters: usize,
    pub(super) depth: usize,
    pub(super) pieces: usize,
}

impl Blocks {
    /// Bytes of a block of the input: about what a core's cache holds.
    const BYTES: usize = 384 << 10;
    const DEPTH: usize = 512;
    const PLACES: usize = 2048;
    const FILTERS: usize = 512;
    /// Blocks that are enough for many cores.
    const ENOUGH: usize = 16;
    /// Places that a block has at least, and a multiple of which it has.
    const LEAST: usize = 64;
    const STEP: usize = 16;

    /// Of a convolution that is not empty, with sums of `size` bytes.
    pub(super) fn new(sizes: &Sizes, size: usize) -> Self {
        let even = |whole: usize, most: usize| whole.div_ceil(whole.div_ceil(most));
        let places = sizes.batch * sizes.image();
        let filters = even(sizes.filters, Self::FILTERS);
        let depth = even(sizes.depth(), Self::DEPTH);
        let most = (Self::BYTES / size / depth).clamp(Self::LEAST, Self::PLACES);
        // Pieces of the depth are blocks too.
        let deep = sizes.depth().div_ceil(depth);
        let fair = places
            .div_ceil(Self::ENOUGH.div_ceil(deep))
            .max(Self::LEAST);
        let places_each = even(places, most.min(fair.next_multiple_of(Self::STEP)));
        let count = sizes.groups * sizes.filters.div_ceil(filters) * places.div_ceil(places_each);
        Self {
            places: places_each,
            filters,
            depth,
            pieces: (Self::ENOUGH / count).clamp(1, deep),
        }
    }
}
