//! Pages as text: well-formed, self-contained.

/// Elements that HTML writes without an end.
const VOID: [&str; 2] = ["meta", "link"];

/// Checks that every element is closed in order, and returns the elements.
pub(crate) fn elements(page: &str) -> Vec<&str> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(start) = rest.find('<') {
        let (_, tag) = rest.split_at(start + 1);
        let end = tag.find('>').expect("a tag that ends");
        let (inside, after) = tag.split_at(end);
        rest = &after[1..];
        if let Some(closed) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in order");
            continue;
        }
        let word = inside.split([' ', '\n', '/']).next().expect("a name");
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
        seen.push(word);
        if inside.ends_with('/') || VOID.contains(&word) {
            continue;
        }
        open.push(word);
        if word == "script" || word == "style" {
            let close = format!("</{word}>");
            rest = &rest[rest.find(&close).expect("an end")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    seen
}

/// Checks a whole page: one heading, a figure, ids that differ, nothing fetched.
pub(crate) fn check(page: &str) {
    let seen = elements(page);
    assert_eq!(seen.iter().filter(|&&e| e == "h1").count(), 1);
    assert!(seen.contains(&"svg"));
    let ids: Vec<&str> = page.split(" id=\"").skip(1).collect();
    let mut ids: Vec<&str> = ids.iter().filter_map(|s| s.split('"').next()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "every id is used once");
    for fetched in ["src=", "@import", "url(http", "url(//", "href=\"http"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
}
