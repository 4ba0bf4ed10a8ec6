//! The files of the arena and of views as they are, with stand-ins for the two crates that they use: Stacked Borrows
//! refuses rayon's queues, and of `half` only the size of its types counts.
#![allow(dead_code, non_camel_case_types, unsafe_code)]

extern crate self as half;

/// Two bytes, as the type of that name.
#[derive(Clone, Copy)]
pub struct f16(u16);

/// Two bytes, as the type of that name.
#[derive(Clone, Copy)]
pub struct bf16(u16);

pub(crate) mod reserve {
    /// Reserves memory for `more` items.
    pub(crate) fn fits_exactly<T>(vector: &mut Vec<T>, more: usize) -> bool {
        vector.try_reserve_exact(more).is_ok()
    }
}

#[path = "../../src/kernels"]
pub mod kernels {
    pub mod arena;
    pub mod view;

    pub(crate) mod fork {
        /// Runs two closures on two threads.
        pub(crate) fn join<A: Send, B: Send>(
            a: impl FnOnce() -> A + Send,
            b: impl FnOnce() -> B + Send,
        ) -> (A, B) {
            std::thread::scope(|threads| {
                let b = threads.spawn(b);
                let a = a();
                (a, b.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        }
    }
}
