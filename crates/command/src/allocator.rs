//! The global allocator of the command. It passes every call on to the allocator of the system. If the system refuses memory,
//! the command ends with a message and exit code 1 instead of an abort.
//!
//! A refused reservation ([`is_fallible`]) is returned to the caller, who reports an error. After any other refusal, `Vec::push` and
//! `Box::new` would abort the process by `handle_alloc_error`, whose hook is not stable in Rust. So the allocator itself writes
//! the message and ends the process, without allocating, destructors or unwinding, as a kill does, which `--resume` can handle.
//!
//! The library sets a flag of the thread during a reservation: the size of an allocation could not replace this flag,
//! because dependencies also make large allocations whose callers cannot handle a refusal.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use unpadded::reserve::is_fallible;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// Returns `memory`, the system's answer to a request for `bytes` bytes; ends the process if null and the caller cannot handle it.
fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !is_fallible() {
        end(Shortage::Bytes(bytes));
    }
    memory
}

// SAFETY: every method is the method of `System` with the same arguments, or does not return.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method, which is the contract of `System`.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        checked(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[derive(Clone, Copy)]
enum Shortage {
    Bytes(usize),
    Thread,
    /// Memory that the C library needs for itself.
    Library,
}

/// Writes the message about a refusal, of the first thread only, and ends the process with exit code 1.
fn end(shortage: Shortage) -> ! {
    static ENDS: AtomicBool = AtomicBool::new(false);
    if ENDS.swap(true, Ordering::Relaxed) {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
    let mut message = Message { bytes: [0; 512], length: 0 };
    match shortage {
        Shortage::Bytes(bytes) => {
            message.add(b"\nerror: memory: expected ");
            message.add_number(bytes);
            message.add(b" bytes more, got a refusal of the system; ");
        }
        Shortage::Thread => {
            message.add(b"\nerror: threads: expected memory and permission to start a thread, got a refusal of the system; ");
        }
        Shortage::Library => {
            message.add(b"\nerror: memory: expected memory for the C library, got a refusal of the system; ");
        }
    }
    message.add(
        b"lower `training.batch`, `model.hidden` or `memory`, shorten the longest lines, or raise the limit (`ulimit -v`, \
          `ulimit -u`, the memory of a container)\n",
    );
    write_and_exit(&message.bytes[..message.length])
}

struct Message {
    bytes: [u8; 512],
    length: usize,
}

impl Message {
    fn add(&mut self, text: &[u8]) {
        for (to, from) in self.bytes[self.length..].iter_mut().zip(text) {
            *to = *from;
            self.length += 1;
        }
    }

    fn add_number(&mut self, mut number: usize) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.add(&digits[first..]);
    }
}

/// Writes a message without the lock of `std::io::stderr`, which this thread may hold, and exits without the exit handlers.
#[cfg(unix)]
fn write_and_exit(message: &[u8]) -> ! {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        safe fn _exit(status: c_int) -> !;
        fn write(file: c_int, bytes: *const c_void, length: usize) -> isize;
    }
    // SAFETY: the slice has this pointer and this length.
    unsafe { write(2, message.as_ptr().cast(), message.len()) };
    _exit(1)
}

#[cfg(not(unix))]
fn write_and_exit(message: &[u8]) -> ! {
    use std::io::Write;
    drop(std::io::stderr().write_all(message));
    std::process::exit(1)
}

/// Prepares the process for a shortage of memory; called once, before anything else.
pub(super) fn prepare() {
    grow_stack();
    #[cfg(target_os = "linux")]
    catch_aborts();
    report_panics(std::panic::take_hook());
}

/// Reports panics by a hook, except a refused thread, which ends the process.
pub(super) fn report_panics(by: impl Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |panic| {
        if is_refusal(panic) {
            end(Shortage::Thread);
        }
        by(panic);
    }));
}

