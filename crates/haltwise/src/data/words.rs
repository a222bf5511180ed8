//! Things that a user asks for by a word: methods, scores, losses, promises. Each is declared
//! beside its type, with the word and its help; every door reads them from here.

/// A type whose values have words.
pub trait Word: Copy + 'static {
    /// The option that takes them.
    const OPTION: &'static str;

    /// All values.
    const VALUES: &'static [Self];

    /// The word for each, and what it means.
    const WORDS: &'static [(&'static str, &'static str)];

    /// The word for a value.
    fn word(self) -> &'static str;

    /// The value that a word stands for.
    fn of(word: &str) -> Result<Self, UnknownWord> {
        let mut all = Self::VALUES.iter().copied();
        all.find(|value| value.word() == word)
            .ok_or_else(|| UnknownWord {
                option: Self::OPTION,
                found: word.to_owned(),
                known: Self::WORDS.iter().map(|(word, _)| *word).collect(),
            })
    }
}

/// A word that an option does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownWord {
    pub(crate) option: &'static str,
    pub(crate) found: String,
    pub(crate) known: Vec<&'static str>,
}

impl UnknownWord {
    /// The message, with the option spelt as at its door.
    pub(crate) fn spelt(&self, option: &str) -> String {
        let known: Vec<String> = self.known.iter().map(|w| format!("{w:?}")).collect();
        format!(
            "{option} must be one of {}, but {:?} was given",
            known.join(", "),
            self.found
        )
    }
}

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spelt(self.option))
    }
}

impl std::error::Error for UnknownWord {}

/// Declares the words of a type, every variant of it: one that is left out does not compile.
macro_rules! words {
    ($type:ty, $option:literal: $(
        $variant:ident $(($inner:expr))? $({ $field:ident: $value:expr })? = $word:literal, $help:literal;
    )+) => {
        impl $crate::data::words::Word for $type {
            const OPTION: &'static str = $option;

            const VALUES: &'static [Self] = &[$(
                Self::$variant $(($inner))? $({ $field: $value })?,
            )+];

            const WORDS: &'static [(&'static str, &'static str)] = &[$(($word, $help),)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $word,)+
                }
            }
        }
    };
}

pub(crate) use words;
