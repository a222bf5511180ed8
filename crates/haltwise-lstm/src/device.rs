//! The device to compute on.

use crate::error::Error;
use crate::shape::Shape;
use std::fmt;
use std::str::FromStr;

/// The device for training or scoring.
///
/// ```
/// use haltwise_lstm::Device;
/// assert_eq!("cuda:1".parse::<Device>().ok(), Some(Device::Cuda(1)));
/// assert_eq!("cuda".parse::<Device>().ok(), Some(Device::Cuda(0)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A GPU, if one is usable and the network is large enough to profit from it.
    #[default]
    Auto,
    /// This machine's processor.
    Cpu,
    /// The NVIDIA GPU with this number, from 0.
    Cuda(usize),
}

impl Device {
    /// Whether a network runs faster on a GPU. The recurrence takes about a microsecond a
    /// step there, for any size; the CPU needs that time for a layer of about 64 units.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn worth_a_gpu(shape: &Shape) -> bool {
        shape.hidden >= 64
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::Device(text.into());
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").ok_or_else(unknown)?;
                let digits = number.bytes().all(|b| b.is_ascii_digit());
                let number = number.parse().ok().filter(|_| digits);
                number.map(Device::Cuda).ok_or_else(unknown)
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for device in [Device::Auto, Device::Cpu, Device::Cuda(0), Device::Cuda(12)] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        for text in [
            "", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda 0",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("give auto, cpu, cuda or cuda:N"), "{error}");
        }
    }
}
