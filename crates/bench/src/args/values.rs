//! Values of the command line: lists per link, sizes, lengths of time.

use crate::check::MESSAGE_BYTES_MIN;

/// Largest message that is measured: each side holds a few of them.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The largest payloads of one packet of 1500 bytes: Polyrail, TCP with timestamps, TCP, UDP, TIPC.
const PACKET_PAYLOADS: [usize; 5] = [1_432, 1_448, 1_460, 1_472, 1_476];

pub(super) fn seconds(name: &str, value: f64, least: f64) -> Result<u64, String> {
    if !(least..=3_600.0).contains(&value) {
        return Err(format!("{name} {value}: not within {least} to 3600 seconds"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within an hour, checked")]
    let ns = (value * 1e9) as u64;
    Ok(ns)
}

/// Sizes of messages from words: a number, `A..B` for powers of two from A to B, `mtu` for the largest payloads of one
/// packet. With `around`, each also less and more by so many bytes.
pub(super) fn sizes(words: &[String], around: Option<usize>, least: usize) -> Result<Vec<usize>, String> {
    let mut sizes = Vec::new();
    for word in words {
        for size in one_size(word)? {
            let distance = around.unwrap_or(0);
            sizes.extend([size.saturating_sub(distance).max(least.min(size)), size, size + distance]);
        }
    }
    if around.is_some() {
        sizes.sort_unstable();
    }
    sizes.dedup();
    match sizes.iter().find(|size| !(least..=MESSAGE_BYTES_MAX).contains(*size)) {
        Some(size) => Err(format!("--size {size}: not within {least} to {MESSAGE_BYTES_MAX} bytes")),
        None => Ok(sizes),
    }
}

fn one_size(word: &str) -> Result<Vec<usize>, String> {
    if word == "mtu" {
        return Ok(PACKET_PAYLOADS.to_vec());
    }
    let number = |text: &str| {
        let bytes =
            parse_bytes(text).map_err(|_| format!("--size {word}: `{text}` is no number of bytes"))?;
        usize::try_from(bytes).map_err(|_| format!("--size {word}: too large"))
    };
    let Some((first, last)) = word.split_once("..") else { return Ok(vec![number(word)?]) };
    let (first, last) = (number(first)?, number(last)?);
    if !(MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&first) || first > last || last > MESSAGE_BYTES_MAX {
        return Err(format!(
            "--size {word}: not within {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes, upwards"
        ));
    }
    Ok(std::iter::successors(Some(first), |size| Some(2 * size)).take_while(|&size| size <= last).collect())
}

pub(super) fn rates(text: &str, links: usize) -> Result<Vec<Option<u32>>, String> {
    let rates = text.split(':').map(|rate| match rate.parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(rate_mbit) => Ok(Some(rate_mbit)),
        Err(_) => Err(format!("--rate {text}: `{rate}` is no number of Mbit/s")),
    });
    per_link("--rate", text, rates.collect::<Result<_, _>>()?, links)
}

pub(super) fn losses(text: &str, links: usize) -> Result<Vec<f64>, String> {
    let losses = text.split(':').map(|loss| match loss.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("--loss {text}: `{loss}` is not within 0 to 100 percent")),
    });
    per_link("--loss", text, losses.collect::<Result<_, _>>()?, links)
}

/// The delays of the links in ms, empty where there are none; one set at least.
pub(super) fn delays(words: &[String], links: usize, nodes: usize) -> Result<Vec<Vec<f64>>, String> {
    if words.is_empty() {
        return Ok(vec![Vec::new()]);
    }
    if nodes > 2 {
        return Err(format!("--delay: the relay stands between two nodes, and here are {nodes}"));
    }
    let of_link = |text: &str, delay: &str| match delay.parse::<f64>() {
        Ok(ms) if (0.0..=1_000.0).contains(&ms) => Ok(ms),
        _ => Err(format!("--delay {text}: `{delay}` is not within 0 to 1000 ms")),
    };
    let of_all = |text: &String| {
        let delays: Vec<f64> = text.split(':').map(|delay| of_link(text, delay)).collect::<Result<_, _>>()?;
        let delays = per_link("--delay", text, delays, links)?;
        Ok(if delays.iter().all(|&ms| ms == 0.0) { Vec::new() } else { delays })
    };
    words.iter().map(of_all).collect()
}

/// One value for every link, or one for each.
fn per_link<T: Clone>(name: &str, text: &str, values: Vec<T>, links: usize) -> Result<Vec<T>, String> {
    match values.len() {
        1 => Ok(vec![values[0].clone(); links]),
        n if n == links => Ok(values),
        n => Err(format!("{name} {text}: {n} values for {links} links")),
    }
}

/// A number of bytes; K, M, G stand for powers of 1024.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().filter(|&number| number > 0 && number < 1 << (50 - shift));
    number.map(|number| number << shift).ok_or_else(|| format!("`{text}` is no number of bytes, such as 10G"))
}

pub(super) fn versus(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((first, second)) if !first.is_empty() && !second.is_empty() => Ok((first.into(), second.into())),
        _ => Err(format!("--vs {text}: write it as A:B")),
    }
}
