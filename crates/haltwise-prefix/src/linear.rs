//! Products and the Cholesky decomposition of large matrices, on all cores.
//!
//! A matrix is cut into blocks of a fixed size, and each block is computed by one thread. So
//! any number of threads gives the same bits.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayBase, ArrayView2, ArrayViewMut2, Axis, Ix2, RawData, Slice};
use rayon::prelude::*;
use std::ops::Range;

/// Rows or columns that one thread computes at a time.
const BLOCK: usize = 256;
/// Columns that are decomposed together.
const PANEL: usize = 96;

/// Some rows and columns of a view.
fn part<S: RawData>(
    mut matrix: ArrayBase<S, Ix2>,
    rows: Range<usize>,
    columns: Range<usize>,
) -> ArrayBase<S, Ix2> {
    matrix.slice_axis_inplace(Axis(0), Slice::from(rows));
    matrix.slice_axis_inplace(Axis(1), Slice::from(columns));
    matrix
}

/// The lower triangle of A·Aᵀ; what lies above it is not to be read.
pub(crate) fn gram(a: ArrayView2<'_, f32>) -> Array2<f32> {
    let mut gram = Array2::zeros((a.nrows(), a.nrows()));
    let depth = a.ncols();
    blocks_of_rows(gram.view_mut()).for_each(|(from, rows)| {
        let to = from + rows.nrows();
        let mut rows = part(rows, 0..to - from, 0..to);
        let (left, right) = (part(a, from..to, 0..depth), part(a, 0..to, 0..depth));
        general_mat_mul(1.0, &left, &right.t(), 0.0, &mut rows);
    });
    gram
}

/// A·B.
pub(crate) fn product(a: ArrayView2<'_, f32>, b: &Array2<f32>) -> Array2<f32> {
    let mut out = Array2::zeros((a.nrows(), b.ncols()));
    blocks_of_rows(out.view_mut()).for_each(|(from, mut rows)| {
        let left = part(a, from..from + rows.nrows(), 0..a.ncols());
        general_mat_mul(1.0, &left, b, 0.0, &mut rows);
    });
    out
}

/// The blocks of a matrix, each with the number of its first row.
fn blocks_of_rows(
    matrix: ArrayViewMut2<'_, f32>,
) -> impl IndexedParallelIterator<Item = (usize, ArrayViewMut2<'_, f32>)> {
    let mut blocks = Vec::new();
    let mut rest = matrix;
    let mut from = 0;
    while rest.nrows() > 0 {
        let rows = rest.nrows().min(BLOCK);
        let (block, others) = rest.split_at(Axis(0), rows);
        blocks.push((from, block));
        from += rows;
        rest = others;
    }
    blocks.into_par_iter().with_max_len(1)
}

/// A lower triangle L with A = L·Lᵀ.
#[derive(Debug)]
pub(crate) struct Cholesky(Array2<f32>);

impl Cholesky {
    /// Decomposes a symmetric matrix, of which only the lower triangle is read. `None` if it
    /// is not positive definite to rounding.
    pub(crate) fn of(mut a: Array2<f32>) -> Option<Self> {
        let n = a.nrows();
        for from in (0..n).step_by(PANEL) {
            let to = (from + PANEL).min(n);
            let (above, below) = a.view_mut().split_at(Axis(0), to);
            let (done, mut corner) = part(above, from..to, 0..to).split_at(Axis(1), from);
            let done = done.view();
            // What the columns before take away from these.
            general_mat_mul(-1.0, &done, &done.t(), 1.0, &mut corner);
            if !decompose_small(&mut corner) {
                return None;
            }
            let corner = inverse_small(&corner.view());
            blocks_of_rows(below).for_each(|(_, rows)| {
                let height = rows.nrows();
                let (left, mut panel) = part(rows, 0..height, 0..to).split_at(Axis(1), from);
                general_mat_mul(-1.0, &left, &done.t(), 1.0, &mut panel);
                let before = panel.to_owned();
                general_mat_mul(1.0, &before, &corner.t(), 0.0, &mut panel);
            });
        }
        Some(Cholesky(a))
    }

    /// B = L⁻¹·B, where the first `zeros` rows of B are 0.
    fn solve_lower(&self, b: &mut ArrayViewMut2<'_, f32>, zeros: usize) {
        let (n, width) = b.dim();
        let mut from = zeros;
        while from < n {
            let to = (from + PANEL).min(n);
            let (done, rest) = b.view_mut().split_at(Axis(0), from);
            let mut panel = part(rest, 0..to - from, 0..width);
            let left = part(self.0.view(), from..to, zeros..from);
            general_mat_mul(
                -1.0,
                &left,
                &part(done, zeros..from, 0..width),
                1.0,
                &mut panel,
            );
            for i in from..to {
                let (before, mut row) = panel.view_mut().split_at(Axis(0), i - from);
                let mut row = row.row_mut(0);
                for (k, earlier) in before.rows().into_iter().enumerate() {
                    row.scaled_add(-self.0[(i, from + k)], &earlier);
                }
                row *= self.0[(i, i)].recip();
            }
            from = to;
        }
    }

    /// B = L⁻ᵀ·B.
    fn solve_upper(&self, b: &mut Array2<f32>) {
        let (n, width) = b.dim();
        for from in (0..n).step_by(PANEL).rev() {
            let to = (from + PANEL).min(n);
            let (first, done) = b.view_mut().split_at(Axis(0), to);
            let mut panel = part(first, from..to, 0..width);
            let below = part(self.0.view(), to..n, from..to);
            general_mat_mul(-1.0, &below.t(), &done, 1.0, &mut panel);
            for i in (from..to).rev() {
                let (mut before, mut row) = panel.view_mut().split_at(Axis(0), i - from);
                let mut row = row.row_mut(0);
                row *= self.0[(i, i)].recip();
                for (k, mut earlier) in before.rows_mut().into_iter().enumerate() {
                    earlier.scaled_add(-self.0[(i, from + k)], &row);
                }
            }
        }
    }

