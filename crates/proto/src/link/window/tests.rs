use super::*;

#[test]
fn the_largest_rate_is_remembered_for_its_span() {
    let mut filter = MaxFilter::default();
    let span = Duration::ms(100);
    let at = |ms: u64| Instant::ZERO + Duration::ms(ms);
    filter.add(at(0), 50, span);
    for ms in 1..=100 {
        filter.add(at(ms), 10 + ms % 3, span);
        assert_eq!(filter.max(), 50);
    }
    for ms in 101..=200 {
        filter.add(at(ms), 10 + ms % 3, span);
    }
    assert!((10..=12).contains(&filter.max()), "{}", filter.max());
    filter.add(at(201), 60, span);
    assert_eq!(filter.max(), 60);
}
