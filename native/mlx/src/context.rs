//! What a worker's thread has at hand, and when it evaluates.
//!
//! MLX builds graphs and computes them when asked to. Neither a graph nor what it holds on to may
//! grow without bound, so a worker evaluates after so many operations or bytes, whoever reads.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::array::Array;
use crate::control;
use crate::error::Result;
use crate::memory;
use crate::pressure::Pressure;
use crate::promise::Promise;
use crate::stream::{Device, Streams};
use crate::task::Task;

/// Unevaluated operations, and bytes of results, beyond which the worker evaluates.
const LAZY_OPS: usize = 512;
pub(crate) const LAZY_BYTES: usize = 256 << 20;
/// What is worth a look at how much there is.
const LARGE: usize = 1 << 20;
/// Growth of active memory, in bytes and as a share, that asks the callers to collect garbage.
const GROWTH: usize = 64 << 20;
/// The growth that does so where hardly any memory is left.
const LAST_GROWTH: usize = 8 << 20;

/// What a job may use: it lives on the worker's thread.
pub struct Context {
    /// The streams of the worker's device.
    pub streams: Rc<Streams>,
    /// Runs that are attended, by number.
    pub(crate) tasks: BTreeMap<u64, Task>,
    /// Tells the callers to collect garbage.
    pressure: Arc<Pressure>,
    /// Results that may be unevaluated.
    lazy: Vec<Weak<Promise>>,
    ops: usize,
    bytes: usize,
    /// Active memory when garbage was last asked to be collected.
    mark: usize,
}

impl Context {
    pub(crate) fn new(streams: Rc<Streams>, pressure: Arc<Pressure>) -> Self {
        Self {
            streams,
            tasks: BTreeMap::new(),
            pressure,
            lazy: Vec::new(),
            ops: 0,
            bytes: 0,
            mark: memory::active(),
        }
    }

    /// Takes note of unevaluated results, and evaluates them where there are many: neither a graph
    /// nor what it holds on to may grow without bound.
    pub(crate) fn track(&mut self, ops: usize, made: &[Array], promises: &[Arc<Promise>]) {
        self.lazy.extend(promises.iter().map(Arc::downgrade));
        self.ops += ops;
        self.bytes += made.iter().map(Array::nbytes).sum::<usize>();
        if self.ops > LAZY_OPS || self.bytes > LAZY_BYTES {
            // Whoever makes results faster than they are computed would fill the memory with them.
            let wait = self.bytes > LAZY_BYTES;
            // The newest are not filled in yet, and are to be evaluated too.
            self.evaluate(made.to_vec(), wait);
        }
    }

    /// Takes note of an array that a job made without a program.
    pub fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > LAZY_BYTES {
            self.settle();
        } else if bytes > LARGE {
            self.measure();
        }
    }

    /// Lets a task go on, and ends it once it is over.
    pub(crate) fn go_on(&mut self, number: u64) {
        let Some(result) = self.tasks.get_mut(&number).and_then(Task::poll) else {
            return;
        };
        let result = result.map(|arrays| {
            let promises = control::promises(arrays.clone());
            self.track(1, &arrays, &promises);
            promises
        });
        if let Some(task) = self.tasks.remove(&number) {
            task.finish(result);
        }
    }

    /// The tasks that gave way to others.
    pub(crate) fn yielded(&self) -> Vec<u64> {
        let yielded = self.tasks.iter().filter(|(_, task)| task.has_yielded());
        yielded.map(|(number, _)| *number).collect()
    }

    /// The same elements for another worker, which is on `device`.
    pub fn detach(&mut self, array: &Array, device: Device) -> Result<Array> {
        let detached = array.detached(device, &self.streams)?;
        if self.streams.main.device != Device::Cpu && device != self.streams.main.device {
            self.grow(detached.nbytes());
        }
        Ok(detached)
    }

    /// Computes what lies unevaluated and waits for it.
    pub fn settle(&mut self) {
        self.evaluate(Vec::new(), true);
    }

    /// Begins to compute what lies unevaluated, if anything does.
    pub(crate) fn idle(&mut self) {
        if self.ops > 0 {
            self.evaluate(Vec::new(), false);
        }
    }

    /// Begins to compute `arrays` and every result that somebody still holds, and waits for them if
    /// asked to. A failure is left for the reader of the result that fails.
    fn evaluate(&mut self, mut arrays: Vec<Array>, wait: bool) {
        let held = self.lazy.drain(..).filter_map(|promise| promise.upgrade());
        arrays.extend(held.filter_map(|promise| {
            (!promise.is_abandoned())
                .then(|| promise.unevaluated())
                .flatten()
        }));
        if !arrays.is_empty() && Array::eval_async(&arrays).is_err() {
            for array in &arrays {
                let _ = array.eval();
            }
        }
        if wait {
            let _ = Array::eval_all(&arrays);
        }
        (self.ops, self.bytes) = (0, 0);
        self.measure();
    }

    /// Garbage collection knows nothing of native memory; asks for one when that has grown.
    fn measure(&mut self) {
        let active = memory::active();
        let left = memory::largest_array().saturating_sub(self.mark);
        let growth = (self.mark / 4 + GROWTH).min((left / 2).max(LAST_GROWTH));
        if active > self.mark + growth {
            self.pressure.raise();
            self.mark = active;
        } else if active < self.mark {
            self.pressure.ease();
            self.mark = active;
        }
    }
}
