//! The paper's Table 1: means and standard errors over the splits, the paper's
//! numbers beside ours; for the terminal, Markdown, LaTeX, CSV and JSON.

use std::fmt::Write;

use haltwise::rule::Promise;
use serde::Serialize;

use super::paper::papers;
use super::{DatasetResults, Experiment, MethodResults, SplitResult, mean_and_error};

/// The columns of numbers: how each is called, for people and for machines.
pub(crate) const COLUMNS: [(&str, &str); 6] = [
    ("late acc.", "late_accuracy"),
    ("early acc.", "early_accuracy"),
    ("gap 20%", "gap_20"),
    ("gap 50%", "gap_50"),
    ("gap", "gap"),
    ("t_avg", "t_avg"),
];

/// The row of who knows the future: it halts at the first step without a gap.
const ORACLE: &str = "oracle bound";

/// What the paper's numbers are for.
const PAPER_ALPHA: f64 = 0.1;
const PAPER_DELTA: f64 = 0.01;

/// Table 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ResultsTable {
    /// One row per dataset and method.
    pub rows: Vec<TableRow>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableRow {
    /// The dataset.
    pub dataset: String,
    /// The method.
    pub method: String,
    /// The promise of its rules, if any.
    pub promise: Option<Promise>,
    /// Over how many splits.
    pub splits: usize,
    /// The accuracy of the full predictions.
    pub late_accuracy: Cell,
    /// The accuracy of the early predictions.
    pub early_accuracy: Cell,
    /// The gap among the 20% that halted first.
    pub gap_20: Cell,
    /// The gap among the 50% that halted first.
    pub gap_50: Cell,
    /// The gap over all sequences.
    pub gap: Cell,
    /// The mean of halt step / t_max.
    pub t_avg: Cell,
}

/// One number of ours, and the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// The mean over the splits; `None` where no split has the number.
    pub mean: Option<f64>,
    /// Its standard error.
    pub standard_error: Option<f64>,
    /// What the paper reports, if it does.
    pub paper: Option<f64>,
}

impl Experiment {
    /// The paper's Table 1 from this experiment.
    pub fn table(&self) -> ResultsTable {
        // The paper's numbers stand beside ours only where they are of the same.
        let same = (self.alpha, self.delta) == (PAPER_ALPHA, PAPER_DELTA);
        let of_dataset = |dataset: &DatasetResults| {
            let row = |method: &MethodResults| {
                let paper = papers(&dataset.name, method.method);
                table_row(&dataset.name, method, paper.filter(|_| same))
            };
            let methods = dataset.methods.iter().map(row);
            methods.chain(oracle_row(dataset)).collect::<Vec<_>>()
        };
        ResultsTable {
            rows: self.datasets.iter().flat_map(of_dataset).collect(),
        }
    }
}

/// The bound that no rule without a loss can beat, as a row that has nothing but
/// t_avg.
fn oracle_row(dataset: &DatasetResults) -> Option<TableRow> {
    let bound = dataset.oracle?;
    let none = Cell {
        mean: None,
        standard_error: None,
        paper: None,
    };
    Some(TableRow {
        dataset: dataset.name.clone(),
        method: ORACLE.into(),
        promise: None,
        splits: 0,
        late_accuracy: none,
        early_accuracy: none,
        gap_20: none,
        gap_50: none,
        gap: none,
        t_avg: Cell {
            mean: Some(bound),
            ..none
        },
    })
}

fn table_row(dataset: &str, method: &MethodResults, paper: Option<[f64; 6]>) -> TableRow {
    let cell = |column: usize, ours: fn(&SplitResult) -> Option<f64>| {
        let found = mean_and_error(method.splits.iter().filter_map(ours));
        Cell {
            mean: found.map(|f| f.0),
            standard_error: found.map(|f| f.1),
            paper: paper.map(|paper| paper[column]),
        }
    };
    TableRow {
        dataset: dataset.into(),
        method: method.name.clone(),
        promise: method.promise,
        splits: method.splits.len(),
        late_accuracy: cell(0, |s| Some(s.late_accuracy)),
        early_accuracy: cell(1, |s| Some(s.early_accuracy)),
        gap_20: cell(2, |s| s.gap_20),
        gap_50: cell(3, |s| s.gap_50),
        gap: cell(4, |s| Some(s.gap)),
        t_avg: cell(5, |s| Some(s.t_avg)),
    }
}

