//! Pieces of a page: sections, cards, tables.

/// A table that scrolls within itself where the screen is narrow; cells are HTML already.
pub(super) fn table(heading: &[&str], body: &str) -> String {
    let heading: String = heading.iter().map(|name| format!(r#"<th scope="col">{name}</th>"#)).collect();
    format!(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="table"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>"#
    )
}

/// A line of a table; its first cell names it.
pub(super) fn table_row(cells: &[String]) -> String {
    let cell = |(number, text): (usize, &String)| match number {
        0 => format!(r#"<th scope="row">{text}</th>"#),
        _ => format!("<td>{text}</td>"),
    };
    format!("<tr>{}</tr>", cells.iter().enumerate().map(cell).collect::<String>())
}

/// A picture with what it shows, and what stands below it.
pub(super) fn card(heading: &str, picture: &str, below: &str) -> String {
    let below = if below.is_empty() { String::new() } else { format!("<figcaption>{below}</figcaption>") };
    format!(r#"<figure class="card"><h4>{heading}</h4>{picture}{below}</figure>"#)
}

/// What is there for who wants it.
pub(super) fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{summary}</summary>{body}</details>")
}

/// A list of sentences; nothing of none.
pub(super) fn list(class: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{item}</li>")).collect();
    format!(r#"<ul class="{class}">{items}</ul>"#)
}
