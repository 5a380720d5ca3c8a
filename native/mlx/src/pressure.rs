//! The wish that callers collect their garbage, which holds more memory than it seems to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Callers that are told of one wish; more are most likely short-lived.
const MOST: usize = 64;

/// A wish is told to each caller once, for any of them may hold most of it.
#[derive(Default)]
pub(crate) struct Pressure {
    raised: AtomicBool,
    told: Mutex<Vec<u64>>,
}

impl Pressure {
    pub(crate) fn raise(&self) {
        self.told().clear();
        self.raised.store(true, Ordering::Release);
    }

    /// Memory has shrunk.
    pub(crate) fn ease(&self) {
        self.raised.store(false, Ordering::Relaxed);
    }

    /// Whether a caller is to collect its garbage. `caller` answers a number of its own.
    pub(crate) fn take(&self, caller: impl FnOnce() -> u64) -> bool {
        if !self.raised.load(Ordering::Relaxed) {
            return false;
        }
        let (mut told, caller) = (self.told(), caller());
        if told.contains(&caller) {
            return false;
        }
        told.push(caller);
        if told.len() >= MOST {
            self.ease();
        }
        true
    }

    fn told(&self) -> MutexGuard<'_, Vec<u64>> {
        // A panic while it was held left it whole: every change is one call.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_is_told_once_of_each_wish() {
        let pressure = Pressure::default();
        let told = |caller| pressure.take(|| caller);
        assert!(!told(1));
        pressure.raise();
        assert_eq!(
            [told(1), told(2), told(1), told(2)],
            [true, true, false, false]
        );
        pressure.raise();
        assert!(told(1));
        pressure.ease();
        assert!(!told(2));
        pressure.raise();
        assert_eq!((0..1000).filter(|caller| told(*caller)).count(), MOST);
    }
}
