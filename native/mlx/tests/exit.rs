//! The end of a process while workers compute (A1-70). Oracle: its exit status.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx::{Op, Program};

const CHILD: &str = "MLX_TEST_EXITS";
/// Longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the test of that name again, in a process that is told of it, and sees how that ends.
fn ends(test: &str, told: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, told.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{test} {told} does not end");
        }
        sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(7), "{status}");
}

fn told() -> Option<u64> {
    std::env::var(CHILD).ok()?.parse().ok()
}

#[test]
fn exits_cleanly_while_workers_compute() {
    if told().is_some() {
        compute_and_exit();
    }
    for _ in 0..5 {
        ends("exits_cleanly_while_workers_compute", 0);
    }
}

/// What a worker has begun goes on in MLX's own thread, and OpenBLAS's, when the worker is gone.
#[test]
fn exits_cleanly_while_what_a_worker_began_is_computed() {
    if let Some(delay) = told() {
        drop_and_exit(Duration::from_millis(delay));
    }
    for delay in (4..=32).step_by(4) {
        ends("exits_cleanly_while_what_a_worker_began_is_computed", delay);
    }
}

fn drop_and_exit(delay: Duration) -> ! {
    let size = 1500;
    for stopped in [false, true] {
        let w = worker();
        let x = array(
            &w,
            &[size, size],
            &vec![0.5f32; size as usize * size as usize],
        );
        let program = Program::new(1, vec![instruction(Op::Matmul, &[0, 0])], vec![1]).unwrap();
        let made = w.run(Arc::new(program), inputs(&[&x])).unwrap();
        // It begins what is posted once there is nothing else to do.
        sleep(delay);
        if stopped {
            w.stop();
        }
        drop((made, x, w));
    }
    sleep(Duration::from_millis(1));
    std::process::exit(7);
}

fn compute_and_exit() -> ! {
    let workers = [worker(), worker()];
    for w in &workers {
        let x = array(w, &[256, 256], &vec![0.5f32; 256 * 256]);
        let chain = (0..2000)
            .map(|i| instruction(Op::Matmul, &[i, i]))
            .collect();
        let program = Arc::new(Program::new(1, chain, vec![2000]).unwrap());
        let made = w.run(program, inputs(&[&x])).unwrap();
        let input = mlx::Input::new(made[0].clone());
        w.call(move |_| input.get()?.eval(), |_| ());
        std::mem::forget(made);
    }
    sleep(Duration::from_millis(5));
    std::process::exit(7);
}
