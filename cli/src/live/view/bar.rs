//! Bars and lines of values.

use super::Theme;
use super::canvas::Canvas;
use crate::live::model::Share;
use crate::live::series::{Point, Series};

/// How many of `width` cells a share fills; some if it is not zero.
pub(super) fn cells(share: f64, width: u16) -> usize {
    let filled = (share.clamp(0.0, 1.0) * f64::from(width)).round();
    (0..=width).rev().find(|cell| f64::from(*cell) <= filled).map_or(0, usize::from)
}

/// Draws a resource of a node: used, permitted, pressure and watermark.
pub(super) fn share(canvas: &mut Canvas<'_>, (x, y): (u16, u16), width: u16, share: &Share, theme: Theme) {
    let of = |amount: f64| if share.total > 0.0 { amount / share.total } else { 0.0 };
    let used = cells(of(share.used), width);
    let permitted = cells(of(share.permitted), width).max(used);
    let missing = if share.pressure > 0.0 { cells(of(share.pressure), width).max(1) } else { 0 };
    // Pressure is what did not fit: it is drawn even if the bar is full.
    let start = permitted.min(usize::from(width).saturating_sub(missing));
    let mark = share.watermark.map(|watermark| cells(of(watermark), width));
    for column in 0..width {
        let at = usize::from(column);
        let (sign, style) = if mark == Some(at) {
            (theme.mark(), theme.warning())
        } else if (start..start + missing).contains(&at) {
            ('!', theme.bad())
        } else if at < used {
            (theme.full(), theme.used())
        } else if at < permitted {
            (theme.half(), theme.permitted())
        } else {
            (theme.free(), theme.dim())
        };
        canvas.text(x + column, y, sign.encode_utf8(&mut [0; 4]), style);
    }
}

/// The last minutes of a value in `width` characters, between 0 and `most`.
pub(super) fn spark(
    series: &Series,
    width: u16,
    most: f32,
    theme: Theme,
    value: impl Fn(&Point) -> Option<f32>,
) -> String {
    let buckets = series.buckets(usize::from(width), value);
    let sign = |value: Option<f32>| value.map_or(' ', |value| theme.spark(value / most.max(f32::EPSILON)));
    buckets.into_iter().map(sign).collect()
}
