//! Random programs of every type: computed with what MLX leaves undefined left out, and so that the
//! bits of a NaN show nowhere but in it.

use std::sync::Arc;

use mlx::ops::Bytes;
use mlx::program::Body;
use mlx::{Dtype, Instruction, Op, Program};

use super::{Dice, instruction};

/// What is there to choose from, in order of the die's fall.
pub const TYPES: [Dtype; 13] = [
    Dtype::Bool,
    Dtype::Uint8,
    Dtype::Uint16,
    Dtype::Uint32,
    Dtype::Uint64,
    Dtype::Int8,
    Dtype::Int16,
    Dtype::Int32,
    Dtype::Int64,
    Dtype::Float16,
    Dtype::Bfloat16,
    Dtype::Float32,
    Dtype::Float64,
];

pub fn is_float(dtype: Dtype) -> bool {
    matches!(dtype.parts().0, "f" | "bf")
}

/// Any bits at all, but those of a bool, with many of what is special about a type.
pub fn bytes(dice: &mut Dice, dtype: Dtype, count: usize) -> Vec<u8> {
    let size = dtype.size();
    let number = |_| {
        let bits = (dice.roll(1 << 31) as u64) << 33 ^ (dice.roll(1 << 31) as u64) << 7;
        let small = dice.roll(9) as i64 - 4;
        let value = match dice.roll(8) {
            _ if dtype == Dtype::Bool => (bits >> 40) & 1,
            0 => 0,
            1 => u64::MAX,
            // The least integer, and a zero with a sign.
            2 => 1 << (8 * size - 1),
            3 => bits >> (64 - 8 * size),
            // A number near one of these types, as its bits.
            _ => match dtype {
                Dtype::Float16 => u64::from(half::f16::from_f64(small as f64 * 0.75).to_bits()),
                Dtype::Bfloat16 => u64::from(half::bf16::from_f64(small as f64 * 0.75).to_bits()),
                Dtype::Float32 => u64::from((small as f32 * 0.7).to_bits()),
                Dtype::Float64 => (small as f64 * 0.7).to_bits(),
                _ => small as u64,
            },
        };
        value.to_le_bytes()[..size].to_vec()
    };
    (0..count).flat_map(number).collect()
}

/// A program under construction: what each slot holds, and which can be computed with.
pub struct Draft {
    pub whole: bool,
    pub body: Vec<Instruction>,
    pub slots: Vec<Dtype>,
    /// Those to be computed with.
    pub usable: Vec<u32>,
}

impl Draft {
    pub fn put(&mut self, op: Op, operands: &[u32], dtype: Dtype) -> u32 {
        self.body.push(instruction(op, operands));
        self.fill(dtype)
    }

