/* trainer NET.net [options]: trains one network and prints what it did. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

static const char usage[] =
    "usage: trainer NET.net [options]\n"
    "  --batch N        samples in a (micro-)batch (default: the description's)\n"
    "  --iters N        iterations, one update each (10)\n"
    "  --accumulate K   micro-batches to an update (1)\n"
    "  --seed N         initial weights, synthetic data, order of samples (1)\n"
    "  --data FILE      samples as CSV, plain or .gz; without it synthetic samples\n"
    "  --alloc HABIT    eager: each tensor from its first to its last use (default);\n"
    "                   upfront: everything before the first iteration\n"
    "  --steps N        unrolled steps of a recurrent network\n"
    "  --set NAME=VALUE a parameter of the description\n"
    "  --lr X, --momentum X   (0.01, 0.9)\n"
    "  --workspace N    bytes a convolution may use beside its operands (256 MiB)\n"
    "  --device N       (0)\n"
    "  --default-stream use the default stream instead of a stream of our own\n"
    "  --forward        forward passes only, no training\n"
    "  --any-order      allow convolution algorithms that sum in no fixed order\n"
    "  --input-gradient compute the gradient of the input too (as convnet benchmarks do)\n"
    "  --sizes          print what the network needs, by its shapes, and train nothing\n"
    "  --quiet          nothing copied back and no events before the end\n";

/* ---- options ---------------------------------------------------------------------------------*/

static int parse_count(const char *name, const char *text, unsigned long long max,
                       unsigned long long *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || v > max)
        return tr_fail("--%s %s: expected a number of at most %llu", name, text, max);
    *out = v;
    return 0;
}

static int parse_int(const char *name, const char *text, int least, int *out)
{
    unsigned long long v = 0;
    TR_TRY(parse_count(name, text, 1000000000, &v));
    if ((int)v < least)
        return tr_fail("--%s %s: expected at least %d", name, text, least);
    *out = (int)v;
    return 0;
}

static int parse_real(const char *name, const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0)
        return tr_fail("--%s %s: expected a number of at least 0", name, text);
    *out = v;
    return 0;
}

enum {
    O_BATCH, O_ITERS, O_ACCUMULATE, O_SEED, O_DATA, O_ALLOC, O_STEPS, O_SET, O_LR, O_MOMENTUM,
    O_WORKSPACE, O_DEVICE, O_DEFAULT, O_FORWARD, O_INPUT_GRADIENT, O_ANY_ORDER, O_SIZES, O_QUIET,
    O_HELP
};

static const struct option longs[] = {
    { "batch", 1, NULL, O_BATCH },       { "iters", 1, NULL, O_ITERS },
    { "accumulate", 1, NULL, O_ACCUMULATE }, { "seed", 1, NULL, O_SEED },
    { "data", 1, NULL, O_DATA },         { "alloc", 1, NULL, O_ALLOC },
    { "steps", 1, NULL, O_STEPS },       { "set", 1, NULL, O_SET },
    { "lr", 1, NULL, O_LR },             { "momentum", 1, NULL, O_MOMENTUM },
    { "workspace", 1, NULL, O_WORKSPACE }, { "device", 1, NULL, O_DEVICE },
    { "default-stream", 0, NULL, O_DEFAULT }, { "forward", 0, NULL, O_FORWARD },
    { "input-gradient", 0, NULL, O_INPUT_GRADIENT }, { "any-order", 0, NULL, O_ANY_ORDER },
    { "sizes", 0, NULL, O_SIZES },       { "quiet", 0, NULL, O_QUIET },
    { "help", 0, NULL, O_HELP },
    { NULL, 0, NULL, 0 },
};

