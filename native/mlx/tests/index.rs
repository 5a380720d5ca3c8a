//! What is taken, written and sorted, wherever the operands lie. Oracle: loops over single elements.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::fmt::Debug;
use std::ops::AddAssign;
use std::sync::Arc;

use mlx::{Op, Program, Promise, Worker};

/// The operation on views of operands: each in rows, and stored with its first and last axis
/// exchanged.
fn on_views<T: Element>(w: &Worker, op: &Op, operands: &[(&Arc<Promise>, usize)]) -> [Vec<T>; 2] {
    let promises: Vec<_> = operands.iter().map(|(promise, _)| *promise).collect();
    let plain = value::<T>(w, op.clone(), &promises).unwrap();
    let turned: Vec<_> = operands
        .iter()
        .map(|(promise, rank)| {
            let mut axes: Vec<i32> = (0..*rank as i32).collect();
            axes.swap(0, rank.saturating_sub(1));
            let turned = run(w, Op::TransposeAxes(axes.clone()), &[promise]);
            let turned = run(w, Op::Contiguous, &[&turned[0]]);
            (turned[0].clone(), axes)
        })
        .collect();
    let count = turned.len() as u32;
    let mut instructions: Vec<_> = (0..count)
        .map(|slot| instruction(Op::TransposeAxes(turned[slot as usize].1.clone()), &[slot]))
        .collect();
    let slots: Vec<u32> = (count..2 * count).collect();
    instructions.push(instruction(op.clone(), &slots));
    let program = Program::new(count as usize, instructions, vec![2 * count]).unwrap();
    let views: Vec<_> = turned.iter().map(|(promise, _)| promise).collect();
    let made = w.run(Arc::new(program), inputs(&views)).unwrap();
    [plain, read(w, &made[0]).unwrap()]
}

fn check<T: Element + PartialEq + Debug>(
    w: &Worker,
    op: &Op,
    operands: &[(&Arc<Promise>, usize)],
    wanted: &[T],
) {
    for found in on_views::<T>(w, op, operands) {
        assert!(found == wanted, "{op:?}");
    }
}

/// Shapes of an array in which the second axis is indexed, few elements and many.
const SHAPES: [[usize; 3]; 6] = [
    [1, 5, 1],
    [3, 7, 1],
    [2, 5, 9],
    [1, 300, 70],
    [90, 50, 40],
    [700, 30, 1],
];

fn index(dice: &mut Dice, dim: usize) -> i64 {
    match dice.roll(8) {
        0 => -1 - dice.roll(3) as i64,
        1 => (dim + dice.roll(3)) as i64,
        2 => [i64::MIN, i64::MAX][dice.roll(2)],
        _ => dice.roll(dim) as i64,
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| (index * 7919 % 100_003) as f32)
        .collect()
}

#[test]
fn elements_are_taken_from_wherever_they_lie() {
    let (w, mut dice) = (worker(), Dice(5));
    for [outer, dim, inner] in SHAPES {
        let from = numbers(outer * dim * inner);
        let x = array(&w, &[outer, dim, inner].map(|n| n as i64), &from);
        let at = |row: usize, index: i64, column: usize| {
            let index = index.clamp(0, dim as i64 - 1) as usize;
            from[(row * dim + index) * inner + column]
        };
        for count in [1, 6, 400] {
            let places: Vec<i64> = (0..count).map(|_| index(&mut dice, dim)).collect();
            let indices = array(&w, &[count as i64], &places);
            let rows = (0..outer).flat_map(|row| places.iter().map(move |index| (row, *index)));
            let wanted: Vec<f32> = rows
                .flat_map(|(row, index)| (0..inner).map(move |column| (row, index, column)))
                .map(|(row, index, column)| at(row, index, column))
                .collect();
            check(&w, &Op::TakeAxis(1), &[(&x, 3), (&indices, 1)], &wanted);

            // Gathered, the parts come first.
            let sizes = vec![outer as i32, 1, inner as i32];
            let rows = places
                .iter()
                .flat_map(|index| (0..outer).map(move |row| (row, *index)));
            let wanted: Vec<f32> = rows
                .flat_map(|(row, index)| (0..inner).map(move |column| (row, index, column)))
                .map(|(row, index, column)| at(row, index, column))
                .collect();
            let gather = Op::Gather(vec![1], sizes);
            check(&w, &gather, &[(&x, 3), (&indices, 1)], &wanted);
        }
        let count = 11;
        let places: Vec<i64> = (0..outer * count * inner)
            .map(|_| index(&mut dice, dim))
            .collect();
        let indices = array(&w, &[outer, count, inner].map(|n| n as i64), &places);
        let each = places.iter().enumerate();
        let wanted: Vec<f32> = each
            .map(|(place, index)| at(place / (count * inner), *index, place % inner))
            .collect();
        check(
            &w,
            &Op::TakeAlongAxis(1),
            &[(&x, 3), (&indices, 3)],
            &wanted,
        );
    }
}

