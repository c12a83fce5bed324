//! Learning rates over the steps of a run.

use std::fmt;
use std::str::FromStr;

use crate::options::{Options, OptionsError, Printer};

/// A learning rate as a function of the step.
///
/// Strings: `0.1`, `step:from=0.1,factor=0.1,at=0.5+0.75`,
/// `step:from=1,factor=0.8,after=0.4,every=0.02` (at 0.4, 0.42, 0.44 and so on),
/// `cosine:from=0.1,to=0.001`, each but the first also with `scale=on` (multiply by the number of
/// workers, Goyal et al. 2017) and `warmup=0.05`. During that part of the steps the rate climbs
/// linearly from the unscaled to the scaled rate, or without scaling from zero. `constant:from=0.1`
/// is the long form of `0.1`.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    /// The rate before any scaling, positive.
    pub from: f64,
    /// How it falls.
    pub decay: Decay,
    /// Whether it is multiplied by the number of workers.
    pub scale: bool,
    /// Warm-up: the fraction of the steps at the start with an increasing rate; in [0, 1].
    pub warmup: f64,
}

/// How a learning rate falls over a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Decay {
    /// It is constant.
    Constant,
    /// It is multiplied by a factor at given moments.
    Step {
        /// The factor, in (0, 1).
        factor: f64,
        /// The moments as parts of all steps, in (0, 1), ascending.
        at: Vec<f64>,
    },
    /// It is multiplied by a factor at a moment, and again after each interval.
    Repeated {
        /// The factor, in (0, 1).
        factor: f64,
        /// The first moment as a part of all steps, in (0, 1).
        after: f64,
        /// The interval as a part of all steps, in (0, 1).
        every: f64,
    },
    /// Half a cosine without restarts (Loshchilov and Hutter 2017).
    Cosine {
        /// The rate one step after the last; not below 0.
        to: f64,
    },
}

/// The error for an unknown schedule, or a number that is not positive.
fn unknown(text: &str) -> OptionsError {
    OptionsError::Unknown(format!(
        "'{text}' is not a learning rate; give a positive number, or a schedule such as \
         constant:from=0.1, step:from=0.1,factor=0.1,at=0.5+0.75 or cosine:from=0.1,to=0.001"
    ))
}

const POSITIVE: &str = "a positive number";
const FACTOR: f64 = 0.1;
const AT: [f64; 2] = [0.5, 0.75];
const EVERY: f64 = 0.1;
const FROM: f64 = 0.1;

impl LearningRate {
    /// The same rate at every step.
    pub fn constant(rate: f64) -> Self {
        Self { from: rate, decay: Decay::Constant, scale: false, warmup: 0.0 }
    }

    /// The rate at `step` (from 0) of `steps`, for this number of workers.
    pub fn at(&self, step: u64, steps: u64, workers: usize) -> f64 {
        let done = step as f64 / steps.max(1) as f64;
        self.decayed(done) * self.climbed(step, steps, workers)
    }

    /// The steps at which the rate drops, ascending; a cosine has none.
    pub fn drops(&self, steps: u64) -> Vec<u64> {
        let count = |step: u64| self.drops_by(step as f64 / steps as f64);
        let (mut drops, mut from) = (Vec::new(), 0);
        while let Some(last) = steps.checked_sub(1)
            && count(last) > count(from)
        {
            // The count never falls, so the next drop is found by bisection.
            let (mut before, mut at) = (from, last);
            while at - before > 1 {
                let middle = u64::midpoint(before, at);
                let side = if count(middle) > count(from) { &mut at } else { &mut before };
                *side = middle;
            }
            drops.push(at);
            from = at;
        }
        drops
    }

    /// The number of multiplications by the factor after the fraction `done` of the steps.
    fn drops_by(&self, done: f64) -> i32 {
        match &self.decay {
            Decay::Constant | Decay::Cosine { .. } => 0,
            Decay::Step { at, .. } => at.iter().filter(|&&moment| done >= moment).count() as i32,
            // With the tolerance, a moment that falls on a step counts from that step on.
            Decay::Repeated { after, every, .. } => {
                (((done - after) / every + 1e-9).floor() + 1.0).max(0.0) as i32
            }
        }
    }

