//! One way to write an answer: "1,000.0" and "1000" are the same vote.

/// A number as it is always written, or `None` where a text is none: no signs of
/// currency, no separators, no zeros that say nothing, fractions in lowest terms.
pub(super) fn number(text: &str) -> Option<String> {
    let text = text.trim().replace('−', "-");
    let negative = text.starts_with('-');
    let text = text.trim_start_matches(['-', '+']);
    let currency = |c: char| c.is_whitespace() || "$€£¥₹".contains(c);
    let text = text.trim_start_matches(currency);
    let text = text.trim_end_matches(|c: char| currency(c) || c == '%');
    let text = match text.split_once('/') {
        Some((over, under)) => fraction(over.trim(), under.trim())?,
        None => decimal(text)?,
    };
    Some(if negative && text != "0" {
        format!("-{text}")
    } else {
        text
    })
}

/// A number without a sign: "007.50" is "7.5", "1,234" is "1234", "2e3" is "2000".
fn decimal(text: &str) -> Option<String> {
    if let Some((digits, power)) = text.split_once(['e', 'E']) {
        plain(digits)?;
        power.parse::<i8>().ok()?;
        let value: f64 = text.replace(',', "").parse().ok()?;
        return value.is_finite().then(|| value.to_string());
    }
    plain(text)
}

fn plain(text: &str) -> Option<String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let whole = if whole.contains([',', '_', ' ', '\u{202f}', '\u{a0}']) {
        grouped(whole)?
    } else {
        whole.to_owned()
    };
    if whole.is_empty() && part.is_empty() || !digits(&whole) || !digits(part) {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    Some(match part.trim_end_matches('0') {
        "" => whole.to_owned(),
        part => format!("{whole}.{part}"),
    })
}

/// Digits in groups of three, without what separates them.
fn grouped(text: &str) -> Option<String> {
    let mut groups = text.split([',', '_', ' ', '\u{202f}', '\u{a0}']);
    let first = groups.next().filter(|g| (1..=3).contains(&g.len()))?;
    let mut whole = first.to_owned();
    for group in groups {
        if group.len() != 3 {
            return None;
        }
        whole += group;
    }
    Some(whole)
}

fn fraction(over: &str, under: &str) -> Option<String> {
    let whole = |text: &str| plain(text)?.parse::<u64>().ok();
    let (over, under) = (whole(over)?, whole(under)?);
    let shared = divisor(over, under);
    if under == 0 {
        return None;
    }
    Some(match (over / shared, under / shared) {
        (over, 1) => over.to_string(),
        (over, under) => format!("{over}/{under}"),
    })
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

/// An answer in words or figures: a number as numbers are written, else the words
/// with single blanks, without marks around them and a full stop.
pub(super) fn answer(text: &str) -> String {
    if let Some(number) = number(text.trim().trim_end_matches('.')) {
        return number;
    }
    let around = |c: char| c.is_whitespace() || "\"'`*“”‘’".contains(c);
    let text = text.trim_matches(around);
    let text = text.strip_suffix('.').unwrap_or(text).trim_matches(around);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The content of LaTeX's box, without the marks that change nothing about it.
pub(super) fn latex(text: &str) -> String {
    let mut text = text.replace("{,}", ",").replace("\\$", "$");
    for (command, plain) in [
        ("\\left", ""),
        ("\\right", ""),
        ("\\!", ""),
        ("\\,", ""),
        ("\\;", ""),
        ("\\ ", " "),
        ("\\%", "%"),
        ("^\\circ", ""),
        ("^{\\circ}", ""),
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
    ] {
        text = text.replace(command, plain);
    }
    for command in ["\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{"] {
        while let Some(at) = text.find(command) {
            let Some(inside) = in_braces(&text[at + command.len() - 1..]) else {
                break;
            };
            let end = at + command.len() + inside.len() + 1;
            text = format!("{}{inside}{}", &text[..at], &text[end..]);
        }
    }
    let fraction = text
        .strip_prefix("\\frac{")
        .or(text.strip_prefix("-\\frac{"));
    if let Some((over, under)) = fraction
        .and_then(|rest| rest.strip_suffix('}'))
        .and_then(|rest| rest.split_once("}{"))
    {
        let sign = if text.starts_with('-') { "-" } else { "" };
        if let Some(number) = number(&format!("{sign}{over}/{under}")) {
            return number;
        }
    }
    answer(text.trim().trim_matches('$'))
}

/// What stands between the brace that a text begins with and the one that closes it.
pub(super) fn in_braces(text: &str) -> Option<&str> {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return text.get(1..at);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_one_way() {
        for (text, expected) in [
            ("1,000.0", "1000"),
            ("1000", "1000"),
            (" $1,234,567.50 ", "1234567.5"),
            ("-0.0", "0"),
            ("−5", "-5"),
            ("-$5", "-5"),
            ("+07", "7"),
            (".5", "0.5"),
            ("25%", "25"),
            ("2e3", "2000"),
            ("6/8", "3/4"),
            ("8/2", "4"),
            ("12 000", "12000"),
        ] {
            assert_eq!(number(text).as_deref(), Some(expected), "{text}");
        }
        for none in [
            "", ".", "1,00", "abc", "1.2.3", "1/0", "5 apples", "-", "1e999", "--5x",
        ] {
            assert_eq!(number(none), None, "{none}");
        }
    }

    #[test]
    fn answers_in_words_lose_what_means_nothing() {
        assert_eq!(answer(" **Paris.** "), "Paris");
        assert_eq!(answer("the  red\tdoor."), "the red door");
        assert_eq!(answer("1,000.0."), "1000");
    }

    #[test]
    fn latex_is_taken_apart() {
        for (text, expected) in [
            ("1{,}000", "1000"),
            ("\\$18.00", "18"),
            ("\\text{Paris}", "Paris"),
            ("\\frac{6}{8}", "3/4"),
            ("-\\dfrac{1}{2}", "-1/2"),
            ("45^\\circ", "45"),
            ("50\\%", "50"),
            ("x^{2}+1", "x^{2}+1"),
            ("\\text{open", "\\text{open"),
        ] {
            assert_eq!(latex(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic_and_what_is_normal_stays(text in "[-$0-9., e/{}\\\\a-z%−]{0,12}") {
            if let Some(once) = number(&text) {
                assert_eq!(number(&once).as_deref(), Some(once.as_str()));
            }
            latex(&text);
            let once = answer(&text);
            answer(&once);
        }
    }
}
