//! Random fused programs of all types, shapes and layouts. Oracle: the same program with every
//! operation left to MLX, bit for bit; only which NaN a NaN is may differ.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::draft::{Draft, TYPES, bytes};
use common::*;

use std::sync::Arc;

use mlx::program::Body;
use mlx::{Array, Dtype, Op, Program, Promise, Shape, Worker};

fn plain(w: &Worker, dice: &mut Dice, dtype: Dtype, dims: &[i64]) -> Arc<Promise> {
    let count: i64 = dims.iter().product();
    let bytes = bytes(dice, dtype, count as usize);
    let shape = Shape::new(dims.to_vec()).unwrap();
    let len = bytes.len();
    w.make(len, move || Array::from_bytes(&bytes, &shape, dtype))
        .unwrap()
}

/// Instructions that make a view of these sizes of some array, and that array.
fn view(w: &Worker, dice: &mut Dice, dtype: Dtype, dims: &[i64]) -> (Arc<Promise>, Option<Op>) {
    let rank = dims.len();
    if rank == 0 {
        return (plain(w, dice, dtype, dims), None);
    }
    let shape = |dims: &[i64]| Shape::new(dims.to_vec()).unwrap();
    let all = |value: i32| vec![value; rank];
    let ends = || dims.iter().map(|dim| *dim as i32);
    let (from, op) = match dice.roll(6) {
        0 => {
            let axes: Vec<i32> = (0..rank as i32).rev().collect();
            let from: Vec<i64> = dims.iter().rev().copied().collect();
            (from, Op::TransposeAxes(axes))
        }
        1 => {
            let from = dims.iter().map(|dim| dim * 2 + 1).collect();
            let stops = ends().map(|dim| dim * 2 + 1).collect();
            (from, Op::Slice(all(1), stops, all(2)))
        }
        2 => {
            let axes = (0..rank as i32).filter(|_| dice.roll(2) == 0).collect();
            (dims.to_vec(), Op::Flip(axes))
        }
        3 => {
            // Elements that lie in the place of others.
            let strides: Vec<i64> = dims.iter().map(|_| dice.roll(4) as i64).collect();
            let reach = dims
                .iter()
                .zip(&strides)
                .map(|(dim, stride)| (dim - 1) * stride);
            let from = vec![reach.sum::<i64>() + 2];
            (from, Op::AsStrided(shape(dims), strides, 1))
        }
        4 => {
            let from = dims
                .iter()
                .map(|dim| if dice.roll(2) == 0 { 1 } else { *dim });
            (from.collect(), Op::BroadcastTo(shape(dims)))
        }
        _ => (dims.to_vec(), Op::Contiguous),
    };
    let array = plain(w, dice, dtype, &from);
    (array, Some(op))
}

/// A program that the seed stands for, and how its inputs are viewed.
fn program(seed: u64, whole: bool, inputs: &[Dtype], views: &[Option<Op>], most: usize) -> Program {
    let mut dice = Dice(seed);
    let mut draft = Draft::new(whole, inputs.to_vec());
    // An array has the shape that fits only once it is viewed.
    let fits = |slot: &u32| views[*slot as usize].is_none();
    draft.usable.retain(fits);
    for (index, view) in views.iter().enumerate() {
        if let Some(view) = view {
            draft.put(view.clone(), &[index as u32], inputs[index]);
        }
    }
    draft.grow(&mut dice, most, true);
    let slots = draft.slots.len();
    let last = [slots as u32 - 1].into_iter();
    let others = (0..dice.roll(5)).map(|_| dice.roll(slots) as u32);
    let outputs = last.chain(others).collect();
    draft.finish(inputs.len(), outputs)
}

