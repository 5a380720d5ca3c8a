//! Matrix products. On CPUs MLX multiplies halves one by one; as singles they are BLAS's. A block of
//! them at a time becomes singles, so that large weights do not take three times their memory.

use crate::array::{Array, Vector};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::host;
use crate::stream::{Device, Stream};

/// How many elements of an operand are singles at once.
const BLOCK: usize = 1 << 23;

pub(super) fn matmul(a: &Array, b: &Array, s: &Stream) -> Result<Array> {
    if let Some(product) = host::product(a, b, s) {
        return product;
    }
    let dtype = a.dtype();
    let is_half = matches!(dtype, Dtype::Float16 | Dtype::Bfloat16) && b.dtype() == dtype;
    // What MLX refuses it is to say itself.
    if is_half && s.device == Device::Cpu && a.dims().len() > 1 && b.dims().len() > 1 {
        halves(a, b, dtype, BLOCK, s)
    } else {
        c!(mlx_matmul(a, b), s)
    }
}

fn halves(a: &Array, b: &Array, dtype: Dtype, block: usize, s: &Stream) -> Result<Array> {
    // Batches, columns of the right operand, rows of the left one.
    let first = |x: &Array| (x.dims().len() > 2).then(|| x.dims()[0]);
    if let (true, Some(left), Some(right)) = (a.size().max(b.size()) > block, first(a), first(b))
        && left == right
        && left > 1
    {
        return split([a, b], [Some(0), Some(0)], 0, dtype, block, s);
    }
    let columns = b.dims().len() - 1;
    if b.size() > block && b.dims()[columns] > 1 {
        return split([a, b], [None, Some(columns)], -1, dtype, block, s);
    }
    let rows = a.dims().len() - 2;
    if a.size() > block && a.dims()[rows] > 1 {
        return split([a, b], [Some(rows), None], -2, dtype, block, s);
    }
    let a = c!(mlx_astype(a, Dtype::Float32), s)?;
    let b = c!(mlx_astype(b, Dtype::Float32), s)?;
    let product = c!(mlx_matmul(a, b), s)?;
    c!(mlx_astype(product, dtype), s)
}

/// The products of parts along axes of the operands, one behind the other along the result's `axis`.
fn split(
    operands: [&Array; 2],
    axes: [Option<usize>; 2],
    axis: i32,
    dtype: Dtype,
    block: usize,
    s: &Stream,
) -> Result<Array> {
    let along = || {
        operands
            .iter()
            .zip(axes)
            .filter_map(|(x, axis)| Some((x, axis?)))
    };
    let (mut count, mut size) = (1, 1);
    for (x, axis) in along() {
        count = x.dims()[axis];
        size = size.max(x.size() / count as usize);
    }
    let step = (block / size).max(1) as i32;
    let mut parts = Vec::new();
    for start in (0..count).step_by(step as usize) {
        let part = |index: usize| match axes[index] {
            Some(axis) => slice(operands[index], axis, start, count.min(start + step), s),
            None => Ok(operands[index].clone()),
        };
        parts.push(halves(&part(0)?, &part(1)?, dtype, block, s)?);
    }
    let parts = Vector::new(parts.iter());
    c!(mlx_concatenate_axis(parts, axis), s)
}

fn slice(x: &Array, axis: usize, start: i32, stop: i32, s: &Stream) -> Result<Array> {
    let (mut starts, mut stops) = (vec![0; x.dims().len()], x.dims().to_vec());
    (starts[axis], stops[axis]) = (start, stop);
    let strides = vec![1; starts.len()];
    c!(mlx_slice(x, [starts], [stops], [strides]), s)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the product in one block.
    use super::*;
    use crate::shape::Shape;
    use crate::stream::Streams;

    fn numbers(dims: &[i64]) -> Array {
        let shape = Shape::new(dims.to_vec()).unwrap();
        let numbers = (0..shape.size()).map(|i| half::bf16::from_f32((i % 13) as f32 - 6.0));
        let bytes: Vec<u8> = numbers.flat_map(half::bf16::to_ne_bytes).collect();
        Array::from_bytes(&bytes, &shape, Dtype::Bfloat16).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn blocks_make_the_same() {
        let streams = Streams::new(Device::Cpu).unwrap();
        let s = &streams.main;
        let cases: [(&[i64], &[i64]); 4] = [
            (&[5, 7], &[7, 3]),
            (&[6, 5, 7], &[6, 7, 3]),
            (&[2, 3, 5, 7], &[2, 3, 7, 4]),
            (&[5, 7], &[4, 7, 3]),
        ];
        for (left, right) in cases {
            let (a, b) = (numbers(left), numbers(right));
            let whole = halves(&a, &b, Dtype::Bfloat16, 1 << 20, s).unwrap();
            for block in [1, 2, 10, 40] {
                let made = halves(&a, &b, Dtype::Bfloat16, block, s).unwrap();
                assert_eq!(made.dims(), whole.dims());
                let equal = c!(mlx_array_equal(made, whole, false), s).unwrap();
                let equal = equal.bytes(None, &streams).unwrap();
                assert_eq!(&*equal, [1], "{left:?} {right:?} {block}");
            }
        }
    }
}
