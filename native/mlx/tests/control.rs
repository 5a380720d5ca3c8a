//! Control flow in programs. Oracle: values computed by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mlx::ops::Bytes;
use mlx::program::Body;
use mlx::{Attendant, Dtype, Error, Instruction, Op, Program, Promises, Shape, Worker};

fn constant(value: i32) -> Op {
    Op::Constant(Dtype::Int32, Bytes(value.to_ne_bytes().to_vec()))
}

fn body(inputs: usize, instructions: Vec<Instruction>, outputs: Vec<u32>) -> Body {
    Body(Arc::new(
        Program::new(inputs, instructions, outputs).unwrap(),
    ))
}

/// A program of one instruction.
fn only(inputs: usize, op: Op) -> Program {
    let slots: Vec<u32> = (0..inputs as u32).collect();
    let (first, count) = (inputs as u32, op.outputs() as u32);
    let outputs = (first..first + count).collect();
    Program::new(inputs, vec![instruction(op, &slots)], outputs).unwrap()
}

/// x + by
fn plus(by: i32) -> Body {
    body(
        1,
        vec![
            instruction(constant(by), &[]),
            instruction(Op::Add, &[0, 1]),
        ],
        vec![2],
    )
}

fn value_of(w: &Worker, program: Program, x: i32) -> i32 {
    let x = array(w, &[], &[x]);
    let made = w.run(Arc::new(program), inputs(&[&x])).unwrap();
    read::<i32>(w, &made[0]).unwrap()[0]
}

/// x + 1 in so many loops of one iteration, inside of each other.
fn nested(depth: usize) -> mlx::Result<Program> {
    let mut inner = plus(1);
    for _ in 1..depth {
        let program = Program::new(1, vec![instruction(Op::Repeat(1, inner), &[0])], vec![1])?;
        inner = Body(Arc::new(program));
    }
    Program::new(1, vec![instruction(Op::Repeat(1, inner), &[0])], vec![1])
}

#[test]
fn programs_are_nested_deep_and_no_deeper() {
    let w = worker();
    assert_eq!(value_of(&w, nested(1_000).unwrap(), 3), 4);
    let error = nested(1_024).unwrap_err().to_string();
    assert!(error.contains("nested more than 1024 deep"), "{error}");
}

#[test]
fn nested_programs_are_dropped_on_a_small_stack() {
    let program = nested(1_000).unwrap();
    std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || drop(program))
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn loops_run_until_their_condition_fails() {
    let w = worker();
    let less = body(
        1,
        vec![
            instruction(constant(100), &[]),
            instruction(Op::Less, &[0, 1]),
        ],
        vec![2],
    );
    let double = body(1, vec![instruction(Op::Add, &[0, 0])], vec![1]);
    let program = || only(1, Op::While(less.clone(), double.clone()));
    assert_eq!(value_of(&w, program(), 3), 192);
    assert_eq!(value_of(&w, program(), 100), 100);
    assert_eq!(value_of(&w, only(1, Op::Repeat(1000, plus(2))), 1), 2001);
    assert_eq!(value_of(&w, only(1, Op::Repeat(0, plus(2))), 1), 1);
    let nested = body(1, vec![instruction(Op::Repeat(3, plus(1)), &[0])], vec![1]);
    assert_eq!(value_of(&w, only(1, Op::Repeat(4, nested)), 0), 12);
}

#[test]
fn what_a_loop_does_not_return_stays() {
    let w = worker();
    let add = body(2, vec![instruction(Op::Add, &[0, 1])], vec![2]);
    let program = Arc::new(only(2, Op::Repeat(5, add)));
    let (x, y) = (array(&w, &[2], &[1i32, 2]), array(&w, &[2], &[10i32, 20]));
    let made = w.run(program, inputs(&[&x, &y])).unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!(read::<i32>(&w, &made[0]).unwrap(), [51, 102]);
    assert_eq!(read::<i32>(&w, &x).unwrap(), [1, 2]);
}

/// The first value of a loop over these, as it is, and with a step in its body that no kernel knows.
fn both_ways<T: Element>(
    op: impl Fn(Body) -> Op,
    body_of: impl Fn() -> (Vec<Instruction>, Vec<u32>),
    values: &[(&[i64], &[T])],
) -> [Vec<Vec<u8>>; 2] {
    let w = worker();
    let count = values.len();
    [false, true].map(|strange| {
        let (mut instructions, outputs) = body_of();
        if strange {
            // Changes nothing, as nothing uses it.
            let op = Op::BroadcastTo(Shape::new(vec![7, 1]).unwrap());
            let zero = Op::Constant(Dtype::Int32, Bytes(vec![0; 4]));
            let slots = (count + instructions.len()) as u32;
            instructions.push(instruction(zero, &[]));
            instructions.push(instruction(op, &[slots]));
        }
        let program = only(count, op(body(count, instructions, outputs)));
        let arrays: Vec<_> = values.iter().map(|(d, v)| array(&w, d, v)).collect();
        let arrays: Vec<_> = arrays.iter().collect();
        let made = w.run(Arc::new(program), inputs(&arrays)).unwrap();
        let read = |made: &Arc<mlx::Promise>| bytes_of(&read::<T>(&w, made).unwrap());
        made.iter().map(read).collect()
    })
}

