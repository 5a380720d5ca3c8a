//! Answers to callers that wait.

use mlx::Result;
use rustler::env::SavedTerm;
use rustler::{Encoder, Env, LocalPid, OwnedEnv, Term};

use crate::terms::{Failure, atoms};

/// A process that waits for a message tagged by a reference it made.
pub struct Caller {
    env: OwnedEnv,
    reference: SavedTerm,
    pid: LocalPid,
}

impl Caller {
    /// The calling process and its reference.
    pub fn new(env: Env, reference: Term) -> Self {
        let owned = OwnedEnv::new();
        let reference = owned.save(reference);
        let pid = env.pid();
        Self {
            env: owned,
            reference,
            pid,
        }
    }

    /// Sends `{reference, {:ok, value}}` or `{reference, {:error, failure}}`. From a thread that is
    /// not the BEAM's.
    pub fn reply<T: Encoder>(self, result: Result<T>) {
        self.reply_with(result, |env, value| value.encode(env));
    }

    /// As [`Caller::reply`], for values that become terms only in the message's environment.
    pub fn reply_with<T>(
        mut self,
        result: Result<T>,
        encode: impl for<'a> FnOnce(Env<'a>, T) -> Term<'a>,
    ) {
        let reference = self.reference;
        // The only failure is that the caller is no longer alive, and then nobody waits.
        let _ = self.env.send_and_clear(&self.pid, |env| {
            let answer = match result {
                Ok(value) => (atoms::ok(), encode(env, value)).encode(env),
                Err(error) => Failure(error).encode(env),
            };
            (reference.load(env), answer).encode(env)
        });
    }

    /// Sends `{reference, message}` ahead of the reply, and answers whether the caller is there.
    pub fn tell(&self, message: impl for<'a> FnOnce(Env<'a>) -> Term<'a>) -> bool {
        let sent = OwnedEnv::new().send_and_clear(&self.pid, |env| {
            let reference = self.env.run(|held| self.reference.load(held).in_env(env));
            (reference, message(env)).encode(env)
        });
        sent.is_ok()
    }
}
