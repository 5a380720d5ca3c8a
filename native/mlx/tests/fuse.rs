//! Fused programs. Oracle: the same program with every operation left to MLX, bit for bit.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;

use mlx::ops::Bytes;
use mlx::program::Body;
use mlx::{Dtype, Instruction, Op, Program, Promise, Worker};

fn bits(w: &Worker, made: &Arc<Promise>) -> (Dtype, Vec<i32>, Vec<u8>) {
    let input = mlx::Input::new(made.clone());
    call(w, move |context| {
        let array = input.get()?;
        let bytes = array.bytes(None, &context.streams)?.to_vec();
        Ok((array.dtype(), array.dims().to_vec(), bytes))
    })
    .unwrap()
}

/// Runs the program fused and as it is.
fn compare(
    w: &Worker,
    count: usize,
    body: &[Instruction],
    outputs: &[u32],
    arrays: &[&Arc<Promise>],
) {
    let fused = Program::new(count, body.to_vec(), outputs.to_vec()).unwrap();
    let whole = Program::whole(count, body.to_vec(), outputs.to_vec()).unwrap();
    let results = [fused, whole].map(|program| {
        let made = w.run(Arc::new(program), inputs(arrays)).unwrap();
        made.iter().map(|made| bits(w, made)).collect::<Vec<_>>()
    });
    for (slot, (fused, whole)) in outputs.iter().zip(results[0].iter().zip(&results[1])) {
        assert_eq!(
            (fused.0, &fused.1),
            (whole.0, &whole.1),
            "{slot} of {body:#?}"
        );
        let nan = |bytes: &[u8]| {
            fused.0 == Dtype::Float32 && f32::from_ne_bytes(bytes.try_into().unwrap()).is_nan()
        };
        let size = fused.0.size();
        for (index, (a, b)) in fused.2.chunks(size).zip(whole.2.chunks(size)).enumerate() {
            assert!(
                a == b || nan(a) && nan(b),
                "{slot} at {index}: {a:?} {b:?} of {body:#?}"
            );
        }
    }
}

/// Arrays of f32 whose shapes broadcast to [5, 67, 9], one of them a view.
fn arrays(w: &Worker) -> Vec<Arc<Promise>> {
    let array = |dims: &[i64]| {
        let size: i64 = dims.iter().product();
        let values: Vec<f32> = (0..size)
            .map(|i| ((i * 37) % 101) as f32 * 0.13 - 5.0)
            .collect();
        array(w, dims, &values)
    };
    let view = array(&[9, 67, 5]);
    let view = run(w, Op::TransposeAxes(vec![2, 1, 0]), &[&view]).remove(0);
    let mut all: Vec<_> = [
        &[5, 67, 9][..],
        &[5, 67, 9],
        &[67, 1],
        &[9],
        &[5, 1, 1],
        &[],
    ]
    .map(array)
    .into();
    all.push(view);
    all
}

const ONE: [Op; 9] = [
    Op::Sin,
    Op::Exp,
    Op::Negative,
    Op::Abs,
    Op::Floor,
    Op::Sigmoid,
    Op::Sqrt,
    Op::Square,
    Op::Astype(Dtype::Float32),
];
const TWO: [Op; 7] = [
    Op::Add,
    Op::Subtract,
    Op::Multiply,
    Op::Divide,
    Op::Maximum,
    Op::Minimum,
    Op::Add,
];

#[test]
fn any_program_has_the_values_of_its_operations() {
    let w = worker();
    let arrays = arrays(&w);
    let arrays: Vec<_> = arrays.iter().collect();
    let mut dice = Dice(1);
    for _ in 0..300 {
        let count = arrays.len();
        let mut body: Vec<Instruction> = Vec::new();
        // The slots with numbers: a comparison's result is none to compute with.
        let mut numbers: Vec<u32> = (0..count as u32).collect();
        for _ in 0..1 + dice.roll(40) {
            // The later ones, mostly, so that they depend on each other.
            let mut slot = || {
                let back = dice.roll(6);
                let back = if back < 4 {
                    back
                } else {
                    dice.roll(numbers.len())
                };
                numbers[numbers.len() - 1 - back]
            };
            let (a, b) = (slot(), slot());
            let next = match dice.roll(12) {
                0 => {
                    let value = dice.roll(5) as f32 - 2.0;
                    let bytes = Bytes(value.to_ne_bytes().into());
                    instruction(Op::Constant(Dtype::Float32, bytes), &[])
                }
                1 => instruction(Op::SumAxes(vec![], true), &[a]),
                2 => {
                    let holds = (count + body.len()) as u32;
                    body.push(instruction(Op::Less, &[a, b]));
                    instruction(Op::Where, &[holds, b, a])
                }
                3..7 => instruction(ONE[dice.roll(ONE.len())].clone(), &[a]),
                _ => instruction(TWO[dice.roll(TWO.len())].clone(), &[a, b]),
            };
            body.push(next);
            numbers.push((count + body.len() - 1) as u32);
        }
        let slots = count + body.len();
        let mut outputs = vec![slots as u32 - 1];
        outputs.extend((0..dice.roll(3)).map(|_| dice.roll(slots) as u32));
        compare(&w, count, &body, &outputs, &arrays);
    }
}

