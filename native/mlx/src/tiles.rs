//! Matrix products in tiles, which the cores take one after the other.

use std::ops::Range;

use mlx_ffi as ffi;

use crate::cores;

/// Multiplications from which on a product is shared, and that a tile has at least: about a tenth of
/// a millisecond of work.
const LEAST: usize = 4 << 20;
/// Rows and columns of a tile come in so many, as BLAS computes them, and are at least so many.
const STEP: usize = 32;

/// Has OpenBLAS's products shared.
pub(crate) fn share_products() {
    ffi::share_products(share);
}

fn share(m: usize, n: usize, k: usize, each: &(dyn Fn(Range<usize>, Range<usize>) + Sync)) {
    let (rows, columns) = tile(m, n, k, cores::count());
    let wide = n.div_ceil(columns);
    cores::share(
        m.div_ceil(rows) * wide,
        rows * columns * k.max(1),
        1,
        &|tiles| {
            for tile in tiles {
                let (row, column) = (tile / wide * rows, tile % wide * columns);
                each(row..m.min(row + rows), column..n.min(column + columns));
            }
        },
    );
}

/// The rows and columns of a tile: there are two or three to a core, so that one which others keep
/// busy does less, and no more, for BLAS looks at all of a tile's rows and columns before it begins.
fn tile(m: usize, n: usize, k: usize, cores: usize) -> (usize, usize) {
    let (mut rows, mut columns) = (m.max(1), n.max(1));
    let work = |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(k);
    if cores < 2 {
        return (rows, columns);
    }
    let wanted = (work(rows, columns) / (2 * cores)).max(LEAST);
    while work(rows, columns) >= 2 * wanted && rows.max(columns) >= 2 * STEP {
        let larger = if rows > columns {
            &mut rows
        } else {
            &mut columns
        };
        *larger = larger.div_ceil(2).next_multiple_of(STEP);
    }
    (rows, columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn tiles_are_as_many_as_cores_can_use() {
        assert_eq!(tile(1024, 1024, 1024, 2), (512, 512));
        assert_eq!(tile(128, 512, 784, 2), (128, 128));
        assert_eq!(tile(64, 64, 64, 16), (64, 64));
        assert_eq!(tile(1, 1 << 20, 512, 4), (1, 1 << 17));
        assert_eq!(tile(1 << 20, 10, 512, 2), (1 << 18, 10));
        assert_eq!(tile(1024, 1024, 1024, 1), (1024, 1024));
        assert_eq!(tile(0, 5, 5, 2), (1, 5));
        assert_eq!(tile(10, 10, 1 << 30, 2), (10, 10));
    }

    #[test]
    fn every_element_is_in_one_tile() {
        for (m, n, k) in [(0, 3, 3), (1, 1, 1), (700, 333, 500), (33, 9000, 100)] {
            let seen = Mutex::new(vec![0_u8; m * n]);
            share(m, n, k, &|rows, columns| {
                let mut seen = seen.lock().unwrap_or_else(|broken| broken.into_inner());
                for row in rows {
                    for place in &mut seen[row * n..][columns.clone()] {
                        *place += 1;
                    }
                }
            });
            let seen = seen
                .into_inner()
                .unwrap_or_else(|broken| broken.into_inner());
            assert!(seen.iter().all(|count| *count == 1), "{m} {n} {k}");
        }
    }
}
