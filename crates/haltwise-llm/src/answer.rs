//! From the likeliest next tokens to a probability for each option.

/// What the model makes of a question: how likely each option is.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// One per option, adding up to 1. All equal where no letter was seen.
    pub probs: Vec<f32>,
    /// The letters that were not among the likeliest tokens: their options
    /// have probability 0, unless there was no letter at all.
    pub missing: String,
}

impl Answer {
    /// Shares the probability of the tokens that are one of the letters among
    /// them. "A" and " A" are the same letter, and their probabilities add.
    pub(crate) fn from_tokens(likeliest: &[(String, f64)], letters: &[char]) -> Self {
        let likelihood = |letter: &char| -> f64 {
            likeliest
                .iter()
                .filter(|(token, _)| is_letter(token, *letter))
                .map(|(_, logprob)| logprob.exp())
                .sum()
        };
        let found: Vec<f64> = letters.iter().map(likelihood).collect();
        let missing = std::iter::zip(letters, &found)
            .filter(|(_, likelihood)| **likelihood <= 0.0)
            .map(|(letter, _)| letter)
            .collect();
        let sum: f64 = found.iter().sum();
        let share = |likelihood: f64| {
            if sum > 0.0 {
                likelihood / sum
            } else {
                1.0 / letters.len() as f64
            }
        };
        Self {
            probs: found.into_iter().map(|l| share(l) as f32).collect(),
            missing,
        }
    }

    /// Whether not one letter was seen.
    pub fn knows_nothing(&self) -> bool {
        self.missing.chars().count() == self.probs.len()
    }

    /// The likeliest option, the first of equals.
    pub fn choice(&self) -> usize {
        let mut best = 0;
        for (i, p) in self.probs.iter().enumerate() {
            if *p > self.probs[best] {
                best = i;
            }
        }
        best
    }
}

/// Whether a token is the letter, with or without a space before it: as text,
/// or as tokenizers of two families write that space.
fn is_letter(token: &str, letter: char) -> bool {
    let blank = |c: char| c.is_whitespace() || matches!(c, '▁' | 'Ġ');
    let mut rest = token.trim_matches(blank).chars();
    rest.next() == Some(letter) && rest.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(tokens: &[(&str, f64)], letters: &str) -> Answer {
        let tokens: Vec<_> = tokens.iter().map(|(t, p)| ((*t).into(), p.ln())).collect();
        Answer::from_tokens(&tokens, &letters.chars().collect::<Vec<_>>())
    }

    #[test]
    fn variants_of_a_letter_add_up() {
        let tokens = [
            ("A", 0.2),
            (" A", 0.1),
            ("▁B", 0.05),
            ("ĠB", 0.05),
            ("Apple", 0.5),
        ];
        let answer = answer(&tokens, "AB");
        assert_eq!(answer.probs, [0.75, 0.25]);
        assert_eq!((answer.missing.as_str(), answer.choice()), ("", 0));
    }

    #[test]
    fn letters_that_were_not_seen_are_named() {
        let answer = answer(&[("C", 0.5), ("a", 0.4)], "ABCD");
        assert_eq!(answer.probs, [0.0, 0.0, 1.0, 0.0]);
        assert_eq!((answer.missing.as_str(), answer.choice()), ("ABD", 2));
        assert!(!answer.knows_nothing());
    }

    #[test]
    fn no_letter_at_all_is_not_knowing() {
        let answer = answer(&[("The", 0.9)], "ABCD");
        assert_eq!(answer.probs, [0.25; 4]);
        assert!(answer.knows_nothing());
    }
}
