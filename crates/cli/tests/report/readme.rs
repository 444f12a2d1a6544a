//! README's table is what the documents in docs/results give.

use std::path::{Path, PathBuf};

/// What stands between the two marks of README.
fn table_of(readme: &str) -> &str {
    let (_, behind) = readme.split_once("<!-- figures: ").expect("README has a mark where its figures begin");
    let (_, behind) = behind.split_once("-->\n").expect("the mark ends");
    behind.split_once("<!-- end of figures -->").expect("README has a mark where its figures end").0.trim()
}

#[test]
fn readme_has_the_table_that_its_documents_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README can be read");
    let folder = std::fs::read_dir(root.join("docs/results")).expect("docs/results can be read");
    let mut documents: Vec<PathBuf> = folder.map(|entry| entry.expect("an entry").path()).collect();
    documents.sort();
    assert!(documents.len() >= 10, "{documents:?}");
    let paths: Vec<&str> = documents.iter().map(|path| path.to_str().expect("UTF-8")).collect();
    let output = super::report(&[&["--markdown"], paths.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", super::said(&output));
    let table = String::from_utf8(output.stdout).expect("a table is UTF-8");
    assert_eq!(
        table_of(&readme),
        table.trim(),
        "run `scripts/figures.sh none`: README and docs/results differ"
    );
    for document in &documents {
        let text = std::fs::read_to_string(document).expect("a document");
        assert!(text.len() < 200_000 && text.contains("\"command\":[\"polyrail\""), "{}", document.display());
    }
}
