//! Checks inside of programs. Oracle: values and messages written by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;

use mlx::ops::Bytes;
use mlx::program::Body;
use mlx::{Dtype, Error, Op, Program, Promise, Shape, Worker};

fn name(text: &str) -> Bytes {
    Bytes(text.as_bytes().to_vec())
}

fn bounds(first: u32, count: u32, of: &[i64]) -> Op {
    Op::CheckBounds(name("take"), first, count, Shape::new(of.to_vec()).unwrap())
}

fn finite(nan: bool, infinity: bool) -> Op {
    Op::CheckFinite(name("log"), name("f32[2]"), nan, infinity)
}

fn outside(error: &Error) -> String {
    assert_eq!((error.kind(), error.op()), ("out_of_bounds", Some("take")));
    error.to_string()
}

#[test]
fn indices_inside_are_handed_on() {
    let w = worker();
    let indices = array(&w, &[2, 2], &[0i32, 2, 1, 0]);
    let one = value::<i32>(&w, bounds(0, 1, &[3]), &[&indices]).unwrap();
    assert_eq!(one, [0, 2, 1, 0]);
    let in_turns = value::<i32>(&w, bounds(1, 2, &[9, 2, 3]), &[&indices]).unwrap();
    assert_eq!(in_turns, [0, 2, 1, 0]);
    let scalar = array(&w, &[], &[2u8]);
    assert_eq!(
        value::<u8>(&w, bounds(0, 1, &[3]), &[&scalar]).unwrap(),
        [2]
    );
}

#[test]
fn the_first_index_outside_is_named_with_its_axis() {
    let w = worker();
    let indices = array(&w, &[2, 2], &[0i32, 2, 2, -1]);
    let error = failure(&w, bounds(1, 2, &[9, 2, 3]), &[&indices]);
    let message = "index 2 is out of bounds for axis 1 in shape {9, 2, 3}";
    assert_eq!(outside(&error), message);
    let error = failure(&w, bounds(0, 1, &[3]), &[&indices]);
    let message = "index -1 is out of bounds for axis 0 in shape {3}";
    assert_eq!(outside(&error), message);
}

#[test]
fn indices_of_every_width_are_compared_as_they_are() {
    let w = worker();
    let fails = |indices: &Arc<Promise>| outside(&failure(&w, bounds(0, 1, &[200]), &[indices]));
    let message =
        |index: &str| format!("index {index} is out of bounds for axis 0 in shape {{200}}");
    assert_eq!(fails(&array(&w, &[1], &[255u8])), message("255"));
    assert_eq!(fails(&array(&w, &[1], &[-128i8])), message("-128"));
    assert_eq!(fails(&array(&w, &[1], &[u32::MAX])), message("4294967295"));
    assert_eq!(
        fails(&array(&w, &[1], &[u64::MAX])),
        message(&u64::MAX.to_string())
    );
    assert_eq!(
        fails(&array(&w, &[1], &[i64::MIN])),
        message(&i64::MIN.to_string())
    );
    let within = array(&w, &[2], &[127i8, 0]);
    assert_eq!(
        value::<i8>(&w, bounds(0, 1, &[200]), &[&within]).unwrap(),
        [127, 0]
    );
}

#[test]
fn what_cannot_be_indices_is_refused() {
    let w = worker();
    let (floats, threes) = (
        array(&w, &[2], &[0f32, 1.0]),
        array(&w, &[3], &[0i32, 0, 0]),
    );
    for (op, x) in [
        (bounds(0, 1, &[3]), &floats),
        (bounds(0, 2, &[3, 3]), &threes),
        (bounds(0, 0, &[3]), &threes),
        (bounds(1, 1, &[3]), &threes),
        (bounds(u32::MAX, u32::MAX, &[3]), &threes),
    ] {
        assert_eq!(failure(&w, op, &[x]).kind(), "invalid_argument");
    }
}