fn scattered<T>(w: &Worker, number: impl Fn(usize) -> T)
where
    T: Element + AddAssign + PartialEq + Debug,
{
    let mut dice = Dice(11);
    for [first, dim, inner] in SHAPES {
        let from: Vec<T> = (0..first * dim * inner).map(&number).collect();
        let x = array(w, &[first, dim, inner].map(|n| n as i64), &from);
        for count in [1, 50, 600] {
            let (mut one, mut other): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
            for _ in 0..count {
                one.push(index(&mut dice, first));
                other.push(index(&mut dice, dim));
            }
            let updates: Vec<T> = (0..count * inner).map(|index| number(index + 5)).collect();
            let (mut put, mut sum) = (from.clone(), from.clone());
            for row in 0..count {
                let (a, b) = (usize::try_from(one[row]), usize::try_from(other[row]));
                let (Ok(a), Ok(b)) = (a, b) else { continue };
                if a < first && b < dim {
                    for column in 0..inner {
                        let update = updates[row * inner + column];
                        put[(a * dim + b) * inner + column] = update;
                        sum[(a * dim + b) * inner + column] += update;
                    }
                }
            }
            let indices = |places: &[i64]| array(w, &[count as i64], places);
            let (one, other) = (indices(&one), indices(&other));
            let updates = array(w, &[count as i64, 1, 1, inner as i64], &updates);
            let operands = [(&x, 3), (&updates, 4), (&one, 1), (&other, 1)];
            check(w, &Op::Scatter(vec![0, 1]), &operands, &put);
            check(w, &Op::ScatterAdd(vec![0, 1]), &operands, &sum);
        }
    }
}

#[test]
fn parts_are_written_one_after_the_other() {
    let w = worker();
    // Sums of these depend on their order.
    scattered(&w, |index| 1.0 / (index as f32 + 1.5));
    scattered(&w, |index| 1.0 / (index as f64 + 1.5));
    scattered(&w, |index| (index % 3) as u8);
    scattered(&w, |index| index as i64 * 0x1234_5678_9abc);
}

#[test]
fn what_others_need_is_not_written_over() {
    let w = worker();
    let (rows, columns) = (300, 40);
    let x = array(&w, &[rows, columns], &numbers((rows * columns) as usize));
    let updates = array(&w, &[2, 1, columns], &vec![1_f32; 2 * columns as usize]);
    let places = array(&w, &[2], &[7_i32, 8]);
    let add = |slot| instruction(Op::ScatterAdd(vec![0]), &[slot, 1, 2]);
    // The second sum may take the first one's place, and the first not the double's.
    let instructions = vec![
        instruction(Op::Add, &[0, 0]),
        add(3),
        add(4),
        instruction(Op::Subtract, &[5, 3]),
    ];
    let program = Arc::new(Program::new(3, instructions, vec![6]).unwrap());
    for _ in 0..3 {
        let operands = inputs(&[&x, &updates, &places]);
        let made = w.run(program.clone(), operands).unwrap();
        let found = read::<f32>(&w, &made[0]).unwrap();
        let is_written = |index: usize| (7..9).contains(&(index / columns as usize));
        let wanted = (0..found.len()).map(|index| if is_written(index) { 2.0 } else { 0.0 });
        assert!(found.iter().copied().eq(wanted));
    }
    assert!(read::<f32>(&w, &x).unwrap() == numbers((rows * columns) as usize));
}