#[test]
fn elementwise_loops_compute_what_others_do() {
    // Fibonacci's numbers: each value is the other's next one.
    let step = || (vec![instruction(Op::Add, &[0, 1])], vec![1, 2]);
    let numbers = [(&[][..], &[0u64][..]), (&[], &[1])];
    let [own, mlxs] = both_ways(|body| Op::Repeat(90, body), step, &numbers);
    assert_eq!(own, mlxs);
    assert_eq!(own[0], 2_880_067_194_370_816_120u64.to_ne_bytes());

    // More than a tile, a number that is one for all, one that does not change, and many iterations.
    let x: Vec<f32> = (0..1001).map(|i| (i as f32 - 500.0) * 0.01).collect();
    let values = [(&[7, 11, 13][..], &x[..]), (&[], &[0.5]), (&[], &[0.25])];
    let step = || {
        let body = vec![
            instruction(Op::Sin, &[0]),
            instruction(Op::Multiply, &[3, 1]),
            instruction(Op::Add, &[4, 2]),
            instruction(Op::Multiply, &[1, 1]),
            instruction(Op::Add, &[6, 2]),
        ];
        (body, vec![5, 7])
    };
    let [own, mlxs] = both_ways(|body| Op::Repeat(50, body), step, &values);
    assert!(own == mlxs);
    assert_eq!(own[1].len(), 4);

    // As long as a number is small, in each tile again.
    let small = || {
        let limit = Op::Constant(Dtype::Float32, Bytes(3.0f32.to_ne_bytes().to_vec()));
        let instructions = vec![instruction(limit, &[]), instruction(Op::Less, &[1, 3])];
        body(3, instructions, vec![4])
    };
    let step = || {
        let body = vec![instruction(Op::Cos, &[0]), instruction(Op::Add, &[1, 2])];
        (body, vec![3, 4])
    };
    let [own, mlxs] = both_ways(|body| Op::While(small(), body), step, &values);
    assert!(own == mlxs);
    assert_eq!(own[1], 3.0f32.to_ne_bytes());
}

#[test]
fn values_that_change_their_shape_are_left_to_mlx() {
    let w = worker();
    // A number becomes a row.
    let add = body(2, vec![instruction(Op::Add, &[0, 1])], vec![2]);
    let program = Arc::new(only(2, Op::Repeat(3, add)));
    let (x, y) = (array(&w, &[], &[1i32]), array(&w, &[2], &[10i32, 20]));
    let made = w.run(program, inputs(&[&x, &y])).unwrap();
    assert_eq!(read::<i32>(&w, &made[0]).unwrap(), [31, 61]);
}

#[test]
fn one_branch_runs() {
    let w = worker();
    let endless = body(
        1,
        vec![instruction(Op::Repeat(u64::MAX, plus(0)), &[0])],
        vec![1],
    );
    let branch = |predicate: u8| {
        let program = Arc::new(only(2, Op::If(plus(5), endless.clone())));
        let (p, x) = (array(&w, &[], &[predicate]), array(&w, &[], &[1i32]));
        let made = w.run(program, inputs(&[&p, &x])).unwrap();
        // An endless one ends when nobody holds its result.
        made.into_iter().next()
    };
    assert_eq!(read::<i32>(&w, &branch(1).unwrap()).unwrap(), [6]);
    let never = branch(0).unwrap();
    never.close();
    assert_eq!(value_of(&w, only(1, Op::Repeat(1, plus(2))), 1), 3);
}

#[test]
fn programs_that_do_not_fit_are_refused() {
    let two = body(2, vec![instruction(Op::Add, &[0, 1])], vec![2]);
    for op in [
        Op::Repeat(1, two.clone()),
        Op::While(plus(1), two.clone()),
        Op::If(plus(1), two),
    ] {
        let built = Program::new(1, vec![instruction(op, &[0])], vec![]);
        assert_eq!(built.unwrap_err().kind(), "invalid_argument");
    }
}

enum Said {
    Hook(u32, Promises),
    Call(u64, u32, Promises),
}

