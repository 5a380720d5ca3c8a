//! Convolution. MLX finds out only while computing that it has no kernel for a combination, and a
//! failure there stalls its scheduler in the end (see `linalg`).

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::host;
use crate::stream::Stream;

/// The attributes of a convolution, each with an entry per spatial axis.
pub(crate) struct Window<'a> {
    pub strides: &'a [i32],
    pub pad_lo: &'a [i32],
    pub pad_hi: &'a [i32],
    pub kernel_dilation: &'a [i32],
    pub input_dilation: &'a [i32],
}

pub(super) fn conv_general(
    x: &Array,
    kernel: &Array,
    window: &Window,
    groups: i32,
    flip: bool,
    s: &Stream,
) -> Result<Array> {
    let spatial = x.dims().len().saturating_sub(2);
    let lists = [
        window.strides,
        window.pad_lo,
        window.pad_hi,
        window.kernel_dilation,
        window.input_dilation,
    ];
    let steps = [
        window.strides,
        window.kernel_dilation,
        window.input_dilation,
    ];
    if lists.iter().any(|list| list.len() != spatial)
        || steps.iter().any(|list| list.iter().any(|step| *step < 1))
        || groups < 1
    {
        return Err(Error::invalid(
            "",
            format!(
                "{lists:?} must have {spatial} entries each, strides and dilations of 1 or more, and {groups} groups must be 1 or more"
            ),
        ));
    }
    if !flip && let Some(made) = host::conv(x, kernel, window, groups, s) {
        return made;
    }
    let mut dilations = window.input_dilation.iter().chain(window.kernel_dilation);
    let dilated = dilations.any(|step| *step != 1);
    let f64 = x.dtype() == Dtype::Float64 || kernel.dtype() == Dtype::Float64;
    if f64 && (groups != 1 || dilated || flip) {
        return Err(Error::invalid(
            "",
            "MLX has no f64 convolution with groups, dilation or a flipped kernel",
        ));
    }
    let Window {
        strides,
        pad_lo,
        pad_hi,
        kernel_dilation,
        input_dilation,
    } = window;
    c!(
        mlx_conv_general(
            x,
            kernel,
            [strides],
            [pad_lo],
            [pad_hi],
            [kernel_dilation],
            [input_dilation],
            groups,
            flip
        ),
        s
    )
}
