//! Why a GPU cannot be used.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// The result of everything that a GPU does.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a GPU cannot be used, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver is installed.
    #[error("there is no NVIDIA driver on this machine")]
    NoDriver,
    /// A driver, but no such GPU.
    #[error("there is no cuda:{asked}: the driver sees {}", count(*found))]
    NoSuchGpu {
        /// The number asked for, from 0.
        asked: usize,
        /// How many there are.
        found: usize,
    },
    /// A GPU without the instructions that the kernels use.
    #[error(
        "{name} has compute capability {major}.{minor}, and 8.0 is needed (Ampere, 2020, or later)"
    )]
    TooOld {
        /// The GPU.
        name: String,
        /// Its compute capability.
        major: i32,
        /// The second part of it.
        minor: i32,
    },
    /// A driver that does not understand the kernels.
    #[error("the driver cannot compile the kernels ({0}): install a driver of CUDA 11.8 or later")]
    OldDriver(String),
    /// A network that the kernels cannot hold.
    #[error("{0}")]
    TooLarge(String),
    /// The memory of the GPU is full.
    #[error(
        "its memory is full: {free} MiB of {total} MiB are free; end other programs that use it, \
         or use smaller batches"
    )]
    Full {
        /// The free memory, in MiB.
        free: usize,
        /// What there is, in MiB.
        total: usize,
    },
    /// The driver reported a failure.
    #[error("{0}")]
    Driver(String),
}

fn count(found: usize) -> String {
    match found {
        0 => "no GPU".into(),
        1 => "one GPU, cuda:0".into(),
        n => format!("{n} GPUs, cuda:0 to cuda:{}", n - 1),
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        let words = match error.error_string() {
            Ok(words) => words.to_string_lossy().into_owned(),
            Err(_) => "no description".into(),
        };
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::Driver(
                "its memory is full: end other programs that use it, or use smaller batches".into(),
            ),
            CUresult::CUDA_ERROR_NO_DEVICE => Error::NoSuchGpu { asked: 0, found: 0 },
            code => Error::Driver(format!("{words} ({code:?})")),
        }
    }
}
