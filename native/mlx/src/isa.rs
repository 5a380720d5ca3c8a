//! Loops compiled for several instruction sets, of which the widest that the processor has is run.
//!
//! A loop is written once, without intrinsics: the compiler makes vector instructions of it where the
//! processor that it compiles for has them. Values are the same everywhere, but for functions that
//! ask whether a product and a sum can be had in one instruction.

/// Instruction sets, each with all of those before it.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
// Some processors have the least only.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) enum Level {
    /// What every processor has for which this is compiled.
    Plain,
    Avx2,
    Avx512,
}

/// A loop to be compiled for each instruction set. `run` is to be `inline(always)`: what it calls and
/// is not inlined there is compiled for every processor.
pub(crate) trait Job {
    /// The widest that is worth its code.
    const WIDEST: Level = Level::Avx2;

    /// `FMA`: whether `mul_add` is one instruction.
    fn run<const FMA: bool>(self);
}

#[cfg(target_arch = "x86_64")]
mod levels {
    use std::sync::LazyLock;

    use super::{Job, Level};

    static LEVEL: LazyLock<Level> = LazyLock::new(|| {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Level::Avx512,
            (true, false) => Level::Avx2,
            (false, _) => Level::Plain,
        }
    });

    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2<J: Job>(job: J) {
        job.run::<true>();
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    fn avx512<J: Job>(job: J) {
        job.run::<true>();
    }

    #[inline]
    pub(super) fn run<J: Job>(job: J) {
        // What is never chosen is not compiled.
        if const { matches!(J::WIDEST, Level::Avx512) } && *LEVEL == Level::Avx512 {
            // SAFETY: the processor has what the function is compiled for.
            unsafe { avx512(job) }
        } else if const { !matches!(J::WIDEST, Level::Plain) } && *LEVEL >= Level::Avx2 {
            // SAFETY: as above.
            unsafe { avx2(job) }
        } else {
            job.run::<false>();
        }
    }
}

/// Runs a loop.
#[inline]
pub(crate) fn run<J: Job>(job: J) {
    #[cfg(target_arch = "x86_64")]
    levels::run(job);
    // Where vectors of the least processor are all there is, it has them, and FMA.
    #[cfg(not(target_arch = "x86_64"))]
    job.run::<{ cfg!(target_arch = "aarch64") }>();
}
