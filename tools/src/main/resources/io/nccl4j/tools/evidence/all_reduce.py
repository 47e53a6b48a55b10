"""One rank of a communicator whose other ranks may be written in another language.

Waits for the file with the unique id that rank 0 writes, all-reduces a few arrays, and checks the sums.
Uses the NCCL of CuPy or else PyTorch, if usable, and otherwise libnccl and libcudart through ctypes.
"""

import argparse
import array
import ctypes
import faulthandler
import os
import signal
import sys
import time

SUMS = [("int32", 1), ("int32", 1001), ("float32", 1001), ("float64", 1001), ("float32", 1_000_003)]
NCCL_TYPES = {"int32": 2, "float32": 7, "float64": 8}
ARRAY_CODES = {"int32": "i", "float32": "f", "float64": "d"}
SUM = 0


class CuPy:
    def __init__(self, unique_id, size, rank, _arguments):
        import cupy
        from cupy.cuda import nccl

        self.cupy = cupy
        cupy.cuda.Device(0).use()
        if int(cupy.__version__.split(".")[0]) < 14:
            unique_id = tuple(byte - 256 if byte > 127 else byte for byte in unique_id)
        self.comm = nccl.NcclCommunicator(size, unique_id, rank)
        self.name = f"CuPy {cupy.__version__}, NCCL {nccl.get_version()}"

    def all_reduce(self, type_name, values):
        data = self.cupy.array(values, dtype=type_name)
        stream = self.cupy.cuda.get_current_stream()
        self.comm.allReduce(data.data.ptr, data.data.ptr, len(values), NCCL_TYPES[type_name], SUM, stream.ptr)
        stream.synchronize()
        return data.tolist()

    def close(self):
        self.comm.destroy()


class Torch:
    def __init__(self, unique_id, size, rank, _arguments):
        import torch

        self.torch = torch
        torch.cuda.set_device(0)
        torch.zeros(1, device="cuda")
        self.comm = torch.cuda.nccl.init_rank(size, unique_id, rank)
        self.name = f"PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}"

    def all_reduce(self, type_name, values):
        data = self.torch.tensor(values, dtype=getattr(self.torch, type_name), device="cuda")
        self.torch.cuda.nccl.all_reduce([data], [data], comms=[self.comm])
        self.torch.cuda.synchronize()
        return data.tolist()

    def close(self):
        self.comm = None


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Ctypes:
    def __init__(self, unique_id, size, rank, arguments):
        self.cuda = ctypes.CDLL(arguments.cudart, mode=ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(arguments.nccl)
        check("cudaSetDevice", self.cuda.cudaSetDevice(0))
        self.comm = ctypes.c_void_p()
        by_value = UniqueId.from_buffer_copy(unique_id)
        self.nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        check("ncclCommInitRank", self.nccl.ncclCommInitRank(ctypes.byref(self.comm), size, by_value, rank))
        version = ctypes.c_int()
        check("ncclGetVersion", self.nccl.ncclGetVersion(ctypes.byref(version)))
        self.name = f"ctypes, NCCL {version.value}"

    def all_reduce(self, type_name, values):
        host = array.array(ARRAY_CODES[type_name], values)
        address, count = host.buffer_info()
        size = ctypes.c_size_t(count * host.itemsize)
        device = ctypes.c_void_p()
        host_to_device, device_to_host, default_stream = 1, 2, None
        check("cudaMalloc", self.cuda.cudaMalloc(ctypes.byref(device), size))
        copy = self.cuda.cudaMemcpy
        check("cudaMemcpy", copy(device, ctypes.c_void_p(address), size, host_to_device))
        all_reduce = self.nccl.ncclAllReduce
        elements = ctypes.c_size_t(count)
        result = all_reduce(device, device, elements, NCCL_TYPES[type_name], SUM, self.comm, default_stream)
        check("ncclAllReduce", result)
        check("cudaDeviceSynchronize", self.cuda.cudaDeviceSynchronize())
        check("cudaMemcpy", copy(ctypes.c_void_p(address), device, size, device_to_host))
        check("cudaFree", self.cuda.cudaFree(device))
        return host.tolist()

    def close(self):
        check("ncclCommDestroy", self.nccl.ncclCommDestroy(self.comm))


def check(function, result):
    if result != 0:
        sys.exit(f"{function} returned {result}")


def usable(name):
    """Returns whether a package is installed and has NCCL, before the other ranks wait for this one."""
    try:
        if name == "cupy":
            from cupy.cuda import nccl

            nccl.get_version()
            return True
        import torch

        # init_rank is needed for a communicator with ranks in other processes.
        return torch.cuda.is_available() and callable(torch.cuda.nccl.init_rank)
    except Exception as reason:  # A broken installation can raise anything.
        print(f"{name} is not used: {type(reason).__name__}: {reason}")
        return False


def share_library(path):
    """Loads the libnccl of the other ranks, so that packages that load libnccl by name use it too."""
    try:
        ctypes.CDLL(path)
    except OSError as reason:
        print(f"{path} cannot be loaded: {reason}")


def loaded_libraries():
    with open("/proc/self/maps") as maps:
        files = {line.split(maxsplit=5)[-1].strip() for line in maps if "libnccl" in line}
    return " and ".join(sorted(files)) or "no libnccl"


def read_id(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", required=True, help="file with the unique id")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--deadline", type=int, required=True, help="seconds after which this process exits")
    parser.add_argument("--nccl", default="libnccl.so.2", help="path of libnccl for ctypes")
    parser.add_argument("--cudart", default="libcudart.so", help="path of libcudart for ctypes")
    parser.add_argument("--with", dest="chosen", choices=["cupy", "torch", "ctypes"])
    arguments = parser.parse_args()
    signal.alarm(arguments.deadline)
    faulthandler.register(signal.SIGQUIT)
    share_library(arguments.nccl)

    bindings = {"cupy": CuPy, "torch": Torch, "ctypes": Ctypes}
    chosen = arguments.chosen or next(name for name in bindings if name == "ctypes" or usable(name))
    comm = bindings[chosen](read_id(arguments.id), arguments.size, arguments.rank, arguments)
    wrong = 0
    for type_name, count in SUMS:
        mine = [(arguments.rank + 1) * (i % 1000) for i in range(count)]
        factor = arguments.size * (arguments.size + 1) // 2
        result = comm.all_reduce(type_name, mine)
        differences = sum(value != factor * (i % 1000) for i, value in enumerate(result))
        wrong += differences
        print(f"sum of {count} {type_name}: {differences} wrong elements")
    comm.close()
    print(f"loaded: {loaded_libraries()}")
    print(f"Python {sys.version.split()[0]}, {comm.name}: {wrong} wrong elements", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
