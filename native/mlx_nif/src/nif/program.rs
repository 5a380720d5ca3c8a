//! Programs, run from a term at once or built first.

use std::sync::Arc;

use mlx::program::ProgramRef;
use mlx::{Busy, Dtype, Error, Inputs, Instruction, Program, Promises, Result, Shape, Worker};
use rustler::{Binary, Encoder, Env, ListIterator, ResourceArc, Term};

use super::array::{handles, has_pressure};
use crate::terms::{ArrayRef, Failure, WorkerRef, atoms, reason};

/// Decodes and runs instructions: an eager operation. `[array]`, `{:pressure, [array]}`, `:busy`,
/// `:scattered` (the operands belong to different workers) or an error.
#[rustler::nif]
fn run<'a>(
    env: Env<'a>,
    worker: Option<ResourceArc<WorkerRef>>,
    instructions: Term<'a>,
    outputs: Vec<u32>,
    inputs: Vec<ResourceArc<ArrayRef>>,
) -> Term<'a> {
    let program = build(inputs.len(), instructions, outputs, Program::new).map(Arc::new);
    posted(
        env,
        program.and_then(|p| post(&p, worker.as_deref(), &inputs)),
    )
}

/// Checks instructions once, to be run many times. The inputs are given by their number, or by
/// their types and shapes, which each run then checks. A label comes back with the failures of runs.
/// Unless it is to fuse them, every instruction is left to MLX as it is.
#[rustler::nif(schedule = "DirtyCpu")]
fn program_new<'a>(
    env: Env<'a>,
    inputs: Term<'a>,
    instructions: Term<'a>,
    outputs: Vec<u32>,
    label: Option<Binary<'a>>,
    fuse: bool,
) -> Term<'a> {
    let new = if fuse { Program::new } else { Program::whole };
    let built = match inputs.decode::<usize>() {
        Ok(count) => build(count, instructions, outputs, new),
        Err(_) => signature(inputs).and_then(|signature| {
            let program = build(signature.len(), instructions, outputs, new)?;
            Ok(program.with_signature(signature))
        }),
    };
    let built = built.map(|program| match label {
        Some(label) => program.with_label(Arc::from(label.as_slice())),
        None => program,
    });
    match built {
        Ok(program) => (atoms::ok(), ResourceArc::new(ProgramRef(Arc::new(program)))).encode(env),
        Err(error) => Failure(error).encode(env),
    }
}

/// Runs a program. Answers as `run` does.
#[rustler::nif]
fn program_run<'a>(
    env: Env<'a>,
    worker: Option<ResourceArc<WorkerRef>>,
    program: ResourceArc<ProgramRef>,
    inputs: Vec<ResourceArc<ArrayRef>>,
) -> Term<'a> {
    posted(env, post(&program.0, worker.as_deref(), &inputs))
}

type Row = (String, Vec<&'static str>, usize);

/// The op table, `[{name, [attribute], outputs}]`, and the element types.
#[rustler::nif]
fn op_table() -> (Vec<Row>, Vec<Dtype>) {
    let rows = mlx::Op::TABLE.iter().map(|(name, attributes, outputs)| {
        (mlx::ops::snake_case(name), attributes.to_vec(), *outputs)
    });
    (rows.collect(), Dtype::ALL.to_vec())
}

/// The operations that a function of ours computes on a CPU.
#[rustler::nif]
fn hosted() -> Vec<String> {
    let names = mlx::Op::HOSTED.iter();
    names.map(|name| mlx::ops::snake_case(name)).collect()
}

fn signature(inputs: Term) -> Result<Vec<(Dtype, Shape)>> {
    let list: ListIterator = inputs
        .decode()
        .map_err(|_| Error::invalid("program", "inputs must be a list of {type, shape}"))?;
    list.enumerate()
        .map(|(index, term)| {
            term.decode().map_err(|error| {
                let reason = because(error);
                Error::invalid(
                    "program",
                    format!("input {index} is not a type and a shape: {term:?}{reason}"),
                )
            })
        })
        .collect()
}

fn because(error: rustler::Error) -> String {
    reason(error).map_or_else(String::new, |reason| format!(" ({reason})"))
}

type New = fn(usize, Vec<Instruction>, Vec<u32>) -> Result<Program>;

fn build(inputs: usize, instructions: Term, outputs: Vec<u32>, new: New) -> Result<Program> {
    let list: ListIterator = instructions
        .decode()
        .map_err(|_| Error::invalid("program", "instructions must be a list"))?;
    let instructions = list
        .enumerate()
        .map(|(index, term)| {
            term.decode::<Instruction>().map_err(|error| {
                let reason = because(error);
                Error::invalid(
                    "program",
                    format!("instruction {index} is not one of the op table: {term:?}{reason}"),
                )
            })
        })
        .collect::<Result<_>>()?;
    new(inputs, instructions, outputs)
}

enum Posted {
    Promises(Promises, Worker),
    Busy,
    /// The operands belong to different workers.
    Scattered,
}

fn post(
    program: &Arc<Program>,
    worker: Option<&WorkerRef>,
    inputs: &[ResourceArc<ArrayRef>],
) -> Result<Posted> {
    let Some((worker, operands)) = operands(program, worker, inputs)? else {
        return Ok(Posted::Scattered);
    };
    Ok(match worker.run(program.clone(), operands) {
        Ok(promises) => Posted::Promises(promises, worker.clone()),
        Err(Busy) => Posted::Busy,
    })
}

/// The worker of a run and its operands, or nothing where some of these are another worker's and not
/// known to be computed. A run happens on the worker that is named if an operand is on its device,
/// and else where the first operand is.
pub fn operands<'a>(
    program: &Program,
    worker: Option<&'a WorkerRef>,
    inputs: &'a [ResourceArc<ArrayRef>],
) -> Result<Option<(&'a Worker, Inputs)>> {
    let named = worker.map(|named| &named.0);
    let worker = match (inputs.first(), named) {
        (None, None) => return Err(Error::invalid("run", "no worker was named")),
        (None, Some(named)) => named,
        (Some(first), None) => &first.worker,
        (Some(first), Some(named)) => {
            let device = named.device();
            let near = |array: &ResourceArc<ArrayRef>| array.worker.device() == device;
            if inputs.iter().any(near) {
                named
            } else {
                &first.worker
            }
        }
    };
    if program.inputs() != inputs.len() {
        let (wanted, found) = (program.inputs(), inputs.len());
        return Err(Error::invalid(
            "run",
            format!("the program takes {wanted} arrays, and {found} were given"),
        ));
    }
    let operands: Result<Option<Inputs>> = inputs.iter().map(|array| array.lent(worker)).collect();
    Ok(operands?.map(|operands| (worker, operands)))
}

fn posted(env: Env, posted: Result<Posted>) -> Term {
    match posted {
        Ok(Posted::Promises(promises, worker)) => {
            handles(env, promises, &worker, has_pressure(&worker, env.pid()))
        }
        Ok(Posted::Busy) => atoms::busy().encode(env),
        Ok(Posted::Scattered) => atoms::scattered().encode(env),
        Err(error) => Failure(error).encode(env),
    }
}
