//! Means, shares and agreement with their intervals. Pure; knows no runs.

use std::collections::BTreeSet;

/// Quantiles of the standard normal distribution and of Student's t distribution for two-sided 95 %. The latter by
/// degrees of freedom, from 1 to 30.
const NORMAL_QUANTILE: f64 = 1.959_964;
const T_QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[expect(clippy::cast_precision_loss, reason = "few values")]
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Student's t interval of the mean. `None` for fewer than two values.
#[expect(clippy::cast_precision_loss, reason = "few values")]
pub(super) fn mean_interval(values: &[f64]) -> Option<(f64, f64)> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / freedom as f64 / values.len() as f64).sqrt();
    // Beyond the table, the quantile of its last row is slightly too large.
    let quantile = T_QUANTILES[freedom.min(T_QUANTILES.len()) - 1];
    Some((mean - quantile * error, mean + quantile * error))
}

/// `part` of `all`; `None` of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn share(part: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Wilson's score interval of a share; `None` of nothing. It treats the cases as independent.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn wilson_interval(part: usize, all: usize) -> Option<(f64, f64)> {
    let (share, count, square) = (share(part, all)?, all as f64, NORMAL_QUANTILE.powi(2));
    let center = share + square / (2.0 * count);
    let margin =
        NORMAL_QUANTILE * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
    let scale = 1.0 + square / count;
    // Without these two cases, rounding would exclude the share from its interval.
    let low = if part == 0 {
        0.0
    } else {
        (center - margin) / scale
    };
    let high = if part == all {
        1.0
    } else {
        (center + margin) / scale
    };
    Some((low, high))
}

/// The mean of Jaccard's index over all pairs of sets: the size of the intersection by that of the union. `None` for
/// fewer than two sets, and if two sets are empty, which shows nothing.
pub(super) fn pairwise_agreement<'a, T: Ord + 'a>(
    sets: impl Iterator<Item = &'a BTreeSet<T>>,
) -> Option<f64> {
    let sets: Vec<&BTreeSet<T>> = sets.collect();
    let pairs = sets
        .iter()
        .enumerate()
        .flat_map(|(index, one)| sets[index + 1..].iter().map(move |other| (one, other)));
    let indexes = pairs.map(|(one, other)| {
        let common = one.intersection(other).count();
        share(common, one.len() + other.len() - common)
    });
    mean(&indexes.collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: Option<(f64, f64)>, expected: (f64, f64)) {
        let (low, high) = found.unwrap();
        assert!(
            (low - expected.0).abs() < 5e-4 && (high - expected.1).abs() < 5e-4,
            "{found:?}"
        );
    }

    /// The expected values use quantiles from a numeric integration of the density.
    #[test]
    fn mean_interval_is_students_t() {
        assert_close(mean_interval(&[1.0, 2.0, 3.0, 4.0]), (0.4457, 4.5543));
        assert_close(mean_interval(&[2.5, 3.5]), (-3.3531, 9.3531));
        assert_close(mean_interval(&[2.0; 40]), (2.0, 2.0));
        assert_eq!(
            (mean_interval(&[1.0]), mean_interval(&[]), mean(&[])),
            (None, None, None)
        );
    }

    /// The expected values are the roots of Wilson's quadratic equation.
    #[test]
    fn share_interval_is_wilsons() {
        assert_close(wilson_interval(8, 10), (0.4902, 0.9433));
        assert_close(wilson_interval(0, 10), (0.0, 0.2775));
        assert_close(wilson_interval(1, 1), (0.2065, 1.0));
        for all in 1..200 {
            assert_eq!(
                wilson_interval(all, all).unwrap().1.to_bits(),
                1.0_f64.to_bits(),
                "{all} of {all}"
            );
            assert_eq!(
                wilson_interval(0, all).unwrap().0.to_bits(),
                0.0_f64.to_bits(),
                "0 of {all}"
            );
        }
        assert_eq!((wilson_interval(0, 0), share(0, 0)), (None, None));
    }

    #[test]
    fn agreement_is_the_mean_of_all_pairs() {
        let sets = [
            BTreeSet::from([1, 2]),
            BTreeSet::from([2, 3]),
            BTreeSet::from([1, 2]),
        ];
        let agreement = pairwise_agreement(sets.iter()).unwrap();
        assert!((agreement - 5.0 / 9.0).abs() < 1e-9, "{agreement}");
        assert_eq!(pairwise_agreement(sets[..1].iter()), None);
        assert_eq!(
            pairwise_agreement([BTreeSet::<u8>::new(), BTreeSet::new()].iter()),
            None
        );
        assert_eq!(
            pairwise_agreement([BTreeSet::new(), BTreeSet::from([1])].iter()),
            Some(0.0)
        );
    }
}
