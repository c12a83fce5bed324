//! The table of gradwire's own models: what lists, messages and default settings need to know.

use crate::TaskKind;

/// The names and texts of settings.
pub(super) type Settings = &'static [(&'static str, &'static str)];

/// What is known of the models with a name.
pub(super) struct Row {
    /// The name, without sizes.
    pub(super) id: &'static str,
    /// The kind of data that they learn from.
    pub(super) task: TaskKind,
    /// The data, in lists.
    data: &'static str,
    /// Their names with sizes, in lists.
    forms: &'static str,
    /// The settings that suit them: their names and texts.
    pub(super) defaults: Settings,
}

/// The rate of the 3LC paper for models with batch normalisation, with a warm-up.
const NORMALISED: Settings = &[("learning_rate", "cosine:from=0.1,to=0.001,scale=on,warmup=0.05")];

/// A lower rate, for models without batch normalisation.
const PLAIN: Settings = &[("learning_rate", "cosine:from=0.01,to=0.0001")];

/// As nanoGPT trains on a CPU.
const TRANSFORMER: Settings = &[
    ("learning_rate", "cosine:from=0.001,to=0.0001,warmup=0.05"),
    ("optimizer", "adamw:beta2=0.99"),
    ("batch", "12"),
    ("weight_decay", "0.1"),
    ("clip", "1"),
    ("evaluate_at_most", "20000"),
];

/// The settings of LSTMs in the paper on sparse binary compression (Sattler et al.,
/// arXiv:1805.08768, Table III), with a learning rate that falls in steps.
macro_rules! recurrent {
    ($rate:literal) => {
        &[
            ("learning_rate", $rate),
            ("optimizer", "sgd"),
            ("batch", "5"),
            ("weight_decay", "0"),
            ("clip", "5"),
            ("evaluate_at_most", "20000"),
        ]
    };
}

/// As He et al. train ("Neural collaborative filtering", WWW 2017); each rating has four negative
/// samples.
const RATINGS: Settings =
    &[("learning_rate", "0.001"), ("optimizer", "adam"), ("batch", "64"), ("weight_decay", "0")];

const fn images(id: &'static str, forms: &'static str, defaults: Settings) -> Row {
    Row { id, task: TaskKind::Images, data: "images", forms, defaults }
}

const fn large_images(id: &'static str, defaults: Settings) -> Row {
    Row { data: "images of ImageNet's size", ..images(id, id, defaults) }
}

const fn text(id: &'static str, forms: &'static str, defaults: Settings) -> Row {
    Row { id, task: TaskKind::Text, data: "text", forms, defaults }
}

/// The models, in the order of lists.
pub(super) static ROWS: &[Row] = &[
    images(
        "mlp",
        "mlp (mlp:392-50,tanh has hidden layers of 392 and 50 units, mlp:392-50,tanh,squared a squared loss)",
        PLAIN,
    ),
    images("lenet5", "lenet5, lenet5:relu", PLAIN),
    images("cifar-cnn", "cifar-cnn", PLAIN),
    images(
        "resnet",
        "resnet20, resnet32, resnet56, resnet110 or any other depth 6n+2 from 8 to 1202 except 50",
        NORMALISED,
    ),
    images("resnet9", "resnet9", NORMALISED),
    images("densenet40", "densenet40", NORMALISED),
    images("vgg16", "vgg16", PLAIN),
    large_images("alexnet", PLAIN),
    large_images("resnet18", NORMALISED),
    large_images("resnet50", NORMALISED),
    large_images("vgg19", PLAIN),
    Row {
        id: "unet",
        task: TaskKind::Segmentation,
        data: "images with masks",
        forms: "unet (unet:N has N channels in its narrowest layer, 1 to 256)",
        defaults: PLAIN,
    },
    text(
        "gpt",
        "gpt (gpt:layers=4,heads=4,width=128,context=64; the number of heads divides the width)",
        TRANSFORMER,
    ),
    text(
        "charlstm",
        "charlstm (charlstm:hidden=200,unroll=35,dropout=0.5,embedding=on)",
        recurrent!("step:from=1,factor=0.8,at=0.3125+0.5+0.625+0.75+0.875"),
    ),
    text(
        "wordlstm",
        "wordlstm (the same with 650 hidden units)",
        recurrent!("step:from=1,factor=0.8,after=0.4,every=0.02"),
    ),
    Row { id: "ncf", task: TaskKind::Ratings, data: "ratings", forms: "ncf", defaults: RATINGS },
];

impl Row {
    /// The first of their names.
    fn name(&self) -> &'static str {
        self.forms.split([',', ' ']).next().unwrap_or(self.id)
    }
}

/// Names to suggest for a misspelt one.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let forms = ROWS.iter().flat_map(|row| row.forms.split(", "));
    let names = forms.filter_map(|form| form.split(' ').next());
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// All names with their sizes, by the kind of data.
pub(crate) fn known() -> String {
    let groups = ROWS.chunk_by(|one, next| one.data == next.data);
    let group = |rows: &[Row]| {
        let forms: Vec<_> = rows.iter().map(|row| row.forms).collect();
        format!("for {} {}", rows[0].data, forms.join(", "))
    };
    groups.map(group).collect::<Vec<_>>().join("; ")
}

/// The models that learn from some kind of data.
pub(super) fn models_for(task: TaskKind) -> String {
    let names: Vec<_> = ROWS.iter().filter(|row| row.task == task).map(Row::name).collect();
    match names.is_empty() {
        true => "a model of the crate that has the data".to_owned(),
        false => names.join(", "),
    }
}