#[test]
fn a_long_chain_and_a_wide_fan_are_cut_and_come_together() {
    let w = worker();
    let x = array(&w, &[3], &[0.5f32, -1.0, 2.0]);
    let chain: Vec<_> = (0..500).map(|i| instruction(Op::Sin, &[i])).collect();
    compare(&w, 1, &chain, &[500, 250], &[&x]);

    let mut fan: Vec<_> = (0..200).map(|_| instruction(Op::Exp, &[0])).collect();
    let mut last = 1;
    for i in 2..=200 {
        fan.push(instruction(Op::Add, &[last, i]));
        last = 199 + i;
    }
    compare(&w, 1, &fan, &[last], &[&x]);
}

#[test]
fn what_depends_on_itself_by_way_of_others_is_not_one() {
    let w = worker();
    let x = array(&w, &[4], &[1f32, 2.0, 3.0, 4.0]);
    // exp(x) / sum(exp(x)), and the logarithm of that sum beside it.
    let body = [
        instruction(Op::Exp, &[0]),
        instruction(Op::SumAxes(vec![0], false), &[1]),
        instruction(Op::Divide, &[1, 2]),
        instruction(Op::Log, &[2]),
        instruction(Op::Subtract, &[3, 4]),
    ];
    compare(&w, 1, &body, &[5, 3, 1], &[&x]);
}

#[test]
fn integers_bits_and_types_change_within() {
    let w = worker();
    let x = array(
        &w,
        &[300],
        &(0..300).map(|i| i * 7919).collect::<Vec<i32>>(),
    );
    let three = Op::Constant(Dtype::Uint32, Bytes(3u32.to_ne_bytes().into()));
    let body = [
        instruction(Op::View(Dtype::Uint32), &[0]),
        instruction(three, &[]),
        instruction(Op::LeftShift, &[1, 2]),
        instruction(Op::BitwiseXor, &[3, 1]),
        instruction(Op::Astype(Dtype::Float64), &[4]),
        instruction(Op::Sqrt, &[5]),
        instruction(Op::Astype(Dtype::Float16), &[6]),
        instruction(Op::Astype(Dtype::Bool), &[4]),
        instruction(Op::Where, &[8, 7, 7]),
    ];
    compare(&w, 1, &body, &[9, 8, 7, 6, 4], &[&x]);
}

#[test]
fn large_results_are_shared_among_cores() {
    let w = worker();
    let size = 1_000_003;
    let values: Vec<f32> = (0..size).map(|i| (i % 1009) as f32 * 0.01).collect();
    let x = array(&w, &[size as i64], &values);
    let body = [
        instruction(Op::Sin, &[0]),
        instruction(Op::Multiply, &[1, 0]),
        instruction(Op::Exp, &[2]),
    ];
    compare(&w, 1, &body, &[3, 2], &[&x]);
}

#[test]
fn what_no_kernel_knows_is_left_to_mlx_and_fails_as_there() {
    let w = worker();
    let (two, three) = (array(&w, &[2], &[1f32, 2.0]), array(&w, &[3], &[1f32; 3]));
    let body = vec![instruction(Op::Exp, &[0]), instruction(Op::Add, &[2, 1])];
    let program = Program::new(2, body, vec![3]).unwrap();
    let made = w.run(Arc::new(program), inputs(&[&two, &three])).unwrap();
    let error = read::<f32>(&w, &made[0]).unwrap_err();
    assert_eq!(
        (error.op(), error.operands()),
        (Some("Add"), Some("f32[2], f32[3]"))
    );

    // Complex numbers, and nothing at all.
    let complex = run(&w, Op::Astype(Dtype::Complex64), &[&three]).remove(0);
    let body = [
        instruction(Op::Exp, &[0]),
        instruction(Op::Multiply, &[1, 0]),
    ];
    compare(&w, 1, &body, &[2], &[&complex]);
    let none = array::<f32>(&w, &[0, 3], &[]);
    compare(&w, 1, &body, &[2], &[&none]);
}

