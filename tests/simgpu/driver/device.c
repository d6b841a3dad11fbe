/* Devices: initialisation, queries, errors' names. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SG_CALL(cuInit, (unsigned flags), (flags))
{
    SG_CHECK(flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg.cfg.ndevices > 0, CUDA_ERROR_NO_DEVICE);
    const char *why;
    CUresult r = sg_machine_join(&why);
    if (r != CUDA_SUCCESS) {
        sg_note("simgpu: SIMGPU_MACHINE=%s %s", getenv("SIMGPU_MACHINE"), why);
        return r;
    }
    sg.inited = true;
    sg.pid = (int)getpid();
    return CUDA_SUCCESS;
}

SG_CALL(cuDriverGetVersion, (int *version), (version))
{
    SG_CHECK(version, CUDA_ERROR_INVALID_VALUE);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static bool device_ok(CUdevice dev)
{
    return dev >= 0 && dev < sg.cfg.ndevices;
}

SG_CALL(cuDeviceGet, (CUdevice * dev, int ordinal), (dev, ordinal))
{
    SG_CHECK(dev, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *dev = ordinal;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetCount, (int *count), (count))
{
    SG_CHECK(count, CUDA_ERROR_INVALID_VALUE);
    *count = sg.cfg.ndevices;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetName, (char *name, int len, CUdevice dev), (name, len, dev))
{
    SG_CHECK(name && len > 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)len, "%s (simulated)", sg.cfg.preset.card);
    return CUDA_SUCCESS;
}

void sg_device_uuid(int ordinal, unsigned char uuid[16])
{
    memcpy(uuid, "simulated gpu 00", 16);
    uuid[14] = (unsigned char)('0' + ordinal / 10);
    uuid[15] = (unsigned char)('0' + ordinal % 10);
}

static CUresult uuid(CUuuid *out, CUdevice dev)
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    sg_device_uuid(dev, (unsigned char *)out->bytes);
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetUuid, (CUuuid * out, CUdevice dev), (out, dev))
{
    return uuid(out, dev);
}
SG_CALL(cuDeviceGetUuid_v2, (CUuuid * out, CUdevice dev), (out, dev))
{
    return uuid(out, dev);
}

SG_CALL(cuDeviceGetLuid, (char *luid, unsigned *mask, CUdevice dev), (luid, mask, dev))
{
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    (void)luid;
    (void)mask;
    return CUDA_ERROR_NOT_SUPPORTED; /* Windows only */
}

SG_CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev))
{
    SG_CHECK(bytes, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *bytes = sg.cfg.preset.memory;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceComputeCapability, (int *major, int *minor, CUdevice dev), (major, minor, dev))
{
    SG_CHECK(major && minor, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *major = sg.cfg.preset.major;
    *minor = sg.cfg.preset.minor;
    return CUDA_SUCCESS;
}

/* Attributes that do not depend on the preset. Texture limits are those of compute capability 5.2
 * and up in the programming guide's table; no texture is modelled. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} fixed[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 100},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
};

/* KiB of shared memory: of a multiprocessor, and the most that one block may have (programming guide,
 * technical specifications for each compute capability). */
static const struct sg_shared {
    int major, minor, of_sm, of_block; /* from this capability on */
} shared[] = {
    {12, 0, 100, 99}, {10, 0, 228, 227}, {9, 0, 228, 227}, {8, 6, 100, 99}, {8, 0, 164, 163},
    {7, 5, 64, 64},   {7, 0, 96, 96},    {6, 1, 96, 48},   {6, 0, 64, 48},  {5, 2, 96, 48},
    {5, 0, 64, 48},   {0, 0, 48, 48},
};

static const struct sg_shared *shared_memory(void)
{
    const struct sg_preset *p = &sg.cfg.preset;
    const struct sg_shared *s = shared;
    while (s->major > p->major || (s->major == p->major && s->minor > p->minor))
        s++;
    return s;
}

int sg_shared_limit(void)
{
    return shared_memory()->of_block * 1024;
}

static int attribute(CUdevice_attribute a, CUdevice dev, bool *known)
{
    const struct sg_preset *p = &sg.cfg.preset;
    *known = true;
    switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return p->clock_khz;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return p->sms;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return p->mem_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return p->bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return (int)p->l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return shared_memory()->of_sm * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return sg_shared_limit();
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        return p->major >= 8 ? 1024 : 0;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return p->copy_engines;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return p->major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return p->minor;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return 1 + dev;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return sg.cfg.host_numa;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
        return p->major >= 7;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i].attribute == a)
            return fixed[i].value;
    *known = (int)a >= 1 && (int)a < CU_DEVICE_ATTRIBUTE_MAX;
    return 0; /* a feature the card does not have */
}

SG_CALL(cuDeviceGetAttribute, (int *value, CUdevice_attribute a, CUdevice dev), (value, a, dev))
{
    SG_CHECK(value, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    bool known;
    int v = attribute(a, dev, &known);
    SG_CHECK(known, CUDA_ERROR_INVALID_VALUE);
    *value = v;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetProperties, (CUdevprop * p, CUdevice dev), (p, dev))
{
    bool known;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *p = (CUdevprop){.maxThreadsPerBlock = 1024,
                     .maxThreadsDim = {1024, 1024, 64},
                     .maxGridSize = {2147483647, 65535, 65535},
                     .sharedMemPerBlock = 49152,
                     .totalConstantMemory = 65536,
                     .SIMDWidth = 32,
                     .memPitch = 2147483647,
                     .regsPerBlock = 65536,
                     .textureAlign = 512};
    p->clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, dev, &known);
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetPCIBusId, (char *id, int len, CUdevice dev), (id, len, dev))
{
    SG_CHECK(id && len > 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)len, "0000:%02X:00.0", 1 + dev);
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetByPCIBusId, (CUdevice * dev, const char *id), (dev, id))
{
    unsigned domain = 0, bus;
    SG_CHECK(dev && id, CUDA_ERROR_INVALID_VALUE);
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 && sscanf(id, "%x:", &bus) != 1)
        return CUDA_ERROR_INVALID_VALUE;
    SG_CHECK(domain == 0 && bus >= 1 && device_ok((int)bus - 1), CUDA_ERROR_INVALID_DEVICE);
    *dev = (int)bus - 1;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetTexture1DLinearMaxWidth,
        (size_t * width, CUarray_format format, unsigned channels, CUdevice dev),
        (width, format, channels, dev))
{
    SG_CHECK(width, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    (void)format;
    (void)channels;
    *width = 268435456;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetExecAffinitySupport, (int *value, CUexecAffinityType type, CUdevice dev),
        (value, type, dev))
{
    SG_CHECK(value, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    (void)type;
    *value = 0;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer))
{
    SG_CHECK(can, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev) && device_ok(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = dev != peer;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetP2PAttribute, (int *value, CUdevice_P2PAttribute a, CUdevice dev, CUdevice peer),
        (value, a, dev, peer))
{
    SG_CHECK(value, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev) && device_ok(peer) && dev != peer, CUDA_ERROR_INVALID_DEVICE);
    *value = a == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}
