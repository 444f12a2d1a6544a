//! Colours and marks of protocols: one colour for a protocol all over the page, from a palette that colour-blind people can tell
//! apart, and a mark beside it for those who see no colour at all.

use std::collections::BTreeMap;

/// Colours that the style sheet defines, as `--c0` to `--c7`, for light and dark.
pub(super) const COLOURS: usize = 8;

/// How a protocol looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Of the colours.
    pub(super) colour: usize,
    pub(super) mark: Mark,
    /// Whether it is no protocol but what a machine allows: drawn in grey.
    pub(super) is_limit: bool,
}

/// The form of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Plus,
    Ring,
    Down,
}

const MARKS: [Mark; COLOURS] = [
    Mark::Circle,
    Mark::Square,
    Mark::Triangle,
    Mark::Diamond,
    Mark::Cross,
    Mark::Plus,
    Mark::Ring,
    Mark::Down,
];

/// What stands for the machine itself (docs/measuring.md §2.1).
const LIMITS: [&str; 2] = ["cacheline", "memcpy"];

/// Whether that is a limit of the machine and no protocol.
pub(in crate::report) fn is_limit(protocol: &str) -> bool {
    LIMITS.contains(&protocol)
}

/// The looks of all protocols of a page.
#[derive(Debug)]
pub(super) struct Palette {
    looks: BTreeMap<String, Look>,
}

impl Palette {
    /// Polyrail comes first, whatever the documents begin with: so it looks the same on every page.
    pub(super) fn of<'a>(protocols: impl Iterator<Item = &'a str>) -> Self {
        let mut names = vec!["polyrail".to_owned()];
        let mut rest: Vec<&str> = protocols.filter(|name| !is_limit(name)).collect();
        rest.sort_by_key(|name| !name.starts_with("polyrail"));
        for name in rest {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let look = |place: usize| Look {
            colour: place % COLOURS,
            // The second round of colours has other marks.
            mark: MARKS[(place + place / COLOURS) % COLOURS],
            is_limit: false,
        };
        Self { looks: names.into_iter().enumerate().map(|(place, name)| (name, look(place))).collect() }
    }

    pub(super) fn look(&self, protocol: &str) -> Look {
        let limit = Look { colour: 0, mark: Mark::Ring, is_limit: true };
        self.looks.get(protocol).copied().unwrap_or(limit)
    }
}

impl Look {
    /// The class that gives the colour.
    pub(super) fn class(self) -> String {
        if self.is_limit { "limit".to_owned() } else { format!("c{}", self.colour) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The colours of the style sheet, in the order of light and dark.
    fn colours() -> Vec<[f64; 3]> {
        let sheet = include_str!("style.css");
        let value = |text: &str| {
            let hex = text.split_once('#').expect("a colour").1;
            [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")))
        };
        let is_colour = |line: &&str| {
            line.trim().strip_prefix("--c").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        sheet.lines().filter(is_colour).map(value).collect()
    }

    /// What a person sees who has no cones for red, or none for green (Viénot, Brettel and Mollon, 1999), in linear light.
    fn seen(colour: [f64; 3], matrix: [[f64; 3]; 3]) -> [f64; 3] {
        let linear = colour.map(|value| (value / 255.0).powf(2.2));
        let mixed = matrix.map(|row| row.iter().zip(linear).map(|(part, light)| part * light).sum::<f64>());
        mixed.map(|light| light.clamp(0.0, 1.0).powf(1.0 / 2.2) * 255.0)
    }

    const SEES_ALL: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    const NO_RED: [[f64; 3]; 3] =
        [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]];
    const NO_GREEN: [[f64; 3]; 3] =
        [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]];

    #[test]
    fn colours_can_be_told_apart_by_people_who_see_no_red_or_no_green() {
        let all = colours();
        assert_eq!(all.len(), 2 * COLOURS);
        for (theme, colours) in all.chunks(COLOURS).enumerate() {
            for matrix in [SEES_ALL, NO_RED, NO_GREEN] {
                let seen: Vec<[f64; 3]> = colours.iter().map(|colour| seen(*colour, matrix)).collect();
                for (a, one) in seen.iter().enumerate() {
                    for (b, other) in seen.iter().enumerate().skip(a + 1) {
                        let apart = one.iter().zip(other).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
                        assert!(apart >= 25.0, "theme {theme}: --c{a} and --c{b} are {apart:.0} apart");
                    }
                }
            }
        }
    }

    #[test]
    fn a_protocol_looks_alike_everywhere_and_the_first_sixteen_differ() {
        let names: Vec<String> = (0..15).map(|number| format!("p{number:02}")).collect();
        let all = || names.iter().map(String::as_str);
        let palette = Palette::of(all().chain(["polyrail", "memcpy"]));
        assert_eq!(palette.look("polyrail").colour, 0);
        assert!(palette.look("memcpy").is_limit);
        let looks: Vec<Look> = all().chain(["polyrail"]).map(|name| palette.look(name)).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[place + 1..].contains(look), "{look:?}");
        }
    }
}