impl TableRow {
    /// The numbers in the order of [`COLUMNS`].
    pub(crate) fn cells(&self) -> [Cell; 6] {
        [
            self.late_accuracy,
            self.early_accuracy,
            self.gap_20,
            self.gap_50,
            self.gap,
            self.t_avg,
        ]
    }

    fn has_paper(&self) -> bool {
        self.cells().iter().any(|cell| cell.paper.is_some())
    }
}

impl Cell {
    /// Ours, such as "0.912 ± 0.001".
    pub(crate) fn ours(&self, plus_minus: &str) -> String {
        match (self.mean, self.standard_error) {
            (Some(mean), Some(error)) => format!("{mean:.3}{plus_minus}{error:.3}"),
            (Some(mean), None) => format!("{mean:.3}"),
            _ => "–".into(),
        }
    }

    /// The paper's, such as "0.912".
    pub(crate) fn papers(&self) -> Option<String> {
        self.paper.map(|value| format!("{value:.3}"))
    }
}

impl ResultsTable {
    /// For a terminal: aligned columns, the paper's numbers below ours.
    pub fn to_text(&self) -> String {
        let mut lines = vec![header()];
        let mut last = None;
        for row in &self.rows {
            let dataset = if last == Some(&row.dataset) {
                ""
            } else {
                &row.dataset
            };
            last = Some(&row.dataset);
            let ours = row.cells().map(|cell| cell.ours(" ± "));
            lines.push(words(dataset, &row.method, ours));
            if row.has_paper() {
                let paper = row.cells().map(|cell| cell.papers().unwrap_or_default());
                lines.push(words("", "  the paper", paper));
            }
        }
        aligned(&lines)
    }

    /// As Markdown, the paper's numbers in parentheses.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("| {} |\n", header().join(" | "));
        text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
        for row in &self.rows {
            let cells = row.cells().map(|cell| match cell.papers() {
                Some(paper) => format!("{} ({paper})", cell.ours(" ± ")),
                None => cell.ours(" ± "),
            });
            let line = words(&row.dataset, &row.method, cells);
            let line = line.map(|word| word.replace('|', "\\|").replace('\n', " "));
            let _ = writeln!(text, "| {} |", line.join(" | "));
        }
        text
    }

    /// As LaTeX, for the booktabs package; the paper's numbers below ours.
    pub fn to_latex(&self) -> String {
        let header = header().map(|word| latex(&word));
        let mut text = "\\begin{tabular}{llrrrrrr}\n\\toprule\n".to_owned();
        let _ = writeln!(text, "{} \\\\\n\\midrule", header.join(" & "));
        let mut last = None;
        for row in &self.rows {
            let same = last == Some(&row.dataset);
            if !same && last.is_some() {
                text += "\\addlinespace\n";
            }
            let dataset = if same {
                String::new()
            } else {
                latex(&row.dataset)
            };
            last = Some(&row.dataset);
            let ours = row.cells().map(|cell| match cell.mean {
                Some(_) => format!("${}$", cell.ours(" \\pm ")),
                None => "--".into(),
            });
            let _ = writeln!(
                text,
                "{} \\\\",
                words(&dataset, &latex(&row.method), ours).join(" & ")
            );
            if row.has_paper() {
                let paper = row
                    .cells()
                    .map(|c| c.papers().map_or(String::new(), |p| format!("${p}$")));
                let line = words("", "\\quad the paper", paper);
                let _ = writeln!(text, "{} \\\\", line.join(" & "));
            }
        }
        text + "\\bottomrule\n\\end{tabular}\n"
    }

    /// As CSV: for each number its mean, its standard error and the paper's,
    /// with all digits.
    pub fn to_csv(&self) -> String {
        let mut text = "dataset,method,splits".to_owned();
        for (_, name) in COLUMNS {
            let _ = write!(text, ",{name},{name}_se,{name}_paper");
        }
        for row in &self.rows {
            let (dataset, method) = (quoted(&row.dataset), quoted(&row.method));
            let _ = write!(text, "\n{dataset},{method},{}", row.splits);
            for cell in row.cells() {
                for value in [cell.mean, cell.standard_error, cell.paper] {
                    let value = value.map_or(String::new(), |v| v.to_string());
                    let _ = write!(text, ",{value}");
                }
            }
        }
        text + "\n"
    }

    /// As JSON: a list of rows.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

fn header() -> [String; 8] {
    words(
        "dataset",
        "method",
        COLUMNS.map(|(name, _)| name.to_owned()),
    )
}

