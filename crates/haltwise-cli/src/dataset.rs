//! Which sequences a verb works on.

use std::path::PathBuf;

use anyhow::bail;
use haltwise_io::ErrorKind;
use haltwise_io::series::{self, BUILTIN, Missing, Part, SeriesSet, read_within, split};

use crate::memory::{MemoryLimit, size};
use crate::show;

/// The sequences to read.
#[derive(clap::Args)]
pub(crate) struct DatasetArgs {
    /// A file (.ts, .tsv, .txt, .npz), a folder with NAME_TRAIN.* and NAME_TEST.*, or the name of
    /// a built-in dataset (PenDigits)
    pub(crate) series: PathBuf,

    /// Which half of a dataset that comes as TRAIN and TEST
    #[arg(long, value_enum, default_value_t = PartArg::Both)]
    part: PartArg,

    /// Leave this share of the sequences out of training; `score` then takes only them
    #[arg(long, value_name = "SHARE", value_parser = share)]
    hold_out: Option<f64>,

    /// The seed that draws the held-out sequences: the same for `train` and `score`
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "hold_out")]
    split_seed: u64,

    /// Fill missing values with the last value before them (0 where there is none) instead of
    /// refusing them
    #[arg(long)]
    fill_missing: bool,

    #[command(flatten)]
    memory: MemoryLimit,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PartArg {
    /// Both halves, the training half first
    Both,
    /// The half published for training
    Train,
    /// The half published for testing
    Test,
}

/// A share of a whole, strictly between nothing and all of it.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number"))?;
    match share > 0.0 && share < 1.0 {
        true => Ok(share),
        false => Err("a share lies strictly between 0 and 1".into()),
    }
}

/// Which side of a hold-out a verb takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Training,
    HeldOut,
}

impl DatasetArgs {
    /// The sequences, and the place of each in the whole dataset.
    pub(crate) fn read(&self, side: Side) -> anyhow::Result<(SeriesSet, Vec<usize>)> {
        let set = self.whole()?;
        let Some(hold_out) = self.hold_out else {
            let places = (0..set.len()).collect();
            return Ok((set, places));
        };
        let parts = split(set.len(), &[1.0 - hold_out, hold_out], self.split_seed)?;
        let places = match side {
            Side::Training => &parts[0],
            Side::HeldOut => &parts[1],
        };
        if places.is_empty() {
            bail!(
                "{}: too few sequences to hold any out",
                self.series.display()
            );
        }
        Ok((set.select(places), places.clone()))
    }

    /// Refuses sequences with which a classifier would work in more memory than it may.
    pub(crate) fn check_work(&self, set: &SeriesSet, bytes: u64) -> anyhow::Result<()> {
        // The sequences are there already.
        let values = size_of_val(set.values()) as u64;
        if bytes.saturating_add(values) > self.memory.bytes() {
            bail!(
                "{}: the classifier takes {} for {} sequences of up to {} steps, more than --memory {} \
                 leaves; cut long sequences, or allow more",
                self.series.display(),
                size(bytes),
                show::number(set.len() as u64),
                show::number(set.t_max() as u64),
                size(self.memory.bytes()),
            );
        }
        Ok(())
    }

    fn whole(&self) -> anyhow::Result<SeriesSet> {
        let part = match self.part {
            PartArg::Both => Part::Both,
            PartArg::Train => Part::Train,
            PartArg::Test => Part::Test,
        };
        let missing = match self.fill_missing {
            true => Missing::Fill,
            false => Missing::Refuse,
        };
        let name = self.series.to_string_lossy();
        if !self.series.exists() && BUILTIN.contains(&&*name) {
            if part != Part::Both {
                bail!("{name}: the built-in copy does not tell the halves apart; use --hold-out");
            }
            return Ok(series::builtin(&name)?);
        }
        let read = |missing| read_within(self.memory.bytes(), &self.series, part, missing);
        match read(missing) {
            // Where filling helps, missing values were the problem.
            Err(error) if error.kind() != ErrorKind::TooLarge && read(Missing::Fill).is_ok() => {
                bail!("{error} (or give --fill-missing)")
            }
            read => Ok(read?),
        }
    }
}