    fn decayed(&self, done: f64) -> f64 {
        match &self.decay {
            Decay::Constant => self.from,
            Decay::Step { factor, .. } | Decay::Repeated { factor, .. } => {
                self.from * factor.powi(self.drops_by(done))
            }
            Decay::Cosine { to } => {
                to + (self.from - to) * (1.0 + (std::f64::consts::PI * done).cos()) / 2.0
            }
        }
    }

    /// The factor of scaling and warm-up.
    fn climbed(&self, step: u64, steps: u64, workers: usize) -> f64 {
        let climb = self.warmup * steps as f64;
        let reached = |done: f64| if done < climb { done / climb } else { 1.0 };
        if self.scale {
            1.0 + reached(step as f64) * (workers as f64 - 1.0)
        } else {
            // The first step has a rate above 0.
            reached(step as f64 + 1.0)
        }
    }
}

impl FromStr for LearningRate {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        if let Ok(rate) = text.trim().parse() {
            let rate = Some(rate).filter(|&rate| positive(rate));
            return rate.map(Self::constant).ok_or_else(|| unknown(text));
        }
        let mut options = Options::parse(text)?;
        let from = options.number("from", FROM, POSITIVE, positive)?;
        let decay = match options.id() {
            "constant" => Decay::Constant,
            "step" => step(&mut options)?,
            "cosine" => Decay::Cosine {
                to: options.number("to", 0.0, "a number that is not negative", |x| {
                    x >= 0.0 && x.is_finite()
                })?,
            },
            other => return Err(unknown(other)),
        };
        let scale = options.take("scale", false, "on or off", switch)?;
        let warmup =
            options.number("warmup", 0.0, "a number in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        options.finish()?;
        Ok(Self { from, decay, scale, warmup })
    }
}

/// The drops of a `step` schedule: at given moments, or at regular ones if `after` or `every` is
/// given.
fn step(options: &mut Options) -> Result<Decay, OptionsError> {
    let expected = "a number in (0, 1)";
    let factor = options.number("factor", FACTOR, expected, inside)?;
    let part = |text: &str| text.parse().ok().filter(|&x| inside(x)).map(Some);
    let after = options.take("after", None, expected, part)?;
    let every = options.take("every", None, expected, part)?;
    if after.is_none() && every.is_none() {
        let expected = "ascending numbers in (0, 1), joined by +";
        return Ok(Decay::Step { factor, at: options.take("at", AT.to_vec(), expected, moments)? });
    }
    let every = every.unwrap_or(EVERY);
    Ok(Decay::Repeated { factor, after: after.unwrap_or(every), every })
}

