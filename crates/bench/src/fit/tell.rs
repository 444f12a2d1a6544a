//! Models for a person at a terminal.

use std::fmt::Write;

use super::ask::{Model, Models};
use super::bootstrap::{Break, Interval, Piece};
use super::loggp::LogGp;
use super::plot::plot;
use crate::report::{columns, short};

pub(super) fn render(models: &Models, plots: bool) -> String {
    let mut text = String::new();
    for model in &models.models {
        one(&mut text, model, plots);
    }
    if !models.loggp.is_empty() {
        text.push_str("LogGP\n");
    }
    for parameters in &models.loggp {
        loggp(&mut text, parameters);
    }
    for refused in &models.refused {
        let _ = writeln!(text, "not fitted: {}: {}", refused.name(), refused.why);
    }
    models.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn one(text: &mut String, model: &Model, plots: bool) {
    let fitted = &model.fitted;
    let _ = writeln!(text, "{}", model.name());
    let heading = ["  bytes", "T_start us", "95 %", "Bw Mbit/s", "95 %"].map(str::to_owned);
    let rows: Vec<Vec<String>> = fitted.pieces.iter().map(piece).collect();
    columns(text, &heading, &rows);
    fitted.breaks.iter().for_each(|brk| text.push_str(&broken(brk)));
    let half = fitted.n_half_bytes.map_or("not within the sizes measured".to_owned(), bytes);
    let most = fitted.n_90_bytes.map_or("not within the sizes measured".to_owned(), bytes);
    let _ = writeln!(text, "  n_1/2 {half}; n_0.9 {most}");
    let preference =
        fitted.preference.map_or(String::new(), |by| format!(", better by {by:.0} than one piece fewer"));
    let _ = writeln!(text, "  lines miss the sizes by {:.1} %{preference}", fitted.misfit_percent);
    let heading =
        ["  size B", "measured us", "fitted us", "residual %", "error %", "samples"].map(str::to_owned);
    let residual = |one: &super::bootstrap::Residual| {
        let apart = if one.outliers > 0 { format!(", {} far off", one.outliers) } else { String::new() };
        vec![
            format!("  {}", one.size_bytes),
            short(one.measured_us),
            short(one.fitted_us),
            format!("{:+.1}", one.residual_percent),
            format!("{:.1}", one.error_percent),
            format!("{}{apart}", one.samples),
        ]
    };
    columns(text, &heading, &fitted.residuals.iter().map(residual).collect::<Vec<_>>());
    for one in &model.predicted {
        let said = match (&one.time_us, &one.refused) {
            (Some(time), _) => format!("{} B take {} us", one.size_bytes, interval(*time)),
            (None, why) => why.clone().unwrap_or_default(),
        };
        let _ = writeln!(text, "  {said}");
    }
    fitted.notes.iter().for_each(|note| text.push_str(&format!("  note: {note}\n")));
    if plots {
        text.push_str(&plot(fitted));
    }
    text.push('\n');
}

fn piece(piece: &Piece) -> Vec<String> {
    let range = |interval: Interval| match interval.high.is_finite() {
        true => format!("{} to {}", signed(interval.low), signed(interval.high)),
        false => format!("{} at least", signed(interval.low)),
    };
    let mbps = piece.bandwidth_mbps;
    let value = if piece.shows_bandwidth() { short(mbps.value) } else { "not seen".to_owned() };
    vec![
        format!("  {} to {}", piece.from_bytes, piece.to_bytes),
        signed(piece.t_start_us.value),
        range(piece.t_start_us),
        value,
        range(mbps),
    ]
}

fn broken(brk: &Break) -> String {
    let Interval { value, low, high } = brk.after_bytes;
    let spread = if low < high { format!(", within {low:.0} and {high:.0} in 95 %") } else { String::new() };
    format!("  breaks between {value:.0} and {} B{spread}\n", brk.before_bytes)
}

fn loggp(text: &mut String, parameters: &LogGp) {
    let known = [
        ("o of the sender", parameters.o_sender_us, "us"),
        ("o of the receiver", parameters.o_receiver_us, "us"),
        ("g", parameters.g_us, "us"),
        ("G", parameters.gap_ns_per_byte, "ns/B"),
        ("L", parameters.latency_us, "us"),
    ];
    let _ = writeln!(text, "  {}", parameters.name());
    for (name, value, unit) in known {
        if let Some(value) = value {
            let _ = writeln!(text, "    {name}: {} {unit}", interval(value));
        }
    }
    parameters.unknown.iter().for_each(|unknown| text.push_str(&format!("    not known: {unknown}\n")));
}

fn bytes(interval: Interval) -> String {
    let high = if interval.high.is_finite() { format!("{:.0}", interval.high) } else { "beyond".to_owned() };
    format!("{:.0} B ({:.0} to {high})", interval.value, interval.low)
}

fn interval(interval: Interval) -> String {
    format!("{} ({} to {})", signed(interval.value), signed(interval.low), signed(interval.high))
}

/// Four digits, also below zero.
fn signed(value: f64) -> String {
    if value < 0.0 { format!("-{}", short(-value)) } else { short(value) }
}