static int parse_one(struct tr_options *o, int c)
{
    unsigned long long v = 0;
    const char *name = c < O_HELP ? longs[c].name : "";
    switch (c) {
    case O_BATCH: return parse_int(name, optarg, 1, &o->batch);
    case O_ITERS: return parse_int(name, optarg, 1, &o->iters);
    case O_ACCUMULATE: return parse_int(name, optarg, 1, &o->accumulate);
    case O_STEPS: return parse_int(name, optarg, 2, &o->steps);
    case O_DEVICE: return parse_int(name, optarg, 0, &o->device);
    case O_LR: return parse_real(name, optarg, &o->lr);
    case O_MOMENTUM: return parse_real(name, optarg, &o->momentum);
    case O_SEED:
        TR_TRY(parse_count(name, optarg, UINT64_MAX / 4, &v));
        o->seed = v;
        return 0;
    case O_WORKSPACE:
        TR_TRY(parse_count(name, optarg, UINT64_MAX / 4, &v));
        o->workspace = v;
        return 0;
    case O_DATA: o->data = optarg; return 0;
    case O_DEFAULT: o->default_stream = true; return 0;
    case O_FORWARD: o->forward_only = true; return 0;
    case O_ANY_ORDER: o->any_order = true; return 0;
    case O_INPUT_GRADIENT: o->input_gradient = true; return 0;
    case O_SIZES: o->sizes = true; return 0;
    case O_QUIET: o->quiet = true; return 0;
    case O_ALLOC:
        o->upfront = strcmp(optarg, "upfront") == 0;
        if (!o->upfront && strcmp(optarg, "eager") != 0)
            return tr_fail("--alloc %s: expected eager or upfront", optarg);
        return 0;
    case O_SET:
        if (!strchr(optarg, '=') || o->nsets == (int)(sizeof o->sets / sizeof *o->sets))
            return tr_fail("--set %s: expected NAME=VALUE, at most 16 times", optarg);
        o->sets[o->nsets++] = optarg;
        return 0;
    default: return -1;
    }
}

static int parse_options(struct tr_options *o, int argc, char **argv)
{
    *o = (struct tr_options){ .iters = 10, .accumulate = 1, .seed = 1, .lr = 0.01,
                              .momentum = 0.9, .workspace = (uint64_t)256 << 20 };
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (c == O_HELP) {
            fputs(usage, stdout);
            exit(0);
        }
        TR_TRY(parse_one(o, c));
    }
    if (optind + 1 != argc)
        return tr_fail("one description file is expected; try --help");
    o->net = argv[optind];
    return 0;
}

/* ---- one run ---------------------------------------------------------------------------------*/

struct score {
    double loss;       /* of the current update */
    int seen, right;   /* samples of the last epoch */
    unsigned char *hits; /* ring over one epoch */
    int size, at;
};

static int start(struct trainer *t)
{
    t->step = -1;
    TR_CUDA(t, cudaSetDevice(t->opt.device));
    if (!t->opt.default_stream)
        TR_CUDA(t, cudaStreamCreate(&t->stream));
    TR_DNN(t, cudnnCreate(&t->dnn));
    TR_DNN(t, cudnnSetStream(t->dnn, t->stream));
    TR_BLAS(t, cublasCreate(&t->blas));
    TR_BLAS(t, cublasSetStream(t->blas, t->stream));
    TR_TRY(tr_describe(&t->net, &t->opt));
    TR_TRY(tr_net_finish(t));
    if (t->opt.sizes) {
        tr_sizes_print(t);
        return 0;
    }
    TR_TRY(tr_data_open(t));
    TR_TRY(tr_params_start(t));
    TR_TRY(tr_memory_start(t));
    return tr_hints ? tr_hints->start(t) : 0;
}

/* Adds the batch's loss, and notes which samples were classified rightly. */
static int score_batch(struct trainer *t, struct score *s)
{
    const struct tr_net *net = &t->net;
    size_t classes = (size_t)net->classes;
    float *probs;
    TR_TRY(tr_need_tensor(t, net->nodes[net->nnodes - 1].out[0], &probs));
    TR_CUDA(t, cudaMemcpyAsync(t->host_probs, probs,
                               (size_t)net->batch * classes * sizeof(float),
                               cudaMemcpyDeviceToHost, t->stream));
    TR_CUDA(t, cudaStreamSynchronize(t->stream));
    for (int i = 0; i < net->batch; i++) {
        const float *p = t->host_probs + (size_t)i * classes;
        int best = 0;
        for (int k = 1; k < net->classes; k++)
            best = p[k] > p[best] ? k : best;
        unsigned char hit = best == t->host_label[i];
        s->loss -= log(fmax((double)p[t->host_label[i]], 1e-30)) /
                   (net->batch * t->opt.accumulate);
        if (s->seen == s->size)
            s->right -= s->hits[s->at];
        else
            s->seen++;
        s->right += hit;
        s->hits[s->at] = hit;
        s->at = (s->at + 1) % s->size;
    }
    return 0;
}

