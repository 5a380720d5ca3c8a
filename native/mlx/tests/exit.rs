//! The end of a process while workers compute (A1-70). Oracle: its exit status.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::process::Command;
use std::sync::Arc;

use mlx::{Op, Program};

const CHILD: &str = "MLX_TEST_EXITS";

#[test]
fn exits_cleanly_while_workers_compute() {
    if std::env::var_os(CHILD).is_some() {
        compute_and_exit();
    }
    for _ in 0..5 {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["exits_cleanly", "--nocapture"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(7), "{status}");
    }
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
    std::thread::sleep(std::time::Duration::from_millis(5));
    std::process::exit(7);
}
