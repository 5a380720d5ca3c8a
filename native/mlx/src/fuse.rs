//! Elementwise instructions of a program brought together, to be computed a tile at a time.
//!
//! MLX computes one operation after the other, each from memory and to memory, and takes
//! microseconds for each. What is elementwise and connected becomes one operation that holds a
//! program, `Fused`: on a CPU its results are computed together, on all cores, with the values that
//! the operations have one by one (`plan`). Elsewhere its instructions are those of MLX.

mod operand;
pub(crate) mod plan;
mod rows;
mod work;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dtype::Dtype;
use crate::kernel;
use crate::ops::Op;
use crate::program::{Body, Instruction, Program};

/// What is computed together is held together: registers are to fit the cache.
const MOST: usize = 128;

/// The instructions of a program and who uses which slot.
pub(crate) struct Graph<'a> {
    inputs: usize,
    instructions: &'a [Instruction],
    /// The first slot that each instruction fills.
    firsts: Vec<usize>,
    /// The instruction that fills each slot.
    makers: Vec<Option<usize>>,
    /// The instructions that use each slot.
    users: Vec<Vec<usize>>,
    returned: Vec<bool>,
}

/// Some instructions of a graph as a program.
pub(crate) struct Piece {
    pub(crate) program: Program,
    /// The slots that it takes.
    pub(crate) takes: Vec<u32>,
    /// The slots that it fills.
    pub(crate) fills: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(inputs: usize, instructions: &'a [Instruction], outputs: &[u32]) -> Self {
        let mut makers = vec![None; inputs];
        let mut firsts = Vec::with_capacity(instructions.len());
        for (index, instruction) in instructions.iter().enumerate() {
            firsts.push(makers.len());
            let end = makers.len() + instruction.op.outputs();
            makers.resize(end, Some(index));
        }
        let mut users = vec![Vec::new(); makers.len()];
        for (index, instruction) in instructions.iter().enumerate() {
            for slot in &instruction.operands {
                users[*slot as usize].push(index);
            }
        }
        let mut returned = vec![false; makers.len()];
        for slot in outputs {
            returned[*slot as usize] = true;
        }
        Self {
            inputs,
            instructions,
            firsts,
            makers,
            users,
            returned,
        }
    }

    /// The instructions that use a slot.
    fn users(&self, slot: usize) -> impl Iterator<Item = usize> {
        self.users[slot].iter().copied()
    }

    fn is_constant(&self, index: usize) -> bool {
        matches!(self.instructions[index].op, Op::Constant(..))
    }

    /// The instructions that fill its operands.
    fn sources(&self, index: usize) -> impl Iterator<Item = usize> {
        let operands = self.instructions[index].operands.iter();
        operands.filter_map(|slot| self.makers[*slot as usize])
    }

    /// `members`, in order, as a program. Constants that they use are part of it; each of them has
    /// one result.
    pub(crate) fn piece(&self, members: &[usize]) -> Option<Piece> {
        let (mut takes, mut constants) = (Vec::new(), Vec::new());
        for &index in members {
            for &slot in &self.instructions[index].operands {
                let maker = self.makers[slot as usize];
                match maker {
                    Some(maker) if self.is_constant(maker) => constants.push(slot),
                    Some(maker) if members.binary_search(&maker).is_ok() => (),
                    _ => takes.push(slot),
                }
            }
        }
        for slots in [&mut takes, &mut constants] {
            slots.sort_unstable();
            slots.dedup();
        }
        let own = members.iter().map(|index| self.firsts[*index] as u32);
        let own: Vec<u32> = own.collect();
        let place = |slot: &u32| {
            let mut before = 0;
            // Each of them in order.
            for slots in [&takes, &constants, &own] {
                if let Ok(at) = slots.binary_search(slot) {
                    return Some((before + at) as u32);
                }
                before += slots.len();
            }
            None
        };
        let makers = constants
            .iter()
            .filter_map(|slot| self.makers[*slot as usize]);
        let instructions = makers.chain(members.iter().copied()).map(|index| {
            let Instruction { op, operands } = &self.instructions[index];
            let operands = operands.iter().map(place).collect::<Option<_>>()?;
            let op = op.clone();
            Some(Instruction { op, operands })
        });
        let outside = |user: &usize| members.binary_search(user).is_err();
        let fills = members.iter().map(|index| self.firsts[*index]);
        let fills: Vec<u32> = fills
            .filter(|slot| self.returned[*slot] || self.users[*slot].iter().any(outside))
            .map(|slot| slot as u32)
            .collect();
        let outputs = fills.iter().map(place).collect::<Option<_>>()?;
        let program = Program::whole(takes.len(), instructions.collect::<Option<_>>()?, outputs);
        Some(Piece {
            program: program.ok()?,
            takes,
            fills,
        })
    }

