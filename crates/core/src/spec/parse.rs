//! Specs from strings, and from values of their parameters.

use std::str::FromStr;

use super::error::SpecError;
use super::{ConfiguredMemory, Spec};
use crate::entry::Entry;
use crate::memories::{Average, Ef21};
use crate::parameters::common::COMMON;
use crate::parameters::{Kind, Param, Parameter, Value};
use crate::{Residual, registry, suggestion};

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (id, items) = match text.trim().split_once(':') {
            Some((id, items)) => (id, items),
            None => (text.trim(), ""),
        };
        let preset = registry::PRESETS.iter().find(|preset| preset.name == id);
        let (id, defaults) = preset.map_or((id, ""), |preset| (preset.id, preset.items));
        let entry = registry::find(id).ok_or_else(|| unknown(text))?;
        let mut given = Given::of(entry, items)?;
        for item in defaults.split(',').filter(|item| !item.is_empty()) {
            given.read_default(item)?;
        }
        given.into_spec(entry)
    }
}

/// The values of the common parameters.
struct Common {
    /// `off`, `on` or `ef21`.
    feedback: Option<&'static str>,
    weights: Option<Residual>,
    momentum: f32,
    every: u64,
}

impl Common {
    /// Reads the values that were given, in the order of [`COMMON`].
    fn of(given: &[Option<Value>]) -> Self {
        let place = |key: &str| COMMON.iter().position(|parameter| parameter.key == key);
        let value = |key: &str| place(key).and_then(|at| given[at]);
        let real = |key: &str| {
            let at = place(key)?;
            Some(<f32 as Parameter>::of(given[at]?, &COMMON[at].kind))
        };
        let (beta, gamma) = (real("beta"), real("gamma"));
        let weights = beta
            .or(gamma)
            .map(|_| Residual { beta: beta.unwrap_or(1.0), gamma: gamma.unwrap_or(1.0) });
        let feedback = match value("ef") {
            Some(Value::Choice(word)) => Some(word),
            _ => None,
        };
        let every = match value("every") {
            Some(Value::Whole(every)) => every,
            _ => 1,
        };
        Self { feedback, weights, momentum: real("momentum").unwrap_or(0.0), every }
    }
}

/// The values given so far for some parameters, in their order.
struct Given {
    id: &'static str,
    parameters: Vec<&'static Param>,
    values: Vec<Option<Value>>,
}

impl Given {
    fn new(
        id: &'static str,
        parameters: impl Iterator<Item = &'static Param>,
        items: &str,
    ) -> Result<Self, SpecError> {
        let parameters: Vec<_> = parameters.collect();
        let mut given = Self { id, values: vec![None; parameters.len()], parameters };
        for item in items.split(',').filter(|item| !item.trim().is_empty()) {
            given.read(item.trim())?;
        }
        Ok(given)
    }

    /// Of an entry's own parameters, then the common ones.
    fn of(entry: &Entry, items: &str) -> Result<Self, SpecError> {
        Self::new(entry.id, entry.parameters.iter().chain(COMMON), items)
    }

    fn read(&mut self, item: &str) -> Result<(), SpecError> {
        let id = self.id;
        let (key, value) = item
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .ok_or_else(|| SpecError::NotAPair { id, item: item.to_owned() })?;
        let at = place_of(key, id, self.parameters.iter().copied())?;
        if self.values[at].is_some() {
            return Err(SpecError::DuplicateKey { id, key: key.to_owned() });
        }
        let kind = self.parameters[at].kind;
        let parsed = kind.parse(value).ok_or_else(|| bad_value(id, key, value, kind))?;
        self.values[at] = Some(parsed);
        Ok(())
    }

    /// Reads an item of a preset; a given item takes precedence.
    fn read_default(&mut self, item: &str) -> Result<(), SpecError> {
        match self.read(item) {
            Err(SpecError::DuplicateKey { .. }) => Ok(()),
            other => other,
        }
    }

    fn into_spec(self, entry: &'static Entry) -> Result<Spec, SpecError> {
        let id = entry.id;
        let mut spec = Spec::of(entry);
        let own = entry.parameters.len();
        for (value, given) in spec.values.iter_mut().zip(&self.values[..own]) {
            *value = given.unwrap_or(*value);
        }
        spec.compressor = (entry.build)(&spec.values);
        let Common { feedback, weights, momentum, every } = Common::of(&self.values[own..]);
        // Weights for a residual switch error feedback on.
        let on = entry.error_feedback || weights.is_some();
        let mode = feedback.unwrap_or(if on { "on" } else { "off" });
        spec.feedback = (mode != "off").then(|| weights.unwrap_or(Residual::PLAIN));
        spec.memory = match (mode, momentum) {
            ("ef21", momentum) => Some(ConfiguredMemory::Ef21(Ef21 { momentum })),
            (_, 0.0) => None,
            (_, decay) => Some(ConfiguredMemory::Average(Average { decay })),
        };
        spec.every = every;
        let has_own = spec.compressor().memory().is_some();
        let impossible = |key, reason| Err(SpecError::Impossible { id, key, reason });
        // Common parameters that have no effect are an error.
        match (mode, weights) {
            ("off", Some(_)) => impossible("beta or gamma", "ef=off keeps no residual"),
            ("ef21", Some(_)) => impossible("beta or gamma", "ef=ef21 keeps no residual"),
            (_, Some(_)) if has_own => {
                impossible("beta or gamma", "its memory has weights of its own")
            }
            ("ef21", _) if has_own => impossible("ef=ef21", "it has a memory of its own"),
            _ if has_own && spec.memory.is_some() => {
                impossible("momentum", "it has a memory of its own")
            }
            _ => spec.checked(),
        }
    }
}