    /// A⁻¹·B.
    pub(crate) fn solve(&self, mut b: Array2<f32>) -> Array2<f32> {
        self.solve_lower(&mut b.view_mut(), 0);
        self.solve_upper(&mut b);
        b
    }

    /// The diagonal of A⁻¹: the sums of squares of the columns of L⁻¹.
    pub(crate) fn inverse_diagonal(&self) -> Vec<f32> {
        let n = self.0.nrows();
        let starts: Vec<usize> = (0..n).step_by(BLOCK).collect();
        let parts = starts.into_par_iter().with_max_len(1).map(|from| {
            let columns = BLOCK.min(n - from);
            let mut unit = Array2::zeros((n, columns));
            for j in 0..columns {
                unit[(from + j, j)] = 1.0;
            }
            self.solve_lower(&mut unit.view_mut(), from);
            sums_of_squares(&unit)
        });
        parts.collect::<Vec<_>>().concat()
    }

    /// zᵀ·A⁻¹·z for each row z.
    pub(crate) fn leverages(&self, rows: ArrayView2<'_, f32>) -> Vec<f32> {
        let blocks: Vec<_> = rows.axis_chunks_iter(Axis(0), BLOCK).collect();
        let parts = blocks.into_par_iter().with_max_len(1).map(|block| {
            let mut columns = block.t().as_standard_layout().into_owned();
            self.solve_lower(&mut columns.view_mut(), 0);
            sums_of_squares(&columns)
        });
        parts.collect::<Vec<_>>().concat()
    }
}

/// The sum of squares of each column.
fn sums_of_squares(matrix: &Array2<f32>) -> Vec<f32> {
    let mut sums = vec![0.0; matrix.ncols()];
    for row in matrix.rows() {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x * x;
        }
    }
    sums
}

fn decompose_small(a: &mut ArrayViewMut2<'_, f32>) -> bool {
    for j in 0..a.nrows() {
        let mut d = f64::from(a[(j, j)]);
        for k in 0..j {
            d -= f64::from(a[(j, k)]) * f64::from(a[(j, k)]);
        }
        if d.is_nan() || d <= 0.0 {
            return false;
        }
        let d = d.sqrt();
        a[(j, j)] = d as f32;
        for i in j + 1..a.nrows() {
            let mut x = f64::from(a[(i, j)]);
            for k in 0..j {
                x -= f64::from(a[(i, k)]) * f64::from(a[(j, k)]);
            }
            a[(i, j)] = (x / d) as f32;
        }
    }
    true
}

/// L⁻¹ of a small lower triangle.
fn inverse_small(l: &ArrayView2<'_, f32>) -> Array2<f32> {
    let n = l.nrows();
    let mut inverse = Array2::<f32>::zeros((n, n));
    for i in 0..n {
        let (before, mut row) = inverse.view_mut().split_at(Axis(0), i);
        let mut row = row.row_mut(0);
        row[i] = 1.0;
        for (k, earlier) in before.rows().into_iter().enumerate() {
            row.scaled_add(-l[(i, k)], &earlier);
        }
        row *= l[(i, i)].recip();
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise_series::Random;

    fn random(rows: usize, columns: usize) -> Array2<f32> {
        let mut random = Random::new(1, 0);
        Array2::from_shape_simple_fn((rows, columns), || random.unit() - 0.5)
    }

    fn close(a: &Array2<f32>, b: &Array2<f32>) -> bool {
        a.iter()
            .zip(b)
            .all(|(a, b)| (a - b).abs() < 1e-3 * (1.0 + b.abs()))
    }

    #[test]
    fn a_system_is_solved_and_its_inverse_has_the_right_diagonal() {
        for n in [1, 95, 96, 97, 300, 520] {
            let z = random(n, n + 5);
            let mut a = gram(z.view());
            a.diag_mut().mapv_inplace(|d| d + 1.0);
            let whole = z.dot(&z.t()) + Array2::<f32>::eye(n);
            let cholesky = Cholesky::of(a).unwrap();
            let b = random(n, 3);
            assert!(close(&whole.dot(&cholesky.solve(b.clone())), &b), "{n}");
            let inverse = cholesky.solve(Array2::eye(n));
            for (i, d) in cholesky.inverse_diagonal().into_iter().enumerate() {
                assert!((d - inverse[(i, i)]).abs() < 1e-4, "{n} {i}");
            }
            let rows = random(7, n);
            let forms = rows.dot(&inverse).dot(&rows.t());
            for (i, h) in cholesky.leverages(rows.view()).into_iter().enumerate() {
                assert!((h - forms[(i, i)]).abs() < 1e-3 * (1.0 + h), "{n} {i}");
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_refused() {
        let mut a = Array2::<f32>::eye(200);
        a[(150, 150)] = -1.0;
        assert!(Cholesky::of(a.clone()).is_none());
        a[(150, 150)] = f32::NAN;
        assert!(Cholesky::of(a).is_none());
    }

    #[test]
    fn products_are_products() {
        let (a, b) = (random(300, 40), random(40, 5));
        assert!(close(&product(a.view(), &b), &a.dot(&b)));
        let (g, whole) = (gram(a.view()), a.dot(&a.t()));
        for i in 0..300 {
            for j in 0..=i {
                assert!((g[(i, j)] - whole[(i, j)]).abs() < 1e-4);
            }
        }
    }
}
