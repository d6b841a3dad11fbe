/* Built once for each instruction set; SG_ISA is the suffix of its functions. */
#include "gemm.h"
#include "gemm_isa.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

enum { MR = 6, MC = 96, NC = 1024 };

typedef float vec_f32 __attribute__((vector_size(32)));
typedef double vec_f64 __attribute__((vector_size(32)));

#define SG_JOIN2(a, b, c) sg_##a##_##b##_##c
#define SG_JOIN(a, b, c)  SG_JOIN2(a, b, c)

#define T           float
#define V           vec_f32
#define NR          16
#define SG_FN(name) SG_JOIN(name, f32, SG_ISA)
#include "gemm_tile.h"
#undef T
#undef V
#undef NR
#undef SG_FN

#define T           double
#define V           vec_f64
#define NR          8
#define SG_FN(name) SG_JOIN(name, f64, SG_ISA)
#include "gemm_tile.h"
