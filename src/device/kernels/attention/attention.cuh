// In front of the units of attention: what their kernels are given. Fields take 8 bytes each, as the launcher packs
// them.

// One tensor of (batch, heads, rows, width); strides in elements, rows contiguous.
template <class T> struct Heads {
    T* at;
    u64 batch, head, row;

    __device__ __forceinline__ T* of(u64 b, u64 h) const { return at + b * batch + h * head; }
};

// The part of the problem that is the same for all kernels.
struct Attention {
    // Heads of queries, and how many of them share one of keys and values.
    u64 heads, group;
    // `values` is the width of values and of the result.
    u64 rows, keys, width, values;
    u64 causal;
    // Where attention is causal a position sees so many, itself included.
    u64 window;
    // All addresses and strides permit four elements at once (eight where they have 16 bits).
    u64 aligned;
    // Logarithms of sums of exponents, `lse_stride` for each head; null where nobody asks for them.
    f32* lse;
    u64 lse_stride;
    // Weights whose draw is below the threshold are left out, the others multiplied by `kept`; a threshold of zero leaves out none.
    u64 seed, threshold;
    f32 kept;

    // What dropout multiplies a weight of query `row` of `head` by.
    __device__ __forceinline__ f32 stays(u32 head, int row, int key) const {
        return draw(seed, (u64(head) * rows + row) * keys + key) < threshold ? 0.f : kept;
    }
};

template <class T> struct Forward {
    Attention shape;
    Heads<const T> q, k, v;
    Heads<T> out;
};

template <class T> struct Backward {
    Attention shape;
    Heads<const T> q, k, v, out, grad;
    Heads<T> dq, dk, dv;
    // rowsum(grad ∘ out), one for each row of each head.
    f32* delta;
};

// Which head and which tile of its rows a block works on. Blocks of one head are neighbours, so that they share what
// the second-level cache holds of it.
struct Place {
    // `shared` is the head of keys and values.
    u32 b, h, shared, head, tile;

    __device__ __forceinline__ Place(const Attention& shape, u32 tiles) {
        const u32 heads = u32(shape.heads);
        head = blockIdx.x / tiles;
        tile = blockIdx.x % tiles;
        b = head / heads;
        h = head % heads;
        shared = h / u32(shape.group);
    }
};

__device__ __forceinline__ u32 tiles_of(u64 n, u32 unit) { return u32((n + unit - 1) / unit); }

// Scores of hidden positions: less than any other, and finite, so that a tile of which a row sees nothing is corrected away by
// the next one.
constexpr f32 HIDDEN = -1e30f;

// The tile in which lies the first position that the rows from `row` on see.
__device__ __forceinline__ int first_seen(const Attention& shape, int row, int unit) {
    const int before = shape.causal ? row + 1 - int(shape.window) : 0;
    return before > 0 ? before / unit * unit : 0;
}

constexpr f32 LOG2_E = 1.44269504088896340736f;
constexpr f32 LN_2 = 0.693147180559945309417f;

// 2^x, to two units in the last place.
__device__ __forceinline__ f32 power_of_two(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