    /// The groups in an order in which each comes after those it needs, early ones first.
    pub(crate) fn ordered(
        &self,
        groups: &[Vec<usize>],
        skipped: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut group_of = vec![usize::MAX; self.instructions.len()];
        for (group, members) in groups.iter().enumerate() {
            for &index in members {
                group_of[index] = group;
            }
        }
        let (mut needs, mut needed_by) = (vec![0; groups.len()], vec![Vec::new(); groups.len()]);
        for (group, members) in groups.iter().enumerate() {
            let sources = members.iter().flat_map(|index| self.sources(*index));
            let mut others: Vec<usize> = sources
                .filter(|source| !skipped(*source))
                .map(|source| group_of[source])
                .filter(|other| *other != group && *other != usize::MAX)
                .collect();
            others.sort_unstable();
            others.dedup();
            needs[group] = others.len();
            for other in others {
                needed_by[other].push(group);
            }
        }
        let first = |group: usize| Reverse((groups[group][0], group));
        let ready = (0..groups.len()).filter(|group| needs[*group] == 0);
        let mut ready: BinaryHeap<_> = ready.map(first).collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(Reverse((_, group))) = ready.pop() {
            order.push(group);
            for &other in &needed_by[group] {
                needs[other] -= 1;
                if needs[other] == 0 {
                    ready.push(first(other));
                }
            }
        }
        order
    }
}

/// Sets of numbers that grow together.
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    pub(crate) fn find(&mut self, mut number: usize) -> usize {
        while self.0[number] != number {
            self.0[number] = self.0[self.0[number]];
            number = self.0[number];
        }
        number
    }

    pub(crate) fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }

    /// The sets, each in order and in pieces of at most so many.
    pub(crate) fn groups(&mut self, most: usize) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut open = vec![usize::MAX; self.0.len()];
        for number in 0..self.0.len() {
            let set = self.find(number);
            if open[set] == usize::MAX || groups[open[set]].len() >= most {
                open[set] = groups.len();
                groups.push(Vec::new());
            }
            groups[open[set]].push(number);
        }
        groups
    }
}

/// The same program with its connected elementwise instructions fused, those before and after
/// reductions of the same axes with them, or nothing where there is nothing to fuse.
pub(crate) fn fuse(
    inputs: usize,
    instructions: &[Instruction],
    outputs: &[u32],
) -> Option<(Vec<Instruction>, Vec<u32>)> {
    let fusible: Vec<bool> = instructions.iter().map(|i| kernel::knows(&i.op)).collect();
    if !fusible.contains(&true) {
        return None;
    }
    let instructions = computed(inputs, instructions, &fusible);
    let mut reduced: Vec<&[i32]> = instructions.iter().filter_map(|i| axes(&i.op)).collect();
    // The last axes first: programs for those are computed row by row.
    reduced.sort_unstable_by(|a, b| b.cmp(a));
    reduced.dedup();
    let mut made = (Cow::Borrowed(&instructions[..]), Cow::Borrowed(outputs));
    for reduced in reduced {
        let is_of = |op: &Op| axes(op) == Some(reduced);
        let fusible = |op: &Op| kernel::knows(op) || is_of(op);
        let holds = |members: &[&Op]| {
            members.iter().any(|op| is_of(op)) && members.iter().any(|op| kernel::knows(op))
        };
        if let Some((instructions, outputs)) = joined(inputs, &made.0, &made.1, fusible, holds) {
            made = (Cow::Owned(instructions), Cow::Owned(outputs));
        }
    }
    let reduces = matches!(made.0, Cow::Owned(_));
    elementwise(inputs, &made.0, &made.1)
        .or_else(|| reduces.then(|| (made.0.into_owned(), made.1.into_owned())))
}

