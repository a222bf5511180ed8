//! Where to set the name of a curve: beside it, where no other curve is near.

/// The height of a line of text, in the units of the drawing.
const NAME_HEIGHT: f64 = 15.0;

/// How far a name stands from its curve.
const OFFSET: f64 = 5.0;

/// A box on the drawing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Box2 {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Box2 {
    pub(crate) fn new(left: f64, top: f64, width: f64, height: f64) -> Self {
        Self {
            left,
            top,
            width,
            height,
        }
    }

    /// Where text in this box is anchored: its middle, on its baseline.
    pub(crate) fn baseline(self) -> (f64, f64) {
        (self.left + self.width / 2.0, self.top + self.height - 4.0)
    }

    fn right(self) -> f64 {
        self.left + self.width
    }

    fn bottom(self) -> f64 {
        self.top + self.height
    }

    fn holds(self, other: Self) -> bool {
        self.left <= other.left
            && other.right() <= self.right()
            && self.top <= other.top
            && other.bottom() <= self.bottom()
    }

    /// How far a point lies outside the box; 0 inside.
    fn distance(self, (x, y): (f64, f64)) -> f64 {
        let dx = (self.left - x).max(x - self.right()).max(0.0);
        let dy = (self.top - y).max(y - self.bottom()).max(0.0);
        dx.hypot(dy)
    }

    fn overlaps(self, other: Self) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.top < other.bottom()
            && other.top < self.bottom()
    }
}

/// The best box for the name of curve `own`: inside the room, on no other
/// name, on no curve if that can be had, and as far as possible from the
/// other curves. Every point of the curve is tried, on all
/// sides.
pub(crate) fn place_name(
    own: usize,
    width: f64,
    curves: &[Vec<(f64, f64)>],
    taken: &[Box2],
    room: Box2,
) -> Option<Box2> {
    let dense: Vec<Vec<(f64, f64)>> = curves.iter().map(|curve| densified(curve)).collect();
    let mut best: Option<(f64, Box2)> = None;
    for &(x, y) in dense.get(own)? {
        let middle = (x - width / 2.0, y - NAME_HEIGHT / 2.0);
        let (above, below) = (y - OFFSET - NAME_HEIGHT, y + OFFSET);
        let (before, after) = (x - OFFSET - width, x + OFFSET);
        let corners = [
            (middle.0, above),
            (middle.0, below),
            (before - OFFSET, middle.1),
            (after + OFFSET, middle.1),
            (before, above),
            (after, below),
            (before, below),
            (after, above),
        ];
        for (left, top) in corners {
            let found = Box2::new(left, top, width, NAME_HEIGHT);
            if !room.holds(found) || taken.iter().any(|&other| other.overlaps(found)) {
                continue;
            }
            let score = score(found, own, &dense);
            if best.is_none_or(|(most, _)| score > most + 1e-6) {
                best = Some((score, found));
            }
        }
    }
    best.map(|(_, found)| found)
}

/// The first of the boxes that lies on the fewest curves.
pub(crate) fn calmest(boxes: &[Box2], curves: &[Vec<(f64, f64)>]) -> Option<Box2> {
    let dense: Vec<Vec<(f64, f64)>> = curves.iter().map(|curve| densified(curve)).collect();
    let hidden = |found: &Box2| {
        let hides = |curve: &&Vec<(f64, f64)>| curve.iter().any(|&p| found.distance(p) < 1.0);
        dense.iter().filter(hides).count()
    };
    boxes.iter().copied().min_by_key(hidden)
}

/// Clearance from the other curves counts up to the point where a reader no
/// longer cares; covering any curve, the own one too, costs more than that.
fn score(found: Box2, own: usize, curves: &[Vec<(f64, f64)>]) -> f64 {
    let mut score: f64 = 40.0;
    for (i, curve) in curves.iter().enumerate() {
        let nearest = curve
            .iter()
            .map(|&p| found.distance(p))
            .fold(f64::INFINITY, f64::min);
        if nearest < 1.0 {
            score -= 60.0;
        } else if i != own {
            score = score.min(nearest);
        }
    }
    score
}

/// The curve with a point at least every few units, so that a box between two
/// distant points is seen to be on the line.
fn densified(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut dense = Vec::new();
    for pair in curve.windows(2) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        let pieces = ((x2 - x1).hypot(y2 - y1) / 4.0).ceil().clamp(1.0, 400.0) as usize;
        for i in 0..pieces {
            let share = i as f64 / pieces as f64;
            dense.push((x1 + share * (x2 - x1), y1 + share * (y2 - y1)));
        }
    }
    dense.extend(curve.last());
    dense
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Box2 = Box2 {
        left: 0.0,
        top: 0.0,
        width: 300.0,
        height: 200.0,
    };

    #[test]
    fn names_stand_apart_from_curves_and_each_other() {
        let curves = vec![
            vec![(0.0, 190.0), (150.0, 60.0), (300.0, 20.0)],
            vec![(0.0, 195.0), (150.0, 120.0), (300.0, 20.0)],
        ];
        let first = place_name(0, 60.0, &curves, &[], ROOM).unwrap();
        let second = place_name(1, 60.0, &curves, &[first], ROOM).unwrap();
        assert!(!first.overlaps(second));
        for curve in &curves {
            for &p in &densified(curve) {
                assert!(first.distance(p) >= 1.0 && second.distance(p) >= 1.0);
            }
        }
    }

    #[test]
    fn where_there_is_no_room_there_is_no_name() {
        let curve = vec![vec![(0.0, 10.0), (300.0, 10.0)]];
        assert_eq!(place_name(0, 400.0, &curve, &[], ROOM), None);
        assert_eq!(place_name(1, 40.0, &curve, &[], ROOM), None);
    }
}