fn compare(w: &Worker, seed: u64, dims: &[i64], most: usize) {
    let mut dice = Dice(seed);
    let (mut arrays, mut types, mut views) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..1 + dice.roll(4) {
        // Some lack axes, some have them of size one.
        let first = if dice.roll(3) == 0 {
            dice.roll(dims.len() + 1)
        } else {
            0
        };
        let one = |dim: &i64| if dice.roll(5) == 0 { 1 } else { *dim };
        let dims: Vec<i64> = dims[first..].iter().map(one).collect();
        let dtype = TYPES[dice.roll(TYPES.len())];
        let (array, op) = view(w, &mut dice, dtype, &dims);
        if dice.roll(6) == 0 {
            arrays.push(array.clone());
            types.push(dtype);
            views.push(op.clone());
        }
        arrays.push(array);
        types.push(dtype);
        views.push(op);
    }
    let arrays: Vec<_> = arrays.iter().collect();
    let results = [false, true].map(|whole| {
        let program = Arc::new(program(seed, whole, &types, &views, most));
        let made = w.run(program.clone(), inputs(&arrays)).unwrap();
        let made: Vec<_> = made.iter().map(|made| contents(w, made).unwrap()).collect();
        (made, program)
    });
    let [(fused, _), (whole, program)] = results;
    for (slot, (fused, whole)) in fused.iter().zip(&whole).enumerate() {
        let differ = || differing(fused, whole);
        assert!(
            same(fused, whole),
            "seed {seed}, result {slot} of {program:#?}: {}",
            differ()
        );
    }
}

fn differing(fused: &Contents, whole: &Contents) -> String {
    let size = fused.0.size();
    let each = fused.2.chunks(size).zip(whole.2.chunks(size));
    let at = each.clone().position(|(a, b)| a != b);
    let (fused, whole) = ((fused.0, &fused.1), (whole.0, &whole.1));
    format!(
        "{fused:?} {whole:?} at {at:?}: {:?}",
        at.and_then(|at| each.clone().nth(at))
    )
}

#[test]
fn any_program_of_any_types_and_layouts() {
    let w = worker();
    let sizes = [1, 1, 2, 3, 5, 7, 17];
    for seed in 0..count(400) {
        let mut dice = Dice(seed ^ 0x5eed);
        let mut dims: Vec<i64> = Vec::new();
        for _ in 0..dice.roll(6) {
            let dim = sizes[dice.roll(sizes.len())];
            if dims.iter().product::<i64>() * dim <= 2000 {
                dims.push(dim);
            }
        }
        compare(&w, seed, &dims, 30);
    }
}

#[test]
fn tiles_end_wherever_they_do() {
    let w = worker();
    let shapes: [&[i64]; 9] = [
        &[255],
        &[256],
        &[257],
        &[2, 255],
        &[3, 257],
        &[511, 1],
        &[1, 256, 2],
        &[5, 103],
        &[1025],
    ];
    for seed in 0..count(90) {
        compare(&w, 1000 + seed, shapes[seed as usize % shapes.len()], 12);
    }
}

#[test]
fn long_ones_are_cut_and_large_ones_shared() {
    let w = worker();
    for seed in 0..count(6) {
        compare(&w, 2000 + seed, &[3, 2], 500);
        compare(&w, 3000 + seed, &[41, 401], 12);
    }
}

/// A reduction that there is for a type.
fn reduction(dice: &mut Dice, dtype: Dtype, axes: Vec<i32>, keep: bool) -> Op {
    let sums = !matches!(
        dtype,
        Dtype::Bool
            | Dtype::Uint8
            | Dtype::Uint16
            | Dtype::Int8
            | Dtype::Int16
            | Dtype::Float16
            | Dtype::Bfloat16
    );
    match dice.roll(4) {
        0 if dtype == Dtype::Bool => Op::AllAxes(axes, keep),
        1 if dtype == Dtype::Bool => Op::AnyAxes(axes, keep),
        0 if sums => Op::SumAxes(axes, keep),
        1 if sums => Op::ProdAxes(axes, keep),
        2 => Op::MaxAxes(axes, keep),
        _ => Op::MinAxes(axes, keep),
    }
}

