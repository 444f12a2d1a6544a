//! A line through points by least squares of relative distances.

/// `T(n) = start + slope n`, in us and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) start_us: f64,
    /// Never below zero: more bytes take no less time.
    pub(super) slope_us: f64,
}

impl Line {
    pub(super) fn at(self, bytes: f64) -> f64 {
        self.start_us + self.slope_us * bytes
    }
}

/// What of points a line follows from; those of two sets of points add up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    /// One point more. A relative distance counts the same wherever it is, so that points of large messages do not decide
    /// everything.
    pub(super) fn with(self, bytes: f64, time_us: f64) -> Self {
        let weight = 1.0 / (time_us * time_us);
        Self {
            weight: self.weight + weight,
            x: self.x + weight * bytes,
            y: self.y + weight * time_us,
            xx: self.xx + weight * bytes * bytes,
            xy: self.xy + weight * bytes * time_us,
            yy: self.yy + 1.0,
        }
    }

    /// These without the `before` that they contain.
    pub(super) fn without(self, before: Self) -> Self {
        Self {
            weight: self.weight - before.weight,
            x: self.x - before.x,
            y: self.y - before.y,
            xx: self.xx - before.xx,
            xy: self.xy - before.xy,
            yy: self.yy - before.yy,
        }
    }

    /// The best line.
    pub(super) fn line(self) -> Line {
        let spread = self.weight * self.xx - self.x * self.x;
        let slope = (self.weight * self.xy - self.x * self.y) / spread;
        if spread > 0.0 && slope > 0.0 {
            return Line { start_us: (self.y - slope * self.x) / self.weight, slope_us: slope };
        }
        Line { start_us: self.y / self.weight, slope_us: 0.0 }
    }

    /// Sum of the squares of relative distances from a line.
    pub(super) fn squares(self, line: Line) -> f64 {
        let (a, b) = (line.start_us, line.slope_us);
        let sum = self.yy - 2.0 * (a * self.y + b * self.xy)
            + a * a * self.weight
            + 2.0 * a * b * self.x
            + b * b * self.xx;
        sum.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(points: &[(f64, f64)]) -> Sums {
        points.iter().fold(Sums::default(), |sums, (bytes, time_us)| sums.with(*bytes, *time_us))
    }

    #[test]
    fn points_on_a_line_give_it_back() {
        let points: Vec<(f64, f64)> =
            (1..9).map(|i| f64::from(i) * 100.0).map(|n| (n, 5.0 + 0.01 * n)).collect();
        let sums = sums(&points);
        let line = sums.line();
        assert!((line.start_us - 5.0).abs() < 1e-9 && (line.slope_us - 0.01).abs() < 1e-12, "{line:?}");
        assert!(sums.squares(line) < 1e-9);
        assert!(
            (sums.squares(Line { start_us: 5.5, ..line })
                - points.iter().map(|(_, t)| 0.25 / (t * t)).sum::<f64>())
            .abs()
                < 1e-9
        );
    }

    #[test]
    fn more_bytes_take_no_less_time() {
        let line = sums(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]).line();
        assert_eq!(line.slope_us, 0.0);
        assert!(line.start_us > 1.0 && line.start_us < 3.0, "{line:?}");
    }
}
