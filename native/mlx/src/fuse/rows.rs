//! Fused programs with reductions of the last axes in them, computed some rows at a time.
//!
//! A softmax goes over its operand three times. Where all of it is done to a few rows before the next
//! ones, what is between lies in the cache, and is never written to memory. Each row is reduced as
//! `host::reduce` does it.

use std::ops::Range;

use smallvec::SmallVec;

use super::Graph;
use super::operand::{Held, Source};
use super::plan::{Dims, Known, size};
use super::work::Target;
use crate::cores;
use crate::dtype::Dtype;
use crate::host;
use crate::kernel::{Kernel, Part, Registers, TILE};
use crate::program::{Instruction, Program};

/// About how many elements are computed before the next ones.
const BLOCK: usize = 1 << 12;
/// Rows beyond that do not stay in the cache.
const LONGEST: usize = 1 << 16;
/// Of fewer rows that are many elements in all, pieces are shared among cores.
const SHARED: usize = 1 << 15;
const MANY: usize = 64;

/// The shape of what is reduced, and how many of its axes are gone afterwards, the last ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    dims: Dims,
    gone: usize,
}

/// What has a number for what.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    Element,
    /// A row, whose axes have a size of one, or are not there.
    Row {
        keeps: bool,
    },
}

/// Where numbers are: those of an operand or of a result, or the block's own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Operand(usize),
    Result(usize),
    Own(usize),
}

/// Numbers as a phase reads them.
#[derive(Debug)]
struct Read {
    place: Place,
    size: usize,
    class: Class,
}

/// What is done to a block before the next phase begins.
#[derive(Debug)]
enum Phase {
    Tiles {
        kernel: Kernel,
        part: Part,
        is_full: bool,
        from: Vec<Read>,
        to: Vec<(Place, usize)>,
    },
    Reduce {
        run: host::Rows,
        from: Place,
        to: Place,
        size: usize,
    },
}

/// All phases of a block.
#[derive(Debug)]
pub(super) struct Rows {
    shape: Shape,
    phases: Vec<Phase>,
    /// The sizes of the numbers that a block holds on to, for each element or each row.
    own: Vec<(usize, Class)>,
    work: usize,
    /// Whether pieces of rows are computed on their own, and what comes of them in the end.
    in_pieces: bool,
}

impl Shape {
    /// What the reductions of a program have in common, if they are of the last axes. `known` is what
    /// each slot holds.
    pub(super) fn of(program: &Program, known: &Known) -> Option<Self> {
        let mut shape: Option<Self> = None;
        for Instruction { op, operands } in program.instructions() {
            let Some(slot) = operands.first() else {
                continue;
            };
            let (dtype, dims) = &known[*slot as usize];
            let Some((_, axes, _)) = op.reduction(*dtype) else {
                continue;
            };
            let rank = dims.len();
            let mut gone: SmallVec<[usize; 4]> = SmallVec::new();
            for axis in axes {
                let axis = if *axis < 0 { axis + rank as i32 } else { *axis };
                gone.push(usize::try_from(axis).ok()?);
            }
            gone.sort_unstable();
            if gone.is_empty() || !gone.iter().copied().eq(rank.checked_sub(gone.len())?..rank) {
                return None;
            }
            let found = Self {
                dims: dims.clone(),
                gone: gone.len(),
            };
            if *shape.get_or_insert(found.clone()) != found {
                return None;
            }
        }
        let shape = shape?;
        let (count, rows) = (shape.count(), shape.rows());
        let is_number = |size: usize| i32::try_from(size).is_ok();
        let all = rows.checked_mul(count);
        // A row of one element has the shape of an element.
        (count > 1 && is_number(count) && is_number(rows) && all.is_some()).then_some(shape)
    }

    /// Whether a row stays in the cache, and there are rows for all cores if there is much to do.
    fn fits(&self) -> bool {
        let (count, rows) = (self.count(), self.rows());
        count <= LONGEST && (rows >= MANY || rows * count <= SHARED)
    }

    pub(super) fn dims(&self) -> &Dims {
        &self.dims
    }

    fn outer(&self) -> &[i32] {
        &self.dims[..self.dims.len() - self.gone]
    }

    fn rows(&self) -> usize {
        size(self.outer())
    }

