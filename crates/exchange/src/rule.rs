//! Compressors for some tensors: by name, by size, or by the kind of layer they belong to.

use std::fmt;
use std::str::FromStr;

use gradwire::{Spec, SpecError, Tensor};

use crate::Result;
use crate::error::refuse;

/// A compressor and the tensors it is for. Strings: `*.bias -> fp16`, `<1000 -> none`,
/// `>=100000 -> powersgd`, `matrices -> topk`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    tensors: Tensors,
    /// The compressor of these tensors.
    pub spec: Spec,
}

/// Which tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tensors {
    /// Tensors whose name matches this pattern; `*` is any run of characters.
    Named(String),
    /// Tensors with fewer elements.
    Below(usize),
    /// Tensors with at least as many elements.
    AtLeast(usize),
    /// Tensors with a number of dimensions.
    Dimensions(Layers),
}

/// Tensors by their dimensions, which tell the kind of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layers {
    /// One dimension or none: biases, scales of norms.
    Vectors,
    /// Two: fully connected and recurrent layers, embeddings.
    Matrices,
    /// More: kernels of convolutions.
    Convolutions,
}

const LAYERS: [(&str, Layers); 3] = [
    ("vectors", Layers::Vectors),
    ("matrices", Layers::Matrices),
    ("convolutions", Layers::Convolutions),
];

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// The text does not have the form of a rule.
    #[error(
        "'{0}' is not a rule; give TENSORS -> SPEC, where TENSORS is a name such as fc.*, a \
         number of elements such as <1000 or >=1000, or vectors, matrices or convolutions"
    )]
    Form(String),
    /// The compressor of the rule is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Rule {
    /// Whether it matches a tensor.
    pub fn is_for(&self, tensor: &Tensor) -> bool {
        match &self.tensors {
            Tensors::Named(pattern) => matches(pattern, tensor.name()),
            Tensors::Below(bound) => tensor.elements() < *bound,
            Tensors::AtLeast(bound) => tensor.elements() >= *bound,
            Tensors::Dimensions(layers) => match tensor.shape().len() {
                0 | 1 => *layers == Layers::Vectors,
                2 => *layers == Layers::Matrices,
                _ => *layers == Layers::Convolutions,
            },
        }
    }
}

/// Refuses a rule whose pattern matches no tensor's name: it may be misspelt.
///
/// # Errors
/// `Config`, with the names nearest to the pattern.
pub(crate) fn check(rules: &[Rule], tensors: &[Tensor]) -> Result<()> {
    for rule in rules {
        let Tensors::Named(pattern) = &rule.tensors else { continue };
        let wholes = || tensors.iter().map(Tensor::whole);
        if wholes().any(|tensor| rule.is_for(tensor)) {
            continue;
        }
        let near = gradwire::suggestion(&pattern.replace('*', ""), wholes().map(Tensor::name));
        let example = wholes().next().map_or("", Tensor::name);
        return refuse(format!(
            "rule '{rule}' matches no tensor of the model{near}; names look like '{example}', and * matches any characters"
        ));
    }
    Ok(())
}

/// Whether a name matches a pattern. Each run of characters between stars is searched after the
/// previous match.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    true
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> std::result::Result<Self, RuleError> {
        let form = || RuleError::Form(text.to_owned());
        let (tensors, spec) = text.split_once("->").ok_or_else(form)?;
        let tensors = tensors.trim();
        let bound = |digits: &str| digits.trim().parse().map_err(|_| form());
        let layers = LAYERS.iter().find(|(name, _)| *name == tensors);
        let tensors = if let Some((_, layers)) = layers {
            Tensors::Dimensions(*layers)
        } else if let Some(digits) = tensors.strip_prefix(">=") {
            Tensors::AtLeast(bound(digits)?)
        } else if let Some(digits) = tensors.strip_prefix('<') {
            Tensors::Below(bound(digits)?)
        } else if tensors.is_empty() {
            return Err(form());
        } else {
            Tensors::Named(tensors.to_owned())
        };
        Ok(Self { tensors, spec: spec.trim().parse()? })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tensors {
            Tensors::Named(pattern) => f.write_str(pattern)?,
            Tensors::Below(bound) => write!(f, "<{bound}")?,
            Tensors::AtLeast(bound) => write!(f, ">={bound}")?,
            Tensors::Dimensions(layers) => {
                let name = LAYERS.iter().find(|(_, known)| known == layers).map(|(name, _)| *name);
                f.write_str(name.unwrap_or_default())?;
            }
        }
        write!(f, " -> {}", self.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_go_through_text_and_back_and_find_their_tensors() {
        let tensor = |name: &str, shape: &[usize]| Tensor::new(name, shape);
        let bias = tensor("conv1.bias", &[20]);
        let kernel = tensor("conv1.weight", &[20, 1, 5, 5]);
        let weight = tensor("fc.weight", &[10, 500]);
        for (text, found) in [
            ("*.bias -> fp16", [true, false, false]),
            ("conv1* -> none", [true, true, false]),
            ("*c*.w*t -> 3lc:s=1.5", [false, true, true]),
            ("fc.weight -> topk", [false, false, true]),
            ("<500 -> none", [true, false, false]),
            (">=500 -> sbc", [false, true, true]),
            ("vectors -> bf16", [true, false, false]),
            ("matrices -> powersgd:rank=2", [false, false, true]),
            ("convolutions -> adacomp", [false, true, false]),
            ("* -> none", [true, true, true]),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
            assert_eq!(
                [&bias, &kernel, &weight].map(|tensor| rule.is_for(tensor)),
                found,
                "{text}"
            );
        }
        assert!(!matches("a*a", "a") && matches("a*a", "aa") && matches("a**b", "ab"));
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_refused_with_near_names() {
        let tensors = ["second.weight", "second.bias"].map(|name| Tensor::new(name, &[5]));
        let refusal = |text: &str| {
            let rules = [text.parse().unwrap()];
            check(&rules, &tensors).err().map(|error| error.to_string())
        };
        for text in ["second.* -> none", "matrices -> none", "<3 -> none"] {
            assert_eq!(refusal(text), None);
        }
        let error = refusal("secnd.wei* -> none").unwrap();
        assert!(error.contains("did you mean 'second.weight'"), "{error}");
        assert!(refusal("zzz -> none").unwrap().contains("names look like 'second.weight'"));
    }

    #[test]
    fn what_is_no_rule_is_said_to_be_none() {
        for text in ["fc.*", "-> topk", "<many -> topk", ">= -> topk"] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains("TENSORS -> SPEC"), "{error}");
        }
        let error = "fc.* -> topq".parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains("topq"), "{error}");
    }
}