#[test]
fn parts_that_are_less_than_an_axis_are_written_from_its_beginning() {
    let w = worker();
    let x = array(&w, &[2, 3, 4], &[0_i32; 24]);
    let updates = array(&w, &[2, 2, 1, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let places = array(&w, &[2], &[2_u8, 0]);
    let made = value::<i32>(&w, Op::Scatter(vec![1]), &[&x, &updates, &places]).unwrap();
    let wanted = [
        [7, 8, 9, 0],
        [0; 4],
        [1, 2, 3, 0],
        [10, 11, 12, 0],
        [0; 4],
        [4, 5, 6, 0],
    ];
    assert_eq!(made, wanted.concat());
}

/// MLX's own scatter, which larger parts of an indexed axis are left to.
#[test]
fn parts_outside_are_dropped_by_every_way() {
    let w = worker();
    let x = array(&w, &[4], &[1_f32, 2.0, 3.0, 4.0]);
    let updates = array(
        &w,
        &[4, 2],
        &[10_f32, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0],
    );
    let places = array(&w, &[4], &[-1_i32, 3, 2, i32::MAX]);
    for (op, wanted) in [
        (Op::Scatter(vec![0]), [1.0, 2.0, 50.0, 60.0]),
        (Op::ScatterAdd(vec![0]), [1.0, 2.0, 53.0, 64.0]),
        (Op::ScatterMax(vec![0]), [1.0, 2.0, 50.0, 60.0]),
        (Op::ScatterMin(vec![0]), [1.0, 2.0, 3.0, 4.0]),
        (Op::ScatterProd(vec![0]), [1.0, 2.0, 150.0, 240.0]),
    ] {
        assert_eq!(
            value::<f32>(&w, op, &[&x, &updates, &places]).unwrap(),
            wanted
        );
    }
    let single = array(&w, &[4, 1], &[10_f32, 20.0, 30.0, 40.0]);
    let places = array(&w, &[4], &[u64::MAX, 1, 4, 1]);
    let max = value::<f32>(&w, Op::ScatterMax(vec![0]), &[&x, &single, &places]).unwrap();
    assert_eq!(max, [1.0, 40.0, 3.0, 4.0]);
}

#[test]
fn axes_are_sorted_wherever_they_lie() {
    let (w, mut dice) = (worker(), Dice(3));
    for dims in [[4, 6, 5], [1, 2, 9], [70, 80, 30], [2, 300_000, 2]] {
        let size: usize = dims.iter().product();
        let values: Vec<f32> = (0..size)
            .map(|_| match dice.roll(9) {
                0 => f32::NAN,
                1 => f32::NEG_INFINITY,
                _ => dice.roll(500) as f32 - 250.0,
            })
            .collect();
        let x = array(&w, &dims.map(|n| n as i64), &values);
        for axis in 0..3 {
            let inner: usize = dims[axis + 1..].iter().product();
            let count = dims[axis];
            let (mut sorted, mut positions) = (vec![0; size], vec![0; size]);
            for line in 0..size / count {
                let first = line / inner * count * inner + line % inner;
                let mut order: Vec<usize> = (0..count).map(|at| first + at * inner).collect();
                let key = |place: &usize| {
                    let x = values[*place];
                    if x.is_nan() { f32::INFINITY } else { x }
                };
                order.sort_by(|a, b| key(a).total_cmp(&key(b)));
                for (at, place) in order.iter().enumerate() {
                    sorted[first + at * inner] = values[*place].to_bits();
                    positions[first + at * inner] = ((place - first) / inner) as u32;
                }
            }
            for found in on_views::<f32>(&w, &Op::SortAxis(axis as i32), &[(&x, 3)]) {
                assert!(found.iter().map(|x| x.to_bits()).eq(sorted.iter().copied()));
            }
            check(
                &w,
                &Op::ArgsortAxis(axis as i32 - 3),
                &[(&x, 3)],
                &positions,
            );
        }
    }
}