/// A program with reductions of the same axes, the last ones mostly, whose first input has all axes.
fn reducing(
    seed: u64,
    whole: bool,
    inputs: &[Dtype],
    views: &[Option<Op>],
    rank: usize,
) -> Program {
    let mut dice = Dice(seed);
    let mut draft = Draft::new(whole, inputs.to_vec());
    draft.usable.retain(|slot| views[*slot as usize].is_none());
    let mut full = 0;
    for (index, view) in views.iter().enumerate() {
        if let Some(view) = view {
            let slot = draft.put(view.clone(), &[index as u32], inputs[index]);
            if index == 0 {
                full = slot;
            }
        }
    }
    let axes: Vec<i32> = match dice.roll(5) {
        0 => vec![dice.roll(rank) as i32],
        _ => (dice.roll(rank) as i32..rank as i32).collect(),
    };
    let mut outputs = Vec::new();
    for _ in 0..1 + dice.roll(3) {
        for _ in 0..dice.roll(6) {
            draft.any(&mut dice);
        }
        let made = draft.slot(&mut dice);
        let dtype = draft.slots[made as usize];
        let all = draft.as_type(full, dtype);
        let join = if dtype == Dtype::Bool {
            Op::Equal
        } else {
            Op::Add
        };
        let all = match dice.roll(4) {
            0 => all,
            _ => draft.put(join, &[made, all], dtype),
        };
        let keep = dice.roll(5) > 0;
        let op = reduction(&mut dice, dtype, axes.clone(), keep);
        let reduced = draft.put(op, &[all], dtype);
        if !keep {
            // It fits nothing else.
            draft.usable.pop();
            let cast = draft.as_type(reduced, Dtype::Float32);
            draft
                .usable
                .retain(|slot| *slot != cast && *slot != reduced);
            outputs.push(draft.put(Op::Negative, &[cast], Dtype::Float32));
            draft.usable.pop();
        }
    }
    for _ in 0..dice.roll(6) {
        draft.any(&mut dice);
    }
    outputs.extend((0..1 + dice.roll(4)).map(|_| draft.slot(&mut dice)));
    draft.finish(inputs.len(), outputs)
}

