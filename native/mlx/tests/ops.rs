//! Operations. Oracle: values computed by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::sync::Arc;

use mlx::ops::Bytes;
use mlx::{Dtype, Op, Program, Shape};

fn shape(dims: &[i64]) -> Shape {
    Shape::new(dims.to_vec()).unwrap()
}

#[test]
fn elementwise_and_broadcast() {
    let w = worker();
    let a = array(&w, &[2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let b = array(&w, &[2], &[10f32, 20.0]);
    assert_eq!(
        value::<f32>(&w, Op::Add, &[&a, &b]).unwrap(),
        [11.0, 22.0, 13.0, 24.0]
    );
    assert_eq!(
        value::<f32>(&w, Op::Subtract, &[&b, &a]).unwrap(),
        [9.0, 18.0, 7.0, 16.0]
    );
    assert_eq!(
        value::<f32>(&w, Op::Square, &[&a]).unwrap(),
        [1.0, 4.0, 9.0, 16.0]
    );
    let less = run(&w, Op::Less, &[&a, &b]).remove(0);
    assert_eq!(
        value::<u8>(&w, Op::Astype(Dtype::Uint8), &[&less]).unwrap(),
        [1, 1, 1, 1]
    );
    let c = array(&w, &[2, 2], &[-1f32; 4]);
    assert_eq!(
        value::<f32>(&w, Op::Where, &[&less, &c, &a]).unwrap(),
        [-1.0; 4]
    );
}

#[test]
fn shapes() {
    let w = worker();
    let a = array(&w, &[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let t = |op| value::<i32>(&w, op, &[&a]).unwrap();
    assert_eq!(t(Op::TransposeAxes(vec![1, 0])), [1, 4, 2, 5, 3, 6]);
    assert_eq!(t(Op::Reshape(shape(&[3, 2]))), [1, 2, 3, 4, 5, 6]);
    assert_eq!(t(Op::Flip(vec![1])), [3, 2, 1, 6, 5, 4]);
    assert_eq!(
        t(Op::Slice(vec![0, 1], vec![2, 3], vec![1, 1])),
        [2, 3, 5, 6]
    );
    assert_eq!(t(Op::BroadcastTo(shape(&[2, 2, 3]))).len(), 12);
    let v = array(&w, &[], &[9i32]);
    let padded = value::<i32>(&w, Op::Pad(vec![1], vec![1], vec![0]), &[&a, &v]).unwrap();
    assert_eq!(padded, [9, 1, 2, 3, 9, 4, 5, 6]);
    let joined = value::<i32>(&w, Op::ConcatenateAxis(1), &[&a, &a]).unwrap();
    assert_eq!(joined, [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
    let strided = t(Op::AsStrided(shape(&[2, 2]), vec![1, 2], 1));
    assert_eq!(strided, [2, 4, 3, 5]);
}

#[test]
fn overlapping_views_are_reduced_as_they_are() {
    let w = worker();
    // Rows of 7, windows of two elements, two apart: 5 places per row, which two do not divide.
    let values: Vec<i64> = (0..14).collect();
    let a = array(&w, &[2, 7], &values);
    let view = Op::AsStrided(shape(&[2, 5, 2]), vec![7, 1, 2], 0);
    let windows = run(&w, view, &[&a]).remove(0);
    let sums = value::<i64>(&w, Op::SumAxes(vec![2], false), &[&windows]).unwrap();
    assert_eq!(sums, [2, 4, 6, 8, 10, 16, 18, 20, 22, 24]);
    // Every element is every row's.
    let view = Op::AsStrided(shape(&[3, 4]), vec![0, 1], 1);
    let rows = run(&w, view, &[&a]).remove(0);
    let sums = value::<i64>(&w, Op::SumAxes(vec![0], false), &[&rows]).unwrap();
    assert_eq!(sums, [3, 6, 9, 12]);
}

#[test]
fn reductions_scans_and_order() {
    let w = worker();
    let a = array(&w, &[2, 3], &[3f32, 1.0, 2.0, 6.0, 5.0, 4.0]);
    let t = |op| value::<f32>(&w, op, &[&a]).unwrap();
    assert_eq!(t(Op::SumAxes(vec![0], false)), [9.0, 6.0, 6.0]);
    assert_eq!(t(Op::ProdAxes(vec![0, 1], false)), [720.0]);
    assert_eq!(t(Op::MaxAxes(vec![1], true)), [3.0, 6.0]);
    assert_eq!(t(Op::SortAxis(1)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(
        t(Op::Cumsum(1, false, true)),
        [3.0, 4.0, 6.0, 6.0, 11.0, 15.0]
    );
    assert_eq!(
        value::<u32>(&w, Op::ArgmaxAxis(1, false), &[&a]).unwrap(),
        [0, 0]
    );
    assert_eq!(
        value::<u32>(&w, Op::ArgsortAxis(1), &[&a]).unwrap(),
        [1, 2, 0, 2, 1, 0]
    );
}

#[test]
fn products() {
    let w = worker();
    let a = array(&w, &[2, 2], &[1f32, 2.0, 3.0, 4.0]);
    assert_eq!(
        value::<f32>(&w, Op::Matmul, &[&a, &a]).unwrap(),
        [7.0, 10.0, 15.0, 22.0]
    );
    let dot = value::<f32>(&w, Op::Tensordot(vec![0], vec![0]), &[&a, &a]).unwrap();
    assert_eq!(dot, [10.0, 14.0, 14.0, 20.0]);
}

#[test]
fn convolutions() {
    let w = worker();
    let x = array(&w, &[1, 4, 1], &[1f32, 2.0, 3.0, 4.0]);
    let kernel = array(&w, &[1, 2, 1], &[1f32, 10.0]);
    let conv = |kernel_dilation, input_dilation, groups, flip| {
        let (one, none) = (vec![1], vec![0]);
        Op::ConvGeneral(
            one,
            none.clone(),
            none,
            kernel_dilation,
            input_dilation,
            groups,
            flip,
        )
    };
    let plain = value::<f32>(&w, conv(vec![1], vec![1], 1, false), &[&x, &kernel]).unwrap();
    assert_eq!(plain, [21.0, 32.0, 43.0]);
    let x = array(&w, &[1, 4, 1], &[1f64, 2.0, 3.0, 4.0]);
    let kernel = array(&w, &[1, 2, 1], &[1f64, 10.0]);
    let plain = value::<f64>(&w, conv(vec![1], vec![1], 1, false), &[&x, &kernel]).unwrap();
    assert_eq!(plain, [21.0, 32.0, 43.0]);
    let dilated = value::<f64>(&w, conv(vec![2], vec![1], 1, false), &[&x, &kernel]).unwrap();
    assert_eq!(dilated, [31.0, 42.0]);
    let dilated = value::<f64>(&w, conv(vec![1], vec![2], 1, false), &[&x, &kernel]).unwrap();
    assert_eq!(dilated, [1.0, 20.0, 2.0, 30.0, 3.0, 40.0]);
    // What is left to MLX is what it has for this type.
    for _ in 0..100 {
        let flipped = conv(vec![1], vec![1], 1, true);
        assert_eq!(
            failure(&w, flipped, &[&x, &kernel]).kind(),
            "invalid_argument"
        );
    }
}

#[test]
fn decompositions_make_several_arrays() {
    let w = worker();
    let a = array(&w, &[2, 2], &[2f32, 0.0, 0.0, 3.0]);
    let made = run(&w, Op::Eigh(true), &[&a]);
    assert_eq!(read::<f32>(&w, &made[0]).unwrap(), [2.0, 3.0]);
    let made = run(&w, Op::Svd, &[&a]);
    assert_eq!(read::<f32>(&w, &made[1]).unwrap(), [3.0, 2.0]);
    let made = run(&w, Op::Lu, &[&a]);
    assert_eq!(read::<u32>(&w, &made[0]).unwrap(), [0, 1]);
    assert_eq!(run(&w, Op::Qr, &[&a]).len(), 2);
}

#[test]
fn what_a_decomposition_would_fail_on_makes_nan_however_often() {
    let w = worker();
    let singular = array(&w, &[2, 2], &[0f32; 4]);
    let nan = array(&w, &[2, 2], &[f32::NAN; 4]);
    let fine = array(&w, &[2], &[1f32, 2.0]);
    let all_nan = |op, operands: &[&_]| {
        let made = value::<f32>(&w, op, operands).unwrap();
        assert!(made.iter().all(|element| element.is_nan()), "{made:?}");
    };
    // MLX's own scheduler is stuck after some dozens of failures.
    for _ in 0..100 {
        all_nan(Op::Inv, &[&singular]);
        all_nan(Op::Cholesky(false), &[&singular]);
        all_nan(Op::SolveTriangular(false), &[&singular, &fine]);
        for op in [Op::Inv, Op::Svd, Op::Eigh(true), Op::Qr, Op::Cholesky(true)] {
            all_nan(op, &[&nan]);
        }
    }
    let regular = array(&w, &[2, 2], &[2f32, 0.0, 0.0, 4.0]);
    assert_eq!(
        value::<f32>(&w, Op::Inv, &[&regular]).unwrap(),
        [0.5, 0.0, 0.0, 0.25]
    );
    assert_eq!(
        value::<f32>(&w, Op::Cholesky(false), &[&array(&w, &[1, 1], &[4f32])]).unwrap(),
        [2.0]
    );
}

#[test]
fn factors_of_single_rows_and_columns_stay_within_their_buffers() {
    let w = worker();
    for _ in 0..500 {
        for dims in [[1, 1], [1, 3], [3, 1]] {
            let values = vec![2f64; (dims[0] * dims[1]) as usize];
            let lower = run(&w, Op::Lu, &[&array(&w, &dims, &values)]).remove(1);
            assert_eq!(read::<f64>(&w, &lower).unwrap()[0], 1.0);
        }
    }
}

#[test]
fn integer_division_never_signals() {
    let w = worker();
    let a = array(&w, &[4], &[7i32, -7, i32::MIN, 5]);
    let b = array(&w, &[4], &[2i32, 0, -1, -1]);
    assert_eq!(
        value::<i32>(&w, Op::FloorDivide, &[&a, &b]).unwrap(),
        [3, -1, i32::MIN, -5]
    );
    assert_eq!(
        value::<i32>(&w, Op::Remainder, &[&a, &b]).unwrap(),
        [1, -7, 0, 0]
    );
    let a = array(&w, &[2], &[7u8, 9]);
    let b = array(&w, &[2], &[0u8, 2]);
    assert_eq!(
        value::<u8>(&w, Op::FloorDivide, &[&a, &b]).unwrap(),
        [255, 4]
    );
    assert_eq!(value::<u8>(&w, Op::Remainder, &[&a, &b]).unwrap(), [7, 1]);
    // False is a zero, to bools and to others; fused and not.
    let holds = run(&w, Op::Astype(Dtype::Bool), &[&b]).remove(0);
    for new in [Program::new, Program::whole] {
        let divided = |op: Op, a, b| {
            let program = new(2, vec![instruction(op, &[0, 1])], vec![2]).unwrap();
            let made = w.run(Arc::new(program), inputs(&[a, b])).unwrap();
            contents(&w, &made[0]).unwrap().2
        };
        assert_eq!(divided(Op::FloorDivide, &a, &holds), [255, 9]);
        assert_eq!(divided(Op::Remainder, &a, &holds), [7, 0]);
        assert_eq!(divided(Op::Remainder, &holds, &b), [0, 1]);
        assert_eq!(divided(Op::FloorDivide, &holds, &holds), [1, 1]);
        assert_eq!(divided(Op::Remainder, &holds, &holds), [0, 0]);
    }
}

#[test]
fn indices_outside_are_clamped() {
    let w = worker();
    let a = array(&w, &[3, 2], &[0f32, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let wild = array(&w, &[3], &[-5i64, 1, i64::MAX]);
    let rows = value::<f32>(&w, Op::TakeAxis(0), &[&a, &wild]).unwrap();
    assert_eq!(rows, [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let huge = array(&w, &[1], &[u64::MAX]);
    let rows = value::<f32>(&w, Op::Gather(vec![0], vec![1, 2]), &[&a, &huge]).unwrap();
    assert_eq!(rows, [20.0, 21.0]);
    let start = array(&w, &[1], &[100i32]);
    let tail = value::<f32>(&w, Op::SliceDynamic(vec![0], vec![2, 2]), &[&a, &start]).unwrap();
    assert_eq!(tail, [10.0, 11.0, 20.0, 21.0]);
    let along = array(&w, &[1, 2], &[7i32, -7]);
    let picked = value::<f32>(&w, Op::TakeAlongAxis(0), &[&a, &along]).unwrap();
    assert_eq!(picked, [20.0, 1.0]);
    let float = array(&w, &[1], &[1f32]);
    assert_eq!(
        failure(&w, Op::TakeAxis(0), &[&a, &float]).kind(),
        "invalid_argument"
    );
}

#[test]
fn attributes_that_would_leave_the_array_are_refused() {
    let w = worker();
    let a = array(&w, &[3, 2], &[0f32, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let update = array(&w, &[1, 2], &[5f32, 6.0]);
    let start = array(&w, &[1], &[2i32]);
    let starts = array(&w, &[2], &[2i32, 2]);
    let refused = |op, operands: &[&std::sync::Arc<mlx::Promise>]| {
        assert_eq!(failure(&w, op, operands).kind(), "invalid_argument");
    };
    refused(Op::SliceUpdateDynamic(vec![-1]), &[&a, &update, &start]);
    refused(Op::SliceUpdateDynamic(vec![0, 0]), &[&a, &update, &starts]);
    refused(Op::SliceDynamic(vec![0], vec![1, 3]), &[&a, &start]);
    refused(Op::SliceDynamic(vec![0], vec![-1, 2]), &[&a, &start]);
    refused(Op::Gather(vec![0], vec![-1, 2]), &[&a, &start]);
    refused(Op::Slice(vec![0, 0], vec![3, 2], vec![1, 0]), &[&a]);
    refused(Op::SliceUpdate(vec![0], vec![1], vec![1]), &[&a, &update]);
    let value = array(&w, &[], &[9f32]);
    refused(Op::Pad(vec![5], vec![1], vec![0]), &[&a, &value]);
    let none = vec![];
    let conv = Op::ConvGeneral(
        none.clone(),
        none.clone(),
        none.clone(),
        none.clone(),
        none,
        0,
        false,
    );
    refused(conv, &[&a, &a]);
}

#[test]
fn constants_are_exact() {
    let w = worker();
    let bytes = Bytes(u64::MAX.to_ne_bytes().to_vec());
    let made = value::<u64>(&w, Op::Constant(Dtype::Uint64, bytes), &[]).unwrap();
    assert_eq!(made, [u64::MAX]);
    let short = Op::Constant(Dtype::Uint64, Bytes(vec![1]));
    assert_eq!(failure(&w, short, &[]).kind(), "invalid_argument");
}

#[test]
fn f64_keeps_its_precision() {
    let w = worker();
    let a = array(&w, &[1], &[0.1f64]);
    assert_eq!(value::<f64>(&w, Op::Add, &[&a, &a]).unwrap(), [0.2]);
}

#[test]
fn what_is_wrong_is_said_by_the_operation() {
    let w = worker();
    let a = array(&w, &[2], &[1f32, 2.0]);
    let b = array(&w, &[3], &[1f32, 2.0, 3.0]);
    let error = failure(&w, Op::Add, &[&a, &b]);
    assert_eq!((error.kind(), error.op()), ("native", Some("Add")));
    assert_eq!(error.operands(), Some("f32[2], f32[3]"));
    assert!(error.to_string().contains("broadcast"), "{error}");
    assert_eq!(failure(&w, Op::Add, &[&a]).kind(), "invalid_argument");
    let view = Op::AsStrided(shape(&[2]), vec![1], 1);
    assert_eq!(failure(&w, view, &[&a]).kind(), "invalid_argument");
    let huge = Op::BroadcastTo(shape(&[1 << 20, 1 << 20, 2]));
    assert_eq!(failure(&w, huge, &[&a]).kind(), "out_of_memory");
    assert_eq!(
        failure(&w, Op::SumAxes(vec![5], false), &[&a]).kind(),
        "native"
    );
}

#[test]
fn shapes_are_checked_where_they_enter() {
    assert!(Shape::new(vec![1; 32]).is_ok());
    assert!(Shape::new(vec![1; 33]).is_err());
    assert!(Shape::new(vec![-1]).is_err());
    assert!(Shape::new(vec![1 << 40]).is_err());
    assert!(Shape::new(vec![1 << 30, 1 << 30, 1 << 30]).is_err());
}

#[test]
fn names_cross_the_border_in_snake_case() {
    assert_eq!(Op::FloorDivide.name(), "floor_divide");
    assert_eq!(Op::Log1p.name(), "log1p");
    let names: Vec<&str> = Op::TABLE.iter().map(|row| row.0).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn scans_and_orders_of_one_element_change_nothing() {
    let w = worker();
    let a = array(&w, &[3, 3], &[5i32, 4, 3, 5, 4, 3, 5, 4, 3]);
    let row = run(&w, Op::Flip(vec![0]), &[&a]).remove(0);
    let row = run(&w, Op::Slice(vec![2, 0], vec![3, 3], vec![1, 1]), &[&row]).remove(0);
    for op in [
        Op::Cumsum(0, false, true),
        Op::Cumprod(-2, true, true),
        Op::Cummax(0, false, true),
        Op::Cummin(0, false, true),
        Op::SortAxis(0),
    ] {
        assert_eq!(value::<i32>(&w, op, &[&row]).unwrap(), [5, 4, 3]);
    }
    let order = value::<u32>(&w, Op::ArgsortAxis(0), &[&row]).unwrap();
    assert_eq!(order, [0, 0, 0]);
    let before = value::<i32>(&w, Op::Cumsum(0, false, false), &[&row]).unwrap();
    assert_eq!(before, [0, 0, 0]);
    let along = value::<i32>(&w, Op::SortAxis(1), &[&row]).unwrap();
    assert_eq!(along, [3, 4, 5]);
}

#[test]
fn a_bool_of_another_byte_than_one_is_true() {
    let w = worker();
    for (byte, truth) in [(0, 0), (1, 1), (2, 1), (255, 1)] {
        let made = run(&w, Op::Constant(Dtype::Bool, Bytes(vec![byte])), &[]).remove(0);
        assert_eq!(bool_of(&w, &made), truth);
    }
}

fn bool_of(w: &mlx::Worker, made: &Arc<mlx::Promise>) -> u8 {
    value::<u8>(w, Op::View(Dtype::Uint8), &[made]).unwrap()[0]
}
