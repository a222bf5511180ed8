//! The border between Python and Haltwise: arrays in, arrays out, with the
//! interpreter released in between. The package `haltwise` around it has the words,
//! the defaults and the docs for users.

#![forbid(unsafe_code)]

mod arrays;
mod calibrate;
mod cluster;
mod evidence;
mod failure;
mod files;
mod model;
mod monitor;
mod prefix;
mod report;
mod rule;
mod series;
mod stream;
mod thoughts;
mod votes;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::calibrate::{calibrate, check_options, forecast};
    #[pymodule_export]
    use crate::cluster::{Gathering, Surveying, calibrate_cluster, draws};
    #[pymodule_export]
    use crate::evidence::{Candidates, Evidence};
    #[pymodule_export]
    use crate::files::{read_arrow, read_traces, write_traces};
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::monitor::Monitor;
    #[pymodule_export]
    use crate::prefix::{PrefixModel, PrefixStream};
    #[pymodule_export]
    use crate::report::{figures, write_report};
    #[pymodule_export]
    use crate::rule::Rule;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::thoughts::count_thoughts;
    #[pymodule_export]
    use crate::votes::count_votes;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
