//! What is freed and when, and the memory limit. Both are the whole process's, so these tests take
//! turns, and are alone in theirs.
//! Oracle: the counters of MLX, and values computed by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mlx::program::Body;
use mlx::{Busy, Dtype, Error, Op, Program, Promise, Worker, memory};

const MB: usize = 1_000_000;
/// Longer than freeing takes.
const PATIENCE: Duration = Duration::from_secs(60);

static TURNS: Mutex<()> = Mutex::new(());

/// Waits for its turn, and for what the test before leaves to its workers to free.
fn turn() -> MutexGuard<'static, ()> {
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    while memory::active() > MB {
        assert!(started.elapsed() < PATIENCE, "{} stay", memory::active());
        sleep(Duration::from_millis(1));
    }
    turn
}

/// The sum of as many negatives side by side: each fits the limit, all of them may not.
fn side_by_side(w: &Worker, x: &Arc<Promise>, count: u32) -> mlx::Result<Vec<f32>> {
    let mut steps: Vec<_> = (0..count).map(|i| instruction(Op::Sin, &[i])).collect();
    let made: Vec<u32> = (1..=count).collect();
    steps.push(instruction(Op::StackAxis(0), &made));
    steps.push(instruction(Op::SumAxes(vec![0, 1], false), &[count + 1]));
    let program = Program::whole(1, steps, vec![count + 2]).unwrap();
    let made = w.run(Arc::new(program), inputs(&[x])).unwrap();
    read(w, &made[0])
}

#[test]
fn nothing_is_had_beyond_the_limit_and_all_goes_on() {
    let _turn = turn();
    let w = worker();
    // 4 MB.
    let x = array(&w, &[MB as i64], &vec![0f32; MB]);
    assert_eq!(side_by_side(&w, &x, 2).unwrap(), [0.0]);
    let before = memory::active();
    let limit = memory::set_limit(30 * MB).unwrap();
    memory::reset_peak().unwrap();
    for _ in 0..100 {
        let error = side_by_side(&w, &x, 5).unwrap_err();
        assert_eq!(error.kind(), "out_of_memory", "{error:?}");
        assert!(matches!(error, Error::Exhausted { .. }), "{error:?}");
        assert!(error.to_string().contains("memory limit is 30000000"));
        assert_eq!(side_by_side(&w, &x, 2).unwrap(), [0.0]);
    }
    assert!(memory::peak() <= 30 * MB, "{}", memory::peak());
    // From bytes, and by others at the same time.
    let others: Vec<_> = (0..4).map(|_| worker()).collect();
    let held: Vec<_> = others
        .iter()
        .map(|w| array(w, &[2 * MB as i64], &vec![1f32; 2 * MB]))
        .collect();
    let refused = held.iter().zip(&others).filter(|(a, w)| {
        let read = read::<f32>(w, a);
        assert!(
            read.as_ref()
                .map_or_else(|e| e.kind() == "out_of_memory", |v| v[0] == 1.0)
        );
        read.is_err()
    });
    assert!((1..4).contains(&refused.count()));
    for (array, w) in held.into_iter().zip(&others) {
        w.release(array);
        call(w, |_| Ok(())).unwrap();
    }
    memory::set_limit(limit).unwrap();
    assert_eq!(side_by_side(&w, &x, 5).unwrap(), [0.0]);
    call(&w, |context| {
        context.settle();
        Ok(())
    })
    .unwrap();
    assert!(
        memory::active() <= before + 1000,
        "{} {before}",
        memory::active()
    );
}

#[test]
fn released_arrays_are_freed() {
    let _turn = turn();
    let w = worker();
    let before = memory::active();
    let big = array(&w, &[4 << 20], &vec![1f32; 4 << 20]);
    assert_eq!(read::<f32>(&w, &big).unwrap()[0], 1.0);
    assert!(memory::active() >= before + (16 << 20));
    w.release(big.clone());
    assert_eq!(read::<f32>(&w, &big).unwrap_err(), Error::Deallocated);
    assert!(memory::active() < before + (16 << 20));
}

