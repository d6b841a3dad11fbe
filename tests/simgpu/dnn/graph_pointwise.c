/* The pointwise modes of graphs. Formulas: cudnn_graph.h; GELU: Hendrycks and Gimpel, arXiv
 * 1606.08415; swish: Ramachandran et al., arXiv 1710.05941. */
#include "graph.h"

#include <cudnn.h>
#include <float.h>
#include <math.h>

#define SQRT_HALF      0.70710678118654752f
#define INV_SQRT_2PI   0.39894228040143268f
#define SQRT_2_OVER_PI 0.79788456080286536f
#define GELU_CUBE      0.044715f

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float relu(const double *p, float x)
{
    float low = (float)p[SG_P_LOW], high = (float)p[SG_P_HIGH];
    if (x < low) {
        return low + (float)p[SG_P_SLOPE] * (x - low);
    }
    return x > high ? high : x;
}

/* Modes of one input, activations among them. */
static float unary(const struct sg_gnode *n, float x)
{
    const double *p = n->p;
    switch (n->mode) {
    case CUDNN_POINTWISE_ABS:
        return fabsf(x);
    case CUDNN_POINTWISE_CEIL:
        return ceilf(x);
    case CUDNN_POINTWISE_COS:
        return cosf(x);
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_FLOOR:
        return floorf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_NEG:
        return -x;
    case CUDNN_POINTWISE_RSQRT:
        return 1.0f / sqrtf(x);
    case CUDNN_POINTWISE_SIN:
        return sinf(x);
    case CUDNN_POINTWISE_SQRT:
        return sqrtf(x);
    case CUDNN_POINTWISE_TAN:
        return tanf(x);
    case CUDNN_POINTWISE_ERF:
        return erff(x);
    case CUDNN_POINTWISE_RECIPROCAL:
        return 1.0f / x;
    case CUDNN_POINTWISE_LOGICAL_NOT:
        return x == 0.0f;
    case CUDNN_POINTWISE_RELU_FWD:
        return relu(p, x);
    case CUDNN_POINTWISE_TANH_FWD:
        return tanhf(x);
    case CUDNN_POINTWISE_SIGMOID_FWD:
        return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD:
        return x < 0.0f ? (float)p[SG_P_ELU] * expm1f(x) : x;
    case CUDNN_POINTWISE_GELU_FWD:
        return 0.5f * x * (1.0f + erff(x * SQRT_HALF));
    case CUDNN_POINTWISE_SOFTPLUS_FWD: {
        float z = (float)p[SG_P_SOFTPLUS] * x;
        return (z > 0.0f ? z + log1pf(expf(-z)) : log1pf(expf(z))) / (float)p[SG_P_SOFTPLUS];
    }
    case CUDNN_POINTWISE_SWISH_FWD:
        return x * sigmoid((float)p[SG_P_SWISH] * x);
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
        return 0.5f * x * (1.0f + tanhf(SQRT_2_OVER_PI * (x + GELU_CUBE * x * x * x)));
    default: /* identity */
        return x;
    }
}

/* Modes of two inputs. */
static float binary(int mode, float x, float b)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE:
        return x + b * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_MAX:
        return fmaxf(x, b);
    case CUDNN_POINTWISE_MIN:
        return fminf(x, b);
    case CUDNN_POINTWISE_MOD:
        return fmodf(x, b);
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_POW:
        return powf(x, b);
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_ATAN2:
        return atan2f(x, b);
    case CUDNN_POINTWISE_CMP_EQ:
        return x == b;
    case CUDNN_POINTWISE_CMP_NEQ:
        return x != b;
    case CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_CMP_LT:
        return x < b;
    case CUDNN_POINTWISE_CMP_LE:
        return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0.0f && b != 0.0f;
    default: /* CUDNN_POINTWISE_LOGICAL_OR */
        return x != 0.0f || b != 0.0f;
    }
}

