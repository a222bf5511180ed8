//! The identity of sequences and sets: keys to split by, fingerprints that add up, and
//! sketches that detect overlaps.

use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Decides how a sequence is split: a hash of its id, or of its position if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(u64);

impl Key {
    /// Makes the key of a sequence with this id, or else at this position, counted from 0
    /// in its whole set.
    pub fn new(id: Option<&str>, position: u64) -> Self {
        Self(match id {
            Some(id) => xxh3_64_with_seed(id.as_bytes(), 1),
            None => xxh3_64_with_seed(&position.to_le_bytes(), 2),
        })
    }

    /// The place of the sequence in the draw of a seed: anywhere, equally likely.
    pub fn draw(self, seed: u64) -> u64 {
        xxh3_64_with_seed(&self.0.to_le_bytes(), seed)
    }
}

/// Returns the positions that have each key, in the order of the keys.
pub(crate) fn by_key(keyed: impl IntoIterator<Item = (Key, usize)>) -> Vec<Vec<usize>> {
    let mut keyed: Vec<(Key, usize)> = keyed.into_iter().collect();
    keyed.sort_unstable();
    let of_key = |same: &[(Key, usize)]| same.iter().map(|&(_, i)| i).collect();
    keyed.chunk_by(|a, b| a.0 == b.0).map(of_key).collect()
}

/// Which sequences of a set were fitted to or screened on, and must not
/// certify: those whose [draw](Key::draw) is below a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAside {
    /// The seed of the draw.
    pub seed: u64,
    /// The bound below which a draw is set aside.
    pub below: u64,
}

impl SetAside {
    /// Sets aside this share of all sequences.
    pub fn share(share: f64, seed: u64) -> Self {
        // 2⁶⁴·share; the cast saturates.
        let below = (share.clamp(0.0, 1.0) * 2f64.powi(64)) as u64;
        Self { seed, below }
    }

    /// Whether the sequence with this key is set aside.
    pub fn has(&self, key: Key) -> bool {
        key.draw(self.seed) < self.below
    }
}

/// A digest of a set of sequences that does not depend on their order and is additive: the
/// sum of two sets' fingerprints is the fingerprint of both.
///
/// It guards against mix-ups, not against forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The digest of some bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The fingerprint of one sequence: its original scores, and the steps at which the
    /// prediction was right. `bytes` is a work buffer.
    pub(crate) fn of_sequence(
        scores: &[f32],
        right: impl Iterator<Item = bool>,
        bytes: &mut Vec<u8>,
    ) -> Self {
        Self::of_bytes(scores, right.map(u8::from), bytes)
    }

    /// The same with other bytes behind the scores.
    pub(crate) fn of_bytes(
        scores: &[f32],
        more: impl Iterator<Item = u8>,
        bytes: &mut Vec<u8>,
    ) -> Self {
        // In place, because appending four bytes at a time would be slow.
        bytes.resize(4 * scores.len(), 0);
        let (words, _) = bytes.as_chunks_mut::<4>();
        for (word, score) in std::iter::zip(words, scores) {
            // +0.0 turns −0 into 0: equal scores hash alike.
            *word = (score + 0.0).to_le_bytes();
        }
        bytes.extend(more);
        Self::of(bytes)
    }

    /// Half of the fingerprint; as good as random.
    fn half(self) -> u64 {
        self.0 as u64
    }
}

impl std::ops::Add for Fingerprint {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl std::iter::Sum for Fingerprint {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), std::ops::Add::add)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("a fingerprint is 32 hexadecimal digits"))
    }
}

/// A set of sequences that something was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSummary {
    /// How many sequences.
    pub sequences: u64,
    /// Their fingerprint.
    pub fingerprint: Fingerprint,
}

impl SetSummary {
    /// One sequence.
    pub fn one(fingerprint: Fingerprint) -> Self {
        Self {
            sequences: 1,
            fingerprint,
        }
    }
}

impl std::ops::Add for SetSummary {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sequences: self.sequences.saturating_add(other.sequences),
            fingerprint: self.fingerprint + other.fingerprint,
        }
    }
}

