//! Several small numbers as the digits of one.

use super::{cases, kernel};

kernel! {
    /// Adds `factor` times each digit to the number at its place, modulo 2^16. Processes the
    /// shorter length.
    pub(crate) fn add_digits(numbers: &mut [u16], digits: &[u16], factor: u16) {
        for (number, &digit) in numbers.iter_mut().zip(digits) {
            *number = number.wrapping_add(digit.wrapping_mul(factor));
        }
    }
}

kernel! {
    /// Divides each number by `base`, and writes the remainder, its last digit. Processes the
    /// shorter length.
    ///
    /// Exact for numbers below 2^10 and bases from 2 to 64; otherwise the result is unspecified.
    pub(crate) fn take_digits(numbers: &mut [u16], base: u16, digits: &mut [u16]) {
        // Rounded up: the quotient is exact while the number times base − 1 is below 2^16.
        let inverse = (1u32 << 16).div_ceil(u32::from(base.max(1))) as u16;
        for (number, digit) in numbers.iter_mut().zip(digits) {
            let quotient = ((u32::from(*number) * u32::from(inverse)) >> 16) as u16;
            *digit = number.wrapping_sub(quotient.wrapping_mul(base));
            *number = quotient;
        }
    }
}

cases![
    ("add_digits", |input, output| {
        let mut numbers = input.symbols();
        let digits: Vec<u16> = numbers.iter().map(|number| number % 7).collect();
        add_digits(&mut numbers, &digits, input.word(0) as u16);
        output.bits(numbers.iter().copied());
    }),
    ("take_digits", |input, output| {
        let mut numbers = input.symbols();
        let mut digits: Vec<u16> = numbers.to_vec();
        take_digits(&mut numbers, 1 + input.word(0) as u16 % 80, &mut digits);
        output.bits(numbers.iter().chain(&digits).copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_by_hand() {
        let mut numbers = [1, 2, 0];
        add_digits(&mut numbers, &[2, 0, 1], 3);
        add_digits(&mut numbers, &[1, 2], 9);
        assert_eq!(numbers, [16, 20, 3]);
        let mut digits = [9; 3];
        take_digits(&mut numbers, 3, &mut digits);
        assert_eq!((numbers, digits), ([5, 6, 1], [1, 2, 0]));
    }

    #[test]
    fn quotients_are_exact() {
        for base in 2..=64 {
            for number in 0..1024 {
                let (mut numbers, mut digits) = ([number], [0]);
                take_digits(&mut numbers, base, &mut digits);
                assert_eq!((numbers[0], digits[0]), (number / base, number % base));
            }
        }
    }
}
