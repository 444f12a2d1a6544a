//! The project's Rust sources, and their code without comments and strings.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file.
pub struct Source {
    /// Path from the root of the project.
    pub path: String,
    /// The folder's name in `crates/`.
    pub package: String,
    /// Whether the whole file is tests, benches or examples.
    pub is_test: bool,
    /// As it stands.
    pub text: String,
    /// Comments and the insides of strings blanked, lines kept.
    pub code: String,
}

impl Source {
    /// The numbered lines of code before the file's tests, which stand last.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.code.find("#[cfg(test)]\nmod tests {").unwrap_or(self.code.len());
        self.code[..end].lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate lies in the project")
}

/// Every Rust file in `crates/`, by path.
pub fn all() -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root.join("crates"), &mut paths);
    paths.sort();
    paths.iter().map(|path| read(&root, path)).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let path = entry.expect("an entry of the project can be read").path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn read(root: &Path, path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("a source is UTF-8");
    let path = path.strip_prefix(root).expect("collected below the root").display().to_string();
    let parts: Vec<&str> = path.split('/').collect();
    Source {
        package: parts[1].into(),
        is_test: ["tests", "benches", "examples"].contains(&parts[2])
            || path.ends_with("tests.rs")
            || path.contains("/tests/"),
        code: blank(&text),
        text,
        path,
    }
}

/// Whether `word` stands in `line` and is not part of a longer word.
pub fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        let goes_on = word.ends_with(is_part) && after.starts_with(is_part);
        !line[..at].ends_with(is_part) && !goes_on
    })
}

/// Blanks comments and the insides of string and character literals; keeps every line break.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (end, hidden) = token(bytes, at);
        for &byte in &bytes[at..end] {
            out.push(if hidden && byte != b'\n' { b' ' } else { byte });
        }
        at = end;
    }
    String::from_utf8(out).expect("hidden bytes became spaces, the others are whole characters")
}

/// The end of what begins at `at`, and whether it is hidden.
fn token(bytes: &[u8], at: usize) -> (usize, bool) {
    let rest = &bytes[at..];
    let starts_word = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return (at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()), true);
    }
    if rest.starts_with(b"/*") {
        return (at + block_comment(rest), true);
    }
    if rest[0] == b'"' {
        return (at + quoted(rest, b'"'), true);
    }
    if starts_word && let Some(length) = raw_string(rest) {
        return (at + length, true);
    }
    if rest[0] == b'\'' && is_character(rest) {
        return (at + quoted(rest, b'\''), true);
    }
    (at + 1, false)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a raw string such as `r#"..."#` or `br"..."`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if rest.starts_with(b"br") || rest.starts_with(b"cr") { 2 } else { 1 };
    if prefix == 1 && rest[0] != b'r' {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let begin = prefix + hashes + 1;
    let length = rest[begin..].windows(end.len()).position(|window| window == end)?;
    Some(begin + length + end.len())
}

/// A character literal, not a lifetime: `'a'`, `'\n'`, `'é'`.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => rest.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    }
}

#[test]
fn comments_and_strings_are_blanked_and_lines_kept() {
    let text = "let a = \"fn \\\" {\"; // {\nlet b = r#\"{\"{\"#; /* { /* \n */ { */ let c = '{'; fn f<'a>(x: &'a str) {}";
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert!(code.contains("fn f<'a>(x: &'a str) {}"), "{code}");
}

#[test]
fn a_word_is_no_part_of_a_word() {
    assert!(has_word("let x = HashMap::new()", "HashMap"));
    assert!(has_word("std::time::Instant", "std::time"));
    assert!(!has_word("MyHashMap", "HashMap"));
    assert!(!has_word("HashMapLike", "HashMap"));
    assert!(has_word("dbg!(x)", "dbg!"));
}