impl std::ops::AddAssign for SetSummary {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for SetSummary {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), std::ops::Add::add)
    }
}

/// A description of a classifier, as names and values. It is enough to tell it from another
/// classifier, for which a rule would promise nothing.
pub type Classifier = BTreeMap<String, String>;

/// A sample of a set that detects sequences that are also in another set: those with the
/// smallest hashes, up to a number. The choice depends neither on order nor on how the set
/// was cut, so sketches of parts add up to the sketch of the whole.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    most: usize,
    /// The content hash and the key of each; the largest on top.
    smallest: BinaryHeap<(u64, u64)>,
}

/// The key, in a sketch, of a sequence without an id.
const UNNAMED: u64 = 0;

/// The relation of a sequence to a sketched set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// The sequence is not in the sample.
    No,
    /// The sample has a sequence with identical steps, under another id or none.
    Alike,
    /// The sample has a sequence with identical steps and the same id.
    Same,
}

/// How many sequences are also in a sketched set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overlap {
    /// With the same ids.
    pub(crate) shared: u64,
    /// Under other ids, or none.
    pub(crate) alike: u64,
}

impl Overlap {
    pub(crate) fn note(&mut self, met: Met) {
        match met {
            Met::No => {}
            Met::Alike => self.alike += 1,
            Met::Same => self.shared += 1,
        }
    }
}

impl std::ops::AddAssign for Overlap {
    fn add_assign(&mut self, other: Self) {
        self.shared += other.shared;
        self.alike += other.alike;
    }
}

impl Sketch {
    /// Starts an empty sketch of at most this many sequences.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            smallest: BinaryHeap::new(),
        }
    }

    /// Adds a sequence. A key that stands for a position says nothing.
    pub(crate) fn push(&mut self, key: Key, fingerprint: Fingerprint, named: bool) {
        let key = if named { key.0 } else { UNNAMED };
        self.insert((fingerprint.half(), key));
    }

    fn insert(&mut self, entry: (u64, u64)) {
        if self.smallest.len() < self.most {
            self.smallest.push(entry);
        } else if self.smallest.peek().is_some_and(|&last| entry < last) {
            self.smallest.pop();
            self.smallest.push(entry);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for &entry in &other.smallest {
            self.insert(entry);
        }
    }

    /// Returns what a rule keeps: the first sequences whose content is unique, and the share of
    /// them that chance repeats in another set of the same size. Nothing is kept if that share is
    /// large.
    ///
    /// The share is that of Good and Turing: contents that occurred once occur again as often as
    /// others occurred twice, times two. What occurred a hundred times says nothing about them.
    pub(crate) fn finish(self) -> (Sketched, f64) {
        const MOST_BY_CHANCE: f64 = 0.2;
        let all = self.sorted();
        let occurred = |times: usize| {
            let contents = all.contents().filter(move |same| same.len() == times);
            contents.filter_map(|same| same.first().copied())
        };
        let singles = occurred(1).count();
        let by_chance = 2.0 * occurred(2).count() as f64 / singles.max(1) as f64;
        if singles == 0 || by_chance > MOST_BY_CHANCE {
            return (Sketched::default(), 0.0);
        }
        (
            Sketched(occurred(1).take(Self::OF_A_RULE).collect()),
            by_chance,
        )
    }

    /// How many sequences were pushed more than once, beyond what chance explains. Two are
    /// known to be the same only if they share an id and a content that no other id has.
    pub(crate) fn counted_twice(&self) -> u64 {
        let all = self.sorted();
        let again = |same: &[(u64, u64)]| match same {
            [first, .., last] if first == last && first.1 != UNNAMED => same.len() as u64 - 1,
            _ => 0,
        };
        let twice: u64 = all.contents().map(again).sum();
        if twice > all.by_chance() { twice } else { 0 }
    }

    fn sorted(&self) -> Sketched {
        Sketched(self.smallest.clone().into_sorted_vec())
    }
}

