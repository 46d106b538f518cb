// Rotary position embeddings. What the types of operands are is read at run time, uniformly for all threads.

constexpr u32 THREADS = 256;

// Types of elements, in the order of `DType`.
enum Type : u32 { F32, F16, BF16 };

__device__ __forceinline__ f32 load_any(const void* from, u32 type, u64 at) {
    if (type == F32) return static_cast<const f32*>(from)[at];
    if (type == F16) return to_f32(static_cast<const f16*>(from)[at]);
    return to_f32(static_cast<const bf16*>(from)[at]);
}
__device__ __forceinline__ void store_any(void* to, u32 type, u64 at, f32 x) {
    if (type == F32) static_cast<f32*>(to)[at] = x;
    else if (type == F16) static_cast<f16*>(to)[at] = from_f32<f16>(x);
    else static_cast<bf16*>(to)[at] = from_f32<bf16>(x);
}

// A thread for each position and frequency: a row is so many copies of them.
extern "C" __global__ void __launch_bounds__(THREADS)
    rotary_tables(const f32* frequencies, u64 half, u64 copies, f32 scaling, void* cos, u32 cos_type, void* sin, u32 sin_type, u64 len) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const u64 row = i / half, at = row * copies * half + i % half;
        const f32 angle = f32(row) * frequencies[i % half];
        const f32 c = cosf(angle) * scaling, s = sinf(angle) * scaling;
        for (u64 copy = 0; copy < copies; ++copy) {
            store_any(cos, cos_type, at + copy * half, c);
            store_any(sin, sin_type, at + copy * half, s);
        }
    }
}

// Queries or keys: heads, rows and half of a head's elements; from one sequence, head and row to the next in either operand; whether
// neighbours are a pair.
struct RotaryLayout {
    u64 heads, rows, half;
    u64 src[3];
    u64 dst[3];
    u64 neighbours;
    // Tables have a value for each pair, not for each element.
    u64 once;
};

// A thread for each pair of elements. A table that is not there is one of zeros.
extern "C" __global__ void __launch_bounds__(THREADS)
    rotary(const void* src, u32 src_type, const void* cos, u32 cos_type, const void* sin, u32 sin_type, void* dst, u32 dst_type,
           u32 backward, u32 adds, u64 pairs, RotaryLayout layout) {
    for (u64 pair = thread_index(); pair < pairs; pair += thread_count()) {
        const u64 number = pair % layout.half;
        const u64 i = layout.neighbours ? 2 * number : number, j = layout.neighbours ? i + 1 : i + layout.half;
        u64 rest = pair / layout.half;
        const u64 head = rest % layout.heads;
        rest /= layout.heads;
        const u64 row = rest % layout.rows, sequence = rest / layout.rows;
        const u64 from = sequence * layout.src[0] + head * layout.src[1] + row * layout.src[2];
        const u64 to = sequence * layout.dst[0] + head * layout.dst[1] + row * layout.dst[2];
        // Pairs have the order of halves in the tables.
        const u64 copies = layout.once ? 1 : 2;
        const u64 table = row * copies * layout.half + number, other = table + (copies - 1) * layout.half;
        const f32 x = load_any(src, src_type, from + i), y = load_any(src, src_type, from + j);
        const f32 sin_i = sin ? load_any(sin, sin_type, table) : 0.0f, sin_j = sin ? load_any(sin, sin_type, other) : 0.0f;
        const f32 cos_i = cos ? load_any(cos, cos_type, table) : 0.0f, cos_j = cos ? load_any(cos, cos_type, other) : 0.0f;
        // Backward is the transpose: the sine of the other element, with the other sign.
        const f32 first = backward ? sin_j : -sin_i, second = backward ? -sin_i : sin_j;
        const f32 at_i = adds ? load_any(dst, dst_type, to + i) : 0.0f, at_j = adds ? load_any(dst, dst_type, to + j) : 0.0f;
        store_any(dst, dst_type, to + i, x * cos_i + y * first + at_i);
        store_any(dst, dst_type, to + j, y * cos_j + x * second + at_j);
    }
}
