//! Oracle: the ops themselves, through MLX; and values computed by hand, which Miri can look at too.

use std::sync::Arc;

use half::{bf16, f16};

use super::*;
use crate::array::Array;
use crate::program::{Body, Instruction};
use crate::shape::Shape;
use crate::stream::{Device, Streams};

fn bytes_of(dtype: Dtype, value: f64) -> Vec<u8> {
    match dtype {
        Dtype::Bool => vec![u8::from(value > 0.0)],
        Dtype::Float16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        Dtype::Bfloat16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        Dtype::Float32 => (value as f32).to_ne_bytes().to_vec(),
        Dtype::Float64 => value.to_ne_bytes().to_vec(),
        Dtype::Uint64 => (value as u64).to_ne_bytes().to_vec(),
        _ => (value as i64).to_le_bytes()[..dtype.size()].to_vec(),
    }
}

/// Numbers of all sizes, and what is special about a type; `which` varies the order.
fn values(dtype: Dtype, which: usize) -> Vec<u8> {
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0, 1e30, -1e30];
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    (0..TILE)
        .flat_map(|i| {
            let i = (i * (2 * which + 1) + 5 * which) % TILE;
            if dtype == Dtype::Bool {
                return vec![(i % 2) as u8];
            }
            let value = match i {
                0..10 => special[i],
                10..13 => floats[i - 10],
                // Extremes of the integers, by their bits.
                13 => return vec![0xff; dtype.size()],
                _ => (i as f64 - 130.0) * 0.37 * 2f64.powi(i as i32 % 9),
            };
            if i == 14 && dtype.is_integer() {
                return [&vec![0; dtype.size() - 1][..], &[0x80]].concat();
            }
            let whole = dtype.is_integer();
            bytes_of(dtype, if whole { value.clamp(-1e9, 1e9) } else { value })
        })
        .collect()
}

fn same(dtype: Dtype, a: &[u8], b: &[u8]) -> bool {
    let nan = |x: &[u8]| match dtype {
        Dtype::Float16 => f16::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        Dtype::Bfloat16 => bf16::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        Dtype::Float32 => f32::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        Dtype::Float64 => f64::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        _ => false,
    };
    a == b || nan(a) && nan(b)
}

fn check(op: Op, types: &[Dtype], streams: &Streams) -> bool {
    let operands = (0..types.len() as u32).collect();
    let instruction = Instruction {
        op: op.clone(),
        operands,
    };
    let program = Program::new(types.len(), vec![instruction], vec![types.len() as u32]).unwrap();
    let mut kernel = Kernel::new(types);
    let Some(part) = kernel.add(&program) else {
        return false;
    };
    let output = part.outputs[0];
    let mut inputs: Vec<Vec<u8>> = (0..types.len()).map(|i| values(types[i], i)).collect();
    // MLX leaves undefined what the lowering never asks for: shifts beyond the width.
    if matches!(op, Op::LeftShift | Op::RightShift) {
        for amount in inputs[1].chunks_mut(types[1].size()) {
            let low = amount[0] & 7;
            amount.fill(0);
            amount[0] = low;
        }
    }
    let shape = Shape::new(vec![TILE as i64]).unwrap();
    let arrays = inputs.iter().zip(types);
    let arrays = arrays.map(|(bytes, dtype)| Array::from_bytes(bytes, &shape, *dtype));
    let made = program.run(arrays.collect::<Vec<_>>().into_iter(), streams, &|| false);
    let made = made.unwrap().remove(0);
    assert_eq!(made.dtype(), output.dtype, "{op:?} of {types:?}");
    let wanted = made.bytes(None, streams).unwrap();

    let mut registers = kernel.registers(0);
    for (register, bytes) in inputs.iter().enumerate() {
        registers
            .bytes_mut(register, bytes.len())
            .copy_from_slice(bytes);
    }
    kernel.run(&part, &mut registers, TILE);
    let size = made.dtype().size();
    let found = registers.bytes_mut(output.register, TILE * size).to_vec();
    for index in 0..TILE {
        let place = index * size..(index + 1) * size;
        let operands = inputs
            .iter()
            .zip(types)
            .map(|(bytes, dtype)| bytes[index * dtype.size()..][..dtype.size()].to_vec());
        assert!(
            same(made.dtype(), &found[place.clone()], &wanted[place.clone()]),
            "{op:?} of {types:?} at {index}, {:?}: {:?} and not {:?}",
            operands.collect::<Vec<_>>(),
            &found[place.clone()],
            &wanted[place]
        );
    }
    true
}

