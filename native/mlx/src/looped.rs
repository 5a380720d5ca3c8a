//! Loops whose programs are elementwise, run by the worker itself on a CPU.
//!
//! MLX takes microseconds per operation, and a loop of a few operations on a few numbers does
//! little else than pay them. Here an iteration is a handful of loops over a tile that stays in the
//! cache, and the next tile comes once the loop is over for this one. Values are those of the ops.

use crate::array::{Array, Bytes};
use crate::error::Result;
use crate::kernel::{Kernel, Output, Part, Registers, TILE};
use crate::ops::Op;
use crate::program::{Program, Run};
use crate::shape::Shape;
use crate::stream::Device;

/// Beyond so many registers a tile does not fit the cache any more.
const MOST_REGISTERS: usize = 256;
/// About how many numbers are computed between two looks at who else wants something.
const SLICE: usize = 1 << 18;

/// What keeps a loop going.
pub(crate) enum Until<'a> {
    /// A number of iterations.
    Times(u64),
    /// A program whose result is zero in the end.
    Fails(&'a Program),
}

/// A loop that is under way.
pub(crate) struct Looped {
    kernel: Kernel,
    body: Part,
    condition: Option<Part>,
    times: u64,
    registers: Registers,
    values: Vec<Value>,
    /// How many values the body returns, the first ones.
    carried: usize,
    /// The results so far.
    made: Vec<Vec<u8>>,
    elements: usize,
    /// Where the tile begins, and how many iterations it has had.
    tile: usize,
    iterations: u64,
}

/// One of the loop's values, as it was in the beginning.
struct Value {
    bytes: Bytes,
    shape: Shape,
    size: usize,
    /// Whether it has a number for each element, or one for all of them.
    full: bool,
}

impl Looped {
    /// The loop over `values`, if it is one of these: the types stay, and each value is a number, or
    /// as many as all others that are more than one.
    pub(crate) fn new(
        until: &Until,
        body: &Program,
        values: &[Array],
        run: &Run,
    ) -> Option<Result<Self>> {
        if run.streams.main.device != Device::Cpu || body.is_whole() {
            return None;
        }
        let dims = values.iter().map(Array::dims).find(|dims| !dims.is_empty());
        let dims = dims.unwrap_or_default();
        let full: Vec<bool> = values.iter().map(|v| !v.dims().is_empty()).collect();
        let mut shaped = values.iter().filter(|value| !value.dims().is_empty());
        if !shaped.all(|value| value.dims() == dims) || values.iter().any(|v| v.size() == 0) {
            return None;
        }
        let types: Vec<_> = values.iter().map(Array::dtype).collect();
        let mut kernel = Kernel::new(&types);
        let part = kernel.add(body)?;
        let after = spread(body, &full);
        let stays = |(index, output): (usize, &Output)| {
            output.dtype == types[index] && after[index] == full[index]
        };
        if !part.outputs.iter().enumerate().all(stays) {
            return None;
        }
        let (condition, times) = match until {
            Until::Times(times) => (None, *times),
            Until::Fails(program) => {
                let part = kernel.add(program)?;
                if spread(program, &full).contains(&true) {
                    return None;
                }
                (Some(part), 0)
            }
        };
        if kernel.len() > MOST_REGISTERS {
            return None;
        }
        Some(Self::begin(
            kernel, part, condition, times, values, full, run,
        ))
    }