    pub fn fill(&mut self, dtype: Dtype) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push(dtype);
        self.usable.push(slot);
        slot
    }

    pub fn number(&mut self, dtype: Dtype, value: u8) -> u32 {
        let bits = if is_float(dtype) { 0 } else { value };
        let mut bytes = vec![0; dtype.size()];
        bytes[0] = bits;
        self.put(Op::Constant(dtype, Bytes(bytes)), &[], dtype)
    }

    /// A slot, the later ones mostly.
    pub fn slot(&self, dice: &mut Dice) -> u32 {
        let len = self.usable.len();
        let back = match dice.roll(3) {
            0 => dice.roll(len),
            _ => dice.roll(len.min(5)),
        };
        self.usable[len - 1 - back]
    }

    /// The slot's numbers as those of a type.
    pub fn as_type(&mut self, slot: u32, dtype: Dtype) -> u32 {
        let from = self.slots[slot as usize];
        let op = match from == dtype {
            true => return slot,
            // C leaves undefined what becomes of floats that are no integers.
            false if is_float(from) && dtype.is_integer() => Op::Convert(dtype),
            false => Op::Astype(dtype),
        };
        self.put(op, &[slot], dtype)
    }

    pub fn like(&mut self, dice: &mut Dice, dtype: Dtype) -> u32 {
        let usable = self.usable.iter().copied();
        let same: Vec<u32> = usable
            .filter(|slot| self.slots[*slot as usize] == dtype)
            .collect();
        match dice.roll(4) {
            0 => {
                let slot = self.slot(dice);
                self.as_type(slot, dtype)
            }
            1 => {
                let bytes = bytes(dice, dtype, 1);
                self.put(Op::Constant(dtype, Bytes(bytes)), &[], dtype)
            }
            _ if same.is_empty() => self.number(dtype, 1),
            _ => same[same.len() - 1 - dice.roll(same.len().min(8))],
        }
    }

    pub fn any(&mut self, dice: &mut Dice) -> u32 {
        let a = self.slot(dice);
        let dtype = self.slots[a as usize];
        if dice.roll(4) == 0 {
            return self.as_type(a, TYPES[dice.roll(TYPES.len())]);
        }
        if dice.roll(5) == 0 {
            let b = self.like(dice, dtype);
            let holds = self.slot(dice);
            let holds = self.as_type(holds, Dtype::Bool);
            return self.put(Op::Where, &[holds, b, a], dtype);
        }
        let b = self.like(dice, dtype);
        if dtype == Dtype::Bool {
            let two = [Op::LogicalAnd, Op::LogicalOr, Op::Equal, Op::NotEqual];
            return match dice.roll(5) {
                4 => self.put(Op::LogicalNot, &[a], dtype),
                which => self.put(two[which].clone(), &[a, b], dtype),
            };
        }
        if dice.roll(6) == 0 {
            let two = [
                Op::Equal,
                Op::NotEqual,
                Op::Greater,
                Op::GreaterEqual,
                Op::Less,
                Op::LessEqual,
            ];
            return self.put(two[dice.roll(6)].clone(), &[a, b], Dtype::Bool);
        }
        if dice.roll(3) == 0 {
            let one = [Op::Abs, Op::Negative, Op::Sign, Op::Square];
            return match dice.roll(5) {
                4 => self.put(Op::LogicalNot, &[a], Dtype::Bool),
                which => self.put(one[which].clone(), &[a], dtype),
            };
        }
        match dice.roll(2) {
            0 => {
                let two = [
                    Op::Add,
                    Op::Subtract,
                    Op::Multiply,
                    Op::Minimum,
                    Op::Maximum,
                ];
                self.put(two[dice.roll(5)].clone(), &[a, b], dtype)
            }
            _ if is_float(dtype) => self.fraction(dice, a, b, dtype),
            _ => self.whole_number(dice, a, b, dtype),
        }
    }

    pub fn fraction(&mut self, dice: &mut Dice, a: u32, b: u32, dtype: Dtype) -> u32 {
        let one = [
            Op::Floor,
            Op::Ceil,
            Op::Sqrt,
            Op::Reciprocal,
            Op::Exp,
            Op::Sin,
            Op::Rsqrt,
        ];
        let two = [Op::Divide, Op::Remainder, Op::Power, Op::Arctan2];
        match dice.roll(15) {
            which @ 0..7 => self.put(one[which].clone(), &[a], dtype),
            which @ 7..11 => self.put(two[which - 7].clone(), &[a, b], dtype),
            11 => self.put(Op::Isnan, &[a], Dtype::Bool),
            12 => self.put(Op::Isinf, &[a], Dtype::Bool),
            _ => {
                // Which NaN it is shows in its bits.
                let nan = self.put(Op::Isnan, &[a], Dtype::Bool);
                let zero = self.number(dtype, 0);
                let clean = self.put(Op::Where, &[nan, zero, a], dtype);
                let to = match dtype.size() {
                    2 => Dtype::Int16,
                    4 => Dtype::Uint32,
                    _ => Dtype::Int64,
                };
                self.put(Op::View(to), &[clean], to)
            }
        }
    }

    pub fn whole_number(&mut self, dice: &mut Dice, a: u32, b: u32, dtype: Dtype) -> u32 {
        let two = [
            Op::BitwiseAnd,
            Op::BitwiseOr,
            Op::BitwiseXor,
            Op::FloorDivide,
            Op::Remainder,
        ];
        match dice.roll(9) {
            which @ 0..5 => self.put(two[which].clone(), &[a, b], dtype),
            5 => self.put(Op::BitwiseInvert, &[a], dtype),
            6 => {
                let to = match dtype.size() {
                    1 => Dtype::Int8,
                    2 => Dtype::Bfloat16,
                    4 => Dtype::Float32,
                    _ => Dtype::Uint64,
                };
                self.put(Op::View(to), &[a], to)
            }
            which => {
                // MLX leaves undefined what the lowering never asks for: shifts beyond the width.
                let most = self.number(dtype, 8 * dtype.size() as u8 - 1);
                let by = self.put(Op::BitwiseAnd, &[b, most], dtype);
                let op = [Op::LeftShift, Op::RightShift][which - 7].clone();
                self.put(op, &[a, by], dtype)
            }
        }
    }

    /// A sum, or control, with programs inside that are fused or not as this one is.
    pub fn barrier(&mut self, dice: &mut Dice, deep: bool) -> u32 {
        let operands: Vec<u32> = (0..1 + dice.roll(3)).map(|_| self.slot(dice)).collect();
        let types: Vec<Dtype> = operands.iter().map(|s| self.slots[*s as usize]).collect();
        let which = if deep { dice.roll(4) } else { 3 };
        let times = dice.roll(4) as u64;
        if which == 3 {
            // Of floats, sums have an order; what there is most of, does not.
            let op = Op::MaxAxes(vec![], true);
            return self.put(op, &operands[..1], types[0]);
        }
        let mut part = || {
            let mut draft = Self::new(self.whole, types.clone());
            draft.grow(dice, 8, false);
            let results: Vec<u32> = types
                .iter()
                .map(|dtype| {
                    let slot = draft.slot(dice);
                    draft.as_type(slot, *dtype)
                })
                .collect();
            Body(Arc::new(draft.finish(types.len(), results)))
        };
        let (op, operands) = match which {
            0 => {
                let (then, otherwise) = (part(), part());
                let predicate = self.slot(dice);
                let predicate = self.as_type(predicate, Dtype::Bool);
                let predicate = self.put(Op::AnyAxes(vec![], true), &[predicate], Dtype::Bool);
                (
                    Op::If(then, otherwise),
                    [&[predicate], &operands[..]].concat(),
                )
            }
            1 => (Op::Repeat(times, part()), operands),
            _ => {
                // A counter of its own, ahead of the others.
                let body = part();
                let inner = [&[Dtype::Uint8], &types[..]].concat();
                let mut around = Self::new(self.whole, inner.clone());
                let one = around.number(Dtype::Uint8, 1);
                let count = around.put(Op::Add, &[0, one], Dtype::Uint8);
                let slots: Vec<u32> = (1..inner.len() as u32).collect();
                let first = around.slots.len() as u32;
                around.body.push(instruction(Op::Repeat(1, body), &slots));
                let made = (0..types.len() as u32).map(|index| first + index);
                let results = [count].into_iter().chain(made).collect();
                let body = Body(Arc::new(around.finish(inner.len(), results)));
                let mut ends = Self::new(self.whole, inner.clone());
                let most = ends.number(Dtype::Uint8, 3);
                let less = ends.put(Op::Less, &[0, most], Dtype::Bool);
                let condition = Body(Arc::new(ends.finish(inner.len(), vec![less])));
                let zero = self.number(Dtype::Uint8, 0);
                (
                    Op::While(condition, body),
                    [&[zero], &operands[..]].concat(),
                )
            }
        };
        let made = op.outputs() - types.len();
        self.body.push(instruction(op, &operands));
        let counter = vec![Dtype::Uint8; made];
        for dtype in counter.into_iter().chain(types) {
            self.fill(dtype);
        }
        self.slots.len() as u32 - 1
    }

    pub fn new(whole: bool, slots: Vec<Dtype>) -> Self {
        let usable = (0..slots.len() as u32).collect();
        Self {
            whole,
            body: Vec::new(),
            slots,
            usable,
        }
    }

    pub fn grow(&mut self, dice: &mut Dice, most: usize, deep: bool) {
        for _ in 0..1 + dice.roll(most) {
            match dice.roll(12) {
                0 => self.barrier(dice, deep),
                _ => self.any(dice),
            };
        }
    }

    pub fn finish(self, inputs: usize, outputs: Vec<u32>) -> Program {
        let made = match self.whole {
            true => Program::whole(inputs, self.body, outputs),
            false => Program::new(inputs, self.body, outputs),
        };
        made.unwrap()
    }
}
