//! Workers: order, replies, stops, panics, bounds. Oracle: what a caller can observe.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use mlx::{Busy, Error, Op, Program};

#[test]
fn a_panic_is_the_jobs_and_the_worker_goes_on() {
    let w = worker();
    let error = call(&w, |_| -> mlx::Result<()> { panic!("ouch {}", 1) }).unwrap_err();
    assert_eq!(
        error,
        Error::Panic {
            message: "ouch 1".into()
        }
    );
    assert_eq!(call(&w, |_| Ok(1)).unwrap(), 1);
}

#[test]
fn a_panicking_reply_does_not_end_the_worker() {
    let w = worker();
    w.call(|_| Ok(()), |_| panic!("in the reply"));
    assert_eq!(call(&w, |_| Ok(1)).unwrap(), 1);
}

#[test]
fn a_stop_answers_all_that_is_queued_exactly_once() {
    let w = worker();
    let (started, has_started) = channel();
    let (go, may_go) = channel::<()>();
    w.call(
        move |_| {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            Ok(())
        },
        |_| (),
    );
    has_started.recv().unwrap();
    let replies = Arc::new(AtomicUsize::new(0));
    let (reply, replied) = channel();
    for _ in 0..100 {
        let (reply, replies) = (reply.clone(), replies.clone());
        w.call(
            |_| Ok(()),
            move |result| {
                replies.fetch_add(1, Ordering::SeqCst);
                reply.send(result).unwrap();
            },
        );
    }
    let promise = array(&w, &[1], &[1f32]);
    w.stop();
    go.send(()).unwrap();
    for _ in 0..100 {
        assert_eq!(replied.recv().unwrap(), Err(Error::Stopped));
    }
    assert_eq!(read::<f32>(&w, &promise).unwrap_err(), Error::Stopped);
    assert_eq!(replies.load(Ordering::SeqCst), 100);
}

#[test]
fn arrays_made_before_a_stop_say_so() {
    let w = worker();
    let a = array(&w, &[1], &[1f32]);
    read::<f32>(&w, &a).unwrap();
    w.stop();
    assert_eq!(read::<f32>(&w, &a).unwrap_err(), Error::Stopped);
}

#[test]
fn the_queue_is_bounded_by_instructions() {
    let w = worker();
    let (go, may_go) = channel::<()>();
    w.call(
        move |_| {
            may_go.recv().unwrap();
            Ok(())
        },
        |_| (),
    );
    let x = array(&w, &[1], &[1f32]);
    let chain = (0..1000).map(|i| instruction(Op::Negative, &[i])).collect();
    let program = Arc::new(Program::new(1, chain, vec![1000]).unwrap());
    let mut posted = 0;
    let last = loop {
        match w.run(program.clone(), inputs(&[&x])) {
            Ok(made) => posted += 1000 * made.len(),
            Err(Busy) => break posted,
        }
    };
    assert!((10_000..30_000).contains(&last), "{last}");
    go.send(()).unwrap();
    assert_eq!(call(&w, |_| Ok(1)).unwrap(), 1);
    assert!(w.run(program, inputs(&[&x])).is_ok());
}

#[test]
fn a_run_that_nobody_waits_for_is_given_up() {
    let w = worker();
    let (go, may_go) = channel::<()>();
    w.call(
        move |_| {
            may_go.recv().unwrap();
            Ok(())
        },
        |_| (),
    );
    let x = array(&w, &[1], &[1f32]);
    let dropped = run(&w, Op::Negative, &[&x]).remove(0);
    let used = run(&w, Op::Negative, &[&x]).remove(0);
    let user = run(&w, Op::Negative, &[&used]).remove(0);
    // As the NIF does where the last reference goes.
    dropped.close();
    used.close();
    go.send(()).unwrap();
    // What a job already posted reads is still made.
    assert_eq!(read::<f32>(&w, &user).unwrap(), [1.0]);
    assert_eq!(dropped.get().unwrap_err(), Error::Cancelled);
}

#[test]
fn workers_run_side_by_side() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let w = worker();
                for _ in 0..50 {
                    let a = array(&w, &[2], &[1f32, 2.0]);
                    let sum = value::<f32>(&w, Op::SumAxes(vec![0], false), &[&a]).unwrap();
                    assert_eq!(sum, [3.0]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let (ready, is_ready) = channel();
    let device = mlx::Device::Gpu(1000);
    let w = mlx::Worker::start(device, move |state| ready.send(state).unwrap()).unwrap();
    assert_eq!(
        is_ready.recv().unwrap().unwrap_err().kind(),
        "invalid_argument"
    );
    assert_eq!(call(&w, |_| Ok(())).unwrap_err(), Error::Stopped);
}

#[test]
fn deep_graphs_are_evaluated() {
    let w = worker();
    let chain = (0..100_000)
        .map(|i| instruction(Op::Negative, &[i]))
        .collect();
    let program = Program::new(1, chain, vec![100_000]).unwrap();
    let x = array(&w, &[1], &[1f32]);
    let made = w.run(Arc::new(program), inputs(&[&x])).unwrap();
    assert_eq!(read::<f32>(&w, &made[0]).unwrap(), [1.0]);
}

#[test]
fn a_thread_serves_one_worker_after_the_other() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let serve = || {
        let w = worker();
        let a = array(&w, &[2], &[1f32, 2.0]);
        let negated = run(&w, Op::Negative, &[&a]).remove(0);
        assert_eq!(read::<f32>(&w, &negated).unwrap(), [-1.0, -2.0]);
        // What this worker leaves unevaluated is not the next one's.
        run(&w, Op::Negative, &[&negated]);
    };
    (0..20).for_each(|_| serve());
    let before = threads();
    (0..300).for_each(|_| serve());
    // Other tests start threads of their own meanwhile.
    assert!(threads() < before + 200, "{} {before}", threads());
}

#[test]
fn a_thread_whose_worker_was_stopped_serves_the_next() {
    for _ in 0..50 {
        let w = worker();
        let a = array(&w, &[1], &[1f32]);
        w.stop();
        assert_eq!(read::<f32>(&w, &a).unwrap_err(), Error::Stopped);
        drop((w, a));
        let next = worker();
        let b = array(&next, &[1], &[2f32]);
        assert_eq!(read::<f32>(&next, &b).unwrap(), [2.0]);
    }
}

#[test]
fn arrays_that_are_known_to_be_computed_are_lent() {
    let (a, b) = (worker(), worker());
    let x = array(&a, &[1], &[1f32]);
    let y = run(&a, Op::Negative, &[&x]).remove(0);
    assert!(y.lend().is_none());
    let input = mlx::Input::new(y.clone());
    call(&a, move |_| {
        input.get()?.eval()?;
        input.note();
        Ok(())
    })
    .unwrap();
    let lent = y.lend().unwrap();
    let z = run(&b, Op::Negative, &[&lent]).remove(0);
    // It stays what it is for the borrower.
    y.close();
    a.release(y.clone());
    assert_eq!(call(&a, |_| Ok(1)).unwrap(), 1);
    assert!(y.lend().is_none());
    assert_eq!(read::<f32>(&b, &z).unwrap(), [1.0]);
    // One that was made from bytes is there at once.
    let made = array(&a, &[1], &[3f32]);
    call(&a, |_| Ok(())).unwrap();
    assert!(made.lend().is_some());
}