/// Makes the C library give large buffers back to the system when they are freed, and share its heaps between threads: otherwise, the
/// memory of a server would grow by the holes between the buffers of its requests.
#[cfg(all(feature = "serve", target_os = "linux", target_env = "gnu"))]
pub(super) fn keep_few_holes() {
    use std::ffi::c_int;
    const TRIM: c_int = -1;
    const MAP: c_int = -3;
    const HEAPS: c_int = -8;
    unsafe extern "C" {
        safe fn mallopt(option: c_int, value: c_int) -> c_int;
    }
    for (option, value) in [(TRIM, 1 << 20), (MAP, 1 << 18), (HEAPS, 2)] {
        mallopt(option, value);
    }
}

#[cfg(all(feature = "serve", not(all(target_os = "linux", target_env = "gnu"))))]
pub(super) fn keep_few_holes() {}

/// Handles the aborts of the C library. The C library aborts where it cannot return an error, for example when a thread
/// registers its first destructor.
/// If the system has no memory, an abort ends the process with a message, like any other refusal. Every other abort stays
/// an abort.
#[cfg(target_os = "linux")]
fn catch_aborts() {
    use std::ffi::{c_int, c_void};
    const SIGABRT: c_int = 6;
    const DEFAULT: usize = 0;
    const PRIVATE_AND_ANONYMOUS: c_int = 0x22;
    /// Number of bytes that the C library asks of the system at once, if its heap cannot grow.
    const HEAP: usize = 1 << 20;
    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
        fn raise(number: c_int) -> c_int;
        fn mmap(
            at: *mut c_void,
            length: usize,
            access: c_int,
            flags: c_int,
            file: c_int,
            from: i64,
        ) -> *mut c_void;
    }
    /// Calls only what a signal handler may call.
    extern "C" fn handle(_: c_int) {
        // SAFETY: the mapping is new, and nothing uses the mapping. If the system grants the mapping, the handler raises the
        // signal again with the default action. The signal is blocked until the handler returns, and then ends the process.
        unsafe {
            let memory = mmap(std::ptr::null_mut(), HEAP, 0, PRIVATE_AND_ANONYMOUS, -1, 0);
            if memory.addr() == usize::MAX {
                end(Shortage::Library);
            }
            signal(SIGABRT, DEFAULT);
            raise(SIGABRT);
        }
    }
    let handler: extern "C" fn(c_int) = handle;
    // SAFETY: the handler has the type that `signal` expects.
    unsafe { signal(SIGABRT, handler as usize) };
}

/// Returns whether a panic means that the system refused a thread. The standard library and `rayon` panic if a thread cannot be
/// started, or has no memory for its signal stack; their messages contain the number of the system's error.
fn is_refusal(panic: &PanicHookInfo<'_>) -> bool {
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    // Printing to a terminal that accepts no more output also fails with EAGAIN.
    !text.starts_with("failed printing to") && names_refusal(text)
}

/// Returns whether a text has the error number of EAGAIN or ENOMEM, which the standard library writes in two forms.
fn names_refusal(text: &str) -> bool {
    let again = if cfg!(target_os = "linux") { 11 } else { 35 };
    [again, 12].iter().any(|code| {
        text.contains(&format!("os error {code})")) || text.contains(&format!("Os {{ code: {code},"))
    })
}

/// Number of bytes of stack that are used once at the start.
const STACK: usize = 512 << 10;

/// Uses a large part of the stack once, so that the system provides the memory now. The stack of the main thread grows on
/// use; if the system had no memory for a later growth, a signal would end the process.
#[inline(never)]
fn grow_stack() {
    std::hint::black_box([0u8; STACK]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_need_no_memory() {
        let mut message = Message { bytes: [0; 512], length: 0 };
        message.add(b"a ");
        message.add_number(0);
        message.add_number(usize::MAX);
        assert_eq!(&message.bytes[..message.length], format!("a 0{}", usize::MAX).as_bytes());
        message.add(&[b'x'; 600]);
        assert_eq!(message.length, 512);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_refused_thread_is_known_by_its_error() {
        let [again, full] = [11, 12].map(std::io::Error::from_raw_os_error);
        assert!(names_refusal(&format!("failed: {again:?}")) && names_refusal(&format!("failed: {full}")));
        let missing = std::io::Error::from_raw_os_error(2);
        assert!(!names_refusal(&format!("{missing:?} {missing}")));
    }
}
