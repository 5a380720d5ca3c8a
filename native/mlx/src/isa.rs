//! Loops compiled for several instruction sets, of which the widest that the processor has is run.
//!
//! A loop is written once, without intrinsics: the compiler makes vector instructions of it where the
//! processor that it compiles for has them. Values are the same everywhere, but for functions that
//! ask whether a product and a sum can be had in one instruction.

/// A loop to be compiled for each instruction set. `run` is to be `inline(always)`: what it calls and
/// is not inlined there is compiled for every processor.
pub(crate) trait Job {
    /// Whether it computes so much for each element that the widest vectors are worth their code.
    const IS_HEAVY: bool = false;

    /// `FMA`: whether `mul_add` is one instruction.
    fn run<const FMA: bool>(self);
}

#[cfg(target_arch = "x86_64")]
mod levels {
    use std::sync::LazyLock;

    use super::Job;

    #[derive(Clone, Copy, PartialEq, PartialOrd)]
    enum Level {
        Plain,
        Avx2,
        Avx512,
    }

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
        match *LEVEL {
            Level::Plain => job.run::<false>(),
            // SAFETY: the processor has what the function is compiled for.
            Level::Avx512 if J::IS_HEAVY => unsafe { avx512(job) },
            // SAFETY: as above.
            Level::Avx2 | Level::Avx512 => unsafe { avx2(job) },
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