/// The values of the parameters of `id`, in their order, from the syntax after the colon of a spec
/// string: `hidden=64,depth=3`. A parameter that is left out has its default.
///
/// # Errors
/// If there is no such parameter, or its value is not allowed.
pub fn read_values(
    id: &'static str,
    parameters: &'static [Param],
    items: &str,
) -> Result<Vec<Value>, SpecError> {
    let given = Given::new(id, parameters.iter(), items)?.values;
    let or_default = |(given, parameter): (Option<Value>, &Param)| {
        given.unwrap_or_else(|| parameter.kind.default())
    };
    Ok(given.into_iter().zip(parameters).map(or_default).collect())
}

impl Spec {
    /// An entry, registered or not, with its own and the common parameters in the syntax after the
    /// colon of a spec string: `ratio=0.01,ef=off`.
    ///
    /// # Errors
    /// If there is no such parameter, or its value is not allowed.
    pub fn with_parameters(entry: &'static Entry, parameters: &str) -> Result<Self, SpecError> {
        Given::of(entry, parameters)?.into_spec(entry)
    }

    /// The same compressor with another value of a numeric parameter; rounded if the parameter is a
    /// whole number.
    ///
    /// # Errors
    /// If there is no such parameter, or its value is not allowed or conflicts with `ef`.
    pub fn with_number(mut self, key: &str, value: f64) -> Result<Self, SpecError> {
        let id = self.entry.id;
        let parameters = self.entry.parameters;
        let at = place_of(key, id, parameters.iter())?;
        let kind = parameters[at].kind;
        let allowed = match kind {
            Kind::Real { .. } => kind.parse(&value.to_string()),
            Kind::Whole { .. } => kind.parse(&value.round().to_string()),
            Kind::Choice { .. } => None,
        };
        self.values[at] = allowed.ok_or_else(|| bad_value(id, key, &value.to_string(), kind))?;
        self.compressor = (self.entry.build)(&self.values);
        self.checked()
    }

    /// Refuses error feedback that cannot work with the compressor's own parameters.
    fn checked(self) -> Result<Self, SpecError> {
        let (id, properties) = (self.entry.id, self.properties());
        if self.feedback.is_some() && !properties.allows_feedback {
            return Err(SpecError::Feedback { id });
        }
        if matches!(self.memory, Some(ConfiguredMemory::Ef21(_)))
            && !self.guarantee().is_contractive()
        {
            let reason = "its messages with these parameters are not known to bring receivers closer to every tensor";
            return Err(SpecError::Impossible { id, key: "ef=ef21", reason });
        }
        Ok(self)
    }
}

/// Why a string does not begin with the name of a compressor.
fn unknown(text: &str) -> SpecError {
    if text.split_whitespace().any(|word| ["then", "until", "within"].contains(&word)) {
        return SpecError::Schedule { text: text.to_owned() };
    }
    if let Some((name, rest)) = text.trim().split_once([',', ' '])
        && registry::names().any(|known| known == name)
    {
        let items = rest.trim_start_matches([':', ',', ' ']).trim_end();
        return SpecError::NoColon { meant: format!("{name}:{items}") };
    }
    let id = text.split(':').next().unwrap_or_default().trim();
    if let Some(krate) = registry::missing_crate(id) {
        return SpecError::Unlinked { id: id.to_owned(), krate: krate.to_owned() };
    }
    SpecError::UnknownCompressor {
        id: id.to_owned(),
        near: suggestion(id, registry::names()),
        known: join(registry::names()),
    }
}

/// The index of the parameter called `key`.
fn place_of(
    key: &str,
    id: &'static str,
    mut parameters: impl Iterator<Item = &'static Param> + Clone,
) -> Result<usize, SpecError> {
    let known = parameters.clone();
    parameters.position(|parameter| parameter.key == key).ok_or_else(|| {
        let known = known.map(|parameter| parameter.key);
        let near = suggestion(key, known.clone());
        SpecError::UnknownKey { id, key: key.to_owned(), near, known: join(known) }
    })
}

/// The error for a value that a parameter does not allow.
fn bad_value(id: &'static str, key: &str, value: &str, kind: Kind) -> SpecError {
    let (key, value) = (key.to_owned(), value.to_owned());
    SpecError::BadValue { id, key, value, expected: kind.expected() }
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
