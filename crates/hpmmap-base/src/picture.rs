//! Pictures, drawn in private before they go where they were asked for.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, Result};

type Drawn<E> = std::result::Result<(), DrawingAreaErrorKind<E>>;

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("cannot draw: {error}"))
}

/// The bytes of a PNG file.
pub fn png(
    size: (u32, u32),
    draw: impl FnOnce(
        &DrawingArea<BitMapBackend, Shift>,
    ) -> Drawn<<BitMapBackend<'static> as DrawingBackend>::ErrorType>,
) -> Result<Vec<u8>> {
    let dir = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()?;
    let path = dir.path().join("picture.png");
    draw(&BitMapBackend::new(&path, size).into_drawing_area()).map_err(failed)?;
    Ok(fs::read(path)?)
}

/// The text of an SVG file.
pub fn svg(
    size: (u32, u32),
    draw: impl FnOnce(
        &DrawingArea<SVGBackend, Shift>,
    ) -> Drawn<<SVGBackend<'static> as DrawingBackend>::ErrorType>,
) -> Result<Vec<u8>> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area()).map_err(failed)?;
    Ok(text.into_bytes())
}
