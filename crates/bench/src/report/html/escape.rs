//! Text of a document made harmless: a document may come from anywhere, and what stands in it must show as it stands there.

/// The longest name that is shown; what is longer is cut, for nobody reads it and a page has an edge.
const NAME_CHARS_MAX: usize = 60;
/// The longest note.
const NOTE_CHARS_MAX: usize = 600;

/// Text for an element or an attribute in quotes. Characters that would not show as themselves, those that turn the direction of
/// writing among them, become the sign for what cannot be shown.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(' '),
            c if is_hidden(c) => safe.push('\u{FFFD}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A name, not longer than a page bears; not yet escaped.
pub(super) fn name(text: &str) -> String {
    cut(text, NAME_CHARS_MAX)
}

/// A sentence of a document, escaped.
pub(super) fn note(text: &str) -> String {
    escape(&cut(text, NOTE_CHARS_MAX))
}

/// Not more than `most` characters; an ellipsis says where some are missing.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_markup_elsewhere_is_text_here() {
        assert_eq!(escape(r#"<script a="b" c='d'>&"#), "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;");
        assert_eq!(escape("a\u{202E}b\0c\nd"), "a\u{FFFD}b\u{FFFD}c d");
        assert_eq!(escape("größer · 10 µs"), "größer · 10 µs");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(cut("ääää", 3), "äää…");
        assert_eq!(cut("äää", 3), "äää");
        assert_eq!(name(&"x".repeat(1_000)).chars().count(), NAME_CHARS_MAX + 1);
    }
}
