//! Times over sizes: what a model is fitted to.

/// The time of one sample, and the phase of the machine in which it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimedSample {
    /// Time of a message, in us.
    pub(crate) time_us: f64,
    /// One way of a cache line between the two cores around the sample, in ns; none where it is not known or changed meanwhile.
    pub(crate) cacheline_ns: Option<f64>,
}

/// All samples of one size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurvePoint {
    /// Of the message, in bytes.
    pub(crate) size_bytes: usize,
    pub(crate) samples: Vec<TimedSample>,
}

/// Points of sizes that rise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curve {
    points: Vec<CurvePoint>,
}

impl Curve {
    /// Adds samples of a size to those that are there. What is no time above zero is no sample.
    pub(crate) fn add(&mut self, size_bytes: usize, samples: impl IntoIterator<Item = TimedSample>) {
        let place = match self.points.binary_search_by_key(&size_bytes, |point| point.size_bytes) {
            Ok(place) => place,
            Err(place) => {
                self.points.insert(place, CurvePoint { size_bytes, samples: Vec::new() });
                place
            }
        };
        let good = |sample: &TimedSample| sample.time_us.is_finite() && sample.time_us > 0.0;
        self.points[place].samples.extend(samples.into_iter().filter(good));
    }

    /// The points that have samples.
    pub(crate) fn points(&self) -> Vec<&CurvePoint> {
        self.points.iter().filter(|point| !point.samples.is_empty()).collect()
    }
}