#[test]
fn results_never_read_do_not_pile_up() {
    let _turn = turn();
    let w = worker();
    let x = array(&w, &[1 << 18], &vec![1f32; 1 << 18]);
    read::<f32>(&w, &x).unwrap();
    memory::reset_peak().unwrap();
    let before = memory::active();
    // 2000 results of 1 MiB, none read, each the next one's operand.
    let mut last = x;
    for _ in 0..2000 {
        let next = loop {
            match w.run(
                Arc::new(Program::new(1, vec![instruction(Op::Negative, &[0])], vec![1]).unwrap()),
                inputs(&[&last]),
            ) {
                Ok(mut made) => break made.remove(0),
                Err(Busy) => call(&w, |_| Ok(())).unwrap(),
            }
        };
        last.close();
        w.release(last);
        last = next;
    }
    assert_eq!(read::<f32>(&w, &last).unwrap()[0], 1.0);
    assert!(memory::peak() < before + (1 << 30), "{}", memory::peak());
}

#[test]
fn slots_are_dropped_after_their_last_use() {
    let _turn = turn();
    let w = worker();
    // A chain of 64 results of 4 MiB each: kept, they would take 256 MiB when what depends on the last
    // is asked for, in the middle of the run.
    let links = 64;
    let mut steps: Vec<_> = (0..links).map(|i| instruction(Op::Sin, &[i])).collect();
    steps.push(instruction(Op::Astype(Dtype::Bool), &[links]));
    steps.push(instruction(Op::AllAxes(vec![0], false), &[links + 1]));
    let part = || Body(Arc::new(Program::whole(1, vec![], vec![0]).unwrap()));
    steps.push(instruction(Op::If(part(), part()), &[links + 2, links]));
    let program = Program::whole(1, steps, vec![links + 3]).unwrap();
    let x = array(&w, &[1 << 20], &vec![0.5f32; 1 << 20]);
    read::<f32>(&w, &x).unwrap();
    memory::reset_peak().unwrap();
    let before = memory::active();
    let made = w.run(Arc::new(program), inputs(&[&x])).unwrap();
    read::<f32>(&w, &made[0]).unwrap();
    assert!(memory::peak() < before + (64 << 20), "{}", memory::peak());
}

#[test]
fn a_result_does_not_keep_the_much_that_its_operand_was_part_of() {
    let _turn = turn();
    let w = worker();
    let large = 32 << 20;
    let x = array(&w, &[large], &vec![1u8; large as usize]);
    let body = vec![
        instruction(Op::Slice(vec![0], vec![5], vec![1]), &[0]),
        instruction(Op::Negative, &[1]),
        instruction(Op::Square, &[2]),
    ];
    let program = Arc::new(Program::new(1, body, vec![3]).unwrap());
    let made: Vec<_> = (0..8)
        .map(|_| {
            let x = run(&w, Op::Add, &[&x, &x]).remove(0);
            let made = w.run(program.clone(), inputs(&[&x])).unwrap().remove(0);
            w.release(x);
            assert_eq!(read::<u8>(&w, &made).unwrap(), [4; 5]);
            made
        })
        .collect();
    assert!(memory::active() < 4 * large as usize);
    drop(made);
}

/// Kilobytes of the process for which the kernel is asked for large pages; `None` where it has none.
#[cfg(target_os = "linux")]
fn asked_for_large_pages() -> Option<usize> {
    std::fs::metadata("/sys/kernel/mm/transparent_hugepage").ok()?;
    let (mut size, mut all) = (0, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").ok()?.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => size = words.next()?.parse().ok()?,
            Some("VmFlags:") if words.any(|flag| flag == "hg") => all += size,
            _ => (),
        }
    }
    Some(all)
}

#[test]
#[cfg(target_os = "linux")]
fn large_arrays_have_large_pages() {
    let _turn = turn();
    if asked_for_large_pages().is_none() {
        return;
    }
    let w = worker();
    // 64 MB, into which pages of 2 MiB fit whole. Nothing else in the process asks for any.
    let x = array(&w, &[16 * MB as i64], &vec![1f32; 16 * MB]);
    assert_eq!(read::<f32>(&w, &x).unwrap().len(), 16 * MB);
    let asked = asked_for_large_pages().unwrap();
    assert!(asked >= 58_000, "{asked} kB");
}
