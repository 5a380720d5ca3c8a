//! Memory that others name. Oracles: the memory itself, and the system's shared memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::*;

use std::process::Command;
use std::sync::Arc;

use mlx::{Array, Device, Dtype, Error, Input, Op, Promise, Result, Shape, Worker, pointer};

fn address(worker: &Worker, promise: &Arc<Promise>) -> Result<(usize, usize)> {
    let input = Input::new(promise.clone());
    call(worker, move |context| {
        pointer::address(&input, &context.streams)
    })
}

fn share(worker: &Worker, promise: &Arc<Promise>, permissions: u32) -> Result<String> {
    let input = Input::new(promise.clone());
    let (name, _) = call(worker, move |context| {
        pointer::share(&input, permissions, &context.streams)
    })?;
    Ok(name)
}

fn from_address(worker: &Worker, address: u64, len: i64) -> Result<Vec<u8>> {
    let shape = Shape::new(vec![len]).unwrap();
    call(worker, move |context| {
        let array = pointer::from_address(address, &shape, Dtype::Uint8, &context.streams)?;
        Ok(array.bytes(None, &context.streams)?.to_vec())
    })
}

fn from_shared(worker: &Worker, name: &str, len: i64) -> Result<Vec<u8>> {
    let (name, shape) = (name.to_owned(), Shape::new(vec![len]).unwrap());
    call(worker, move |context| {
        let array = pointer::from_shared(&name, &shape, Dtype::Uint8, &context.streams)?;
        Ok(array.bytes(None, &context.streams)?.to_vec())
    })
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.op()),
        ("invalid_argument", Some("from_pointer"))
    );
    error.to_string()
}

#[test]
fn an_address_is_that_of_the_rows_and_stays() {
    let w = worker();
    let x = array(&w, &[2, 3], &[1u8, 2, 3, 4, 5, 6]);
    let y = run(&w, Op::TransposeAxes(vec![1, 0]), &[&x]).remove(0);
    let (at, len) = address(&w, &y).unwrap();
    assert_eq!(len, 6);
    for _ in 0..50 {
        value::<u8>(&w, Op::Add, &[&y, &y]).unwrap();
    }
    // SAFETY: the array is held, and 6 bytes large.
    let there = unsafe { std::slice::from_raw_parts(at as *const u8, len) };
    assert_eq!(there, [1, 4, 2, 5, 3, 6]);
    assert_eq!(from_address(&w, at as u64, 6).unwrap(), [1, 4, 2, 5, 3, 6]);
    assert_eq!(address(&w, &y).unwrap(), (at, len));
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let w = worker();
    let page = 4096;
    // SAFETY: maps two pages wherever the system likes, and takes the second away.
    let start = unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            2 * page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        *start.cast::<u8>().add(page - 1) = 7;
        assert_eq!(libc::munmap(start.byte_add(page), page), 0);
        start as u64
    };
    let last = start + page as u64 - 1;
    assert_eq!(from_address(&w, last, 1).unwrap(), [7]);
    for (at, len) in [
        (last, 2),
        (start, page as i64 + 1),
        (0, 1),
        (u64::MAX, 1),
        (u64::MAX - 5, 4),
    ] {
        let message = message(from_address(&w, at, len));
        assert!(message.contains("Bad address"), "{message}");
    }
    assert_eq!(from_address(&w, 0, 0).unwrap(), []);
    assert_eq!(from_address(&w, last, 1).unwrap(), [7]);
}

#[test]
fn a_copy_larger_than_the_limit_is_refused_before_it_is_made() {
    let w = worker();
    let shape = Shape::new(vec![1 << 30, 1 << 20]).unwrap();
    let refused = call(&w, move |context| {
        pointer::from_address(0, &shape, Dtype::Uint8, &context.streams).map(|_| ())
    });
    assert!(matches!(
        refused,
        Err(Error::OutOfMemory {
            op: "from_pointer",
            ..
        })
    ));
}

