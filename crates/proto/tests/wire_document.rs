//! The code cites protocol.md by section: each section that is cited exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Section numbers after each `prefix` in `text`.
fn sections<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
    text.match_indices(prefix).map(move |(at, _)| {
        let rest = &text[at + prefix.len()..];
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        number.trim_end_matches('.').to_owned()
    })
}

fn read_tree(dir: &Path, cited: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_tree(&path, cited);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source is text");
            cited.extend(sections(&text, "protocol.md §"));
        }
    }
}

#[test]
fn every_cited_section_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/protocol.md")).expect("the document is there");
    let headings: BTreeSet<String> =
        ["\n## ", "\n### "].iter().flat_map(|prefix| sections(&document, prefix)).collect();
    let mut cited = BTreeSet::new();
    read_tree(&root.join("src"), &mut cited);
    assert!(cited.len() > 10, "citations are found at all");
    let missing: Vec<_> = cited.difference(&headings).collect();
    assert!(missing.is_empty(), "cited but not there: {missing:?}");
}
