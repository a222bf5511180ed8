//! Numbers as people read them, in reports and on terminals.

/// A share with one decimal: 5.1%.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A level that someone chose, with the digits it was chosen with: 10%, 2.5%.
pub fn level(share: f64) -> String {
    let digits = format!("{:.4}", share * 100.0);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    // Below a ten-thousandth of a percent, rounding would claim 0%.
    if digits == "0" && share > 0.0 {
        return format!("{}%", p_value(share * 100.0));
    }
    format!("{digits}%")
}

/// The probability that something holds which may fail with probability `delta`.
pub fn confidence(delta: f64) -> String {
    match delta < 1e-6 {
        // Rounding would claim 100%.
        true => "more than 99.9999%".into(),
        false => level(1.0 - delta),
    }
}

/// An interval of shares: 4.0% to 6.3%.
pub fn interval((low, high): (f64, f64)) -> String {
    format!("{} to {}", percent(low), percent(high))
}

/// A count with its thousands apart: 12,345.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count of things, with its word in the right number.
pub fn count_of(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A p-value with three digits, in powers of ten where it is small.
pub(crate) fn p_value(p: f64) -> String {
    if p == 0.0 || p >= 0.001 {
        return format!("{p:.4}");
    }
    format!("{p:.2e}").replace('-', "\u{2212}")
}

/// A threshold, with the digits of its grid and no more.
pub(crate) fn threshold(value: f32) -> String {
    if value == f32::INFINITY {
        return "never".into();
    }
    // The nearest f64 to the shortest decimal that reads back as this f32.
    let digits = format!("{value:.4}");
    let digits = digits.trim_end_matches('0');
    match digits.split_once('.') {
        Some((whole, part)) if part.len() < 2 => format!("{whole}.{part:0<2}"),
        _ => digits.into(),
    }
}

/// A name cut to about the width it has room for, in units of the drawing.
pub(crate) fn fit(name: &str, width: f64, size: f64) -> String {
    if text_width(name, size) <= width {
        return name.into();
    }
    let mut kept = String::new();
    for c in name.chars() {
        if text_width(&kept, size) + size * 1.5 > width {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// About how wide a text is: exact widths would need the reader's font.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | '\'' | '|' | '!' => 0.28,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | 'I' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' => 0.88,
        c if c.is_ascii_uppercase() => 0.68,
        c if c.is_ascii() => 0.59,
        '\u{1100}'.. => 1.0,
        _ => 0.65,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// The same with a capital letter.
pub(crate) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// A number in four digits or so.
pub fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => count(value.round() as u64),
        middle if middle >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(0.0512), "5.1%");
        assert_eq!(level(0.1), "10%");
        assert_eq!(level(0.0125), "1.25%");
        assert_eq!(level(1.0 - 1e-4), "99.99%");
        assert_eq!(level(0.0), "0%");
        assert_eq!(confidence(0.01), "99%");
        assert_eq!(confidence(1e-300), "more than 99.9999%");
        assert_eq!(level(1e-9), "1.00e\u{2212}7%");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(count_of(1, "sequence", "sequences"), "1 sequence");
        assert_eq!(p_value(0.0099), "0.0099");
        assert_eq!(p_value(3.14159e-12), "3.14e\u{2212}12");
        assert_eq!(threshold(0.9), "0.90");
        assert_eq!(threshold(0.835), "0.835");
        assert_eq!(threshold(f32::INFINITY), "never");
    }

    #[test]
    fn a_name_is_cut_to_its_room() {
        assert_eq!(fit("short", 100.0, 12.0), "short");
        assert_eq!(fit("a very long name indeed", 60.0, 12.0), "a very l…");
    }
}
