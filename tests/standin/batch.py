"""A program whose memory grows with its batch, without PyTorch: 100 MiB a sample, and in PyTorch's words where that is too much."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
address = ctypes.c_uint64()
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
batch = int(sys.argv[1].partition("=")[2])
if batch == int(sys.argv[2]):
    sys.exit("this is no batch of mine")
code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(batch * 100 << 20))
if code:
    sys.exit(f"torch.OutOfMemoryError: CUDA out of memory. ({code})")
