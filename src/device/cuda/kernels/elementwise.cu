// Element by element: reads and writes 16 bytes at once where addresses and length permit.

template <class T> __device__ void fill(T* dst, u64 len, f32 value) {
    for (u64 i = thread_index(); i < len; i += thread_count()) dst[i] = from_f32<T>(value);
}

#define FILL(T) extern "C" __global__ void fill_##T(T* dst, u64 len, f32 value) { fill(dst, len, value); }
FOR_FLOATS(FILL)