#[test]
#[cfg_attr(miri, ignore = "calls MLX")]
fn steps_have_the_values_of_the_ops() {
    let streams = Streams::new(Device::Cpu).unwrap();
    let one = [
        Op::Abs,
        Op::Negative,
        Op::Sign,
        Op::Square,
        Op::BitwiseInvert,
        Op::Floor,
        Op::Ceil,
        Op::Sqrt,
        Op::Reciprocal,
        Op::Isnan,
        Op::Isinf,
        Op::LogicalNot,
        Op::Exp,
        Op::Sin,
        Op::Cbrt,
        Op::RoundAway,
        Op::Sigmoid,
    ];
    let two = [
        Op::Add,
        Op::Subtract,
        Op::Multiply,
        Op::Minimum,
        Op::Maximum,
        Op::Equal,
        Op::NotEqual,
        Op::Greater,
        Op::GreaterEqual,
        Op::Less,
        Op::LessEqual,
        Op::BitwiseAnd,
        Op::BitwiseOr,
        Op::BitwiseXor,
        Op::LeftShift,
        Op::RightShift,
        Op::FloorDivide,
        Op::Divide,
        Op::Power,
        Op::Arctan2,
        Op::Remainder,
        Op::LogicalAnd,
        Op::LogicalOr,
    ];
    let mut checked = 0;
    for dtype in Dtype::ALL {
        for op in &one {
            checked += u32::from(check(op.clone(), &[*dtype], &streams));
        }
        for op in &two {
            checked += u32::from(check(op.clone(), &[*dtype, *dtype], &streams));
        }
        for to in Dtype::ALL {
            checked += u32::from(check(Op::Astype(*to), &[*dtype], &streams));
            checked += u32::from(check(Op::Convert(*to), &[*dtype], &streams));
            checked += u32::from(check(Op::View(*to), &[*dtype], &streams));
        }
        let select = [Dtype::Bool, *dtype, *dtype];
        checked += u32::from(check(Op::Where, &select, &streams));
    }
    assert!(checked > 400, "{checked}");
}

#[test]
#[cfg_attr(miri, ignore = "calls MLX")]
fn a_fold_is_the_same_on_the_host_and_step_by_step() {
    let streams = Streams::new(Device::Cpu).unwrap();
    let run = crate::program::Run {
        streams: &streams,
        cancelled: &|| false,
        attended: None,
    };
    let instruction = |op: Op, operands: &[u32]| Instruction {
        op,
        operands: operands.iter().copied().collect(),
    };
    // acc - x, and the same by way of a reshape, which no kernel does.
    let plain = vec![instruction(Op::Subtract, &[1, 0])];
    let scalar = Shape::new(vec![]).unwrap();
    let reshaped = vec![
        instruction(Op::Reshape(scalar), &[0]),
        instruction(Op::Subtract, &[1, 2]),
    ];
    let array = |dims: &[i64]| {
        let size: i64 = dims.iter().product();
        let bytes: Vec<u8> = (0..size)
            .flat_map(|i| ((i * i) as i32).to_ne_bytes())
            .collect();
        Array::from_bytes(&bytes, &Shape::new(dims.to_vec()).unwrap(), Dtype::Int32).unwrap()
    };
    let (x, acc) = (array(&[5, 3, 2]), array(&[3, 2]));
    let folded = |instructions: Vec<Instruction>, output| {
        let program = Program::new(2, instructions, vec![output]).unwrap();
        let op = Op::Fold(Body(Arc::new(program)));
        let mut made = crate::ops::Made::new();
        op.eval(&[&x, &acc], &run, &mut made).unwrap();
        made[0].bytes(None, &streams).unwrap().to_vec()
    };
    let wanted: Vec<u8> = (0..6)
        .flat_map(|i: i32| {
            let sum: i32 = (0..5).map(|k| (i + 6 * k) * (i + 6 * k)).sum();
            (i * i - sum).to_ne_bytes()
        })
        .collect();
    assert_eq!(folded(plain, 2), wanted);
    assert_eq!(folded(reshaped, 3), wanted);
}