#[test]
fn reductions_among_them() {
    let w = worker();
    let shapes: [&[i64]; 13] = [
        &[40_000],
        &[3, 5],
        &[1, 7],
        &[2, 3, 4],
        &[300, 10],
        &[7, 300],
        &[5, 256],
        &[4, 1, 17],
        &[4, 4],
        &[65, 130],
        &[70, 2, 60],
        &[9],
        &[2, 17_000],
    ];
    for seed in 0..count(360) {
        let mut dice = Dice(seed ^ 0x0123);
        let dims = shapes[seed as usize % shapes.len()];
        let (mut arrays, mut types, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..1 + dice.roll(4) {
            let first = if index > 0 && dice.roll(2) == 0 {
                dice.roll(dims.len() + 1)
            } else {
                0
            };
            let one = |dim: &i64| {
                if index > 0 && dice.roll(4) == 0 {
                    1
                } else {
                    *dim
                }
            };
            let dims: Vec<i64> = dims[first..].iter().map(one).collect();
            let dtype = TYPES[dice.roll(TYPES.len())];
            let (array, op) = view(&w, &mut dice, dtype, &dims);
            arrays.push(array);
            types.push(dtype);
            views.push(op);
        }
        let arrays: Vec<_> = arrays.iter().collect();
        let results = [false, true].map(|whole| {
            let program = reducing(seed, whole, &types, &views, dims.len());
            let made = w.run(Arc::new(program), inputs(&arrays)).unwrap();
            let made = made.iter().map(|made| contents(&w, made).unwrap());
            made.collect::<Vec<_>>()
        });
        for (slot, (fused, whole)) in results[0].iter().zip(&results[1]).enumerate() {
            assert!(
                same(fused, whole),
                "seed {seed}, {dims:?}, result {slot} of {:#?}: {}",
                reducing(seed, true, &types, &views, dims.len()),
                differing(fused, whole)
            );
        }
    }
}

/// A loop whose values keep their types and sizes, over numbers and arrays of these sizes.
fn looped(seed: u64, whole: bool, types: &[Dtype], full: &[bool]) -> Program {
    let mut dice = Dice(seed);
    let count = types.len();
    let numbers = |slot: &u32| !full[*slot as usize];
    let step = |dice: &mut Dice| {
        let mut draft = Draft::new(whole, types.to_vec());
        // What is one number for all elements comes of such ones only.
        draft.usable.retain(numbers);
        for _ in 0..dice.roll(10) {
            draft.any(dice);
        }
        draft
    };
    let mut body = step(&mut dice);
    let one = body.number(Dtype::Uint8, 1);
    let mut results = vec![body.put(Op::Add, &[0, one], Dtype::Uint8)];
    let carried = 1 + dice.roll(count);
    let single = |draft: &mut Draft, dice: &mut Dice, slot: usize| {
        let made = draft.slot(dice);
        draft.as_type(made, types[slot])
    };
    for (slot, full) in full.iter().enumerate().take(carried).skip(1) {
        results.push(match full {
            true => 0,
            false => single(&mut body, &mut dice, slot),
        });
    }
    body.usable
        .extend((0..count as u32).filter(|slot| full[*slot as usize]));
    for _ in 0..dice.roll(15) {
        body.any(&mut dice);
    }
    for slot in (1..carried).filter(|slot| full[*slot]) {
        let made = single(&mut body, &mut dice, slot);
        let holds = body.slot(&mut dice);
        let holds = body.as_type(holds, Dtype::Bool);
        let chosen = [holds, made, slot as u32];
        results[slot] = match dice.roll(4) {
            // Another's, where there is one like it.
            0 => (1..count as u32)
                .find(|other| full[*other as usize] && types[*other as usize] == types[slot])
                .unwrap_or(slot as u32),
            _ => body.put(Op::Where, &chosen, types[slot]),
        };
    }
    let op = match dice.roll(2) {
        0 => Op::Repeat(
            dice.roll(6) as u64,
            Body(Arc::new(body.finish(count, results))),
        ),
        _ => {
            let mut ends = step(&mut dice);
            let most = ends.number(Dtype::Uint8, 4);
            let less = ends.put(Op::Less, &[0, most], Dtype::Bool);
            let also = ends.slot(&mut dice);
            let also = ends.as_type(also, Dtype::Bool);
            let both = [Op::LogicalAnd, Op::Equal][dice.roll(2)].clone();
            let holds = match dice.roll(3) {
                0 => less,
                // It ends, for the counter does.
                _ => {
                    let both = ends.put(both, &[less, also], Dtype::Bool);
                    ends.put(Op::LogicalAnd, &[both, less], Dtype::Bool)
                }
            };
            let holds = ends.as_type(holds, TYPES[dice.roll(TYPES.len())]);
            let condition = ends.finish(count, vec![holds]);
            let body = body.finish(count, results);
            Op::While(Body(Arc::new(condition)), Body(Arc::new(body)))
        }
    };
    let slots: Vec<u32> = (0..count as u32).collect();
    let made = (count as u32..(count + op.outputs()) as u32).collect();
    let body = vec![instruction(op, &slots)];
    match whole {
        true => Program::whole(count, body, made).unwrap(),
        false => Program::new(count, body, made).unwrap(),
    }
}

#[test]
fn loops_of_any_types_and_sizes() {
    let w = worker();
    let shapes: [&[i64]; 8] = [
        &[1],
        &[2, 3],
        &[255],
        &[256],
        &[257],
        &[3, 171],
        &[7, 1, 100],
        &[1, 1],
    ];
    for seed in 0..count(300) {
        let mut dice = Dice(seed ^ 0x100b);
        let dims = shapes[dice.roll(shapes.len())];
        let (mut types, mut full) = (vec![Dtype::Uint8], vec![false]);
        for _ in 0..dice.roll(6) {
            types.push(TYPES[dice.roll(TYPES.len())]);
            full.push(dice.roll(3) > 0);
        }
        let zero = array(&w, &[], &[0u8]);
        let values = types.iter().zip(&full).skip(1).map(|(dtype, full)| {
            let dims = if *full { dims } else { &[] };
            plain(&w, &mut dice, *dtype, dims)
        });
        let values: Vec<_> = [zero].into_iter().chain(values).collect();
        let values: Vec<_> = values.iter().collect();
        let results = [false, true].map(|whole| {
            let program = looped(seed, whole, &types, &full);
            let made = w.run(Arc::new(program), inputs(&values)).unwrap();
            let made = made.iter().map(|made| contents(&w, made).unwrap());
            made.collect::<Vec<_>>()
        });
        for (slot, (own, mlxs)) in results[0].iter().zip(&results[1]).enumerate() {
            assert!(
                same(own, mlxs),
                "seed {seed}, result {slot} of {:#?}: {}",
                looped(seed, true, &types, &full),
                differing(own, mlxs)
            );
        }
    }
}
