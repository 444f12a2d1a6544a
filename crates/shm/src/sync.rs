//! The atomics everything here is built on: the core library's, or loom's when its models run.
//!
//! Nothing else in the crate names an atomic type by another path, so that a model checks the code that is shipped.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Tells the processor that this is a spin loop; under loom it lets the other threads run.
#[inline]
pub fn cpu_relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Keeps the compiler from having what follows done before what comes first; the processor may. Loom has nothing like it, and knows no
/// fence but a thread's own.
#[inline]
pub fn keep_order() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