    fn count(&self) -> usize {
        size(&self.dims[self.dims.len() - self.gone..])
    }

    /// What an array of this shape has a number for.
    fn class(&self, dims: &[i32]) -> Option<Class> {
        let outer = self.outer();
        let kept = |dims: &[i32]| {
            dims.len() == self.dims.len()
                && dims.starts_with(outer)
                && dims[outer.len()..].iter().all(|dim| *dim == 1)
        };
        if *dims == *self.dims {
            Some(Class::Element)
        } else if kept(dims) {
            Some(Class::Row { keeps: true })
        } else if dims == outer {
            Some(Class::Row { keeps: false })
        } else {
            None
        }
    }

    /// Whether a value of these sizes is computed row by row, given whether it comes of a reduction.
    pub(super) fn holds(&self, dims: &[i32], is_reduced: bool) -> bool {
        match self.class(dims) {
            Some(Class::Element) => true,
            Some(Class::Row { .. }) => is_reduced,
            None => false,
        }
    }

    /// Which values come of reductions, of all slots.
    pub(super) fn reduced(program: &Program, known: &Known) -> Vec<bool> {
        let mut reduced = vec![false; program.inputs()];
        for Instruction { op, operands } in program.instructions() {
            let first = operands.first().map(|slot| known[*slot as usize].0);
            let is = first.is_some_and(|dtype| op.reduction(dtype).is_some());
            reduced.push(is || operands.iter().any(|slot| reduced[*slot as usize]));
        }
        reduced
    }
}

/// A plan under construction.
struct Planner<'a> {
    program: &'a Program,
    known: &'a Known,
    shape: &'a Shape,
    places: Vec<Option<Place>>,
    classes: Vec<Option<Class>>,
    rows: Rows,
}

impl Rows {
    /// How a program is computed whose values all have a number for each element or each row.
    pub(super) fn new(program: &Program, known: &Known, shape: &Shape) -> Option<Self> {
        let places = (0..program.inputs()).map(|slot| Some(Place::Operand(slot)));
        let mut places: Vec<_> = places.collect();
        places.resize(known.len(), None);
        for (index, slot) in program.results().iter().enumerate() {
            let place = &mut places[*slot as usize];
            // Nothing else makes it, then.
            if place.replace(Place::Result(index)).is_some() {
                return None;
            }
        }
        let mut classes = vec![None; program.inputs()];
        for (instruction, (_, dims)) in program.instructions().zip(&known[program.inputs()..]) {
            let is_constant = instruction.operands.is_empty();
            let class = shape.class(dims);
            if !is_constant && class.is_none() {
                return None;
            }
            classes.push(if is_constant { None } else { class });
        }
        let rows = Self {
            shape: shape.clone(),
            phases: Vec::new(),
            own: Vec::new(),
            work: 0,
            in_pieces: !shape.fits(),
        };
        let planner = Planner {
            program,
            known,
            shape,
            places,
            classes,
            rows,
        };
        planner.plan()
    }

    /// About how many additions a row takes.
    pub(super) fn work(&self) -> usize {
        self.work
    }

    pub(super) fn count(&self) -> usize {
        self.shape.rows()
    }
}