fn of(op: Op, operands: &[u32]) -> Instruction {
    let operands = operands.iter().copied().collect();
    Instruction { op, operands }
}

fn constant_of(value: i32) -> Op {
    Op::Constant(Dtype::Int32, Bytes(value.to_ne_bytes().to_vec()))
}

#[test]
fn registers_are_used_again_and_never_too_early() {
    // ((x + y) * x - 3) in i32, x and the first sum in f64, and y as it is.
    let program = Program::whole(
        2,
        vec![
            of(Op::Add, &[0, 1]),
            of(Op::Multiply, &[2, 0]),
            of(constant_of(3), &[]),
            of(Op::Subtract, &[3, 4]),
            of(Op::Astype(Dtype::Float64), &[2]),
            of(Op::Less, &[5, 1]),
            of(Op::Where, &[7, 0, 5]),
        ],
        vec![5, 6, 8, 1],
    )
    .unwrap();
    let mut kernel = Kernel::new(&[Dtype::Int32, Dtype::Int32]);
    // The second part has registers of the first for what lives within it.
    let parts = [kernel.add(&program).unwrap(), kernel.add(&program).unwrap()];
    let mut registers = kernel.registers(1);
    let aside = kernel.len();
    let numbers = |from: i32| (from..).take(TILE).flat_map(i32::to_ne_bytes);
    for part in &parts {
        for (register, from) in [(0, -20), (1, 7)] {
            let bytes: Vec<u8> = numbers(from).collect();
            registers
                .bytes_mut(register, bytes.len())
                .copy_from_slice(&bytes);
        }
        kernel.run(part, &mut registers, TILE);
        for output in &part.outputs {
            registers.copy(output.register, aside, TILE);
            registers.copy(aside, output.register, TILE);
        }
        let mut found = part.outputs.iter().map(|output| {
            let size = output.dtype.size();
            registers.bytes_mut(output.register, TILE * size).to_vec()
        });
        let each = |f: &dyn Fn(i32, i32) -> Vec<u8>| {
            let pairs = (-20..).zip(7..).take(TILE);
            pairs.flat_map(|(x, y)| f(x, y)).collect::<Vec<u8>>()
        };
        let whole = |x: i32, y: i32| (x + y) * x - 3;
        assert_eq!(
            found.next().unwrap(),
            each(&|x, y| whole(x, y).to_ne_bytes().into())
        );
        let sums = each(&|x, y| f64::from(x + y).to_ne_bytes().into());
        assert_eq!(found.next().unwrap(), sums);
        let chosen = each(&|x, y| {
            let whole = whole(x, y);
            if whole < y { x } else { whole }.to_ne_bytes().into()
        });
        assert_eq!(found.next().unwrap(), chosen);
        assert_eq!(found.next().unwrap(), each(&|_, y| y.to_ne_bytes().into()));
    }
}

#[test]
fn constants_of_every_type_are_computed() {
    for dtype in Dtype::ALL {
        let one = Op::Constant(*dtype, Bytes(bytes_of(*dtype, 1.0)));
        let Some(made) = constant(&Op::Astype(Dtype::Float64), &[&one]) else {
            assert_eq!(*dtype, Dtype::Complex64);
            continue;
        };
        let wanted = Op::Constant(Dtype::Float64, Bytes(1f64.to_ne_bytes().to_vec()));
        assert_eq!(made, wanted);
        let short = Op::Constant(*dtype, Bytes(Vec::new()));
        assert_eq!(constant(&Op::Negative, &[&short]), None);
    }
    for (op, a, b, wanted) in [
        (Op::FloorDivide, i32::MIN, -1, i32::MIN),
        (Op::FloorDivide, 7, 0, -1),
        (Op::LeftShift, 1, 33, 2),
        (Op::Add, i32::MAX, 1, i32::MIN),
    ] {
        let made = constant(&op, &[&constant_of(a), &constant_of(b)]);
        assert_eq!(made, Some(constant_of(wanted)), "{op:?} of {a} and {b}");
    }
}

