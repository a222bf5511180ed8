//! From a proposal to a rule: certifying sequences are counted, and the candidates are tested.

pub(crate) mod drawn;
pub(crate) mod evidence;
pub(crate) mod from_evidence;
pub(crate) mod source;