impl Planner<'_> {
    fn plan(mut self) -> Option<Rows> {
        let instructions: Vec<_> = self.program.instructions().cloned().collect();
        let inputs = self.program.inputs();
        let graph = Graph::new(inputs, &instructions, self.program.results());
        let known = self.known;
        let is_reduction = |instruction: &Instruction| {
            let slot = *instruction.operands.first()? as usize;
            let (reduction, ..) = instruction.op.reduction(known[slot].0)?;
            Some(reduction)
        };
        // How many reductions come before, one after the other.
        let mut levels = vec![0; inputs];
        for instruction in &instructions {
            let operands = instruction.operands.iter();
            let level = operands.map(|slot| levels[*slot as usize]).max();
            let own = usize::from(is_reduction(instruction).is_some());
            levels.push(level.unwrap_or(0) + own);
        }
        let is_full = |slot: usize| self.classes[slot] == Some(Class::Element);
        if self.rows.in_pieces
            && (inputs..levels.len()).any(|slot| is_full(slot) && levels[slot] > 0)
        {
            return None;
        }
        let last = levels.iter().copied().max()?;
        for level in 0..=last {
            for is_full in [false, true] {
                let is_member = |index: &usize| {
                    let slot = inputs + index;
                    let class = self.classes[slot];
                    let fits = class.is_some_and(|class| (class == Class::Element) == is_full);
                    fits && levels[slot] == level && is_reduction(&instructions[*index]).is_none()
                };
                let members: Vec<usize> = (0..instructions.len()).filter(is_member).collect();
                if !members.is_empty() {
                    self.tiles(&graph, &members, is_full)?;
                }
            }
            for (index, instruction) in instructions.iter().enumerate() {
                let slot = inputs + index;
                if levels[slot] == level + 1
                    && let Some(reduction) = is_reduction(instruction)
                {
                    let from = instruction.operands[0] as usize;
                    let dtype = self.known[from].0;
                    let size = dtype.size();
                    self.rows.work += self.shape.count();
                    let to = self.place(slot, size, Class::Row { keeps: true });
                    let run = host::rows(reduction, dtype)?;
                    let from = self.places[from]?;
                    let phase = Phase::Reduce {
                        run,
                        from,
                        to,
                        size,
                    };
                    self.rows.phases.push(phase);
                }
            }
        }
        Some(self.rows)
    }

    /// Where a value's numbers are to be.
    fn place(&mut self, slot: usize, size: usize, class: Class) -> Place {
        *self.places[slot].get_or_insert_with(|| {
            self.rows.own.push((size, class));
            Place::Own(self.rows.own.len() - 1)
        })
    }

    /// A phase of these instructions.
    fn tiles(&mut self, graph: &Graph, members: &[usize], is_full: bool) -> Option<()> {
        let inputs = self.program.inputs();
        let piece = graph.piece(members)?;
        if piece.fills.is_empty() {
            return Some(());
        }
        let mut from = Vec::with_capacity(piece.takes.len());
        for slot in &piece.takes {
            let slot = *slot as usize;
            let users = graph.users(slot).filter(|user| members.contains(user));
            let mut keeps: SmallVec<[bool; 4]> = users
                .map(|user| self.classes[inputs + user] != Some(Class::Row { keeps: false }))
                .collect();
            keeps.dedup();
            let [keeps] = keeps[..] else {
                return None;
            };
            let class = match (self.classes[slot], is_full) {
                // An operand is seen as whatever it is used for.
                (None, true) => Class::Element,
                (None, false) => Class::Row { keeps },
                // A row without its axes would meet the wrong ones.
                (Some(Class::Row { keeps: false }), true) => return None,
                (Some(Class::Row { keeps: own }), false) if own != keeps => return None,
                (Some(class), _) => class,
            };
            from.push(Read {
                place: self.places[slot]?,
                size: self.known[slot].0.size(),
                class,
            });
        }
        let types = piece.takes.iter().map(|slot| self.known[*slot as usize].0);
        let mut kernel = Kernel::new(&types.collect::<Vec<Dtype>>());
        let part = kernel.add(&piece.program)?;
        let own = if is_full {
            self.rows.work += kernel.work() * self.shape.count();
            Class::Element
        } else {
            Class::Row { keeps: true }
        };
        let to = piece.fills.iter().map(|slot| {
            let size = self.known[*slot as usize].0.size();
            (self.place(*slot as usize, size, own), size)
        });
        let to = to.collect();
        self.rows.phases.push(Phase::Tiles {
            kernel,
            part,
            is_full,
            from,
            to,
        });
        Some(())
    }
}

/// An operand and its strides along the axes of the whole shape.
pub(super) struct Operand<'a> {
    pub(super) data: *const u8,
    pub(super) strides: &'a [i64],
}

// SAFETY: operands are only read.
unsafe impl Sync for Operand<'_> {}

/// What a block is given, and its own places.
struct Block<'a> {
    rows: &'a Rows,
    operands: &'a [Operand<'a>],
    targets: &'a [Target],
    own: Vec<Vec<u64>>,
    /// Which rows are computed, and which elements.
    range: Range<usize>,
    elements: Range<usize>,
}

