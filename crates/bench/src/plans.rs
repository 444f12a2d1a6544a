//! Plan files: several measurements under one name, and what was published about them, held against what is measured.
//!
//! A plan is a TOML file (docs/measuring.md, section 1.17). Its measurements have the options of `bench` as keys; its findings
//! say which rows are divided by which, what was published, and what decides. Those in `plans/` are part of the program.

mod evidence;
mod file;
mod finding;
mod place;
mod shipped;

pub(crate) use evidence::{FindingRow, Measured, Verdict, judge};
pub(crate) use file::{Overrides, PlanFile};
pub(crate) use finding::Figure;
pub(crate) use shipped::{names, text};
