//! Suggestions for misspelt names.

/// The known names nearest to a misspelt one, the likeliest first and at most three, as an
/// insertion for an error message: ` (did you mean 'topk'?)`. Empty if none is near, or if the name
/// is one of them.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// The least similarity, from 0 to 1, of names to suggest.
    const NEAR: f64 = 0.8;
    let similarity = |other: &str| {
        let (name, other) = (name.to_lowercase(), other.to_lowercase());
        // In a short name two swapped letters leave little that is similar.
        let near = name.len() > 2 && strsim::osa_distance(&name, &other) == 1;
        strsim::jaro_winkler(&name, &other).max(if near { NEAR } else { 0.0 })
    };
    let scored = known.into_iter().map(|other| (similarity(other), other));
    let mut near: Vec<(f64, &str)> = scored.filter(|(score, _)| *score >= NEAR).collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    if near.first().is_some_and(|(_, nearest)| *nearest == name) {
        return String::new();
    }
    let names: Vec<String> = near.iter().take(3).map(|(_, name)| format!("'{name}'")).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" (did you mean {}?)", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_others_are_not() {
        let known = ["3lc", "topk", "topk-threshold", "randomk", "qsgd"];
        assert_eq!(suggestion("3LC", known), " (did you mean '3lc'?)");
        assert_eq!(suggestion("3cl", known), " (did you mean '3lc'?)");
        assert_eq!(suggestion("topq", known), " (did you mean 'topk'?)");
        assert_eq!(suggestion("radnomk", known), " (did you mean 'randomk'?)");
        assert_eq!(suggestion("zstd", known), "");
        assert_eq!(suggestion("topk", known), "");
        let names = ["second.weight", "second.bias", "first.weight"];
        assert!(suggestion("secnd.weight", names).contains("'second.weight'"));
    }
}