static int micro_batch(struct trainer *t, struct score *s)
{
    struct tr_net *net = &t->net;
    int n = net->nnodes;
    tr_data_batch(t);
    for (int i = 0; i < n; i++) {
        t->step = i;
        TR_TRY(tr_layers[net->nodes[i].kind].forward(t, &net->nodes[i]));
        if (tr_hints)
            tr_hints->forward_done(t, i);
        TR_TRY(tr_memory_step_done(t, i));
    }
    for (int i = n - 1; i > 0; i--) {
        t->step = 2 * n - 1 - i;
        if (!t->opt.forward_only && tr_has_backward(net, &net->nodes[i]))
            TR_TRY(tr_layers[net->nodes[i].kind].backward(t, &net->nodes[i]));
        TR_TRY(tr_memory_step_done(t, t->step));
    }
    t->step = 2 * n;
    if (!t->opt.quiet)
        TR_TRY(score_batch(t, s));
    return tr_memory_step_done(t, 2 * n);
}

static int iteration(struct trainer *t, int number, cudaEvent_t *ev, struct score *s)
{
    s->loss = 0;
    if (!t->opt.quiet)
        TR_CUDA(t, cudaEventRecord(ev[0], t->stream));
    for (t->micro = 0; t->micro < t->opt.accumulate; t->micro++)
        TR_TRY(micro_batch(t, s));
    if (!t->opt.forward_only)
        TR_TRY(tr_update(t));
    if (t->opt.quiet) {
        printf("iter %d\n", number);
    } else {
        float ms;
        TR_CUDA(t, cudaEventRecord(ev[1], t->stream));
        TR_CUDA(t, cudaEventSynchronize(ev[1]));
        TR_CUDA(t, cudaEventElapsedTime(&ms, ev[0], ev[1]));
        printf("iter %d loss %.9g ms %.6g\n", number, s->loss, (double)ms);
    }
    if (tr_hints)
        tr_hints->step(t);
    return fflush(stdout) == 0 ? 0 : tr_fail("cannot write to standard output");
}

static int train(struct trainer *t, struct score *s)
{
    cudaEvent_t ev[2] = { NULL, NULL };
    uint64_t sum;
    s->size = t->data.count ? t->data.count : t->net.batch * t->opt.accumulate;
    s->hits = calloc((size_t)s->size, 1);
    if (!s->hits)
        return tr_fail("out of host memory");
    for (int i = 0; i < 2 && !t->opt.quiet; i++)
        TR_CUDA(t, cudaEventCreate(&ev[i]));
    for (int i = 0; i < t->opt.iters; i++)
        TR_TRY(iteration(t, i + 1, ev, s));
    t->step = 2 * t->net.nnodes + 1;
    TR_TRY(tr_checksum(t, &sum));
    if (t->data.count && s->seen)
        printf("accuracy %.4f\n", (double)s->right / s->seen);
    printf("checksum %016llx\n", (unsigned long long)sum);
    if (tr_hints)
        tr_hints->report(t);
    for (int i = 0; i < 2 && !t->opt.quiet; i++)
        TR_CUDA(t, cudaEventDestroy(ev[i]));
    return 0;
}

static int finish(struct trainer *t)
{
    TR_TRY(tr_memory_end(t));
    TR_TRY(tr_params_end(t));
    TR_DNN(t, cudnnDestroy(t->dnn));
    TR_BLAS(t, cublasDestroy(t->blas));
    if (t->stream)
        TR_CUDA(t, cudaStreamDestroy(t->stream));
    return 0;
}

int main(int argc, char **argv)
{
    static struct trainer t;
    struct score s = { 0 };
    if (parse_options(&t.opt, argc, argv) != 0)
        return 2;
    int r = start(&t);
    if (r == 0 && !t.opt.sizes)
        r = train(&t, &s);
    if (r == 0)
        r = finish(&t);
    tr_net_fini(&t.net);
    tr_data_close(&t.data);
    free(t.host_x);
    free(t.host_labels);
    free(t.host_probs);
    free(t.host_label);
    free(s.hits);
    return r == 0 ? 0 : 1;
}
