//! Runs that the calling process attends: it is told of hooks, answers calls, and waits for the end.

use mlx::program::ProgramRef;
use mlx::{Attendant, Error, Inputs, Promises, Result, Worker};
use rustler::{Encoder, Env, LocalPid, Monitor, Resource, ResourceArc, Term};

use crate::nif::array::has_pressure;
use crate::nif::program::operands;
use crate::reply::Caller;
use crate::terms::{ArrayRef, Failure, WorkerRef, atoms};

/// A run by its number. Given up when the process that attends it dies.
pub struct RunRef {
    worker: Worker,
    number: u64,
}

#[rustler::resource_impl]
impl Resource for RunRef {
    fn down<'a>(&'a self, _env: Env<'a>, _pid: LocalPid, _monitor: Monitor) {
        self.worker.abandon(self.number);
    }
}

/// Sends `{reference, {:hook, id, [array]}}` and `{reference, {:call, id, [array]}}`.
struct Messenger {
    caller: Caller,
    run: ResourceArc<RunRef>,
}

impl Attendant for Messenger {
    fn hook(&self, id: u32, values: Promises) -> bool {
        let arrays = arrays(values, &self.run.worker);
        self.caller
            .tell(|env| (atoms::hook(), id, arrays).encode(env))
    }

    fn call(&self, id: u32, values: Promises) -> bool {
        let arrays = arrays(values, &self.run.worker);
        self.caller
            .tell(|env| (atoms::call(), id, arrays).encode(env))
    }
}

fn arrays(promises: Promises, worker: &Worker) -> Vec<ResourceArc<ArrayRef>> {
    let array = |promise| ArrayRef::new(promise, worker);
    promises.into_iter().map(array).collect()
}

/// Runs a program, tells the caller of hooks and calls, and answers with its results.
#[rustler::nif]
fn program_attend_async<'a>(
    env: Env<'a>,
    reference: Term<'a>,
    worker: Option<ResourceArc<WorkerRef>>,
    program: ResourceArc<ProgramRef>,
    inputs: Vec<ResourceArc<ArrayRef>>,
) -> Term<'a> {
    let (worker, inputs) = match operands(&program.0, worker.as_deref(), &inputs) {
        // Its thread may be busy with another worker by now.
        Ok(Some((worker, _))) if worker.is_stopped() => {
            return Failure(program.0.failure(Error::Stopped)).encode(env);
        }
        Ok(Some((worker, inputs))) => (worker.clone(), inputs),
        Ok(None) => return atoms::scattered().encode(env),
        Err(error) => return Failure(error).encode(env),
    };
    let (teller, waiter) = (Caller::new(env, reference), Caller::new(env, reference));
    let mut run = None;
    let attendant = |number| -> Box<dyn Attendant + Send> {
        let made = ResourceArc::new(RunRef {
            worker: worker.clone(),
            number,
        });
        run = Some(made.clone());
        Box::new(Messenger {
            caller: teller,
            run: made,
        })
    };
    let results = worker.clone();
    worker.attend(program.0.clone(), inputs, attendant, move |done| {
        waiter.reply(done.map(|promises| arrays(promises, &results)));
    });
    let Some(run) = run else {
        return Failure(Error::invalid("run", "it was not begun")).encode(env);
    };
    env.monitor(&run, &env.pid());
    (atoms::ok(), run).encode(env)
}

/// Whether the calling process is to collect its garbage, which whoever attends a run is told by this
/// alone.
#[rustler::nif]
fn run_pressure(env: Env, run: ResourceArc<RunRef>) -> bool {
    has_pressure(&run.worker, env.pid())
}

/// Answers the call that a run waits for. `:ok`, or `:scattered` where some of the arrays are another
/// worker's and not known to be computed.
#[rustler::nif]
fn run_answer<'a>(
    env: Env<'a>,
    run: ResourceArc<RunRef>,
    arrays: Vec<ResourceArc<ArrayRef>>,
) -> Term<'a> {
    let inputs: Result<Option<Inputs>> =
        arrays.iter().map(|array| array.lent(&run.worker)).collect();
    let Some(inputs) = inputs.transpose() else {
        return atoms::scattered().encode(env);
    };
    run.worker.answer(run.number, inputs);
    atoms::ok().encode(env)
}

/// Has a run fail, whose caller cannot answer. `{:error, ...}` for the run's reference follows.
#[rustler::nif]
fn run_abandon(run: ResourceArc<RunRef>) -> rustler::Atom {
    run.worker.answer(run.number, Err(Error::Cancelled));
    run.worker.abandon(run.number);
    atoms::ok()
}
