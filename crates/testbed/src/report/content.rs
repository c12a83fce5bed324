//! What a report says, before it is a page.

use std::rc::Rc;

use crate::plot::Figure;
use crate::table::Table;

/// A report, from top to bottom.
pub(crate) struct Report {
    /// The heading.
    pub(crate) title: String,
    /// What it is about, in sentences.
    pub(crate) lead: Vec<String>,
    /// What is missing: a stop, failed runs.
    pub(crate) warnings: Vec<Block>,
    /// The result.
    pub(crate) answer: Option<Answer>,
    /// Everything else.
    pub(crate) sections: Vec<Section>,
}

/// The result of a report: a sentence, a chart, and the choice for each link.
pub(crate) struct Answer {
    /// The result in a sentence.
    pub(crate) headline: String,
    /// The compressor for each link; without rows if nothing can be chosen.
    pub(crate) choices: Table,
    /// What the numbers mean.
    pub(crate) notes: Vec<String>,
    /// Quality against cost of each compressor.
    pub(crate) chart: Option<Captioned>,
}

/// A figure with the sentences below it.
pub(crate) struct Captioned {
    pub(crate) figure: Rc<dyn Figure>,
    pub(crate) caption: String,
}

/// A part of a report.
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// A section with a heading.
    pub(crate) fn new(heading: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { heading: heading.into(), blocks }
    }
}

/// A paragraph of a section, or what stands in the place of one.
pub(crate) enum Block {
    /// A paragraph.
    Text(String),
    /// Lines, one below the other.
    List(Vec<String>),
    /// Remarks in smaller print.
    Notes(Vec<String>),
    /// A table.
    Table { caption: String, table: Table },
    /// Figures, side by side if there is room.
    Charts(Vec<Rc<dyn Figure>>),
    /// Names, each with a value.
    Facts(Vec<(&'static str, String)>),
    /// Text for a terminal or a file.
    Code(String),
}

impl Block {
    /// A table with a caption.
    pub(crate) fn table(caption: impl Into<String>, table: Table) -> Self {
        Self::Table { caption: caption.into(), table }
    }

    /// Figures of one kind.
    pub(crate) fn charts<F: Figure + 'static>(figures: impl IntoIterator<Item = F>) -> Self {
        let shared = |figure: F| -> Rc<dyn Figure> { Rc::new(figure) };
        Self::Charts(figures.into_iter().map(shared).collect())
    }
}
