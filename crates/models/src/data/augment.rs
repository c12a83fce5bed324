//! Conversion of pixel bytes to the inputs of a model: normalisation, random crops and shifts,
//! horizontal flips.

/// Pixels of zeros added to each side before a random crop, as is usual for CIFAR-10 (He et al.,
/// "Deep residual learning for image recognition", CVPR 2016, section 4.2).
pub const PADDING: usize = 4;

/// Writes `(pixel/255 − mean) / std` of its channel for each pixel of a channels-first image.
///
/// # Panics
/// If `mean` and `std` differ in length, if the length of the image is not a multiple of their
/// length, or if `out` differs in length from the image.
pub fn normalise(image: &[u8], mean: &[f32], std: &[f32], out: &mut [f32]) {
    let channels = check(image, mean, std, out);
    let plane = (image.len() / channels).max(1);
    for (channel, (pixels, out)) in image.chunks(plane).zip(out.chunks_mut(plane)).enumerate() {
        let (scale, offset) = affine(mean[channel], std[channel]);
        for (out, &pixel) in out.iter_mut().zip(pixels) {
            *out = f32::from(pixel) * scale + offset;
        }
    }
}

/// Normalises `image`, of `shape` [channels, height, width], pads it by [`PADDING`] zeros on each
/// side (the mean colour, after normalisation), crops a random window of the image's original size,
/// and flips it horizontally with probability one half.
///
/// `draws` are two uniform random words: the first selects one of 9 × 9 positions of the window,
/// the second the flip.
///
/// # Panics
/// As [`normalise`], and if the image does not have this shape.
pub fn augment(
    image: &[u8],
    shape: [usize; 3],
    mean: &[f32],
    std: &[f32],
    draws: [u32; 2],
    out: &mut [f32],
) {
    let channels = check(image, mean, std, out);
    let [_, height, width] = shape;
    assert_eq!(shape[0], channels, "one mean and deviation a channel");
    assert_eq!(channels * height * width, image.len(), "the image has the shape given");

    let (dy, dx) = (offset(draws[0] >> 16), offset(draws[0] & 0xffff));
    let flip = draws[1] >> 31 == 1;
    out.fill(0.0);
    for channel in 0..channels {
        let (scale, shift) = affine(mean[channel], std[channel]);
        for y in 0..height {
            let Some(from) = (y + dy).checked_sub(PADDING).filter(|&y| y < height) else {
                continue;
            };
            let source = &image[(channel * height + from) * width..][..width];
            let row = &mut out[(channel * height + y) * width..][..width];
            // Columns x with 0 <= x + dx - PADDING < width.
            let columns =
                PADDING.saturating_sub(dx)..width.min((width + PADDING).saturating_sub(dx));
            for x in columns {
                let to = if flip { width - 1 - x } else { x };
                row[to] = f32::from(source[x + dx - PADDING]) * scale + shift;
            }
        }
    }
}

/// Whether images of `shape` [channels, height, width] are larger than the pixels that [`augment`],
/// or [`shift`] for grey images, may move out of sight.
pub fn can_move(shape: [usize; 3]) -> bool {
    let [channels, height, width] = shape;
    height.min(width) > 2 * if channels == 1 { SHIFT } else { PADDING }
}

/// The largest shift of a grey image, in pixels.
pub const SHIFT: usize = 2;

/// Shifts `image`, of `shape` [channels, height, width], by up to [`SHIFT`] pixels in each
/// direction, pads it with black, and normalises it. For grey images that must not be flipped, such
/// as digits.
///
/// `draw` is a uniform random word, which selects one of 5 × 5 shifts.
///
/// # Panics
/// As [`augment`].
pub fn shift(
    image: &[u8],
    shape: [usize; 3],
    mean: &[f32],
    std: &[f32],
    draw: u32,
    out: &mut [f32],
) {
    let channels = check(image, mean, std, out);
    let [_, height, width] = shape;
    assert_eq!(shape[0], channels, "one mean and deviation a channel");
    assert_eq!(channels * height * width, image.len(), "the image has the shape given");
    let (dy, dx) = (place(draw >> 16, SHIFT), place(draw & 0xffff, SHIFT));
    for (channel, out) in out.chunks_exact_mut(height * width).enumerate() {
        let (scale, offset) = affine(mean[channel], std[channel]);
        for (y, row) in out.chunks_exact_mut(width).enumerate() {
            row.fill(offset);
            let from = (y + dy).checked_sub(SHIFT).filter(|&y| y < height);
            let Some(from) = from else { continue };
            let source = &image[(channel * height + from) * width..][..width];
            let columns = SHIFT.saturating_sub(dx)..width.min((width + SHIFT).saturating_sub(dx));
            for x in columns {
                row[x] = f32::from(source[x + dx - SHIFT]) * scale + offset;
            }
        }
    }
}