#[test]
fn a_program_that_runs_with_other_shapes_and_types_is_planned_anew() {
    let w = worker();
    let body = vec![instruction(Op::Abs, &[0]), instruction(Op::Add, &[1, 0])];
    let program = Arc::new(Program::new(1, body, vec![2]).unwrap());
    for size in 1..20 {
        let x = array(&w, &[size], &vec![-1i32; size as usize]);
        let made = w.run(program.clone(), inputs(&[&x])).unwrap();
        assert_eq!(read::<i32>(&w, &made[0]).unwrap(), vec![0; size as usize]);
        let y = array(&w, &[size], &vec![2f32; size as usize]);
        let made = w.run(program.clone(), inputs(&[&y])).unwrap();
        assert_eq!(read::<f32>(&w, &made[0]).unwrap(), vec![4.0; size as usize]);
    }
}

#[test]
fn a_result_beyond_the_limit_names_its_operation() {
    let w = worker();
    let rows = array(&w, &[1 << 20, 1], &vec![1f32; 1 << 20]);
    let columns = array(&w, &[1 << 20], &vec![1f32; 1 << 20]);
    let body = vec![instruction(Op::Add, &[0, 1]), instruction(Op::Exp, &[2])];
    let program = Program::new(2, body, vec![3]).unwrap();
    let made = w
        .run(Arc::new(program), inputs(&[&rows, &columns]))
        .unwrap();
    let error = read::<f32>(&w, &made[0]).unwrap_err();
    assert_eq!((error.kind(), error.op()), ("out_of_memory", Some("Exp")));
}

#[test]
fn a_size_beyond_all_numbers_is_refused_and_not_taken_for_none() {
    let w = worker();
    let dims = [&[1 << 22, 1, 1][..], &[1 << 22, 1], &[1 << 20]];
    let arrays = dims.map(|dims| array(&w, dims, &vec![1u8; dims[0] as usize]));
    let holds = run(&w, Op::Astype(Dtype::Bool), &[&arrays[0]]).remove(0);
    let arrays = [&holds, &arrays[1], &arrays[2]];
    // 2^64 bytes, by itself and in a fused program.
    let body = [
        instruction(Op::Where, &[0, 1, 2]),
        instruction(Op::Negative, &[3]),
    ];
    for is_computed in [false, true] {
        if is_computed {
            contents(&w, &holds).unwrap();
        }
        for len in 1..=2 {
            let program = Program::new(3, body[..len].to_vec(), vec![2 + len as u32]).unwrap();
            let made = w.run(Arc::new(program), inputs(&arrays)).unwrap();
            let error = contents(&w, &made[0]).unwrap_err();
            assert_eq!(error.kind(), "out_of_memory", "{error} {is_computed}");
        }
    }
}

#[test]
fn programs_that_nobody_fused_fail_or_work() {
    let w = worker();
    let x = array(&w, &[2], &[1f32, 2.0]);
    let two = || {
        instruction(
            Op::Constant(Dtype::Float32, Bytes(2f32.to_ne_bytes().into())),
            &[],
        )
    };
    let fused = |inputs: usize, body: Vec<Instruction>, outputs: Vec<u32>| {
        Op::Fused(Body(Arc::new(
            Program::whole(inputs, body, outputs).unwrap(),
        )))
    };
    // What it returns is an input, a constant, and the same thing twice.
    let mixed = fused(
        1,
        vec![two(), instruction(Op::Multiply, &[0, 1])],
        vec![0, 1, 2, 2],
    );
    let made = run(&w, mixed, &[&x]);
    let values = made.iter().map(|made| read::<f32>(&w, made).unwrap());
    let wanted = [vec![1.0, 2.0], vec![2.0], vec![2.0, 4.0], vec![2.0, 4.0]];
    assert_eq!(values.collect::<Vec<_>>(), wanted);
    // Nothing at all, and of nothing.
    assert!(run(&w, fused(1, vec![], vec![]), &[&x]).is_empty());
    let alone = fused(0, vec![two(), instruction(Op::Exp, &[0])], vec![1]);
    assert_eq!(value::<f32>(&w, alone, &[]).unwrap(), [2f32.exp()]);
    // As many as no cache holds, and all of them results.
    let many: Vec<_> = (0..20_000)
        .map(|i| instruction(Op::Negative, &[i]))
        .collect();
    let made = run(&w, fused(1, many, (1..=20_000).collect()), &[&x]);
    assert_eq!(read::<f32>(&w, &made[19_999]).unwrap(), [1.0, 2.0]);
    // One in the other would be as many steps as two to the power of the depth.
    let mut body = Program::whole(1, vec![instruction(Op::Negative, &[0])], vec![1]).unwrap();
    let nested = Op::Fused(Body(Arc::new(body)));
    body = Program::whole(1, vec![instruction(nested, &[0])], vec![1]).unwrap();
    let nested = Op::Fused(Body(Arc::new(body)));
    assert!(Program::new(1, vec![instruction(nested, &[0])], vec![1]).is_err());
}