fn inside(x: f64) -> bool {
    x > 0.0 && x < 1.0
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn moments(text: &str) -> Option<Vec<f64>> {
    let moments: Vec<f64> = text.split('+').map(str::parse).collect::<Result<_, _>>().ok()?;
    let fits = moments.iter().all(|&x| inside(x)) && moments.is_sorted();
    fits.then_some(moments)
}

impl fmt::Display for LearningRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::constant(self.from) {
            return write!(f, "{}", self.from);
        }
        let id = match self.decay {
            Decay::Constant => "constant",
            Decay::Step { .. } | Decay::Repeated { .. } => "step",
            Decay::Cosine { .. } => "cosine",
        };
        let mut printer = Printer::new(f, id)?;
        printer.item("from", self.from)?;
        match &self.decay {
            Decay::Constant => {}
            Decay::Step { factor, at } => {
                printer.unless("factor", *factor, FACTOR)?;
                if *at != AT {
                    let at: Vec<_> = at.iter().map(f64::to_string).collect();
                    printer.item("at", at.join("+"))?;
                }
            }
            Decay::Repeated { factor, after, every } => {
                printer.unless("factor", *factor, FACTOR)?;
                printer.item("after", after)?;
                printer.item("every", every)?;
            }
            Decay::Cosine { to } => printer.unless("to", *to, 0.0)?,
        }
        printer.unless("scale", if self.scale { "on" } else { "off" }, "off")?;
        printer.unless("warmup", self.warmup, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> LearningRate {
        text.parse().unwrap()
    }

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn rates_pass_their_known_points() {
        let scaled = "constant:from=0.1,scale=on,warmup=0.1";
        let drops = [(0, 0.1), (49, 0.1), (50, 0.01), (74, 0.01), (75, 0.001), (99, 0.001)];
        let regular = [(0, 1.0), (39, 1.0), (40, 0.5), (59, 0.5), (60, 0.25), (99, 0.125)];
        for (text, workers, points) in [
            ("0.25", 8, &[(0, 0.25), (1, 0.25), (99, 0.25)][..]),
            ("step:from=0.1,factor=0.1,at=0.5+0.75", 1, &drops[..]),
            ("step:from=1,factor=0.5,after=0.4,every=0.2", 1, &regular[..]),
            // 10 steps from 1 to 4 times the rate.
            (scaled, 4, &[(0, 0.1), (5, 0.25), (10, 0.4), (50, 0.4)][..]),
            (scaled, 1, &[(50, 0.1)][..]),
            // Without scaling it climbs from nothing.
            ("constant:from=0.1,warmup=0.1", 4, &[(0, 0.01), (4, 0.05), (9, 0.1), (50, 0.1)][..]),
        ] {
            points
                .iter()
                .for_each(|&(step, expected)| close(rate(text).at(step, 100, workers), expected));
        }
    }

    #[test]
    fn cosine_passes_its_known_points() {
        let rate = rate("cosine:from=0.1,to=0.001");
        close(rate.at(0, 60, 1), 0.1);
        // cos 60° = 1/2: three quarters of the way up.
        close(rate.at(20, 60, 1), 0.001 + 0.099 * 0.75);
        close(rate.at(30, 60, 1), 0.0505);
        close(rate.at(60, 60, 1), 0.001);
    }

    #[test]
    fn drops_are_the_steps_where_the_rate_falls() {
        let rate = rate("step:from=0.1,at=0.25+0.505");
        let drops = rate.drops(99);
        let falls = |step: &u64| rate.at(*step, 99, 1) < rate.at(step - 1, 99, 1);
        assert_eq!(drops, (1..99).filter(falls).collect::<Vec<_>>());
        assert_eq!(drops, [25, 50]);
        let regular: LearningRate = "step:from=1,after=0.4,every=0.2".parse().unwrap();
        assert_eq!(regular.drops(10), [4, 6, 8]);
        assert!(LearningRate::constant(1.0).drops(10).is_empty());
        assert!(regular.drops(0).is_empty() && regular.drops(1).is_empty());
        let steps = 1 << 48;
        assert_eq!(self::rate("step:from=0.1").drops(steps), [steps / 2, 3 * (steps / 4)]);
    }

    #[test]
    fn prints_what_it_parses() {
        for text in [
            "0.1",
            "step:from=0.2",
            "step:from=0.1,factor=0.5,at=0.25",
            "step:from=1,factor=0.8,after=0.4,every=0.02",
            "cosine:from=0.1,to=0.001",
            "cosine:from=0.1,to=0.001,scale=on,warmup=0.05",
            "constant:from=0.1,scale=on",
        ] {
            assert_eq!(rate(text).to_string(), text);
        }
        assert_eq!(rate("constant:from=0.1").to_string(), "0.1");
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for (text, part) in [
            ("-1", "'-1' is not a learning rate"),
            ("0", "positive number"),
            ("nan", "positive number"),
            ("linear:from=1", "'linear' is not a learning rate"),
            ("cosine:form=0.1", "it has: from, to, scale, warmup"),
            ("cosine:from=0", "from=0 is not allowed"),
            ("step:at=0.75+0.5", "ascending"),
            ("step:at=1.5", "ascending"),
            ("step:factor", "key=value"),
            ("cosine:to=1,to=2", "twice"),
            ("step:every=1", "every=1 is not allowed"),
            ("step:every=0.1,at=0.5", "no setting 'at'"),
            ("cosine:scale=yes", "on or off"),
        ] {
            let message = text.parse::<LearningRate>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
