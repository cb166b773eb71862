//! Which objects stay, beside plain LRU with the same number of places.

use std::collections::{BTreeMap, HashMap};

use super::*;

/// Numbers with a Zipf distribution, made of a table of cumulated weights.
struct Zipf {
    cumulated: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(objects: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulated = (1..=objects).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self { cumulated: cumulated.collect(), state: 0x9e37_79b9 }
    }

    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> usize {
        let at = self.random() * self.cumulated.last().unwrap();
        self.cumulated.partition_point(|sum| *sum < at)
    }
}

#[derive(Default)]
struct Lru {
    used: HashMap<usize, u64>,
    order: BTreeMap<u64, usize>,
    clock: u64,
}

impl Lru {
    fn hit(&mut self, object: usize, places: usize) -> bool {
        self.clock += 1;
        let before = self.used.insert(object, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, object);
        if self.used.len() > places {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

/// Hits in percent of the requests: this tier and LRU with as many places as the tier has objects at the end.
fn compare(limit: usize, warm: usize, trace: &[usize]) -> (f64, f64, usize) {
    let memory = memory(limit);
    let head = head(&HeaderList::new(), &[]);
    let (mut hits, host) = (0, "a");
    for (number, object_number) in trace.iter().enumerate() {
        let path = format!("/{object_number}");
        let uri = uri(host, &path);
        if find(&memory, &uri).is_some() {
            hits += usize::from(number >= warm);
        } else {
            memory.insert(object(&uri, head.clone(), body(1000), memory.floors().begin()), NOW);
        }
    }
    let places = memory.stat().entries;
    let (mut lru, mut lru_hits) = (Lru::default(), 0);
    for (number, &object) in trace.iter().enumerate() {
        lru_hits += usize::from(lru.hit(object, places) && number >= warm);
    }
    let percent = |hits: usize| hits as f64 * 100.0 / (trace.len() - warm) as f64;
    (percent(hits), percent(lru_hits), places)
}

const OBJECTS: usize = 100_000;
const REQUESTS: usize = 600_000;
/// Memory of one object of this test, about.
const OBJECT: usize = 1770;

#[test]
fn zipf_is_served_better_than_by_lru() {
    for (percent, gain) in [(1, 9.0), (10, 6.5)] {
        let mut zipf = Zipf::new(OBJECTS, 0.9);
        let trace: Vec<_> = (0..REQUESTS).map(|_| zipf.next()).collect();
        let (ours, lru, places) = compare(OBJECTS * OBJECT * percent / 100, REQUESTS / 5, &trace);
        println!("{percent} %: {places} places, {ours:.1} %, LRU {lru:.1} %");
        assert!(places.abs_diff(OBJECTS * percent / 100) < OBJECTS * percent / 1000, "{places}");
        assert!(ours >= lru + gain, "{percent} % of the objects: {ours:.1} %, LRU {lru:.1} %");
    }
}

#[test]
fn a_scan_passes_without_harm() {
    let mut zipf = Zipf::new(OBJECTS, 0.9);
    // Every third request is for an object that comes once.
    let trace: Vec<_> = (0..REQUESTS / 2)
        .map(|number| if number % 3 == 0 { OBJECTS + number } else { zipf.next() })
        .collect();
    let (ours, lru, _) = compare(OBJECTS * OBJECT / 100, REQUESTS / 10, &trace);
    println!("with a scan: {ours:.1} %, LRU {lru:.1} %");
    assert!(ours >= lru + 8.0, "{ours:.1} %, LRU {lru:.1} %");
}