    fn begin(
        kernel: Kernel,
        body: Part,
        condition: Option<Part>,
        times: u64,
        values: &[Array],
        full: Vec<bool>,
        run: &Run,
    ) -> Result<Self> {
        Array::eval_all(values)?;
        let read = |(array, full): (&Array, bool)| {
            Ok(Value {
                bytes: array.bytes(None, run.streams)?,
                shape: Shape::new(array.dims().iter().map(|dim| i64::from(*dim)).collect())?,
                size: array.dtype().size(),
                full,
            })
        };
        let elements = values.iter().map(Array::size).max().unwrap_or(1);
        let carried = body.outputs.len();
        let values: Vec<Value> = values.iter().zip(full).map(read).collect::<Result<_>>()?;
        let made = values[..carried].iter();
        let made = made.map(|value| vec![0; value.bytes.len()]).collect();
        let mut looped = Self {
            registers: kernel.registers(carried),
            kernel,
            body,
            condition,
            times,
            values,
            carried,
            made,
            elements,
            tile: 0,
            iterations: 0,
        };
        looped.load();
        Ok(looped)
    }

    /// How many elements the tile has.
    fn size(&self) -> usize {
        TILE.min(self.elements - self.tile)
    }

    fn load(&mut self) {
        let size = self.size();
        for (register, value) in self.values.iter().enumerate() {
            if value.full {
                let from = &value.bytes[self.tile * value.size..][..size * value.size];
                let place = self.registers.bytes_mut(register, from.len());
                place.copy_from_slice(from);
            } else {
                self.registers.fill(register, &value.bytes);
            }
        }
    }

    fn store(&mut self) {
        let size = self.size();
        for (register, made) in self.made.iter_mut().enumerate() {
            let value = &self.values[register];
            let (first, count) = if value.full {
                (self.tile, size)
            } else {
                (0, 1)
            };
            let place = &mut made[first * value.size..][..count * value.size];
            place.copy_from_slice(self.registers.bytes_mut(register, count * value.size));
        }
    }

    /// Whether the tile has another iteration to go.
    fn goes_on(&mut self) -> bool {
        let Some(condition) = &self.condition else {
            return self.iterations < self.times;
        };
        self.kernel.run(condition, &mut self.registers, 1);
        let Output {
            register, dtype, ..
        } = condition.outputs[0];
        let truth = self.registers.bytes_mut(register, dtype.size());
        truth.iter().any(|byte| *byte != 0)
    }

    fn step(&mut self) {
        let size = self.size();
        self.kernel.run(&self.body, &mut self.registers, size);
        // One result may be the next iteration's operand in another's place, so none is written
        // before all are read: they stand behind the kernel's own registers.
        let aside = self.kernel.len();
        for (index, output) in self.body.outputs.iter().enumerate() {
            self.registers.copy(output.register, aside + index, size);
        }
        for index in 0..self.carried {
            self.registers.copy(aside + index, index, size);
        }
        self.iterations = self.iterations.saturating_add(1);
    }

    /// Goes on for a while, and answers whether there is more to do.
    pub(crate) fn go_on(&mut self) -> bool {
        let each = self.kernel.work() * self.size();
        for _ in 0..SLICE / each + 1 {
            if self.goes_on() {
                self.step();
                continue;
            }
            self.store();
            self.tile += TILE;
            if self.tile >= self.elements {
                return false;
            }
            self.iterations = 0;
            self.load();
        }
        true
    }

    /// The results, once there is no more to do.
    pub(crate) fn results(self) -> Result<Vec<Array>> {
        let made = self.made.iter().enumerate();
        made.map(|(register, bytes)| {
            let dtype = self.body.outputs[register].dtype;
            Array::from_bytes(bytes, &self.values[register].shape, dtype)
        })
        .collect()
    }
}

/// Which results of an elementwise program have more than one number, if these inputs do.
fn spread(program: &Program, inputs: &[bool]) -> Vec<bool> {
    let mut full = inputs.to_vec();
    for instruction in program.instructions() {
        let operands = instruction.operands.iter().map(|slot| full[*slot as usize]);
        let operands: Vec<bool> = operands.collect();
        match &instruction.op {
            Op::Fused(body) => full.extend(spread(&body.0, &operands)),
            _ => full.push(operands.contains(&true)),
        }
    }
    let results = program.results().iter();
    results.map(|slot| full[*slot as usize]).collect()
}