/// The axes of a reduction.
fn axes(op: &Op) -> Option<&[i32]> {
    // What of is not known yet.
    let found = op.reduction(Dtype::Bool)?;
    Some(found.1)
}

fn elementwise(
    inputs: usize,
    instructions: &[Instruction],
    outputs: &[u32],
) -> Option<(Vec<Instruction>, Vec<u32>)> {
    // MLX hands on what is only seen with another type.
    let holds = |members: &[&Op]| !matches!(members, [Op::View(_)]);
    joined(inputs, instructions, outputs, kernel::knows, holds)
}

/// The program with its connected instructions that are `fusible` as one where those of a group are
/// worth it, or nothing where none are.
fn joined(
    inputs: usize,
    instructions: &[Instruction],
    outputs: &[u32],
    fusible: impl Fn(&Op) -> bool,
    holds: impl Fn(&[&Op]) -> bool,
) -> Option<(Vec<Instruction>, Vec<u32>)> {
    let graph = Graph::new(inputs, instructions, outputs);
    let each = instructions.iter();
    let fusible: Vec<bool> = each
        .map(|i| !matches!(i.op, Op::Constant(..) | Op::Fused(_)) && fusible(&i.op))
        .collect();
    let is_fused = |members: &[usize]| {
        let ops = members.iter().map(|index| &instructions[*index].op);
        fusible[members[0]] && holds(&ops.collect::<Vec<_>>())
    };
    let (fused, apart): (Vec<_>, Vec<_>) = components(&graph, &fusible)
        .into_iter()
        .filter(|members| !graph.is_constant(members[0]))
        .partition(|members| is_fused(members));
    if fused.is_empty() {
        return None;
    }
    let apart = apart.into_iter().flatten().map(|index| vec![index]);
    let count = fused.len();
    let groups: Vec<Vec<usize>> = fused.into_iter().chain(apart).collect();
    let order = graph.ordered(&groups, |index| graph.is_constant(index));
    let mut writer = Writer::new(&graph);
    for group in order {
        writer.write(&groups[group], group < count);
    }
    let outputs = outputs.iter().map(|slot| writer.slot(*slot));
    let outputs = outputs.collect();
    Some((writer.instructions, outputs))
}

/// The instructions with those that are of constants only computed.
fn computed(inputs: usize, instructions: &[Instruction], fusible: &[bool]) -> Vec<Instruction> {
    let mut computed: Vec<Instruction> = Vec::with_capacity(instructions.len());
    let mut constants: Vec<Option<usize>> = vec![None; inputs];
    for (instruction, fusible) in instructions.iter().zip(fusible) {
        let operands = instruction.operands.iter();
        let operands: Option<Vec<&Op>> = operands
            .map(|slot| constants[*slot as usize].map(|index| &computed[index].op))
            .collect();
        let made = operands
            .filter(|operands| *fusible && !operands.is_empty())
            .and_then(|operands| kernel::constant(&instruction.op, &operands));
        let next = match made {
            Some(op) => Instruction {
                op,
                operands: SmallVec::new(),
            },
            None => instruction.clone(),
        };
        let constant = matches!(next.op, Op::Constant(..)).then_some(computed.len());
        constants.resize(constants.len() + next.op.outputs(), constant);
        computed.push(next);
    }
    computed
}

