//! The memory limit, which is the whole process's: so this test is alone in its own.
//! Oracle: the counters of MLX, and values computed by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;

use mlx::{Error, Op, Program, Promise, Worker, memory};

const MB: usize = 1_000_000;

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