/// A program of u32 whose first slots are two inputs, and what it makes of each pair of numbers, which
/// `wanted` says for all results.
fn check_pairs(
    instructions: Vec<(Op, Vec<u32>)>,
    results: Vec<u32>,
    steps: usize,
    wanted: impl Fn(u32, u32) -> Vec<u32>,
) {
    let instructions = instructions.into_iter().map(|(op, operands)| Instruction {
        op,
        operands: operands.into(),
    });
    let program = Program::whole(2, instructions.collect(), results).unwrap();
    let mut kernel = Kernel::new(&[Dtype::Uint32; 2]);
    let part = kernel.add(&program).unwrap();
    assert_eq!(kernel.work(), steps);
    let mut registers = kernel.registers(0);
    let number = |index: usize| (index as u32).wrapping_mul(0x9e37_79b9) ^ 0x8000_0001;
    for register in 0..2 {
        let numbers = (0..TILE).flat_map(|index| number(2 * index + register).to_ne_bytes());
        let numbers: Vec<u8> = numbers.collect();
        registers
            .bytes_mut(register, 4 * TILE)
            .copy_from_slice(&numbers);
    }
    kernel.run(&part, &mut registers, TILE);
    for index in 0..TILE {
        let wanted = wanted(number(2 * index), number(2 * index + 1));
        for (output, wanted) in part.outputs.iter().zip(wanted) {
            let found = &registers.bytes_mut(output.register, 4 * TILE)[4 * index..][..4];
            assert_eq!(found, wanted.to_ne_bytes());
        }
    }
}

fn held(dtype: Dtype, bytes: &[u8]) -> (Op, Vec<u32>) {
    (Op::Constant(dtype, Bytes(bytes.to_vec())), vec![])
}

#[test]
fn a_rotation_is_one_step_with_what_is_done_with_its_bits() {
    let rotation = |left: u32, right: u32, is_swapped: bool| {
        let by = |by: u32| held(Dtype::Uint32, &by.to_ne_bytes());
        let (or, xor) = if is_swapped {
            ([5, 4], [1, 6])
        } else {
            ([4, 5], [6, 1])
        };
        vec![
            by(left),
            by(right),
            (Op::LeftShift, vec![0, 2]),
            (Op::RightShift, vec![0, 3]),
            (Op::BitwiseOr, or.to_vec()),
            (Op::BitwiseXor, xor.to_vec()),
        ]
    };
    for by in [1, 13, 31] {
        let turned = |x: u32, y: u32| vec![x.rotate_left(by) ^ y];
        check_pairs(rotation(by, 32 - by, false), vec![7], 1, turned);
        check_pairs(rotation(by, 32 - by, true), vec![7], 1, turned);
    }
    // What is needed besides is there, and what is no rotation is none.
    let all = |x: u32, y: u32| vec![x.rotate_left(5) ^ y, x << 5, x.rotate_left(5)];
    check_pairs(rotation(5, 27, false), vec![7, 4, 6], 4, all);
    let less = |x: u32, y: u32| vec![(x << 5 | x >> 20) ^ y];
    check_pairs(rotation(5, 20, false), vec![7], 4, less);
}

#[test]
fn what_a_constant_chooses_is_no_step() {
    for truth in [0, 1] {
        let instructions = vec![
            held(Dtype::Bool, &[truth]),
            (Op::Add, vec![0, 1]),
            (Op::Subtract, vec![0, 1]),
            (Op::Where, vec![2, 3, 4]),
            (Op::BitwiseInvert, vec![5]),
            // Of inputs there is a step, for a result is nobody else's.
            (Op::Where, vec![2, 0, 1]),
        ];
        let wanted = |x: u32, y: u32| {
            let (sum, input) = match truth {
                0 => (x.wrapping_sub(y), y),
                _ => (x.wrapping_add(y), x),
            };
            vec![sum, !sum, input]
        };
        check_pairs(instructions, vec![5, 6, 7], 3, wanted);
    }
}
