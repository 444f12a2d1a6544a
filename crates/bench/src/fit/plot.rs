//! A curve and its lines as text: bytes to the right, time upwards, both by powers.

use super::bootstrap::Fitted;

const WIDTH: usize = 60;
const HEIGHT: usize = 12;

/// `o` is a size measured, `.` the model.
pub(super) fn plot(fitted: &Fitted) -> String {
    let sizes: Vec<f64> = fitted.residuals.iter().map(|one| one.size_bytes as f64).collect();
    let times = || fitted.residuals.iter().map(|one| one.measured_us);
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let low_us = times().fold(f64::INFINITY, f64::min);
    let high_us = times().fold(0.0, f64::max).max(low_us * 1.01);
    let place = |value: f64, low: f64, high: f64, steps: usize| {
        let share = ((value / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a few steps")]
        let step = (share * (steps - 1) as f64).round() as usize;
        step
    };
    let mut rows = vec![vec![' '; WIDTH]; HEIGHT];
    let modelled = |column: usize| {
        let bytes = first * (last / first).powf(column as f64 / (WIDTH - 1) as f64);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size measured, or between"
        )]
        let time = fitted.time_us(bytes.round() as usize);
        time.ok().filter(|time| time.value > 0.0).map(|time| (column, time.value))
    };
    for (column, time_us) in (0..WIDTH).filter_map(modelled) {
        rows[place(time_us, low_us, high_us, HEIGHT)][column] = '.';
    }
    for (bytes, time_us) in sizes.iter().zip(times()) {
        rows[place(time_us, low_us, high_us, HEIGHT)][place(*bytes, first, last, WIDTH)] = 'o';
    }
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate().rev() {
        let label = match number {
            0 => format!("{low_us:.1} us"),
            n if n == HEIGHT - 1 => format!("{high_us:.1} us"),
            _ => String::new(),
        };
        let row: String = row.iter().collect();
        text += &format!("  {label:>12} |{}\n", row.trim_end());
    }
    let ends = (format!("{first} B"), format!("{last} B"));
    let between = WIDTH.saturating_sub(ends.0.len());
    text += &format!("  {:>12} +{}\n", "", "-".repeat(WIDTH));
    text += &format!("  {:>12}  {}{:>between$}\n", "", ends.0, ends.1);
    text
}