fn offset(bits: u32) -> usize {
    place(bits, PADDING)
}

/// Maps 16 uniform bits to one of the 2 · room + 1 positions of a window with `room` pixels on each
/// side.
fn place(bits: u32, room: usize) -> usize {
    ((bits as usize) * (2 * room + 1)) >> 16
}

/// (pixel/255 − mean)/std as one product and one sum.
fn affine(mean: f32, std: f32) -> (f32, f32) {
    (1.0 / (255.0 * std), -mean / std)
}

fn check(image: &[u8], mean: &[f32], std: &[f32], out: &[f32]) -> usize {
    let channels = mean.len();
    assert!(channels > 0 && channels == std.len(), "one mean and one deviation a channel");
    assert_eq!(image.len() % channels, 0, "channels of equal size");
    assert_eq!(image.len(), out.len(), "one float a pixel");
    channels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_image_by_hand() {
        let image = [1, 2, 3, 4, 5, 6];
        let shifted = |draw| {
            let mut out = [f32::NAN; 6];
            shift(&image, [1, 2, 3], &PLAIN.0, &PLAIN.1, draw, &mut out);
            out
        };
        // Place 2 of 0 to 4 is the middle; words of 16 bits: 0x8000 is place 2, 0xffff 4, 0 the
        // first.
        assert_eq!(shifted(0x8000_8000), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        // One to the left and one up: place 3 both ways.
        assert_eq!(shifted(0xa000_a000), [5.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
        // Two to the right.
        assert_eq!(shifted(0x8000_0000), [0.0, 0.0, 1.0, 0.0, 0.0, 4.0]);
    }

    /// Mean 0 and deviation 1/255 make the normalised value the pixel's.
    const PLAIN: ([f32; 1], [f32; 1]) = ([0.0], [1.0 / 255.0]);
    const CENTRE: u32 = (0x8000 << 16) | 0x8000;

    #[test]
    fn images_of_little_more_than_a_move_stay_in_sight() {
        assert!(can_move([1, 5, 28]) && can_move([3, 9, 9]));
        assert!(!can_move([1, 1, 39]) && !can_move([1, 28, 4]) && !can_move([3, 8, 32]));
    }

    fn augmented(image: &[u8], height: usize, width: usize, draws: [u32; 2]) -> Vec<i32> {
        let mut out = vec![f32::NAN; image.len()];
        augment(image, [1, height, width], &PLAIN.0, &PLAIN.1, draws, &mut out);
        out.iter().map(|x| x.round() as i32).collect()
    }

    #[test]
    fn normalises_each_channel_with_its_own_moments() {
        let mut out = [0.0; 4];
        normalise(&[0, 255, 51, 102], &[0.5, 0.2], &[0.25, 0.1], &mut out);
        for (found, expected) in out.iter().zip([-2.0, 2.0, 0.0, 2.0]) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }

    #[test]
    fn the_middle_window_is_the_image_itself() {
        let image: Vec<u8> = (1..=12).collect();
        let expected: Vec<i32> = (1..=12).collect();
        assert_eq!(augmented(&image, 3, 4, [CENTRE, 0]), expected);
        assert_eq!(
            augmented(&image, 3, 4, [CENTRE, 1 << 31]),
            [4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9]
        );
    }

    #[test]
    fn the_corner_windows_are_filled_with_zeros() {
        let image: Vec<u8> = (1..=36).collect();
        let first = augmented(&image, 6, 6, [0, 0]);
        assert_eq!(&first[..24], [0; 24], "four rows above the image");
        assert_eq!(&first[24..], [0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 8]);

        let last = augmented(&image, 6, 6, [u32::MAX, 0]);
        assert_eq!(&last[..12], [29, 30, 0, 0, 0, 0, 35, 36, 0, 0, 0, 0]);
        assert_eq!(&last[12..], [0; 24]);

        let flipped = augmented(&image, 6, 6, [0, u32::MAX]);
        assert_eq!(&flipped[24..], [2, 1, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0]);
    }

    #[test]
    fn padding_is_zero_after_normalisation() {
        let mut out = [f32::NAN; 4];
        augment(&[255; 4], [1, 2, 2], &[0.5], &[0.5], [0, 0], &mut out);
        assert_eq!(out, [0.0; 4]);
    }

    #[test]
    fn every_window_is_drawn_equally_often() {
        let mut counts = [0; 9];
        (0..=0xffff).for_each(|bits| counts[offset(bits)] += 1);
        assert!(counts.iter().all(|&count| (7281..=7282).contains(&count)), "{counts:?}");
    }
}