/* The derivative of an activation: at the input x, or from the output where only y is given. */
static float slope(const struct sg_gnode *n, float x, float y, int from_output)
{
    const double *p = n->p;
    switch (n->mode) {
    case CUDNN_POINTWISE_RELU_BWD: {
        float at = from_output ? y : x;
        return at > (float)p[SG_P_HIGH]  ? 0.0f
               : at > (float)p[SG_P_LOW] ? 1.0f
                                         : (float)p[SG_P_SLOPE];
    }
    case CUDNN_POINTWISE_TANH_BWD:
        y = from_output ? y : tanhf(x);
        return 1.0f - y * y;
    case CUDNN_POINTWISE_SIGMOID_BWD:
        y = from_output ? y : sigmoid(x);
        return y * (1.0f - y);
    case CUDNN_POINTWISE_ELU_BWD:
        if (from_output) {
            return y < 0.0f ? y + (float)p[SG_P_ELU] : 1.0f;
        }
        return x < 0.0f ? (float)p[SG_P_ELU] * expf(x) : 1.0f;
    case CUDNN_POINTWISE_GELU_BWD:
        return 0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2PI * expf(-0.5f * x * x);
    case CUDNN_POINTWISE_SOFTPLUS_BWD:
        return sigmoid((float)p[SG_P_SOFTPLUS] * x);
    case CUDNN_POINTWISE_SWISH_BWD: {
        float g = sigmoid((float)p[SG_P_SWISH] * x);
        return g + (float)p[SG_P_SWISH] * x * g * (1.0f - g);
    }
    default: { /* CUDNN_POINTWISE_GELU_APPROX_TANH_BWD */
        float t = tanhf(SQRT_2_OVER_PI * (x + GELU_CUBE * x * x * x));
        return 0.5f * (1.0f + t) +
               0.5f * x * (1.0f - t * t) * SQRT_2_OVER_PI * (1.0f + 3.0f * GELU_CUBE * x * x);
    }
    }
}

static float at(const struct sg_graph_run *r, const struct sg_gnode *n, int role,
                const struct sg_gtensor *out, int64_t i)
{
    const float *data = sg_run_data(r, n, role);
    return data ? data[sg_gtensor_under(out, sg_run_tensor(r, n, role), i)] : 0.0f;
}

static void backward(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *out = sg_run_tensor(r, n, SG_PW_DX);
    float *dx = sg_run_data(r, n, SG_PW_DX);
    int from_output = n->t[SG_PW_X] < 0;
    for (int64_t i = 0, count = sg_gtensor_count(out); i < count; i++) {
        float x = at(r, n, SG_PW_X, out, i), y = at(r, n, SG_PW_Y, out, i);
        dx[i] = slope(n, n->alpha * x, y, from_output) * at(r, n, SG_PW_DY, out, i);
    }
}

void sg_node_pointwise(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    if (sg_gnode_writes(n, SG_PW_DX)) {
        backward(r, n);
        return;
    }
    const struct sg_gtensor *out = sg_run_tensor(r, n, SG_PW_Y);
    float *y = sg_run_data(r, n, SG_PW_Y);
    int64_t inner = 1; /* elements between neighbours along the axis */
    for (int d = out->ndims - 1; d > n->axis; d--) {
        inner *= out->dim[d];
    }
    for (int64_t i = 0, count = sg_gtensor_count(out); i < count; i++) {
        float x = n->alpha * at(r, n, SG_PW_X, out, i);
        if (n->mode == CUDNN_POINTWISE_GEN_INDEX) {
            y[i] = (float)(i / inner % out->dim[n->axis]);
        } else if (n->mode == CUDNN_POINTWISE_BINARY_SELECT) {
            y[i] = at(r, n, SG_PW_T, out, i) != 0.0f ? x : n->beta * at(r, n, SG_PW_B, out, i);
        } else if (n->t[SG_PW_B] >= 0) {
            y[i] = binary(n->mode, x, n->beta * at(r, n, SG_PW_B, out, i));
        } else {
            y[i] = unary(n, x);
        }
    }
}
