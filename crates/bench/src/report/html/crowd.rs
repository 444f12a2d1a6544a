//! Many clients of one server: what each of them got, beside an equal share.

use super::escape::cut;
use super::group::Found;
use super::palette::Palette;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, WIDTH};
use super::units::Unit;
use super::versus::times;

/// More are a bar.
const CLIENTS_MAX: usize = 512;
const ROW: f64 = 36.0;

/// The shares of clients, a row for each protocol and number of clients; none where no row has any.
pub(super) fn draw(rows: &[Found], palette: &Palette) -> Option<String> {
    let lines: Vec<(&Found, Vec<f64>)> =
        rows.iter().map(|found| (found, shares(found))).filter(|(_, shares)| !shares.is_empty()).collect();
    let (left, right) = (8.0, WIDTH - 8.0);
    let all = lines.iter().flat_map(|(_, shares)| shares).copied().chain((!lines.is_empty()).then_some(2.0));
    let scale = Scale::from_zero(all, left + 8.0, right - 8.0)?;
    let bottom = ROW * lines.len() as f64 + 8.0;
    let mut canvas = Canvas::new(WIDTH, bottom + 26.0, "what each client got, by an equal share (1)");
    canvas.lower_axis(&scale, [18.0, bottom], Unit::Plain, &scale.ticks(5));
    canvas.line([scale.place(1.0), 18.0], [scale.place(1.0), bottom], "one");
    for (number, (found, shares)) in lines.iter().enumerate() {
        let (y, row) = (ROW * number as f64 + 28.0, found.row);
        let look = palette.look(&row.protocol);
        canvas.line([left, y], [right, y], "track");
        let clients = row.load.clients.unwrap_or_default();
        let label = format!("{}, {clients} clients", cut(&row.protocol, 24));
        canvas.text([left, y - 10.0], Anchor::Start, "name", &label);
        let fairness = row.by_client.as_ref().map(|clients| clients.fairness.median);
        let number = fairness.map_or("–".to_owned(), |fairness| format!("fairness {}", times(fairness)));
        canvas.text([right, y - 10.0], Anchor::End, "number", &number);
        shares.iter().take(CLIENTS_MAX).for_each(|share| canvas.dot([scale.place(*share), y], look));
    }
    Some(canvas.finish())
}

/// What each client got by what it would have got of equal shares, over all repetitions.
fn shares(found: &Found) -> Vec<f64> {
    let Some(clients) = &found.row.by_client else { return Vec::new() };
    let of_repetition = |messages: &Vec<u64>| {
        let sum: f64 = messages.iter().map(|count| *count as f64).sum();
        let equal = sum / messages.len().max(1) as f64;
        let share = move |count: &u64| if equal > 0.0 { *count as f64 / equal } else { 0.0 };
        messages.iter().map(share).collect::<Vec<f64>>()
    };
    clients.messages.iter().flat_map(of_repetition).collect()
}
