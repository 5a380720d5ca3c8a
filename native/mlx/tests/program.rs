//! Programs. Oracle: values computed by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;

use mlx::{Dtype, Error, Op, Program, Promise, Shape, Worker};

#[test]
fn runs_over_slots_and_returns_any_of_them() {
    let w = worker();
    let program = Program::new(
        2,
        vec![
            instruction(Op::Add, &[0, 1]),
            instruction(Op::Multiply, &[2, 2]),
            instruction(Op::Negative, &[0]),
        ],
        vec![3, 0, 3, 2],
    )
    .unwrap();
    let (a, b) = (array(&w, &[2], &[1f32, 2.0]), array(&w, &[2], &[3f32, 4.0]));
    let made = w.run(Arc::new(program), inputs(&[&a, &b])).unwrap();
    let values: Vec<Vec<f32>> = made.iter().map(|p| read(&w, p).unwrap()).collect();
    assert_eq!(values, [[16.0, 36.0], [1.0, 2.0], [16.0, 36.0], [4.0, 6.0]]);
}

#[test]
fn slots_that_do_not_exist_are_refused() {
    let forward = Program::new(1, vec![instruction(Op::Add, &[0, 1])], vec![1]);
    assert_eq!(forward.unwrap_err().kind(), "invalid_argument");
    let output = Program::new(1, vec![], vec![1]);
    assert_eq!(output.unwrap_err().kind(), "invalid_argument");
}

#[test]
fn several_results_take_several_slots() {
    let w = worker();
    let program = Program::new(
        1,
        vec![
            instruction(Op::Eigh(true), &[0]),
            instruction(Op::Negative, &[1]),
        ],
        vec![3],
    )
    .unwrap();
    let a = array(&w, &[2, 2], &[2f32, 0.0, 0.0, 3.0]);
    let made = w.run(Arc::new(program), inputs(&[&a])).unwrap();
    assert_eq!(read::<f32>(&w, &made[0]).unwrap(), [-2.0, -3.0]);
}

/// What reading the first result of `program` on `x` answers.
fn failure_of(w: &Worker, program: &Arc<Program>, x: &Arc<Promise>) -> (Error, Arc<Promise>) {
    let made = w.run(program.clone(), inputs(&[x])).unwrap();
    (read::<f32>(w, &made[0]).unwrap_err(), made[0].clone())
}

fn labelled(op: Op, label: &[u8]) -> Arc<Program> {
    let program = Program::new(1, vec![instruction(op, &[0])], vec![1]).unwrap();
    Arc::new(program.with_label(Arc::from(label)))
}

#[test]
fn failures_tell_the_label_of_the_program_they_come_from() {
    let w = worker();
    let x = array(&w, &[2], &[1f32, 2.0]);
    let squeezes = labelled(Op::SqueezeAxes(vec![7]), b"first");
    let (error, poisoned) = failure_of(&w, &squeezes, &x);
    assert_eq!(error.label(), Some(&b"first"[..]));
    assert_eq!((error.kind(), error.op()), ("native", Some("SqueezeAxes")));
    assert!(error.operands().is_some());

    // What is computed from it keeps the first label, and what fails without one gets none.
    let negates = labelled(Op::Negative, b"second");
    let (error, _) = failure_of(&w, &negates, &poisoned);
    assert_eq!(error.label(), Some(&b"first"[..]));
    let unlabelled = run(&w, Op::SqueezeAxes(vec![7]), &[&x]);
    let (error, _) = failure_of(&w, &negates, &unlabelled[0]);
    assert_eq!(error.label(), None);

    // An input of another shape is the run's own failure.
    let signature = vec![(Dtype::Float32, Shape::new(vec![3]).unwrap())];
    let checked = Program::new(1, vec![], vec![0]).unwrap();
    let checked = checked
        .with_signature(signature)
        .with_label(Arc::from(&b"third"[..]));
    let (error, _) = failure_of(&w, &Arc::new(checked), &x);
    assert_eq!(error.label(), Some(&b"third"[..]));
}

#[test]
fn a_signature_is_checked_at_each_run() {
    let w = worker();
    let signature = vec![(Dtype::Float32, Shape::new(vec![2]).unwrap())];
    let program = Program::new(1, vec![instruction(Op::Negative, &[0])], vec![1]).unwrap();
    let program = Arc::new(program.with_signature(signature));
    let good = array(&w, &[2], &[1f32, 2.0]);
    let made = w.run(program.clone(), inputs(&[&good])).unwrap();
    assert_eq!(read::<f32>(&w, &made[0]).unwrap(), [-1.0, -2.0]);
    let bad = array(&w, &[3], &[1f32, 2.0, 3.0]);
    let made = w.run(program, inputs(&[&bad])).unwrap();
    let error = read::<f32>(&w, &made[0]).unwrap_err();
    assert_eq!(error.kind(), "invalid_argument");
}

#[test]
fn a_failure_poisons_what_depends_on_it() {
    let w = worker();
    let (a, b) = (array(&w, &[2], &[1f32, 2.0]), array(&w, &[3], &[1f32; 3]));
    let bad = run(&w, Op::Add, &[&a, &b]).remove(0);
    let later = run(&w, Op::Negative, &[&bad]).remove(0);
    let error = read::<f32>(&w, &later).unwrap_err();
    assert_eq!(error.op(), Some("Add"));
    assert_eq!(value::<f32>(&w, Op::Negative, &[&a]).unwrap(), [-1.0, -2.0]);
}
