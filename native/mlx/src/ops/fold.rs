//! Reductions by a program: what Nx calls `reduce` and `window_reduce`, in the order it defines.
//!
//! On a CPU a host kernel does it, if the program is elementwise. Otherwise the program is added to
//! MLX's graph once per element, for all results at once where it can be.

use std::ffi::c_void;

use crate::array::Array;
use crate::control;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host::{self, Call};
use crate::kernel::{Kernel, Part, TILE};
use crate::program::{Program, Run};
use crate::stream::{Device, Stream};

/// Steps after which what was built is computed: a graph must not grow with the data.
const STEPS: i32 = 256;

/// Folds `body(element, acc)` over the first axis of `x`, beginning with `acc`, whose shape is that
/// of the other axes.
pub(super) fn fold(x: &Array, acc: &Array, body: &Program, run: &Run) -> Result<Array> {
    let dims = x.dims();
    if body.inputs() != 2 || body.outputs() != 1 || dims.is_empty() || dims[1..] != *acc.dims() {
        return Err(Error::invalid(
            "",
            format!(
                "a fold takes a program of two inputs and one output, elements and a start for each result, and got {} inputs, {} outputs, {x:?} and {acc:?}",
                body.inputs(),
                body.outputs()
            ),
        ));
    }
    if x.size() == 0 || acc.size() == 0 {
        return Ok(acc.clone());
    }
    let s = stream(acc, run);
    let mut kernel = Kernel::new(&[x.dtype(), acc.dtype()]);
    if s.device == Device::Cpu
        && let Some(part) = kernel.add(body)
        && part.outputs[0].dtype == acc.dtype()
    {
        return on_host(kernel, part, x, acc, s);
    }
    if body.instructions().all(|i| i.op.is_elementwise()) {
        return steps(x, acc, body, run);
    }
    let count = dims[0];
    let size = acc.size() as i32;
    let shape = acc.dims().to_vec();
    let x = c!(mlx_reshape(x, [[count, size]]), s)?;
    let acc = c!(mlx_reshape(acc, [[size]]), s)?;
    let results: Vec<Array> = (0..size)
        .map(|index| {
            let column = c!(
                mlx_slice(x, [[0, index]], [[count, index + 1]], [[1, 1]]),
                s
            )?;
            let column = c!(mlx_reshape(column, [[count]]), s)?;
            let start = c!(mlx_slice(acc, [[index]], [[index + 1]], [[1]]), s)?;
            let start = c!(mlx_squeeze_axes(start, [[0]]), s)?;
            let result = steps(&column, &start, body, run)?;
            result.eval()?;
            Ok(result)
        })
        .collect::<Result<_>>()?;
    let results: Vec<&Array> = results.iter().collect();
    let stacked = super::vector(&results);
    let stacked = c!(mlx_stack(stacked), s)?;
    c!(mlx_reshape(stacked, [shape]), s)
}

/// A GPU has no f64.
fn stream<'a>(acc: &Array, run: &'a Run) -> &'a Stream {
    run.streams.pick(acc.dtype() == Dtype::Float64)
}

/// One step after the other, in MLX's graph.
fn steps(x: &Array, acc: &Array, body: &Program, run: &Run) -> Result<Array> {
    let s = stream(acc, run);
    let (shape, dtype) = (acc.dims(), acc.dtype());
    let axes = x.dims().len();
    let (mut starts, mut stops) = (vec![0; axes], x.dims().to_vec());
    let strides = vec![1; axes];
    let mut result = acc.clone();
    for index in 0..x.dims()[0] {
        (starts[0], stops[0]) = (index, index + 1);
        let element = c!(mlx_slice(x, [starts], [stops], [strides]), s)?;
        let element = c!(mlx_squeeze_axes(element, [[0]]), s)?;
        let slots = body.slots([Ok(element), Ok(result)].into_iter())?;
        result = control::now(body, slots, run)?
            .pop()
            .ok_or_else(|| Error::invalid("", "the program returned nothing"))?;
        if index % STEPS == STEPS - 1 {
            result.eval()?;
        }
    }
    // A program may make less than it was given: a constant, or another type.
    let result = c!(mlx_broadcast_to(result, [shape]), s)?;
    c!(mlx_astype(result, dtype), s)
}

struct Fold {
    kernel: Kernel,
    body: Part,
    count: usize,
    results: usize,
    /// The sizes of an element and of a result, in bytes.
    sizes: [usize; 2],
}

fn on_host(kernel: Kernel, body: Part, x: &Array, acc: &Array, s: &Stream) -> Result<Array> {
    let fold = Fold {
        kernel,
        body,
        count: x.dims()[0] as usize,
        results: acc.size(),
        sizes: [x.dtype().size(), acc.dtype().size()],
    };
    host::call(c"Fold", &[x, acc], (acc.dims(), acc.dtype()), fold, s)
}

impl Call for Fold {
    unsafe fn run(&self, inputs: &[*const c_void], out: *mut c_void) {
        let [element, result] = self.sizes;
        let results = self.results * result;
        // SAFETY: the two inputs and the output are those of `on_host`, whose sizes these are.
        let (x, acc, out) = unsafe {
            (
                std::slice::from_raw_parts(
                    inputs[0].cast::<u8>(),
                    self.count * self.results * element,
                ),
                std::slice::from_raw_parts(inputs[1].cast::<u8>(), results),
                std::slice::from_raw_parts_mut(out.cast::<u8>(), results),
            )
        };
        self.fold(x, acc, out);
    }
}

impl Fold {
    fn fold(&self, x: &[u8], acc: &[u8], out: &mut [u8]) {
        let [element, result] = self.sizes;
        let mut registers = self.kernel.registers(0);
        for first in (0..self.results).step_by(TILE) {
            let size = TILE.min(self.results - first);
            let place = first * result..(first + size) * result;
            registers
                .bytes_mut(1, size * result)
                .copy_from_slice(&acc[place.clone()]);
            for index in 0..self.count {
                let from = (index * self.results + first) * element;
                registers
                    .bytes_mut(0, size * element)
                    .copy_from_slice(&x[from..][..size * element]);
                self.kernel.run(&self.body, &mut registers, size);
                registers.copy(self.body.outputs[0].register, 1, size);
            }
            out[place].copy_from_slice(registers.bytes_mut(1, size * result));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    //! Oracle: the fold, number by number.
    use super::*;
    use crate::ops::Op;
    use crate::program::Instruction;

    #[test]
    fn tiles_are_folded_one_after_the_other() {
        let (count, results) = (3, TILE + 5);
        let operands = [1, 0].into_iter().collect();
        let op = Op::Subtract;
        let body = Program::whole(2, vec![Instruction { op, operands }], vec![2]).unwrap();
        let mut kernel = Kernel::new(&[Dtype::Int64, Dtype::Int64]);
        let body = kernel.add(&body).unwrap();
        let fold = Fold {
            kernel,
            body,
            count,
            results,
            sizes: [8, 8],
        };
        let x: Vec<i64> = (0..(count * results) as i64).collect();
        let acc: Vec<i64> = (0..results as i64).map(|i| 1000 * i).collect();
        let mut out = vec![0i64; results];
        let inputs = [x.as_ptr().cast::<c_void>(), acc.as_ptr().cast()];
        // SAFETY: it knows the sizes of the inputs and the output.
        unsafe { fold.run(&inputs, out.as_mut_ptr().cast()) };
        for (index, found) in out.iter().enumerate() {
            let sum: i64 = (0..count).map(|row| x[row * results + index]).sum();
            assert_eq!(*found, acc[index] - sum, "{index}");
        }
    }
}
