//! Audits that are over and wait for a label.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::log_record::{BorrowedRecord, UnlabelledAudit};

/// The most audits that wait; the oldest give way.
const MOST: usize = 100_000;

/// The most bytes of all of them: the oldest are thinned, then give way.
pub(crate) const MOST_BYTES: usize = 64 << 20;

/// Audits that wait for a label, by id and by age. They depend only on the order of what was
/// put in and taken out, so a log restores them.
#[derive(Debug, Default)]
pub(crate) struct UnlabelledAudits {
    by_id: HashMap<Box<str>, (u64, UnlabelledAudit)>,
    /// The oldest first.
    by_age: BTreeMap<u64, Box<str>>,
    /// The age of the next.
    next: u64,
    /// Those before this one are thinned.
    thinned: u64,
    bytes: usize,
    wanted: usize,
    copying: Option<Copying>,
}

/// A copy of all audits as they were at one moment, while it is made in parts.
#[derive(Debug)]
struct Copying {
    /// The ages of those still to copy.
    ages: Range<u64>,
    /// The records of those that changed before it was their turn, as they were.
    changed: BTreeMap<u64, String>,
}

impl Copying {
    /// Copies an audit that is about to change, unless it was copied before.
    fn before_change(&mut self, age: u64, id: &str, audit: &UnlabelledAudit) {
        if self.ages.contains(&age) && !self.changed.contains_key(&age) {
            let record = record(id, audit);
            self.changed.extend(record.map(|record| (age, record)));
        }
    }
}

fn record(id: &str, audit: &UnlabelledAudit) -> Option<String> {
    serde_json::to_string(&BorrowedRecord::Waiting { id, waiting: audit }).ok()
}

impl UnlabelledAudits {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// About how many bytes all of them take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many want a label: the monitor does not know yet what they lost.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Adds one, in the place of another of its id. Returns how many were thinned or gave
    /// way for it.
    pub(crate) fn insert(&mut self, id: &str, audit: UnlabelledAudit) -> u64 {
        self.remove(id);
        let age = self.next;
        self.next += 1;
        self.bytes += audit.bytes(id);
        self.wanted += usize::from(audit.wants_label());
        self.by_age.insert(age, id.into());
        self.by_id.insert(id.into(), (age, audit));
        self.make_room()
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<UnlabelledAudit> {
        let (age, audit) = self.by_id.remove(id)?;
        if let Some(copying) = &mut self.copying {
            copying.before_change(age, id, &audit);
        }
        self.by_age.remove(&age);
        self.bytes -= audit.bytes(id);
        self.wanted -= usize::from(audit.wants_label());
        Some(audit)
    }

    /// Makes none of them count for the monitor any more.
    pub(crate) fn drop_pending(&mut self) {
        for (id, (age, audit)) in &mut self.by_id {
            if let Some(copying) = &mut self.copying {
                copying.before_change(*age, id, audit);
            }
            audit.pending = None;
        }
        self.wanted = 0;
    }

    /// Drops those that began before a time.
    pub(crate) fn drop_before(&mut self, began: u64) {
        let old = self.iter().filter(|(_, audit)| audit.began < began);
        let old: Vec<String> = old.map(|(id, _)| id.to_owned()).collect();
        for id in old {
            self.remove(&id);
        }
    }

    /// All of them, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &UnlabelledAudit)> {
        self.since(0).map(|(_, id, audit)| (id, audit))
    }

    /// Those from an age on, with their ages.
    pub(crate) fn since(&self, age: u64) -> impl Iterator<Item = (u64, &str, &UnlabelledAudit)> {
        self.by_age.range(age..).filter_map(|(&age, id)| {
            let (_, audit) = self.by_id.get(id)?;
            Some((age, &**id, audit))
        })
    }

    /// Starts a copy of all of them as they are now.
    pub(crate) fn begin_copy(&mut self) {
        self.copying = Some(Copying {
            ages: 0..self.next,
            changed: BTreeMap::new(),
        });
    }

    /// The records of the next ones, at most about this many, the oldest first. `None` once
    /// there are no more.
    pub(crate) fn copy_part(&mut self, most: usize) -> Option<Vec<String>> {
        let copying = self.copying.as_mut()?;
        let Range { start, end } = copying.ages;
        let mut part = Vec::new();
        let mut all = self.by_age.range(start..end);
        for (&age, id) in all.by_ref().take(most) {
            let as_it_is = || record(id, &self.by_id.get(id)?.1);
            let record = copying.changed.remove(&age).or_else(as_it_is);
            part.extend(record.map(|record| (age, record)));
        }
        let next = all.next().map_or(end, |(&age, _)| age);
        // Those that are gone.
        let later = copying.changed.split_off(&next);
        part.extend(std::mem::replace(&mut copying.changed, later));
        part.sort_unstable_by_key(|&(age, _)| age);
        copying.ages.start = next;
        if next == end {
            self.copying = None;
        }
        Some(part.into_iter().map(|(_, record)| record).collect())
    }

    fn make_room(&mut self) -> u64 {
        let mut changed = 0;
        if self.bytes > MOST_BYTES {
            // By a quarter, so that not every insert thins one.
            let mut ages = self.by_age.range(self.thinned..);
            while self.bytes > MOST_BYTES / 4 * 3
                && let Some((age, id)) = ages.next()
            {
                self.thinned = age + 1;
                if let Some((_, audit)) = self.by_id.get_mut(id) {
                    if let Some(copying) = &mut self.copying {
                        copying.before_change(*age, id, audit);
                    }
                    changed += u64::from(!audit.trace.is_thin());
                    self.bytes -= audit.bytes(id);
                    audit.trace.thin();
                    self.bytes += audit.bytes(id);
                }
            }
        }
        while (self.len() > MOST || self.bytes > MOST_BYTES)
            && let Some(oldest) = self.by_age.values().next().cloned()
        {
            self.remove(&oldest);
            changed += 1;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(began: u64) -> UnlabelledAudit {
        UnlabelledAudit {
            began,
            pending: None,
            trace: crate::audit_trace::AuditTrace::default(),
        }
    }

    #[test]
    fn ids_count_where_memory_is_bounded() {
        let mut all = UnlabelledAudits::default();
        for age in 0..10_000 {
            all.insert(&format!("{age:04096}"), audit(age));
        }
        // Each is in two tables.
        assert!(all.len() * 2 * 4096 <= MOST_BYTES, "{}", all.len());
        assert!(all.bytes() <= MOST_BYTES && all.contains(&format!("{:04096}", 9999)));
    }

    #[test]
    fn the_oldest_give_way() {
        let mut all = UnlabelledAudits::default();
        for age in 0..MOST as u64 {
            assert_eq!(all.insert(&age.to_string(), audit(age)), 0);
        }
        // One that comes again is the newest.
        assert_eq!(all.insert("0", audit(0)), 0);
        for age in 0..10 {
            assert_eq!(all.insert(&format!("x{age}"), audit(age)), 1);
        }
        assert_eq!(all.len(), MOST);
        assert!(all.contains("0") && !all.contains("1") && !all.contains("10"));
        let first: Vec<&str> = all.iter().map(|(id, _)| id).take(2).collect();
        assert_eq!(first, ["11", "12"]);
        all.drop_before(20);
        assert_eq!(all.iter().map(|(id, _)| id).next(), Some("20"));
        assert!(!all.contains("0"));
    }
}