fn words(dataset: &str, method: &str, cells: [String; 6]) -> [String; 8] {
    let [a, b, c, d, e, f] = cells;
    [dataset.into(), method.into(), a, b, c, d, e, f]
}

/// Lines with their columns aligned: two of words, then numbers. Numbers are
/// aligned on the left too, where ours and the paper's start with their mean.
fn aligned(lines: &[[String; 8]]) -> String {
    let mut widths = [0; 8];
    for line in lines {
        for (width, word) in widths.iter_mut().zip(line) {
            *width = word.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(widths);
        let padded: Vec<String> = padded.map(|(word, w)| format!("{word:<w$}")).collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Text with the characters that LaTeX reserves made harmless.
fn latex(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '\\' => safe += "\\textbackslash{}",
            '~' => safe += "\\textasciitilde{}",
            '^' => safe += "\\textasciicircum{}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                safe.push('\\');
                safe.push(c);
            }
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        let split = |gap: f64| SplitResult {
            n: 10,
            late_accuracy: 0.99,
            early_accuracy: 0.9,
            gap_20: None,
            gap_50: Some(0.05),
            gap,
            t_avg: 0.5,
            by_step: Vec::new(),
        };
        let method = |name: &str, method: haltwise::Method| MethodResults {
            name: name.into(),
            method,
            promise: method.promise(),
            splits: vec![split(0.04), split(0.06)],
        };
        let dataset = |name: &str, methods| DatasetResults {
            name: name.into(),
            methods,
            sweep: Vec::new(),
            oracle: None,
            note: None,
        };
        let known = vec![method("marginal", haltwise::Method::Marginal)];
        let odd = vec![method("a|b, \"c\" & d_e", haltwise::Method::ScreenOnly)];
        Experiment {
            alpha: 0.1,
            delta: 0.01,
            datasets: vec![dataset("PenDigits", known), dataset("mine", odd)],
        }
    }

    fn table() -> ResultsTable {
        experiment().table()
    }

    #[test]
    fn the_paper_s_numbers_stand_beside_those_of_its_own_alpha_only() {
        assert!(table().rows[0].gap.paper.is_some());
        let other = Experiment {
            alpha: 0.05,
            ..experiment()
        };
        assert!(other.table().rows[0].gap.paper.is_none());
    }

    #[test]
    fn the_terminal_gets_aligned_columns() {
        let expected = "\
dataset    method          late acc.      early acc.     gap 20%  gap 50%        gap            t_avg
PenDigits  marginal        0.990 ± 0.000  0.900 ± 0.000  –        0.050 ± 0.000  0.050 ± 0.010  0.500 ± 0.000
             the paper     0.989          0.912          0.086    0.090          0.080          0.446
mine       a|b, \"c\" & d_e  0.990 ± 0.000  0.900 ± 0.000  –        0.050 ± 0.000  0.050 ± 0.010  0.500 ± 0.000
";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn markdown_holds_the_papers_numbers_and_escapes_bars() {
        let text = table().to_markdown();
        assert!(text.contains("| PenDigits | marginal | 0.990 ± 0.000 (0.989) |"));
        assert!(text.contains("| mine | a\\|b, \"c\" & d_e |"));
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn latex_is_escaped() {
        let text = table().to_latex();
        assert!(text.contains("t\\_avg \\\\\n\\midrule"));
        assert!(text.contains("mine & a|b, \"c\" \\& d\\_e & $0.990 \\pm 0.000$"));
        assert!(text.contains(" & \\quad the paper & $0.989$"));
    }

    #[test]
    fn csv_is_quoted_and_complete() {
        let text = table().to_csv();
        let mut lines = text.lines();
        let columns = lines.next().unwrap().split(',').count();
        assert_eq!(columns, 21);
        assert_eq!(lines.next().unwrap().split(',').count(), columns);
        assert!(
            lines
                .next()
                .unwrap()
                .starts_with("mine,\"a|b, \"\"c\"\" & d_e\",2,0.99,")
        );
    }

    #[test]
    fn json_reads_back() {
        let value: serde_json::Value = serde_json::from_str(&table().to_json().unwrap()).unwrap();
        assert_eq!(value[0]["t_avg"]["paper"], 0.446);
        assert_eq!(value[0]["promise"], "marginal");
        assert!(value[1]["gap_20"]["mean"].is_null());
    }
}