#[test]
fn shared_memory_goes_with_the_array() {
    let (w, other) = (worker(), worker());
    let x = array(&w, &[4], &[1u8, 2, 3, 4]);
    let names = [share(&w, &x, 0o400).unwrap(), share(&w, &x, 0o600).unwrap()];
    assert_ne!(names[0], names[1]);
    for name in &names {
        assert_eq!(from_shared(&other, name, 4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(from_shared(&other, name, 2).unwrap(), [1, 2]);
        let message = message(from_shared(&other, name, 5));
        assert!(
            message.contains("has 4 bytes, and 5 are asked for"),
            "{message}"
        );
    }
    // Another place of the same array changes nothing.
    address(&w, &x).unwrap();
    assert_eq!(from_shared(&other, &names[0], 4).unwrap(), [1, 2, 3, 4]);
    w.release(x);
    call(&w, |_| Ok(())).unwrap();
    for name in &names {
        let message = message(from_shared(&other, name, 4));
        assert!(message.contains("No such file"), "{message}");
        assert!(message.contains("hold on to that tensor"), "{message}");
    }
}

#[test]
fn the_system_decides_who_opens_shared_memory() {
    let w = worker();
    let x = array(&w, &[1], &[1u8]);
    let name = share(&w, &x, 0).unwrap();
    let shape = Shape::new(vec![1]).unwrap();
    // Nothing is forbidden to root, so a thread of its own becomes somebody else.
    let denied = std::thread::spawn(move || {
        let streams = mlx::Streams::new(mlx::Device::Cpu).unwrap();
        #[cfg(target_os = "linux")]
        // SAFETY: changes the user of this thread, where that is root.
        unsafe {
            libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534)
        };
        pointer::from_shared(&name, &shape, Dtype::Uint8, &streams).map(|_| ())
    });
    let message = message(denied.join().unwrap());
    assert!(message.contains("Permission denied"), "{message}");
    assert!(message.contains(":permissions"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn permissions_are_those_asked_for() {
    use std::os::unix::fs::PermissionsExt;

    let w = worker();
    let x = array(&w, &[1], &[1u8]);
    for permissions in [0o400, 0o666, 0o640, 0] {
        let name = share(&w, &x, permissions).unwrap();
        let file = std::fs::metadata(format!("/dev/shm{name}")).unwrap();
        assert_eq!(file.permissions().mode() & 0o7777, permissions);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn names_of_other_things_are_refused() {
    let w = worker();
    let pipe = format!("/mlx-test-{}", std::process::id());
    let path = std::ffi::CString::new(format!("/dev/shm{pipe}")).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let refused = from_shared(&w, &pipe, 1);
    std::fs::remove_file(path.to_str().unwrap()).unwrap();
    assert!(message(refused).contains("is not shared memory"));

    let long = format!("/{}", "x".repeat(256));
    for name in ["", "/", "//a", "/a/b", "/../etc/passwd", "/a\0b", &long] {
        let message = message(from_shared(&w, name, 1));
        assert!(
            message.contains("is not a name of shared memory"),
            "{message}"
        );
    }
    for name in ["/.", "/..", ".."] {
        assert!(message(from_shared(&w, name, 1)).contains("shared memory"));
    }
}

#[test]
fn shared_memory_goes_with_the_process() {
    const CHILD: &str = "MLX_TEST_SHARES";
    if std::env::var_os(CHILD).is_some() {
        let w = worker();
        let x = array(&w, &[1], &[1u8]);
        println!("name={}=", share(&w, &x, 0o400).unwrap());
        std::process::exit(7);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["shared_memory_goes_with_the_process", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let output = String::from_utf8(output.stdout).unwrap();
    let name = output.split('=').nth(1).unwrap();
    assert!(name.starts_with("/mlx-"), "{output}");
    assert!(message(from_shared(&worker(), name, 1)).contains("No such file"));
}

fn detach(from: &Worker, promise: &Arc<Promise>) -> Result<Arc<Promise>> {
    let input = Input::new(promise.clone());
    let array: Array = call(from, move |context| {
        context.detach(&input.get()?, Device::Cpu)
    })?;
    Ok(Promise::ready(array))
}

#[test]
fn detached_arrays_are_any_workers() {
    let (a, b) = (worker(), worker());
    let x = array(&a, &[2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let y = run(&a, Op::TransposeAxes(vec![1, 0]), &[&x]).remove(0);
    let there = detach(&a, &y).unwrap();
    a.release(x);
    a.release(y);
    assert_eq!(read::<f32>(&b, &there).unwrap(), [1.0, 3.0, 2.0, 4.0]);
    let sum = run(&b, Op::Add, &[&there, &there]).remove(0);
    assert_eq!(read::<f32>(&b, &sum).unwrap(), [2.0, 6.0, 4.0, 8.0]);

    // A failure is the first one's.
    let (two, three) = (array(&a, &[2], &[1f32, 2.0]), array(&a, &[3], &[1f32; 3]));
    let bad = run(&a, Op::Add, &[&two, &three]).remove(0);
    let worse = run(&a, Op::Negative, &[&bad]).remove(0);
    let error = detach(&a, &worse).unwrap_err();
    assert_eq!((error.kind(), error.op()), ("native", Some("Add")));
}

#[test]
fn arrays_go_between_busy_workers() {
    let workers = [worker(), worker(), worker()];
    let threads: Vec<_> = (0..3)
        .map(|i| {
            let (from, to, next) = (
                workers[i].clone(),
                workers[(i + 1) % 3].clone(),
                workers[(i + 2) % 3].clone(),
            );
            std::thread::spawn(move || {
                for round in 0..200 {
                    let k = round as f32;
                    let x = array(&from, &[1000], &vec![k; 1000]);
                    let y = run(&from, Op::Add, &[&x, &x]).remove(0);
                    let there = detach(&from, &y).unwrap();
                    // Used here and there at once, and given up here before it is used up there.
                    let here = run(&from, Op::Multiply, &[&y, &x]).remove(0);
                    let product = run(&to, Op::Multiply, &[&there, &there]).remove(0);
                    from.release(y);
                    let further = detach(&to, &there).unwrap();
                    to.release(there);
                    let product = detach(&to, &product).unwrap();
                    let sum = value::<f32>(&next, Op::Add, &[&further, &product]).unwrap();
                    assert_eq!(sum, vec![2.0 * k + 4.0 * k * k; 1000]);
                    assert_eq!(read::<f32>(&from, &here).unwrap(), vec![2.0 * k * k; 1000]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_beginning_of_what_could_never_be_whole_is_read() {
    let w = worker();
    let before = mlx::memory::set_limit(1 << 45).unwrap();
    let x = array(&w, &[3, 1, 1], &[1u8, 2, 3]);
    let dims = Shape::new(vec![3, 1 << 20, 1 << 20]).unwrap();
    let huge = run(&w, Op::BroadcastTo(dims), &[&x]).remove(0);
    for wanted in [0, 1, 5, 1 << 20, (1 << 20) + 3] {
        let input = Input::new(huge.clone());
        let beginning = call(&w, move |context| {
            Ok(input.get()?.bytes(Some(wanted), &context.streams)?.to_vec())
        });
        assert_eq!(beginning.unwrap(), vec![1; wanted]);
    }
    mlx::memory::set_limit(before).unwrap();
    // The last row is begun in order.
    let x = array(&w, &[2, 3, 2], &(0..12).collect::<Vec<u8>>());
    let y = run(&w, Op::TransposeAxes(vec![2, 1, 0]), &[&x]).remove(0);
    let whole = read::<u8>(&w, &y).unwrap();
    for wanted in 0..=12 {
        let input = Input::new(y.clone());
        let beginning = call(&w, move |context| {
            Ok(input.get()?.bytes(Some(wanted), &context.streams)?.to_vec())
        });
        assert_eq!(beginning.unwrap(), whole[..wanted]);
    }
}
