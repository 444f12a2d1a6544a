//! Documents for people: reads them, and writes a page, a table or a smaller document.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{emit, keep};
use crate::advise::Advice;
use crate::args::ReportArgs;
use crate::report::{Measured, Page, REPORT_SCHEMA, Source, brief, markdown};

/// Does what is asked and gives the exit code: 0 written, 1 it could not be, 2 the documents cannot be shown.
pub(super) fn run(args: &ReportArgs, json: bool) -> i32 {
    let (text, code) = match told(args, json) {
        Ok(text) => (text, 0),
        Err((error, code)) => {
            eprintln!("polyrail bench report: {error}");
            (
                if json {
                    pretty(&json!({ "schema": REPORT_SCHEMA, "error": error }))
                } else {
                    String::new()
                },
                code,
            )
        }
    };
    if text.is_empty() { code } else { emit(text, code) }
}

fn told(args: &ReportArgs, json: bool) -> Result<String, (String, i32)> {
    let wrong = |error: String| (error, 2);
    let sources =
        args.files.iter().map(|path| Source::read(path)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if sources.iter().all(Source::is_empty) {
        let reason =
            sources.iter().find_map(Source::error).map_or(String::new(), |error| format!(" ({error})"));
        let names: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
        return Err(wrong(format!(
            "{}: no results{reason}: measure again, for example by `polyrail bench pingpong --placement intra --json > FILE`",
            names.join(", ")
        )));
    }
    if args.markdown {
        let text = markdown::render(&sources);
        return Ok(if json { pretty(&json!({ "schema": REPORT_SCHEMA, "markdown": text })) } else { text });
    }
    let is_input = |path: &Path| {
        let target = fs::canonicalize(path);
        target.is_ok_and(|target| {
            args.files.iter().any(|file| fs::canonicalize(file).is_ok_and(|f| f == target))
        })
    };
    let output = args.brief.as_deref().unwrap_or(&args.output);
    if is_input(output) {
        return Err(wrong(format!("{}: is one of the documents: name another file", output.display())));
    }
    if args.brief.is_some() {
        return write_brief(args, output, json);
    }
    let page = page(sources, Vec::new());
    if output == Path::new("-") {
        return Ok(page.render());
    }
    write(output, &page.render()).map_err(|error| (error, 1))?;
    if json {
        return Ok(pretty(&summary(output, &page)));
    }
    let warned = match page.warnings().len() {
        0 => String::new(),
        1 => "\n1 thing to know before you rely on it: the page says which".to_owned(),
        number => format!("\n{number} things to know before you rely on it: the page says which"),
    };
    Ok(format!("{} is written: open it in a browser{warned}", output.display()))
}

fn write_brief(args: &ReportArgs, output: &Path, json: bool) -> Result<String, (String, i32)> {
    let [file] = args.files.as_slice() else {
        let error = format!("--brief takes one document, not {}: call it once for each", args.files.len());
        return Err((error, 2));
    };
    let told = |error: String| (format!("{}: {error}", file.display()), 2);
    let bytes = fs::read(file).map_err(|error| told(error.to_string()))?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| told(error.to_string()))?;
    write(output, &brief::render(&document).map_err(told)?).map_err(|error| (error, 1))?;
    let output = output.display().to_string();
    Ok(if json {
        pretty(&json!({ "schema": REPORT_SCHEMA, "output": output }))
    } else {
        format!("{output} is written")
    })
}

/// The page of documents, with what they say of what to do.
pub(super) fn page(sources: Vec<Source>, left_out: Vec<String>) -> Page {
    let measured: Vec<Measured> = sources.iter().map(Source::samples).collect();
    let advice = Advice::sentences(&measured);
    Page::new(sources, advice, left_out)
}

/// Puts a page where it is to be, whole or not at all; the error is one line.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!(
            "{}: {error}: name another place by --output, in a folder that you may write to",
            path.display()
        )
    };
    keep::target(path).and_then(|target| keep::replace(&target, text)).map_err(failed)
}

/// What a page says, for programs.
fn summary(output: &Path, page: &Page) -> Value {
    let findings: Vec<Value> = page
        .sentences()
        .into_iter()
        .map(|(text, certainty)| json!({ "text": text, "certainty": certainty }))
        .collect();
    json!({
        "schema": REPORT_SCHEMA,
        "output": output.display().to_string(),
        "findings": findings,
        "warnings": page.warnings(),
    })
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