impl Rows {
    /// Computes all rows.
    ///
    /// # Safety
    /// The operands and targets must be those of the program, and the targets new.
    pub(super) unsafe fn run(&self, operands: &[Operand], targets: &[Target]) {
        let (count, rows) = (self.shape.count(), self.shape.rows());
        if self.in_pieces {
            return self.pieces(operands, targets);
        }
        let most = (BLOCK / count).max(1);
        let range = |range: Range<usize>| {
            let most = most.min(range.len());
            let mut block = Block::new(self, operands, targets, most, most * count);
            let mut registers: Vec<_> = self.phases.iter().map(Phase::registers).collect();
            for first in range.clone().step_by(most) {
                block.range = first..range.end.min(first + most);
                block.elements = block.range.start * count..block.range.end * count;
                for (phase, registers) in self.phases.iter().zip(&mut registers) {
                    match registers {
                        Some(registers) => block.tiles(phase, registers),
                        None => block.reduce(phase),
                    }
                }
            }
        };
        cores::share(rows, self.work, most, &range);
    }

    /// As `run`, where a row is long: its pieces are reduced first.
    fn pieces(&self, operands: &[Operand], targets: &[Target]) {
        let (count, rows) = (self.shape.count(), self.shape.rows());
        let pieces = count.div_ceil(host::PIECE);
        let reductions = self
            .phases
            .iter()
            .filter(|phase| phase.is_reduction())
            .count();
        let mut sums = vec![0_u64; reductions * rows * pieces];
        let place = Sums(sums.as_mut_ptr());
        let each = |items: Range<usize>| {
            let mut block = Block::new(self, operands, targets, 0, host::PIECE.min(count));
            let mut registers: Vec<_> = self.phases.iter().map(Phase::registers).collect();
            for item in items {
                let (row, piece) = (item / pieces, item % pieces);
                let end = count.min((piece + 1) * host::PIECE);
                block.elements = row * count + piece * host::PIECE..row * count + end;
                let mut next = item;
                for (phase, registers) in self.phases.iter().zip(&mut registers) {
                    match (phase, registers) {
                        (Phase::Tiles { is_full: true, .. }, Some(registers)) => {
                            block.tiles(phase, registers);
                        }
                        (
                            Phase::Reduce {
                                run, from, size, ..
                            },
                            _,
                        ) => {
                            let mut held = Vec::new();
                            let from = block.reduced(*from, *size, &mut held);
                            // SAFETY: there are so many elements, and each piece of each reduction
                            // has a place.
                            unsafe {
                                (run.piece)(from, block.elements.len(), place.get().add(next))
                            };
                            next += rows * pieces;
                        }
                        _ => (),
                    }
                }
            }
        };
        let work = self.work / pieces;
        cores::share(rows * pieces, work, 1, &each);
        let mut block = Block::new(self, operands, targets, rows, 0);
        block.range = 0..rows;
        let mut sums = sums.chunks(pieces);
        for phase in &self.phases {
            match phase {
                Phase::Tiles { is_full: true, .. } => (),
                Phase::Tiles { kernel, .. } => block.tiles(phase, &mut kernel.registers(0)),
                Phase::Reduce { run, to, size, .. } => {
                    let to = block.start(*to, *size, Class::Row { keeps: true });
                    for (row, sums) in sums.by_ref().take(rows).enumerate() {
                        // SAFETY: these are a row's sums, and each row has a place.
                        unsafe { (run.joined)(sums.as_ptr(), pieces, to.wrapping_add(row * size)) };
                    }
                }
            }
        }
    }
}

/// Where threads write sums, each its own.
struct Sums(*mut u64);

// SAFETY: see above.
unsafe impl Sync for Sums {}

impl Sums {
    fn get(&self) -> *mut u64 {
        self.0
    }
}

impl Phase {
    fn registers(&self) -> Option<Registers> {
        match self {
            Self::Tiles { kernel, .. } => Some(kernel.registers(0)),
            Self::Reduce { .. } => None,
        }
    }

    fn is_reduction(&self) -> bool {
        matches!(self, Self::Reduce { .. })
    }
}