/// Connected elementwise instructions between which nothing else happens, in order; every other
/// instruction is one of its own. Control is where one stretch of a program ends and another begins.
fn components(graph: &Graph, fusible: &[bool]) -> Vec<Vec<usize>> {
    let count = graph.instructions.len();
    // How many others an instruction has to wait for at least, one after the other: what waits for
    // as many can be done together.
    let mut levels = vec![0; count];
    let mut sets = Sets::new(count);
    let (mut stretch, mut highest) = (0, 0);
    for index in 0..count {
        let is_control = graph.instructions[index].op.is_control();
        let waits = graph
            .sources(index)
            .filter(|source| !graph.is_constant(*source));
        let waits = waits.map(|source| match (fusible[index], fusible[source]) {
            (true, false) => levels[source] + 1,
            _ => levels[source],
        });
        levels[index] = waits.max().unwrap_or(0).max(stretch);
        highest = levels[index].max(highest);
        if is_control {
            // Everything later waits for it, and it for everything earlier.
            levels[index] = highest;
            stretch = highest + 1;
        }
        if fusible[index] {
            for source in graph.sources(index) {
                if fusible[source] && levels[source] == levels[index] {
                    sets.unite(index, source);
                }
            }
        }
    }
    // A long one goes on as another, which may need what came before.
    sets.groups(MOST)
}

/// A program with reductions as it is computed where there is no kernel for all of it; another as it
/// is.
fn parts(program: Program) -> Program {
    let instructions: Vec<_> = program.instructions().cloned().collect();
    if instructions.iter().all(|i| axes(&i.op).is_none()) {
        return program;
    }
    let inputs = program.inputs();
    let made = elementwise(inputs, &instructions, program.results());
    made.and_then(|(instructions, outputs)| Program::whole(inputs, instructions, outputs).ok())
        .unwrap_or(program)
}

/// Writes a program anew, with slots of its own.
struct Writer<'a> {
    graph: &'a Graph<'a>,
    instructions: Vec<Instruction>,
    renamed: Vec<Option<u32>>,
    next: u32,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph) -> Self {
        let inputs = graph.inputs as u32;
        let mut renamed: Vec<Option<u32>> = (0..inputs).map(Some).collect();
        renamed.resize(graph.makers.len(), None);
        Self {
            graph,
            instructions: Vec::with_capacity(graph.instructions.len()),
            renamed,
            next: inputs,
        }
    }

    /// Where a slot is now; a constant is written when it is first asked for.
    fn slot(&mut self, slot: u32) -> u32 {
        if let Some(renamed) = self.renamed[slot as usize] {
            return renamed;
        }
        if let Some(maker) = self.graph.makers[slot as usize] {
            self.put(self.graph.instructions[maker].op.clone(), &[], &[slot]);
        }
        self.next - 1
    }

    fn put(&mut self, op: Op, takes: &[u32], fills: &[u32]) {
        let operands = takes.iter().map(|slot| self.slot(*slot)).collect();
        for slot in fills {
            self.renamed[*slot as usize] = Some(self.next);
            self.next += 1;
        }
        self.instructions.push(Instruction { op, operands });
    }

    fn write(&mut self, members: &[usize], is_fused: bool) {
        let piece = is_fused.then(|| self.graph.piece(members)).flatten();
        match piece {
            Some(piece) if piece.fills.is_empty() => (),
            Some(piece) if !piece.takes.is_empty() => {
                let body = Body(Arc::new(parts(piece.program)));
                self.put(Op::Fused(body), &piece.takes, &piece.fills);
            }
            _ => {
                for &index in members {
                    let Instruction { op, operands } = &self.graph.instructions[index];
                    let first = self.graph.firsts[index] as u32;
                    let fills: Vec<u32> = (first..first + op.outputs() as u32).collect();
                    self.put(op.clone(), operands, &fills);
                }
            }
        }
    }
}