impl Sketch {
    /// How many of the sequences it was made from a rule remembers.
    pub(crate) const OF_A_RULE: usize = 64;

    /// How many of the sequences it was shown evidence remembers. If a hundred thousand of
    /// a million sequences in one part repeat, about a hundred of them are seen.
    pub(crate) const OF_EVIDENCE: usize = 1024;

    /// How many of the sequences that must not certify it a proposal remembers.
    pub(crate) const OF_A_PROPOSAL: usize = 4096;
}

impl Serialize for Sketch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.most, self.sorted()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (most, entries) = <(usize, Sketched)>::deserialize(deserializer)?;
        if entries.0.len() > most || most > Self::OF_A_PROPOSAL {
            return Err(serde::de::Error::custom(
                "a sketch is larger than it may be",
            ));
        }
        Ok(Self {
            most,
            smallest: entries.0.into(),
        })
    }
}

impl PartialEq for Sketch {
    fn eq(&self, other: &Self) -> bool {
        self.most == other.most && self.sorted() == other.sorted()
    }
}

/// A finished sketch, in order. Stored as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sketched(Vec<(u64, u64)>);

impl Sketched {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many sequences it holds.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The share of the smaller sample that is also in the other; the sets may differ in
    /// size.
    pub(crate) fn shared(&self, other: &Self) -> f64 {
        let both = self.0.iter().filter(|e| other.0.binary_search(e).is_ok());
        both.count() as f64 / self.0.len().min(other.0.len()).max(1) as f64
    }

    /// The entries, grouped by content.
    fn contents(&self) -> impl Iterator<Item = &[(u64, u64)]> {
        self.0.chunk_by(|a, b| a.0 == b.0)
    }

    /// The entries of this content.
    fn of_content(&self, fingerprint: Fingerprint) -> &[(u64, u64)] {
        let print = fingerprint.half();
        let from = self.0.partition_point(|entry| entry.0 < print);
        let until = self.0.partition_point(|entry| entry.0 <= print);
        &self.0[from..until]
    }

    /// How many sequences may meet their own content under their own id by chance, in sets
    /// with the same numbering. If no content occurs under two ids, none. Otherwise
    /// contents are coarse, and even one that occurred once may occur again.
    fn by_chance(&self) -> u64 {
        let repeated = self.contents().filter(|same| match same {
            [first, .., last] => first != last || first.1 == UNNAMED,
            _ => false,
        });
        let repeated: usize = repeated.map(<[_]>::len).sum();
        repeated.div_ceil(100) as u64
    }

    /// Whether a sequence is in the sample; `named` if both sets have ids. A content that
    /// occurs more than once says nothing.
    pub(crate) fn meet(&self, key: Key, fingerprint: Fingerprint, named: bool) -> Met {
        match self.of_content(fingerprint) {
            [single] if named && single.1 == key.0 => Met::Same,
            [_] => Met::Alike,
            _ => Met::No,
        }
    }
}

/// A sample of sequences that must not certify, because candidates were made
/// from them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Others {
    /// Whether all of them have ids.
    named: bool,
    /// Whether all of them have ids and were set aside from the certifying set. Evidence
    /// must then leave out each of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    set_aside: bool,
    sketch: Sketched,
}

impl Others {
    /// A sample of sequences of another set.
    pub(crate) fn new(sketch: Sketch, named: bool) -> Self {
        Self {
            named,
            set_aside: false,
            sketch: sketch.sorted(),
        }
    }

