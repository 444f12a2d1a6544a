//! The plans that are part of the program.

/// A plan's name and its text.
macro_rules! plans {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../plans/", $name, ".toml")))),*]
    };
}

const PLANS: [(&str, &str); 8] = plans![
    "s1-buffers",
    "s1-transactions",
    "s2-sizes",
    "s2-datagrams",
    "mnc",
    "s4-bandwidth",
    "kernel-tipc",
    "never-slower",
];

/// Their names.
pub(crate) fn names() -> Vec<&'static str> {
    PLANS.iter().map(|(name, _)| *name).collect()
}

/// The text of the plan of this name.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    PLANS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
