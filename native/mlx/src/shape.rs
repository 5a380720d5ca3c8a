//! Shapes, checked once where they enter.

use crate::error::{Error, Result};

/// The sizes of the axes: at most 32 of them, each an i32, together addressable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape(Vec<i32>);

impl Shape {
    /// MLX's kernels hold shapes and strides in arrays of this length.
    pub const MAX_RANK: usize = 32;
    /// Elements are counted in 64 bits and are at most 16 bytes wide.
    const MAX_SIZE: i64 = i64::MAX / 16;

    /// Checks rank, sizes and their product.
    pub fn new(dims: Vec<i64>) -> Result<Self> {
        let rank = dims.len();
        if rank > Self::MAX_RANK {
            let limit = Self::MAX_RANK;
            return Err(Error::invalid(
                "shape",
                format!("rank {rank} exceeds the {limit} axes that MLX has room for"),
            ));
        }
        let mut size = 1i64;
        let mut checked = Vec::with_capacity(rank);
        for &dim in &dims {
            let fits = i32::try_from(dim).ok().filter(|dim| *dim >= 0);
            let product = size
                .checked_mul(dim.max(1))
                .filter(|s| *s <= Self::MAX_SIZE);
            let (Some(axis), Some(product)) = (fits, product) else {
                return Err(Error::invalid(
                    "shape",
                    format!("the shape {dims:?} has an axis or a size out of range"),
                ));
            };
            checked.push(axis);
            size = product;
        }
        Ok(Self(checked))
    }

    /// The axes' sizes.
    pub fn dims(&self) -> &[i32] {
        &self.0
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.0.iter().map(|dim| *dim as usize).product()
    }
}

#[cfg(feature = "nif")]
mod terms {
    use super::Shape;
    use crate::terms::List;
    use rustler::{Decoder, Error, NifResult, Term};

    /// A tuple or a list of sizes.
    impl<'a> Decoder<'a> for Shape {
        fn decode(term: Term<'a>) -> NifResult<Self> {
            let dims = match rustler::types::tuple::get_tuple(term) {
                Ok(terms) => terms
                    .into_iter()
                    .map(|t| t.decode())
                    .collect::<NifResult<_>>()?,
                Err(_) => term.decode::<List<i64>>()?.0,
            };
            Shape::new(dims).map_err(|error| Error::Term(Box::new(error.to_string())))
        }
    }
}
