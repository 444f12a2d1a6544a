//! Advice from what was measured: which protocol, which socket buffer, which size to aim at, whether a second link pays, how to
//! wait.
//!
//! Every question is the same one: of what was measured under conditions that differ in one thing only, which choice is best, and
//! is that more than chance? What is not shown to be worse than the best and is simpler is chosen: [`choice`] decides, and
//! [`question`] says what differs, what is simple, and which figure counts. What no document answers is named with the command
//! that would.

mod against;
mod ask;
mod choice;
mod longer;
mod question;
mod quick;
mod settings;
mod sizes;
mod tell;
#[cfg(test)]
mod tests;

pub(crate) use ask::Advice;
pub use ask::{ADVICE_SCHEMA, advise};
