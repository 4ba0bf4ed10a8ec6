//! The only place in the crate that calls rayon's `join`.
//!
//! `rayon::join` is generic over both closures and their results, so the compiler generates its scheduling and unwinding
//! code again for every pair of closures. [`join`] passes two `dyn` closures to `rayon::join`, so that the compiler
//! generates this code once.

/// Runs two closures and returns both results. If another thread of rayon's pool is idle, the two closures run at the same
/// time.
///
/// # Panics
/// If one of the closures panics; the panic is raised after both closures have ended.
#[inline]
pub fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut a, mut b) = (Side::Due(a), Side::Due(b));
    both(&mut a, &mut b);
    (a.done(), b.done())
}

#[inline(never)]
fn both(a: &mut dyn Run, b: &mut dyn Run) {
    rayon::join(|| a.run(), || b.run());
}

/// A closure that has not run yet, or the closure's result.
enum Side<F, R> {
    Due(F),
    Running,
    Done(R),
}

trait Run: Send {
    fn run(&mut self);
}

impl<R: Send, F: FnOnce() -> R + Send> Run for Side<F, R> {
    #[inline]
    fn run(&mut self) {
        if let Side::Due(f) = std::mem::replace(self, Side::Running) {
            *self = Side::Done(f());
        }
    }
}

impl<F, R> Side<F, R> {
    #[inline]
    fn done(self) -> R {
        match self {
            Side::Done(result) => result,
            _ => unreachable!("rayon runs both sides"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn both_results_come_back_in_their_order() {
        let mut halves = [1, 2];
        let [a, b] = &mut halves;
        let results = join(
            || {
                *a = 10;
                "first".to_owned()
            },
            || {
                *b = 20;
                2
            },
        );
        assert_eq!((results, halves), (("first".to_owned(), 2), [10, 20]));
    }

    #[test]
    #[should_panic(expected = "the second")]
    fn a_panic_comes_back() {
        join(|| (), || panic!("the second"));
    }
}
