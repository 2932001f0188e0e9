//! The text format of Prometheus (0.0.4): families of samples.

use std::fmt::{Display, Write};

use hpmmap_base::escape;

pub type Labels = Vec<(&'static str, String)>;

#[derive(Default)]
pub struct Text(pub String);

impl Text {
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) {
        self.0 += name;
        for (i, (label, text)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escape::label(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// Writes a family of samples; without samples it writes nothing.
    pub fn family<T: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, T)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            self.head(name, kind, help);
        }
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }
}

pub fn with(mut labels: Labels, name: &'static str, value: impl Display) -> Labels {
    labels.push((name, value.to_string()));
    labels
}
