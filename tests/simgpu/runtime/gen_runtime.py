#!/usr/bin/env python3
"""Generates what the simulated CUDA runtime takes from the toolkit's headers and from its own objects.

  gen_runtime.py errors HEADER_DIR OUT          rows of the error table: code, name, name in words
  gen_runtime.py exports HEADER_DIR VERSION ARCHIVE NM OUT_C OUT_MAP
      VERSION is 13 or 12; ARCHIVE holds the implemented functions. OUT_C gets a definition for each
      function of the headers that ARCHIVE lacks, OUT_MAP the version script of the library.
"""
import re
import subprocess
import sys

HEADERS = ["cuda_runtime_api.h", "cuda_gl_interop.h", "cuda_egl_interop.h", "cuda_vdpau_interop.h",
           "cuda_profiler_api.h", "crt/host_runtime.h", "generated_cuda_runtime_api_meta.h",
           "generated_cudart_removed_meta.h"]

# Entry points that the compilers and tools of a toolkit use and no header for C declares.
UNDECLARED = ["__cudaGetProcAddress", "__cudaLaunchKernel", "__cudaLaunchKernel_ptsz",
              "__cudaPushCallConfiguration", "__cudaRegisterHostVar", "__cudaRegisterUnifiedTable"]

# Later than CUDA 12.8.
SINCE_13 = re.compile(r"^(__cudaGetProcAddress|cudaDeviceGet(Host|P2P)AtomicCapabilities|cudaLogs\w+|"
                      r"cudaMem(Discard\w+|PrefetchBatchAsync|(Get|Set)(Default)?MemPool)(_ptsz)?)$")

# Macros, inline functions and device-side functions that the pattern below also finds.
NOT_EXPORTED = re.compile(
    r"^(cuda(D3D\w+|ConfigureCall|SetupArgument|Launch|LaunchKernelEx|GetParameterBuffer\w*|"
    r"LaunchDevice\w*|Graph(KernelNode(SetParam|UpdatesApply|SetEnabled|SetGridDim)|SetConditional)|"
    r"CreateTextureObject_v2|GetTextureObjectTextureDesc_v2|TriggerProgrammaticLaunchCompletion|"
    r"GridDependencySynchronize|BindTexture\w*|BindSurface\w*|UnbindTexture|"
    r"Get(Texture|Surface)(Reference|AlignmentOffset)|GetCurrentGraphExec|GetTextureAlignmentOffset|"
    r"ThreadSetDevice\w*|ProfilerInitialize|SetDoubleFor\w+|Thread\w+|"
    r"LaunchCooperativeKernelMultiDevice|Launch_ptsz|StreamSetFlags(_ptsz)?|WGLGetDevice|"
    r"StreamGetCaptureInfo_v2(_ptsz)?)|"
    r"__cuda(AddressOf|Launch|LaunchPrologue|LaunchKernel_helper|RegisterBinary|RegisterEntry|"
    r"RegisterGlobal\w+|RegisterManagedVariable|RegisterVariable|RegisterTexture|RegisterSurface|"
    r"SetupArg\w*|UnregisterBinaryUtil))$")

ONLY_12 = ["cudaThreadExit", "cudaThreadGetCacheConfig", "cudaThreadGetLimit",
           "cudaThreadSetCacheConfig", "cudaThreadSetLimit", "cudaThreadSynchronize",
           "cudaSetDoubleForDevice", "cudaSetDoubleForHost", "cudaLaunchCooperativeKernelMultiDevice",
           "cudaGraphAddNode_v2",
           "cudaSignalExternalSemaphoresAsync_v2", "cudaSignalExternalSemaphoresAsync_v2_ptsz",
           "cudaWaitExternalSemaphoresAsync_v2", "cudaWaitExternalSemaphoresAsync_v2_ptsz"]


def words(name):
    text = re.sub(r"^cudaError", "", name)
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[0-9]+", text)
    return " ".join(p if p.isupper() and len(p) > 1 else p.lower() for p in parts) or text.lower()


def errors(headers, out):
    text = open(f"{headers}/driver_types.h").read()
    body = re.search(r"enum __device_builtin__ cudaError\s*\{(.*?)\};", text, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    rows = re.findall(r"(cuda\w+)\s*=\s*(\d+)", body)
    if len(rows) < 50:
        sys.exit(f"{headers}/driver_types.h: found only {len(rows)} error codes")
    with open(out, "w") as f:
        for name, code in rows:
            f.write(f'{{{code}, "{name}", "{words(name)}"}},\n')


def exported(headers, version):
    names = set(UNDECLARED)
    for h in HEADERS:
        try:
            text = open(f"{headers}/{h}").read()
        except FileNotFoundError:
            continue
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        text = re.sub(r"//[^\n]*", "", text)
        for suffix, name in re.findall(r"__CUDART_API_(PTDS|PTSZ)\((cuda\w+)\)", text):
            names.add(f"{name}_{suffix.lower()}")
        names |= {n for n in re.findall(r"\b((?:__)?cuda[A-Z]\w*)\s*\(", text)
                  if not re.search(r"_v\d+$", n)}
        # the argument structures that tools see name each function and the version of its ABI
        names |= {re.sub(r"_v\d{4,5}$", "", n)
                  for n in re.findall(r"typedef struct (cuda[A-Z]\w*)_params_st", text)}
    names = {n for n in names if not NOT_EXPORTED.match(n) and not n.endswith("_params")}
    if version < 13:
        names = {n for n in names if not SINCE_13.match(n)} | set(ONLY_12)
    return names


def exports(headers, version, archive, nm, out_c, out_map):
    listing = subprocess.run([nm, "-g", "--defined-only", archive], check=True,
                             capture_output=True, text=True).stdout
    have = {line.split()[2] for line in listing.splitlines()
            if len(line.split()) == 3 and line.split()[1] == "T"}
    have = {n for n in have if re.match(r"(__)?cuda[A-Z]", n)}
    missing = sorted(exported(headers, version) - have)
    with open(out_c, "w") as f:
        f.write("/* generated by gen_runtime.py: functions that the simulated runtime refuses by name */\n"
                "#include \"rt.h\"\n")
        for n in missing:
            f.write(f"\ncudaError_t rt_no_{n}(void) __asm__(\"{n}\");\n"
                    f"cudaError_t rt_no_{n}(void)\n{{\n    return rt_unsupported(\"{n}\");\n}}\n")
    with open(out_map, "w") as f:
        f.write(f"libcudart.so.{version} {{\nglobal:\n")
        for n in sorted(have | set(missing)):
            f.write(f"    {n};\n")
        f.write("local:\n    *;\n};\n")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "errors":
        errors(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 8 and sys.argv[1] == "exports":
        exports(sys.argv[2], int(sys.argv[3]), *sys.argv[4:8])
    else:
        sys.exit(__doc__)


main()
