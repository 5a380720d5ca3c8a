//! Runs that nobody wants, and what is queued behind them. Oracle: what a caller can observe.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mlx::program::Body;
use mlx::{Alive, Array, Error, Input, Op, Program, Promise, Result, Worker};

/// While x == x, x is -x.
fn endless(w: &Worker, x: &Arc<Promise>) -> Arc<Promise> {
    let body = |op, operands: &[u32]| {
        Body(Arc::new(
            Program::new(1, vec![instruction(op, operands)], vec![1]).unwrap(),
        ))
    };
    let op = Op::While(body(Op::Equal, &[0, 0]), body(Op::Negative, &[0]));
    run(w, op, &[x]).remove(0)
}

fn answers_within(w: &Worker, limit: Duration) -> bool {
    let (reply, replied) = channel();
    w.call(
        |_| Ok(()),
        move |result: Result<()>| reply.send(result).unwrap(),
    );
    replied.recv_timeout(limit).is_ok()
}

const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_only_queued_runs_want_that_nobody_wants_is_given_up() {
    let w = worker();
    let x = array(&w, &[1], &[1f32]);
    let forever = endless(&w, &x);
    // A diamond on top of each other, which has a path for each subset of its steps.
    let mut last = forever.clone();
    for _ in 0..500 {
        let next = run(&w, Op::Add, &[&last, &last]).remove(0);
        last.close();
        w.release(std::mem::replace(&mut last, next));
    }
    assert!(!answers_within(&w, Duration::from_millis(200)));
    last.close();
    assert!(answers_within(&w, SOON));
    assert_eq!(forever.get().unwrap_err(), Error::Deallocated);
    assert_eq!(last.get().unwrap_err(), Error::Cancelled);
}

#[test]
fn what_is_wanted_through_many_runs_goes_on() {
    let w = worker();
    let x = array(&w, &[1], &[1f32]);
    let forever = endless(&w, &x);
    let user = run(&w, Op::Negative, &[&forever]).remove(0);
    let unused = run(&w, Op::Negative, &[&forever]).remove(0);
    forever.close();
    unused.close();
    let alive = Arc::new(AtomicBool::new(true));
    let waiter: Alive = {
        let alive = alive.clone();
        Arc::new(move || alive.load(Ordering::SeqCst))
    };
    let input = Input::waited_for(user.clone(), waiter);
    let (reply, replied) = channel();
    w.call(
        move |_| input.get().and_then(|array: Array| array.eval()),
        move |result| reply.send(result).unwrap(),
    );
    user.close();
    assert!(replied.recv_timeout(Duration::from_millis(300)).is_err());
    alive.store(false, Ordering::SeqCst);
    assert_eq!(replied.recv_timeout(SOON).unwrap(), Err(Error::Cancelled));
}

#[test]
fn what_was_looked_at_in_the_queue_is_done_in_order() {
    let w = worker();
    let x = array(&w, &[1], &[1f32]);
    let forever = endless(&w, &x);
    let user = run(&w, Op::Negative, &[&forever]).remove(0);
    forever.close();
    let (done, order) = channel();
    let posted = Instant::now();
    for index in 0..1000 {
        let done = done.clone();
        w.call(|_| Ok(()), move |_: Result<()>| done.send(index).unwrap());
        // Some come while the queue is looked through.
        if index % 100 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(posted.elapsed() > Duration::from_millis(100));
    assert!(order.try_recv().is_err());
    user.close();
    let seen: Vec<i32> = (0..1000)
        .map(|_| order.recv_timeout(SOON).unwrap())
        .collect();
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
}
