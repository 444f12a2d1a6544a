//! How long functions and files are.

use super::source::{Source, has_word};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 1_000;

/// Functions that were longer when the rule came: `path function lines`.
const KNOWN: &str = include_str!("long_functions.txt");

/// Functions that are too long and not known, or that no longer match their line in the list.
pub fn function_findings(sources: &[Source]) -> Vec<String> {
    let mut known: Vec<(String, usize)> =
        KNOWN.lines().filter(|line| !line.starts_with('#')).map(entry).collect();
    let mut findings = Vec::new();
    for source in sources {
        for function in functions(&source.code) {
            let name = format!("{} {}", source.path, function.name);
            let listed = known.iter().position(|(known_name, _)| *known_name == name);
            let Some(index) = listed else {
                if function.lines > FUNCTION_LINES_MAX {
                    let Function { name, line, lines } = function;
                    findings.push(format!("{}:{line}: {name} has {lines} lines; at most 70", source.path));
                }
                continue;
            };
            let (_, lines_known) = known.remove(index);
            findings.extend(compare(&name, function.lines, lines_known));
        }
    }
    findings.extend(known.iter().map(|(name, _)| format!("{name}: is gone; remove it from the list")));
    findings
}

/// Files that are too long.
pub fn file_findings(sources: &[Source]) -> Vec<String> {
    let lengths = sources.iter().map(|source| (&source.path, source.text.lines().count()));
    lengths
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect()
}

fn entry(line: &str) -> (String, usize) {
    let (name, lines) = line.rsplit_once(' ').expect("`path function lines`");
    (name.into(), lines.parse().expect("a number of lines"))
}

fn compare(name: &str, lines: usize, lines_known: usize) -> Option<String> {
    if lines > lines_known {
        Some(format!("{name}: grew from {lines_known} to {lines} lines"))
    } else if lines <= FUNCTION_LINES_MAX {
        Some(format!("{name}: is short now; remove it from the list"))
    } else if lines < lines_known {
        Some(format!("{name}: shrank to {lines} lines; lower its number in the list"))
    } else {
        None
    }
}

struct Function {
    name: String,
    /// Where it begins.
    line: usize,
    /// From `fn` to the closing brace.
    lines: usize,
}

/// Every function with a body, nested ones too.
fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (line, text) in (1..).zip(code.split_inclusive('\n')) {
        if has_word(text, "fn")
            && let Some((at, _)) = text.match_indices("fn ").find(|(at, _)| has_word(&text[*at..], "fn"))
            && let Some(lines) = body_lines(&code[offset + at..])
        {
            let name = text[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(Function { name, line, lines });
        }
        offset += text.len();
    }
    found
}

/// Lines from the beginning of `code` to the end of the first braced body; `None` if a semicolon comes first.
fn body_lines(code: &str) -> Option<usize> {
    let (mut nested, mut braces) = (0usize, 0usize);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => nested += 1,
            ')' | ']' => nested = nested.saturating_sub(1),
            ';' if nested == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(code[..at].matches('\n').count() + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let code = "trait T {\n    fn no_body(x: [u8; 4]);\n}\npub fn one() {}\nfn two<T>(a: T)\nwhere\n    T: X,\n{\n    if a { b }\n}\n";
    let measured: Vec<(String, usize, usize)> =
        functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(measured, [("one".into(), 4, 1), ("two".into(), 5, 6)]);
}

#[test]
fn a_listed_function_may_only_shrink() {
    assert!(compare("f", 81, 80).unwrap().contains("grew"));
    assert!(compare("f", 79, 80).unwrap().contains("lower"));
    assert!(compare("f", 70, 80).unwrap().contains("remove"));
    assert_eq!(compare("f", 80, 80), None);
}
