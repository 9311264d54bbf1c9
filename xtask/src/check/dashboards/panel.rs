//! The parts of a dashboard, and the panel types. Queries are written short: `@` stands for the dashboard's
//! own selection of series, and `NAMED` adds the GPU's name to them.

/// Units of Grafana, by its ids.
pub(super) const COUNT: &str = "short";
pub(super) const PER_SECOND: &str = "cps";
pub(super) const PACKETS_PER_SECOND: &str = "pps";
pub(super) const BYTES: &str = "bytes";
pub(super) const BYTES_PER_SECOND: &str = "binBps";
pub(super) const SECONDS: &str = "s";
pub(super) const SHARE: &str = "percentunit";

pub(super) struct Dashboard {
    /// Name of the file; the uid is `kfd-trace-` and this name.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    pub(super) from: &'static str,
    pub(super) variables: Vec<Variable>,
    /// Expansion of `@`.
    pub(super) selects: &'static str,
    pub(super) rows: Vec<(&'static str, Vec<Panel>)>,
}

/// Values of a label, to choose from.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    /// Metric, short as in queries; the label's values are taken from its series.
    pub(super) of: &'static str,
    pub(super) values: &'static str,
    /// Initial choice; the first value if empty.
    pub(super) first: &'static str,
    /// Several or all can be chosen; this matches all.
    pub(super) all: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Current numbers.
    Stat,
    Lines,
    Stack,
    /// Buckets of a histogram.
    Heatmap,
    /// 1 is yes, 0 is no.
    States,
    /// One row per set of these labels (label, name of the column), one column per query.
    Table(&'static [(&'static str, &'static str)]),
}

pub(super) struct Panel {
    pub(super) kind: Kind,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    pub(super) unit: &'static str,
    /// Legend and query. In a table the legend is the column's name; without one its value is not shown.
    pub(super) queries: Vec<(&'static str, &'static str)>,
    pub(super) width: u32,
    /// Alerts whose sections of docs/runbooks.md help.
    pub(super) alerts: &'static [&'static str],
    /// Threshold from which the value is coloured, and the colour.
    pub(super) limit: Option<(f64, &'static str)>,
    /// Columns with their own unit.
    pub(super) units: Vec<(&'static str, &'static str)>,
    /// Column whose values link to another dashboard: name of the column, of the dashboard, and of its
    /// variable.
    pub(super) link: Option<(&'static str, &'static str, &'static str)>,
}

impl Panel {
    fn new(kind: Kind, title: &'static str, text: &'static str, width: u32) -> Self {
        let (alerts, queries, units): (&[&str], _, _) = (&[], Vec::new(), Vec::new());
        Panel { kind, title, text, unit: COUNT, queries, width, alerts, limit: None, units, link: None }
    }

    pub(super) fn query(mut self, legend: &'static str, expr: &'static str) -> Self {
        self.queries.push((legend, expr));
        self
    }

    pub(super) fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(super) fn unit_of(mut self, column: &'static str, unit: &'static str) -> Self {
        self.units.push((column, unit));
        self
    }

    pub(super) fn see(mut self, alerts: &'static [&'static str]) -> Self {
        self.alerts = alerts;
        self
    }

    /// Work continues, as with an alert of severity `warning`.
    pub(super) fn warn_from(mut self, value: f64) -> Self {
        self.limit = Some((value, "orange"));
        self
    }

    /// Work is lost, as with an alert of severity `critical`.
    pub(super) fn lost_from(mut self, value: f64) -> Self {
        self.limit = Some((value, "red"));
        self
    }

    pub(super) fn link(
        mut self,
        column: &'static str,
        dashboard: &'static str,
        variable: &'static str,
    ) -> Self {
        self.link = Some((column, dashboard, variable));
        self
    }

    pub(super) fn width(mut self, width: u32) -> Self {
        self.width = width;
        self
    }
}

pub(super) fn stat(title: &'static str, text: &'static str) -> Panel {
    Panel::new(Kind::Stat, title, text, 3)
}

pub(super) fn lines(title: &'static str, text: &'static str) -> Panel {
    Panel::new(Kind::Lines, title, text, 12)
}

pub(super) fn stack(title: &'static str, text: &'static str) -> Panel {
    Panel::new(Kind::Stack, title, text, 12)
}

pub(super) fn heatmap(title: &'static str, text: &'static str) -> Panel {
    Panel::new(Kind::Heatmap, title, text, 12)
}

pub(super) fn states(title: &'static str, text: &'static str) -> Panel {
    Panel::new(Kind::States, title, text, 12)
}

pub(super) fn table(
    title: &'static str,
    text: &'static str,
    labels: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel::new(Kind::Table(labels), title, text, 24)
}
