#include "words.h"

#include <string.h>

#include "model.h"

struct word {
    unsigned value;
    const char *text;
};

static const struct word op_kinds[] = {
    {VM_OP_LAUNCH, "launch"},     {VM_OP_COPY_HTOD, "htod"}, {VM_OP_COPY_DTOH, "dtoh"},
    {VM_OP_COPY_DTOD, "dtod"},    {VM_OP_MEMSET, "memset"},  {VM_OP_GRAPH, "graph"},
    {VM_OP_HOSTFUNC, "hostfunc"}, {VM_OP_OTHER, "other"},    {0, NULL},
};
static const struct word layers[] = {
    {VM_LAYER_CONV, "conv"},       {VM_LAYER_POOL, "pool"},
    {VM_LAYER_ACT, "act"},         {VM_LAYER_NORM, "norm"},
    {VM_LAYER_LRN, "lrn"},         {VM_LAYER_DROPOUT, "dropout"},
    {VM_LAYER_SOFTMAX, "softmax"}, {VM_LAYER_GEMM, "gemm"},
    {VM_LAYER_BIAS, "bias"},       {VM_LAYER_ELEMENTWISE, "elementwise"},
    {VM_LAYER_RNN, "rnn"},         {0, NULL},
};
static const struct word roles[] = {
    {VM_ROLE_X, "x"},
    {VM_ROLE_Y, "y"},
    {VM_ROLE_W, "weight"},
    {VM_ROLE_DX, "dx"},
    {VM_ROLE_DY, "dy"},
    {VM_ROLE_DW, "dweight"},
    {VM_ROLE_WORKSPACE, "workspace"},
    {VM_ROLE_STATE, "state"},
    {0, NULL},
};
static const struct word hints[] = {
    {VM_HINT_KEEP, "keep"},
    {VM_HINT_DEAD, "dead"},
    {VM_HINT_REGENERABLE, "regenerable"},
    {VM_HINT_PINNED, "pinned"},
    {0, NULL},
};
static const struct word op_flags[] = {
    {VM_OPF_FORWARD, "forward"},
    {VM_OPF_BACKWARD, "backward"},
    {VM_OPF_PURE, "pure"},
    {VM_OPF_CALL_BEGIN, "begin"},
    {VM_OPF_BLOCKS, "blocks"},
    {VM_OPF_WAITED, "waited"},
    {0, NULL},
};
static const struct word block_flags[] = {
    {VM_BLK_PINNED, "pinned"}, {VM_BLK_PERSISTENT, "persistent"},   {VM_BLK_KEEP, "keep"},
    {VM_BLK_WRAPS, "wraps"},   {VM_BLK_REGENERABLE, "regenerable"}, {0, NULL},
};
static const struct word modes[] = {
    {VM_READ, "r"}, {VM_WRITE, "w"}, {VM_TOTAL, "t"}, {VM_UNKNOWN, "u"}, {0, NULL},
};
static const struct word actions[] = {
    {VM_ACT_OUT, "out"},
    {VM_ACT_IN, "in"},
    {VM_ACT_DROP, "drop"},
    {VM_ACT_COPY, "copy"},
    {0, NULL},
};
static const struct word reasons[] = {
    {VM_WHY_FITS, "fits"}, {VM_WHY_CAPACITY, "capacity"},
    {VM_WHY_LINK, "link"}, {VM_WHY_TIME, "time"},
    {VM_WHY_RULE, "rule"}, {VM_WHY_PINNED, "pinned"},
    {VM_WHY_DEAD, "dead"}, {0, NULL},
};

static const struct word *const lists[] = {
    [VM_WORDS_OP_KIND] = op_kinds, [VM_WORDS_LAYER] = layers,
    [VM_WORDS_ROLE] = roles,       [VM_WORDS_HINT] = hints,
    [VM_WORDS_OP_FLAG] = op_flags, [VM_WORDS_BLOCK_FLAG] = block_flags,
    [VM_WORDS_MODE] = modes,       [VM_WORDS_ACTION] = actions,
    [VM_WORDS_REASON] = reasons,
};

const char *vm_word(enum vm_words list, unsigned value)
{
    for (const struct word *w = lists[list]; w->text; w++)
        if (w->value == value)
            return w->text;
    return NULL;
}

int vm_word_value(enum vm_words list, const char *word)
{
    for (const struct word *w = lists[list]; w->text; w++)
        if (strcmp(w->text, word) == 0)
            return (int)w->value;
    return -1;
}