struct Teller(u64, Sender<Said>);

impl Attendant for Teller {
    fn hook(&self, id: u32, values: Promises) -> bool {
        self.1.send(Said::Hook(id, values)).is_ok()
    }
    fn call(&self, id: u32, values: Promises) -> bool {
        self.1.send(Said::Call(self.0, id, values)).is_ok()
    }
}

type Ended = Receiver<mlx::Result<Promises>>;

fn attend(w: &Worker, program: Program, x: i32) -> (u64, Receiver<Said>, Ended) {
    let (said, hears) = channel();
    let (done, ended) = channel();
    let x = array(w, &[], &[x]);
    let number = w.attend(
        Arc::new(program),
        inputs(&[&x]),
        |number| Box::new(Teller(number, said)),
        move |result| done.send(result).unwrap(),
    );
    (number, hears, ended)
}

fn call() -> Op {
    Op::Call(7, vec![(Dtype::Int32, Shape::new(vec![]).unwrap())])
}

#[test]
fn a_run_waits_for_its_answer_and_the_worker_does_not() {
    let w = worker();
    let asks = body(1, vec![instruction(call(), &[0])], vec![1]);
    let program = || only(1, Op::Repeat(3, asks.clone()));
    let (_, hears, ended) = attend(&w, program(), 1);
    for expected in [1, 11, 21] {
        let Said::Call(number, 7, values) = hears.recv().unwrap() else {
            panic!("not a call");
        };
        // Others are served.
        assert_eq!(value_of(&w, only(1, Op::Repeat(1, plus(1))), 41), 42);
        assert_eq!(read::<i32>(&w, &values[0]).unwrap(), [expected]);
        let answer = array(&w, &[], &[expected + 10]);
        w.answer(number, Ok(inputs(&[&answer])));
    }
    let made = ended.recv().unwrap().unwrap();
    assert_eq!(read::<i32>(&w, &made[0]).unwrap(), [31]);

    let (number, hears, ended) = attend(&w, program(), 1);
    hears.recv().unwrap();
    w.abandon(number);
    assert_eq!(ended.recv().unwrap().err(), Some(Error::Cancelled));

    let (number, hears, ended) = attend(&w, program(), 1);
    hears.recv().unwrap();
    let answer = array(&w, &[2], &[1i32, 2]);
    w.answer(number, Ok(inputs(&[&answer])));
    assert_eq!(
        ended.recv().unwrap().unwrap_err().kind(),
        "invalid_argument"
    );

    let (_, hears, ended) = attend(&w, program(), 1);
    hears.recv().unwrap();
    w.stop();
    assert_eq!(ended.recv().unwrap().err(), Some(Error::Stopped));
}

#[test]
fn hooks_are_told_in_order() {
    let w = worker();
    let tells = body(
        1,
        vec![
            instruction(Op::Add, &[0, 0]),
            instruction(Op::Hook(3), &[1]),
        ],
        vec![1],
    );
    let (_, hears, ended) = attend(&w, only(1, Op::Repeat(4, tells)), 1);
    let made = ended.recv().unwrap().unwrap();
    assert_eq!(read::<i32>(&w, &made[0]).unwrap(), [16]);
    for expected in [2, 4, 8, 16] {
        let Said::Hook(3, values) = hears.recv().unwrap() else {
            panic!("not a hook");
        };
        assert_eq!(read::<i32>(&w, &values[0]).unwrap(), [expected]);
    }
}

#[test]
fn a_call_that_nobody_attends_fails() {
    let w = worker();
    let x = array(&w, &[], &[1i32]);
    let made = w.run(Arc::new(only(1, call())), inputs(&[&x])).unwrap();
    assert_eq!(
        read::<i32>(&w, &made[0]).unwrap_err().kind(),
        "invalid_argument"
    );
}

#[test]
fn a_loop_that_never_ends_is_over_when_its_worker_is_stopped() {
    // Elementwise, and with a step that is not.
    for op in [Op::Negative, Op::SumAxes(vec![], true)] {
        let w = worker();
        let x = array(&w, &[], &[1i32]);
        let always = body(1, vec![instruction(Op::Equal, &[0, 0])], vec![1]);
        let step = body(1, vec![instruction(op, &[0])], vec![1]);
        let program = only(1, Op::While(always, step));
        let made = w.run(Arc::new(program), inputs(&[&x])).unwrap().remove(0);
        let (reply, replied) = std::sync::mpsc::channel();
        let input = mlx::Input::new(made);
        w.call(
            move |_| input.get(),
            move |result| reply.send(result.err()).unwrap(),
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
        w.stop();
        let error = replied.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(error.unwrap().unwrap().kind(), "stopped");
    }
}