#[test]
fn what_a_value_has_and_no_operand_has_is_a_failure() {
    let w = worker();
    let fine = array(&w, &[2], &[1f32, 2.0]);
    let nan = array(&w, &[2], &[1f32, f32::NAN]);
    let infinite = array(&w, &[2], &[f32::NEG_INFINITY, 1.0]);
    let made = |op, xs: &[&Arc<Promise>]| match value::<f32>(&w, op, xs) {
        Ok(made) => made.len().to_string(),
        Err(error) => {
            assert_eq!((error.kind(), error.op()), ("non_finite", Some("log")));
            assert_eq!(error.operands(), Some("f32[2]"));
            error.to_string()
        }
    };
    let both = "it made NaN, and its operands are finite";
    let infinity = "it made infinity, and its operands are finite";
    assert_eq!(made(finite(true, true), &[&fine, &fine, &fine]), "2");
    assert_eq!(made(finite(true, true), &[&nan, &nan, &fine]), both);
    assert_eq!(made(finite(true, true), &[&infinite, &infinite]), infinity);
    assert_eq!(
        made(finite(true, true), &[&nan, &nan, &fine, &infinite]),
        "2"
    );
    assert_eq!(
        made(finite(true, false), &[&infinite, &infinite, &fine]),
        "2"
    );
    assert_eq!(made(finite(false, true), &[&nan, &nan, &fine]), "2");
    let one = "it made NaN, and no operand has any";
    assert_eq!(made(finite(true, false), &[&nan, &nan, &infinite]), one);
    let one = "it made infinity, and no operand has any";
    assert_eq!(
        made(finite(false, true), &[&infinite, &infinite, &nan]),
        one
    );
    // What is looked at need not be what is handed on, and integers have neither.
    let integers = array(&w, &[2], &[1i32, 2]);
    assert_eq!(made(finite(true, true), &[&fine, &nan, &integers]), both);
    assert_eq!(made(finite(true, true), &[&fine, &integers]), "2");
}

#[test]
fn a_result_is_what_was_announced() {
    let w = worker();
    let x = array(&w, &[2], &[1f32, 2.0]);
    let shape = |dims: &[i64]| Shape::new(dims.to_vec()).unwrap();
    let op = |dtype, dims| Op::CheckResult(name("add"), dtype, shape(dims));
    assert_eq!(
        value::<f32>(&w, op(Dtype::Float32, &[2]), &[&x]).unwrap(),
        [1.0, 2.0]
    );
    let error = failure(&w, op(Dtype::Float32, &[2, 1]), &[&x]);
    assert_eq!((error.kind(), error.op()), ("wrong_result", Some("add")));
    assert!(
        error
            .to_string()
            .contains("announced as f32[2][1], and made f32[2];")
    );
    assert_eq!(
        failure(&w, op(Dtype::Int32, &[2]), &[&x]).kind(),
        "wrong_result"
    );
}

/// `x`, decremented by a loop or a branch that checks first whether it is an index of three.
fn inside(w: &Worker, control: impl Fn(Body) -> Op, x: i32, taken: u8) -> Result<Vec<i32>, Error> {
    let instructions = vec![
        instruction(bounds(0, 1, &[3]), &[0]),
        instruction(
            Op::Constant(Dtype::Int32, Bytes(1i32.to_ne_bytes().to_vec())),
            &[],
        ),
        instruction(Op::Subtract, &[1, 2]),
    ];
    let body = Body(Arc::new(Program::new(1, instructions, vec![3]).unwrap()));
    let op = control(body);
    let slots: &[u32] = if matches!(op, Op::If(..)) {
        &[1, 0]
    } else {
        &[0]
    };
    let program = Program::new(2, vec![instruction(op, slots)], vec![2]).unwrap();
    let program = Arc::new(program.with_label(Arc::from(&b"outer"[..])));
    let (x, taken) = (array(w, &[], &[x]), array(w, &[], &[taken]));
    let made = w.run(program, inputs(&[&x, &taken])).unwrap();
    read(w, &made[0])
}

#[test]
fn checks_inside_of_others_happen_where_those_run_and_fail_for_the_whole() {
    let w = worker();
    let same = || Body(Arc::new(Program::new(1, vec![], vec![0]).unwrap()));
    let branch = |body| Op::If(body, same());
    assert_eq!(inside(&w, branch, 2, 1).unwrap(), [1]);
    assert_eq!(inside(&w, branch, 3, 0).unwrap(), [3]);
    let error = inside(&w, branch, 3, 1).unwrap_err();
    assert_eq!(
        outside(&error),
        "index 3 is out of bounds for axis 0 in shape {3}"
    );
    assert_eq!(error.label(), Some(&b"outer"[..]));
    let repeat = |times| move |body| Op::Repeat(times, body);
    assert_eq!(inside(&w, repeat(3), 2, 0).unwrap(), [-1]);
    assert_eq!(inside(&w, repeat(0), 7, 0).unwrap(), [7]);
    let error = inside(&w, repeat(4), 2, 0).unwrap_err();
    assert_eq!(
        outside(&error),
        "index -1 is out of bounds for axis 0 in shape {3}"
    );
}
