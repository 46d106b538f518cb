//! The shapes of kernels on images: arrays of (batch, channels, height, width), without gaps.

/// The number of positions of a square window of side `kernel` along `side` elements, with `padding` more at each end;
/// `None` if the window does not fit or `stride` is 0.
const fn windows(side: usize, kernel: usize, stride: usize, padding: usize) -> Option<usize> {
    match (side + 2 * padding).checked_sub(kernel) {
        Some(room) if stride > 0 && kernel > 0 => Some(room / stride + 1),
        _ => None,
    }
}

/// The order of elements in images and in their weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImageLayout {
    /// (batch, channels, height, width): planes.
    #[default]
    ChannelsFirst,
    /// (batch, height, width, channels): the channels of a pixel are adjacent.
    ChannelsLast,
}

/// The shape of a two-dimensional convolution with square windows, one group and no dilation.
///
/// A transposed convolution is the same three kernels in other roles: with the shape of the convolution that leads
/// back from its output to its input, its forward pass is [`Convolution::BackwardInput`](super::kernels::Convolution::BackwardInput)
/// (`grad` is its input), its gradient with respect to the input is [`Convolution::Forward`](super::kernels::Convolution::Forward) of its output's
/// gradient, and with respect to the weight [`Convolution::BackwardWeight`](super::kernels::Convolution::BackwardWeight) where `src`
/// is its output's gradient and `grad` its input. Its weight (in, out, k, k) is that convolution's (out, in, k, k).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels of each input image.
    pub in_channels: usize,
    /// Rows of each input image.
    pub in_height: usize,
    /// Columns of each input image.
    pub in_width: usize,
    /// Channels of each output image.
    pub out_channels: usize,
    /// Rows of each output image.
    pub out_height: usize,
    /// Columns of each output image.
    pub out_width: usize,
    /// Side of the window.
    pub kernel: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Zeros around each input image, on every side.
    pub padding: usize,
    /// The layout of source, weight and result. With channels last, the weight is (out, kernel, kernel, in).
    pub layout: ImageLayout,
}

impl ConvShape {
    /// Elements of one channel of an input image.
    #[must_use]
    pub const fn in_area(&self) -> usize {
        self.in_height * self.in_width
    }

    /// Elements of one channel of an output image.
    #[must_use]
    pub const fn out_area(&self) -> usize {
        self.out_height * self.out_width
    }

    /// The number of terms in each output element: the length of a row of the weight.
    #[must_use]
    pub const fn window(&self) -> usize {
        self.in_channels * self.kernel * self.kernel
    }

    /// Elements of the input.
    #[must_use]
    pub const fn in_len(&self) -> usize {
        self.batch * self.in_channels * self.in_area()
    }

    /// Elements of the output.
    #[must_use]
    pub const fn out_len(&self) -> usize {
        self.batch * self.out_channels * self.out_area()
    }

    /// Elements of the weight.
    #[must_use]
    pub const fn weight_len(&self) -> usize {
        self.out_channels * self.window()
    }

    /// Multiplications in each of the three kernels, including those with padding; saturates at the largest number.
    #[must_use]
    pub const fn products(&self) -> usize {
        self.out_len().saturating_mul(self.window())
    }

    /// True if windows, stride and padding map the input's sides to the output's. Several input sizes may have the same
    /// output size, so a transposed convolution must tell which one it produces.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let leads = |from, to| windows(from, self.kernel, self.stride, self.padding) == Some(to);
        leads(self.in_height, self.out_height) && leads(self.in_width, self.out_width)
    }
}

/// An array of (batch, channels, area): images whose rows and columns do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelShape {
    /// Images.
    pub batch: usize,
    /// Channels of each image.
    pub channels: usize,
    /// Elements of one channel of an image.
    pub area: usize,
}

impl ChannelShape {
    /// Elements in all.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch * self.channels * self.area
    }

    /// True when there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of one channel over all images, over which statistics are computed.
    #[must_use]
    pub const fn per_channel(&self) -> usize {
        self.batch * self.area
    }
}

/// The shape of pooling with square windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Channels of all images.
    pub planes: usize,
    /// Rows of each input plane.
    pub in_height: usize,
    /// Columns of each input plane.
    pub in_width: usize,
    /// Rows of each output plane.
    pub out_height: usize,
    /// Columns of each output plane.
    pub out_width: usize,
    /// Side of the window.
    pub kernel: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Elements around each input plane that are never the maximum; at most half a window.
    pub padding: usize,
    /// The number of planes whose elements are interleaved: 1, or all channels of an image.
    pub interleaved: usize,
}

impl PoolShape {
    /// Elements of one input plane.
    #[must_use]
    pub const fn in_area(&self) -> usize {
        self.in_height * self.in_width
    }

    /// Elements of one output plane.
    #[must_use]
    pub const fn out_area(&self) -> usize {
        self.out_height * self.out_width
    }

    /// True if windows, stride and padding map the input's sides to the output's, and every window contains at least
    /// one element.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let leads = |from, to| windows(from, self.kernel, self.stride, self.padding) == Some(to);
        2 * self.padding <= self.kernel
            && self.interleaved > 0
            && self.planes.is_multiple_of(self.interleaved)
            && leads(self.in_height, self.out_height)
            && leads(self.in_width, self.out_width)
    }
}