impl<'a> Block<'a> {
    /// Places of its own for so many rows and elements.
    fn new(
        rows: &'a Rows,
        operands: &'a [Operand<'a>],
        targets: &'a [Target],
        most: usize,
        elements: usize,
    ) -> Self {
        let place = |(size, class): &(usize, Class)| {
            let count = if *class == Class::Element {
                elements
            } else {
                most
            };
            vec![0_u64; (count * size).div_ceil(size_of::<u64>())]
        };
        Self {
            rows,
            operands,
            targets,
            own: rows.own.iter().map(place).collect(),
            range: 0..0,
            elements: 0..0,
        }
    }

    /// Where the number of the first element, or row, of all would be: a block's own places are seen
    /// as if they went on before it.
    fn start(&mut self, place: Place, size: usize, class: Class) -> *mut u8 {
        let before = match class {
            Class::Element => self.elements.start,
            Class::Row { .. } => self.range.start,
        };
        match place {
            Place::Operand(index) => self.operands[index].data.cast_mut(),
            Place::Result(index) => self.targets[index].data,
            Place::Own(index) => self.own[index]
                .as_mut_ptr()
                .cast::<u8>()
                .wrapping_sub(before * size),
        }
    }

    fn source(&mut self, read: &Read, is_full: bool) -> Source {
        let Read { place, size, class } = read;
        let data = self.start(*place, *size, *class);
        let shape = &self.rows.shape;
        let rows = shape.rows() as i32;
        let outer = shape.outer().len();
        match place {
            Place::Operand(index) => {
                let strides = self.operands[*index].strides;
                let (dims, strides) = match class {
                    Class::Element => (&shape.dims[..], strides),
                    Class::Row { keeps: true } => (shape.outer(), &strides[..outer]),
                    Class::Row { keeps: false } => (shape.outer(), &strides[shape.gone..]),
                };
                Source::new(data, *size, dims, strides)
            }
            _ if *class == Class::Element => Source::new(
                data,
                *size,
                &[rows, shape.count() as i32],
                &[shape.count() as i64, 1],
            ),
            _ if is_full => Source::new(data, *size, &[rows, shape.count() as i32], &[1, 0]),
            _ => Source::new(data, *size, &[rows], &[1]),
        }
    }

    fn tiles(&mut self, phase: &Phase, registers: &mut Registers) {
        let Phase::Tiles {
            kernel,
            part,
            is_full,
            from,
            to,
        } = phase
        else {
            return;
        };
        let (class, all) = match is_full {
            true => (Class::Element, self.elements.clone()),
            false => (Class::Row { keeps: true }, self.range.clone()),
        };
        let sources = from.iter().map(|read| self.source(read, *is_full));
        let sources: SmallVec<[Source; 4]> = sources.collect();
        let to = to
            .iter()
            .map(|(place, size)| (self.start(*place, *size, class), *size));
        let to: SmallVec<[(*mut u8, usize); 4]> = to.collect();
        let mut held: SmallVec<[Held; 4]> = sources.iter().map(|_| Held::new()).collect();
        for start in all.clone().step_by(TILE) {
            let tile = start..all.end.min(start + TILE);
            for (register, source) in sources.iter().enumerate() {
                // SAFETY: operands and places have a number for each element or row of the block, and
                // nothing that a phase reads is written by it.
                unsafe {
                    source.load(
                        registers,
                        register,
                        tile.clone(),
                        all.end,
                        &mut held[register],
                    );
                }
            }
            for (output, (data, size)) in part.outputs.iter().zip(&to) {
                // SAFETY: there is room for these numbers, and it is this thread's alone.
                unsafe {
                    registers.place(output.register, data.wrapping_add(tile.start * size));
                }
            }
            kernel.run(part, registers, tile.len());
        }
    }

    fn reduce(&mut self, phase: &Phase) {
        let Phase::Reduce {
            run,
            from,
            to,
            size,
        } = phase
        else {
            return;
        };
        let (count, rows) = (self.rows.shape.count(), self.range.len());
        let to = self.start(*to, *size, Class::Row { keeps: true });
        let to = to.wrapping_add(self.range.start * size);
        let mut held = Vec::new();
        let from = self.reduced(*from, *size, &mut held);
        // SAFETY: there are so many elements, and a place for each row of the block.
        unsafe { (run.rows)(from, count, to, rows) };
    }

    /// The block's elements, in rows.
    fn reduced(&mut self, place: Place, size: usize, held: &mut Vec<u64>) -> *const u8 {
        let read = Read {
            place,
            size,
            class: Class::Element,
        };
        let source = self.source(&read, true);
        // SAFETY: the source has a number for each element of the block.
        unsafe { source.in_rows(self.elements.clone(), held) }
    }
}