    /// A sample of sequences with ids that were set aside from the certifying set.
    pub(crate) fn set_aside(sketch: Sketch) -> Self {
        let sketch = sketch.sorted();
        Self {
            named: true,
            set_aside: !sketch.is_empty(),
            sketch,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sketch.is_empty()
    }

    /// Whether a certifying sequence, with or without an id, is known to be one of them.
    pub(crate) fn meet(&self, key: Key, fingerprint: Fingerprint, named: bool) -> Met {
        self.sketch.meet(key, fingerprint, named && self.named)
    }

    /// How many sequences that are none of them may still have the id and the content of
    /// one by chance.
    pub(crate) fn by_chance(&self) -> u64 {
        self.sketch.by_chance()
    }

    /// Whether a sequence that was left out is one of those that had to be left out.
    pub(crate) fn had_to_be_left_out(
        &self,
        key: Key,
        fingerprint: Fingerprint,
        named: bool,
    ) -> bool {
        let mut alike = self.sketch.of_content(fingerprint).iter();
        self.set_aside && named && alike.any(|entry| entry.1 == key.0)
    }

    /// Whether all remembered sequences were left out, given how many of those left out are
    /// among them.
    pub(crate) fn are_left_out(&self, recognised: u64) -> bool {
        !self.set_aside || recognised >= self.sketch.0.len() as u64
    }
}

impl Serialize for Sketched {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use fmt::Write as _;
        let mut text = String::with_capacity(32 * self.0.len());
        for (print, key) in &self.0 {
            let _ = write!(text, "{print:016x}{key:016x}");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Sketched {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("a sketch is 32 hexadecimal digits per sequence");
        let (entries, rest) = text.as_bytes().as_chunks::<32>();
        if !rest.is_empty() {
            return Err(wrong());
        }
        let number = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u64::from_str_radix(digits, 16).ok()
        };
        let entry = |bytes: &[u8; 32]| Some((number(&bytes[..16])?, number(&bytes[16..])?));
        let mut entries: Vec<(u64, u64)> = entries
            .iter()
            .map(entry)
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        entries.sort_unstable();
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(most: usize, range: std::ops::Range<u64>) -> Sketch {
        let mut sketch = Sketch::new(most);
        for i in range {
            let key = Key::new(Some(&i.to_string()), 0);
            sketch.push(key, Fingerprint::of(&i.to_le_bytes()), true);
        }
        sketch
    }

    #[test]
    fn sketches_of_parts_add_up_to_the_sketch_of_the_whole() {
        let whole = sketch(64, 0..1000);
        let mut sum = sketch(64, 700..1000);
        sum.add(&sketch(64, 0..300));
        sum.add(&sketch(64, 300..700));
        assert_eq!(sum, whole);
        let stored = serde_json::to_string(&whole.finish().0).unwrap();
        let back: Sketched = serde_json::from_str(&stored).unwrap();
        assert_eq!((back, 0.0), sum.finish());
    }

    #[test]
    fn a_sequence_is_met_by_what_it_says_and_by_its_id() {
        let (known, _) = sketch(100, 0..50).finish();
        let print = Fingerprint::of(&7_u64.to_le_bytes());
        let (key, other) = (Key::new(Some("7"), 0), Key::new(Some("b"), 0));
        assert_eq!(known.meet(key, print, true), Met::Same);
        assert_eq!(known.meet(key, print, false), Met::Alike);
        assert_eq!(known.meet(other, print, true), Met::Alike);
        let new = Fingerprint::of(&77_u64.to_le_bytes());
        assert_eq!(known.meet(key, new, true), Met::No);
    }

    #[test]
    fn what_was_set_aside_must_be_left_out() {
        let others = Others::set_aside(sketch(100, 0..50));
        let recognised = |range: std::ops::Range<u64>| {
            let left_out = range.filter(|i| {
                let key = Key::new(Some(&i.to_string()), 0);
                others.had_to_be_left_out(key, Fingerprint::of(&i.to_le_bytes()), true)
            });
            left_out.count() as u64
        };
        assert_eq!(recognised(0..300), 50);
        assert!(others.are_left_out(50));
        assert!(!others.are_left_out(recognised(1..300)));
        // Sequences of another set need not be there.
        let others = Others::new(sketch(100, 0..50), true);
        assert!(others.are_left_out(0));
    }

    /// Makes numbered sequences (from 0); the first few are identical.
    fn saturated(most: usize, same: u64, range: std::ops::Range<u64>, set: &str) -> Sketch {
        let mut sketch = Sketch::new(most);
        for i in range {
            let content = match i < same {
                true => "all votes agree".into(),
                false => format!("{set} {i}"),
            };
            let key = Key::new(Some(&i.to_string()), 0);
            sketch.push(key, Fingerprint::of(content.as_bytes()), true);
        }
        sketch
    }

    #[test]
    fn ids_tell_what_was_set_aside_where_most_say_the_same() {
        let print = Fingerprint::of(b"all votes agree");
        let key = |i: u64| Key::new(Some(&i.to_string()), 0);
        let others = Others::set_aside(saturated(100, 50, 0..50, "May"));
        assert_eq!(others.meet(key(7), print, true), Met::No);
        assert!(others.had_to_be_left_out(key(7), print, true));
        assert!(!others.had_to_be_left_out(key(70), print, true));
        assert!(!others.are_left_out(49));
        assert!(others.are_left_out(100));
        let stored = serde_json::to_string(&others).unwrap();
        assert_eq!(serde_json::from_str::<Others>(&stored).unwrap(), others);
    }

    /// Identical sequences do not hide the others.
    #[test]
    fn a_content_that_repeats_tells_nothing_and_the_others_tell_as_before() {
        let most = Sketch::OF_A_PROPOSAL;
        for same in [2, 50, 900] {
            let others = Others::new(saturated(most, same, 0..1_000, "May"), true);
            let key = Key::new(Some("0"), 0);
            let met =
                |content: &str, key| others.meet(key, Fingerprint::of(content.as_bytes()), true);
            assert_eq!(met("all votes agree", key), Met::No, "{same}");
            assert_eq!(met("May 950", key), Met::Alike, "{same}");
            assert_eq!(
                met("May 950", Key::new(Some("950"), 0)),
                Met::Same,
                "{same}"
            );
            assert_eq!(others.by_chance(), same.div_ceil(100), "{same}");
        }
        let none = Others::new(saturated(most, 0, 0..1_000, "May"), true);
        assert_eq!(none.by_chance(), 0);
        let mut nameless = Sketch::new(100);
        for i in 0..50 {
            let print = Fingerprint::of(&[(i % 10) as u8]);
            nameless.push(Key::new(None, i), print, false);
        }
        assert!(nameless.finish().0.is_empty());
    }

    #[test]
    fn a_rule_remembers_what_is_unique_although_other_contents_repeat_often() {
        let (known, by_chance) = saturated(1_000, 300, 0..1_000, "May").finish();
        assert_eq!((known.0.len(), by_chance), (Sketch::OF_A_RULE, 0.0));
        // If some contents come twice, others may come again by chance.
        let twice = |n: u64| {
            let mut sketch = saturated(1_000, 0, 0..1_000 - n, "May");
            sketch.add(&saturated(1_000, 0, 0..n, "May"));
            sketch.finish()
        };
        let (known, by_chance) = twice(50);
        assert_eq!(
            (known.0.len(), by_chance),
            (Sketch::OF_A_RULE, 100.0 / 900.0)
        );
        assert!(twice(100).0.is_empty());
    }

    #[test]
    fn what_is_counted_twice_is_seen_by_its_id_and_its_content() {
        for same in [0, 50, 120, 300] {
            let may = saturated(Sketch::OF_EVIDENCE, same, 0..1_000, "May");
            assert_eq!(may.counted_twice(), 0, "{same}");
            // The next month is numbered from 0 again.
            let mut sum = may.clone();
            sum.add(&saturated(Sketch::OF_EVIDENCE, same, 0..500, "June"));
            assert_eq!(sum.counted_twice(), 0, "{same}");
            // The same content comes under the same id, and 183 of May come again.
            sum.add(&saturated(Sketch::OF_EVIDENCE, 0, 700..883, "May"));
            let twice = sum.counted_twice();
            assert!((60..=183).contains(&twice), "{twice}");
        }
        // Without ids, two identical sequences may be two different ones.
        let mut nameless = Sketch::new(100);
        for _ in 0..2 {
            nameless.push(Key::new(None, 0), Fingerprint::of(b"May"), false);
        }
        assert_eq!(nameless.counted_twice(), 0);
    }
}
