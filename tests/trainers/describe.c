/* The description language of networks: one statement a line, words separated by blanks, `#` starts
 * a comment. README.md lists the statements. A word may hold $NAME, replaced by the value of a
 * parameter, a module's argument or a loop's counter; numbers may be integer expressions. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

#define MAX_WORDS 12
#define MAX_VARS  32
#define MAX_MARKS 64
#define MAX_DEPTH 8
#define WORD      64

struct line {
    int number, nwords;
    char word[MAX_WORDS][WORD];
};

struct scope {
    struct scope *up;
    int nvars;
    char name[MAX_VARS][WORD], value[MAX_VARS][WORD];
};

struct mark {
    char name[TR_NAME];
    int tensor;
};

struct reader {
    const char *path;
    struct line *lines;
    int nlines;
    const struct line *at;       /* for messages */
    struct tr_net *net;
    const struct tr_options *opt;
    struct scope *params;        /* outermost scope */
    struct mark marks[MAX_MARKS];
    int nmarks, cur, depth;
    char (*words)[WORD];         /* of the current statement, $NAMEs replaced */
    int nwords;
    int slices;                  /* first of the tensors that are the steps of a sequence */
};

static int bad(const struct reader *r, const char *what, const char *word)
{
    return tr_fail("%s:%d: %s `%s`", r->path, r->at ? r->at->number : 0, what, word);
}

/* ---- words and numbers -----------------------------------------------------------------------*/

static const char *lookup(const struct scope *s, const char *name, size_t len)
{
    for (; s; s = s->up)
        for (int i = s->nvars - 1; i >= 0; i--)
            if (strlen(s->name[i]) == len && memcmp(s->name[i], name, len) == 0)
                return s->value[i];
    return NULL;
}

static int define(struct reader *r, struct scope *s, const char *name, const char *value)
{
    if (s->nvars == MAX_VARS)
        return bad(r, "too many names, at", name);
    snprintf(s->name[s->nvars], WORD, "%s", name);
    snprintf(s->value[s->nvars++], WORD, "%s", value);
    return 0;
}

static int substitute(struct reader *r, const struct scope *s, const char *in, char out[WORD])
{
    size_t n = 0;
    while (*in) {
        const char *text = in;
        size_t len = 1;
        if (*in == '$') {
            size_t name = 0;
            while (isalnum((unsigned char)in[1 + name]) || in[1 + name] == '_')
                name++;
            text = lookup(s, in + 1, name);
            if (!text)
                return bad(r, "no such name:", in);
            len = strlen(text);
            in += name;
        }
        in++;
        if (n + len >= WORD)
            return bad(r, "word too long:", in);
        memcpy(out + n, text, len);
        n += len;
    }
    out[n] = '\0';
    return 0;
}

static bool expression(const char **s, long *v, int depth);

static bool factor(const char **s, long *v, int depth)
{
    if (**s == '(') {
        (*s)++;
        if (depth > 16 || !expression(s, v, depth + 1) || **s != ')')
            return false;
        (*s)++;
        return true;
    }
    char *end;
    errno = 0;
    *v = strtol(*s, &end, 10);
    bool ok = end != *s && errno == 0 && labs(*v) < 1000000000;
    *s = end;
    return ok;
}

static bool term(const char **s, long *v, int depth)
{
    if (!factor(s, v, depth))
        return false;
    while (**s == '*' || **s == '/') {
        char op = *(*s)++;
        long b;
        if (!factor(s, &b, depth) || (op == '/' && b == 0))
            return false;
        *v = op == '*' ? *v * b : *v / b;
        if (labs(*v) > 1000000000)
            return false;
    }
    return true;
}

static bool expression(const char **s, long *v, int depth)
{
    if (!term(s, v, depth))
        return false;
    while (**s == '+' || **s == '-') {
        char op = *(*s)++;
        long b;
        if (!term(s, &b, depth))
            return false;
        *v += op == '+' ? b : -b;
    }
    return true;
}

/* Word `i` of the statement as an integer of at least `least`. */
static int number(struct reader *r, int i, long least, int *out)
{
    long v = 0;
    if (i >= r->nwords)
        return bad(r, "a number is missing after", r->words[r->nwords - 1]);
    const char *s = r->words[i];
    if (!expression(&s, &v, 0) || *s || v < least || v > 1000000000)
        return bad(r, "not a number in range:", r->words[i]);
    *out = (int)v;
    return 0;
}

static int real(struct reader *r, int i, double *out)
{
    char *end = NULL;
    if (i >= r->nwords)
        return bad(r, "a number is missing after", r->words[r->nwords - 1]);
    double v = strtod(r->words[i], &end);
    if (end == r->words[i] || *end || !isfinite(v))
        return bad(r, "not a number:", r->words[i]);
    *out = v;
    return 0;
}

/* "KEY VALUE" among the words from `from` on; leaves *out alone if it is not there. */
static int option(struct reader *r, int from, const char *key, long least, int *out)
{
    for (int i = from; i < r->nwords; i++)
        if (strcmp(r->words[i], key) == 0)
            return number(r, i + 1, least, out);
    return 0;
}

static bool flag(const struct reader *r, int from, const char *key)
{
    for (int i = from; i < r->nwords; i++)
        if (strcmp(r->words[i], key) == 0)
            return true;
    return false;
}

static int find_mark(struct reader *r, const char *name)
{
    for (int i = r->nmarks - 1; i >= 0; i--)
        if (strcmp(r->marks[i].name, name) == 0)
            return r->marks[i].tensor;
    return bad(r, "no such mark:", name);
}

/* ---- statements ------------------------------------------------------------------------------*/

static int set_mark(struct reader *r, const char *name, int tensor)
{
    int i = 0;
    while (i < r->nmarks && strcmp(r->marks[i].name, name) != 0)
        i++;
    if (i == MAX_MARKS)
        return bad(r, "too many marks, at", name);
    if (i == r->nmarks)
        r->nmarks++;
    snprintf(r->marks[i].name, TR_NAME, "%s", name);
    r->marks[i].tensor = tensor;
    return 0;
}

static int do_param(struct reader *r)
{
    if (r->nwords != 3)
        return bad(r, "expected `param NAME VALUE`, got", r->words[0]);
    const char *value = r->words[2];
    char steps[WORD];
    size_t len = strlen(r->words[1]);
    for (int i = 0; i < r->opt->nsets; i++)
        if (strncmp(r->opt->sets[i], r->words[1], len) == 0 && r->opt->sets[i][len] == '=')
            value = r->opt->sets[i] + len + 1;
    if (r->opt->steps && strcmp(r->words[1], "steps") == 0) {
        snprintf(steps, sizeof steps, "%d", r->opt->steps);
        value = steps;
    }
    return define(r, r->params, r->words[1], value);
}

/* input C H W [steps N] classes K batch B */
static int do_input(struct reader *r)
{
    struct tr_net *net = r->net;
    if (net->nnodes)
        return bad(r, "a second", "input");
    net->steps = 1;
    TR_TRY(number(r, 1, 1, &net->c));
    TR_TRY(number(r, 2, 1, &net->h));
    TR_TRY(number(r, 3, 1, &net->w));
    TR_TRY(option(r, 4, "steps", 1, &net->steps));
    TR_TRY(option(r, 4, "classes", 2, &net->classes));
    TR_TRY(option(r, 4, "batch", 1, &net->batch));
    if (r->opt->batch)
        net->batch = r->opt->batch;
    if (!net->classes || !net->batch)
        return bad(r, "classes and batch are missing after", "input");
    struct tr_node *node = tr_node_new(net, TR_INPUT, NULL, 0);
    r->cur = net->input = tr_node_output(net, node, net->batch * net->steps, net->c, net->h,
                                         net->w);
    net->labels = tr_node_output(net, node, net->batch, net->classes, 1, 1);
    if (net->steps == 1)
        return 0;
    struct tr_tensor *x = &net->tensors[net->input];
    size_t bytes = tr_count(x) * sizeof(float) / (size_t)net->steps;
    int block = tr_block_new(net, bytes * (size_t)net->steps);
    x->block = block;
    x->consumers = 1;
    r->slices = net->ntensors;
    for (int i = 0; i < net->steps; i++) {
        int id = tr_tensor_new(net, net->batch, net->c * net->h * net->w, 1, 1);
        net->tensors[id].block = block;
        net->tensors[id].offset = (size_t)i * bytes;
    }
    return 0;
}

/* Uniform initial weights whose variance keeps the scale of a rectified signal. */
static double spread(double fan_in)
{
    return sqrt(6.0 / fan_in);
}

static int add_weights(struct reader *r, struct tr_node *node, size_t count, double fan_in)
{
    char name[TR_NAME + 8];
    int n = node->nparam;
    snprintf(name, sizeof name, "%s.w", node->name);
    node->param[n] = tr_param_new(r->net, name, count, spread(fan_in), true, true);
    node->nparam++;
    if (!node->bias)
        return 0;
    snprintf(name, sizeof name, "%s.b", node->name);
    node->param[n + 1] = tr_param_new(r->net, name, (size_t)node->outputs, 0.0, false, true);
    node->nparam++;
    return 0;
}

/* conv OUT K [stride S] [pad P] [nobias] */
static int do_conv(struct reader *r)
{
    struct tr_node *node = tr_node_new(r->net, TR_CONV, &r->cur, 1);
    node->stride = 1;
    node->bias = !flag(r, 3, "nobias");
    TR_TRY(number(r, 1, 1, &node->outputs));
    TR_TRY(number(r, 2, 1, &node->k));
    TR_TRY(option(r, 3, "stride", 1, &node->stride));
    TR_TRY(option(r, 3, "pad", 0, &node->pad));
    struct tr_tensor x = r->net->tensors[r->cur];
    if (x.h + 2 * node->pad < node->k || x.w + 2 * node->pad < node->k)
        return bad(r, "window larger than its input:", r->words[2]);
    size_t fan_in = (size_t)x.c * (size_t)node->k * (size_t)node->k;
    TR_TRY(add_weights(r, node, fan_in * (size_t)node->outputs, (double)fan_in));
    r->cur = tr_node_output(r->net, node, x.n, node->outputs,
                            (x.h + 2 * node->pad - node->k) / node->stride + 1,
                            (x.w + 2 * node->pad - node->k) / node->stride + 1);
    return 0;
}

/* fc OUT [nobias] */
static int do_fc(struct reader *r)
{
    struct tr_node *node = tr_node_new(r->net, TR_FC, &r->cur, 1);
    node->bias = !flag(r, 2, "nobias");
    TR_TRY(number(r, 1, 1, &node->outputs));
    struct tr_tensor x = r->net->tensors[r->cur];
    size_t in = (size_t)x.c * (size_t)x.h * (size_t)x.w;
    TR_TRY(add_weights(r, node, in * (size_t)node->outputs, (double)in));
    r->cur = tr_node_output(r->net, node, x.n, node->outputs, 1, 1);
    return 0;
}

/* Layers whose output has the shape of their input. */
static struct tr_node *same_shape(struct reader *r, enum tr_kind kind, const int *in, int nin)
{
    struct tr_node *node = tr_node_new(r->net, kind, in, nin);
    struct tr_tensor x = r->net->tensors[in[0]];
    r->cur = tr_node_output(r->net, node, x.n, x.c, x.h, x.w);
    return node;
}

static int do_act(struct reader *r)
{
    struct tr_node *node = same_shape(r, TR_ACT, &r->cur, 1);
    node->mode = strcmp(r->words[0], "relu") == 0   ? CUDNN_ACTIVATION_RELU
                 : strcmp(r->words[0], "tanh") == 0 ? CUDNN_ACTIVATION_TANH
                                                    : CUDNN_ACTIVATION_SIGMOID;
    return 0;
}

/* pool max|avg K [stride S] [pad P] */
static int do_pool(struct reader *r)
{
    struct tr_node *node = tr_node_new(r->net, TR_POOL, &r->cur, 1);
    struct tr_tensor x = r->net->tensors[r->cur];
    node->average = r->nwords > 1 && strcmp(r->words[1], "avg") == 0;
    if (r->nwords < 3 || (!node->average && strcmp(r->words[1], "max") != 0))
        return bad(r, "expected `pool max|avg K`, got", r->words[r->nwords > 1]);
    TR_TRY(number(r, 2, 1, &node->k));
    node->stride = node->k;
    TR_TRY(option(r, 3, "stride", 1, &node->stride));
    TR_TRY(option(r, 3, "pad", 0, &node->pad));
    if (x.h + 2 * node->pad < node->k || x.w + 2 * node->pad < node->k)
        return bad(r, "window larger than its input:", r->words[2]);
    r->cur = tr_node_output(r->net, node, x.n, x.c,
                            (x.h + 2 * node->pad - node->k) / node->stride + 1,
                            (x.w + 2 * node->pad - node->k) / node->stride + 1);
    return 0;
}

/* lrn SIZE ALPHA BETA K */
static int do_lrn(struct reader *r)
{
    struct tr_node *node = same_shape(r, TR_LRN, &r->cur, 1);
    TR_TRY(number(r, 1, 1, &node->k));
    TR_TRY(real(r, 2, &node->a));
    TR_TRY(real(r, 3, &node->b));
    return real(r, 4, &node->c);
}

static int do_bn(struct reader *r)
{
    static const char *const suffix[] = { "scale", "shift", "mean", "variance" };
    struct tr_node *node = tr_node_new(r->net, TR_BN, &r->cur, 1);
    struct tr_tensor x = r->net->tensors[r->cur];
    for (int i = 0; i < 4; i++) {
        char name[TR_NAME + 12];
        snprintf(name, sizeof name, "%s.%s", node->name, suffix[i]);
        node->param[i] = tr_param_new(r->net, name, (size_t)x.c, i == 0 || i == 3, false, i < 2);
    }
    node->nparam = 4;
    r->cur = tr_node_output(r->net, node, x.n, x.c, x.h, x.w);
    return 0;
}

static int do_dropout(struct reader *r)
{
    return real(r, 1, &same_shape(r, TR_DROPOUT, &r->cur, 1)->a);
}

static int do_add(struct reader *r)
{
    int in[2] = { r->cur, r->nwords > 1 ? find_mark(r, r->words[1]) : -1 };
    if (in[1] < 0)
        return r->nwords > 1 ? -1 : bad(r, "a mark is missing after", "add");
    struct tr_tensor a = r->net->tensors[in[0]], b = r->net->tensors[in[1]];
    if (in[0] == in[1] || a.n != b.n || a.c != b.c || a.h != b.h || a.w != b.w)
        return bad(r, "shapes differ in add with", r->words[1]);
    same_shape(r, TR_ADD, in, 2);
    return 0;
}

static int do_concat(struct reader *r)
{
    int in[TR_MAX_IN], nin = 0, c = 0;
    struct tr_tensor x = { 0 };
    for (int i = 1; i < r->nwords; i++) {
        int id = find_mark(r, r->words[i]);
        if (id < 0)
            return -1;
        if (nin == TR_MAX_IN)
            return bad(r, "too many inputs, at", r->words[i]);
        struct tr_tensor y = r->net->tensors[id];
        if (nin && (y.n != x.n || y.h != x.h || y.w != x.w))
            return bad(r, "shapes differ in concat at", r->words[i]);
        x = y;
        c += y.c;
        in[nin++] = id;
    }
    if (!nin)
        return bad(r, "marks are missing after", "concat");
    struct tr_node *node = tr_node_new(r->net, TR_CONCAT, in, nin);
    r->cur = tr_node_output(r->net, node, x.n, c, x.h, x.w);
    return 0;
}

static int zero_state(struct tr_net *net, int h)
{
    int id = tr_tensor_new(net, net->batch, h, 1, 1);
    int block = tr_block_new(net, tr_count(&net->tensors[id]) * sizeof(float));
    net->tensors[id].block = block;
    net->blocks[block].lasting = true;
    return id;
}

struct lstm_layer {
    int h, c, param[3];
};

static int lstm_params(struct reader *r, struct lstm_layer *layer, int index, int in, int hidden)
{
    static const char *const suffix[] = { "wx", "wh", "b" };
    size_t rows = 4 * (size_t)hidden;
    size_t counts[] = { rows * (size_t)in, rows * (size_t)hidden, rows };
    for (int i = 0; i < 3; i++) {
        char name[TR_NAME];
        snprintf(name, sizeof name, "lstm%d.%s", index, suffix[i]);
        layer->param[i] = tr_param_new(r->net, name, counts[i], i < 2 ? 1.0 / sqrt(hidden) : 0.0,
                                       i < 2, true);
    }
    layer->h = zero_state(r->net, hidden);
    layer->c = zero_state(r->net, hidden);
    return 0;
}

/* lstm HIDDEN LAYERS: unrolled over the steps of the input, step by step, bottom layer first. */
static int do_lstm(struct reader *r)
{
    struct lstm_layer layers[MAX_DEPTH];
    struct tr_net *net = r->net;
    int hidden, nlayers;
    TR_TRY(number(r, 1, 1, &hidden));
    TR_TRY(number(r, 2, 1, &nlayers));
    if (net->steps < 2 || r->cur != net->input || nlayers > MAX_DEPTH)
        return bad(r, "lstm needs an input of 2 or more steps and at most 8 layers:", r->words[2]);
    int features = net->c * net->h * net->w;
    for (int l = 0; l < nlayers; l++)
        TR_TRY(lstm_params(r, &layers[l], l, l ? hidden : features, hidden));
    for (int s = 0; s < net->steps; s++) {
        int x = r->slices + s;
        for (int l = 0; l < nlayers; l++) {
            int in[3] = { x, layers[l].h, layers[l].c };
            struct tr_node *node = tr_node_new(net, TR_CELL, in, 3);
            snprintf(node->name, sizeof node->name, "cell%d.%d", l, s);
            node->outputs = hidden;
            memcpy(node->param, layers[l].param, sizeof layers[l].param);
            node->nparam = 3;
            x = layers[l].h = tr_node_output(net, node, net->batch, hidden, 1, 1);
            layers[l].c = tr_node_output(net, node, net->batch, hidden, 1, 1);
        }
        r->cur = x;
    }
    return 0;
}

static int do_softmax(struct reader *r)
{
    struct tr_net *net = r->net;
    struct tr_tensor x = net->tensors[r->cur];
    if (x.c * x.h * x.w != net->classes || x.n != net->batch)
        return bad(r, "the softmax's input has not one value a class:", r->words[0]);
    int in[2] = { r->cur, net->labels };
    net->logits = r->cur;
    same_shape(r, TR_SOFTMAX, in, 2);
    return 0;
}

static int do_mark(struct reader *r)
{
    return r->nwords == 2 ? set_mark(r, r->words[1], r->cur)
                          : bad(r, "expected one name after", "mark");
}

static int do_from(struct reader *r)
{
    int id = r->nwords == 2 ? find_mark(r, r->words[1]) : bad(r, "expected one name after", "from");
    if (id < 0)
        return -1;
    r->cur = id;
    return 0;
}

static const struct statement {
    const char *name;
    int (*run)(struct reader *r);
} statements[] = {
    { "param", do_param }, { "input", do_input },     { "conv", do_conv },
    { "fc", do_fc },       { "relu", do_act },        { "tanh", do_act },
    { "sigmoid", do_act }, { "pool", do_pool },       { "lrn", do_lrn },
    { "bn", do_bn },       { "dropout", do_dropout }, { "add", do_add },
    { "concat", do_concat }, { "lstm", do_lstm },     { "softmax", do_softmax },
    { "mark", do_mark },   { "from", do_from },
};

/* ---- control ---------------------------------------------------------------------------------*/

static int run_lines(struct reader *r, int from, int to, struct scope *s);

/* The line of the `end` that closes line `from`. */
static int find_end(struct reader *r, int from, int to)
{
    int depth = 0;
    for (int i = from; i < to; i++) {
        const char *w = r->lines[i].word[0];
        if (strcmp(w, "repeat") == 0 || strcmp(w, "module") == 0)
            depth++;
        else if (strcmp(w, "end") == 0 && --depth == 0)
            return i;
    }
    r->at = &r->lines[from];
    return bad(r, "no end for", r->lines[from].word[0]);
}

/* repeat COUNT [NAME] */
static int run_repeat(struct reader *r, int from, int end, struct scope *s)
{
    int count;
    TR_TRY(number(r, 1, 0, &count));
    const char *name = r->lines[from].nwords > 2 ? r->lines[from].word[2] : "_";
    for (int i = 0; i < count; i++) {
        struct scope inner = { .up = s };
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        TR_TRY(define(r, &inner, name, value));
        TR_TRY(run_lines(r, from + 1, end, &inner));
    }
    return 0;
}

/* use MODULE ARGUMENT... */
static int run_use(struct reader *r)
{
    for (int i = 0; i < r->nlines && r->nwords > 1; i++) {
        const struct line *l = &r->lines[i];
        if (strcmp(l->word[0], "module") != 0 || l->nwords < 2 ||
            strcmp(l->word[1], r->words[1]) != 0)
            continue;
        if (l->nwords != r->nwords)
            return bad(r, "wrong number of arguments for", r->words[1]);
        struct scope inner = { .up = r->params };
        for (int k = 2; k < l->nwords; k++)
            TR_TRY(define(r, &inner, l->word[k], r->words[k]));
        int end = find_end(r, i, r->nlines);
        return end < 0 ? -1 : run_lines(r, i + 1, end, &inner);
    }
    return bad(r, "no such module:", r->nwords > 1 ? r->words[1] : "");
}

static int run_statement(struct reader *r)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(statements[i].name, r->words[0]) != 0)
            continue;
        if (r->cur < 0 && statements[i].run != do_param && statements[i].run != do_input)
            return bad(r, "an input must come before", r->words[0]);
        return statements[i].run(r);
    }
    return bad(r, "unknown statement", r->words[0]);
}

static int run_line(struct reader *r, int *i, int to, struct scope *s)
{
    char words[MAX_WORDS][WORD] = { { 0 } };
    const struct line *l = &r->lines[*i];
    int end = 0;
    r->at = l;
    if (strcmp(l->word[0], "end") == 0)
        return bad(r, "nothing to close here:", "end");
    if (strcmp(l->word[0], "repeat") == 0 || strcmp(l->word[0], "module") == 0) {
        end = find_end(r, *i, to);
        if (end < 0)
            return -1;
    }
    if (strcmp(l->word[0], "module") == 0) {
        *i = end;
        return 0;
    }
    for (int k = 0; k < l->nwords; k++)
        TR_TRY(substitute(r, s, l->word[k], words[k]));
    r->words = words;
    r->nwords = l->nwords;
    int from = *i;
    if (end)
        *i = end;
    int result = end                               ? run_repeat(r, from, end, s)
                 : strcmp(words[0], "use") == 0    ? run_use(r)
                                                   : run_statement(r);
    r->words = NULL;
    return result;
}

static int run_lines(struct reader *r, int from, int to, struct scope *s)
{
    if (r->depth == MAX_DEPTH)
        return bad(r, "nested too deeply:", r->at->word[0]);
    r->depth++;
    for (int i = from; i < to; i++)
        TR_TRY(run_line(r, &i, to, s));
    r->depth--;
    return 0;
}

/* ---- the file --------------------------------------------------------------------------------*/

static int split(struct reader *r, char *text, int number)
{
    struct line l = { .number = number };
    text[strcspn(text, "#\n")] = '\0';
    for (char *save, *w = strtok_r(text, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save)) {
        if (l.nwords == MAX_WORDS || strlen(w) >= WORD)
            return tr_fail("%s:%d: too many or too long words", r->path, number);
        snprintf(l.word[l.nwords++], WORD, "%s", w);
    }
    if (!l.nwords)
        return 0;
    struct line *lines = realloc(r->lines, (size_t)(r->nlines + 1) * sizeof *lines);
    if (!lines)
        return tr_fail("out of host memory");
    r->lines = lines;
    lines[r->nlines++] = l;
    return 0;
}

static int read_lines(struct reader *r)
{
    char text[1024];
    int number = 0, result = 0;
    FILE *f = fopen(r->path, "r");
    if (!f)
        return tr_fail("%s: %s", r->path, strerror(errno));
    while (result == 0 && fgets(text, sizeof text, f))
        result = split(r, text, ++number);
    fclose(f);
    return result;
}

/* Every --set must name a parameter of the file. */
static int check_sets(const struct reader *r)
{
    for (int i = 0; i < r->opt->nsets; i++) {
        size_t len = strcspn(r->opt->sets[i], "=");
        if (!lookup(r->params, r->opt->sets[i], len))
            return tr_fail("%s has no parameter for --set %s", r->path, r->opt->sets[i]);
    }
    if (r->opt->steps && !lookup(r->params, "steps", 5))
        return tr_fail("%s has no parameter for --steps", r->path);
    return 0;
}

int tr_describe(struct tr_net *net, const struct tr_options *opt)
{
    static struct scope params;
    struct reader r = { .path = opt->net, .net = net, .opt = opt, .params = &params, .cur = -1 };
    const char *base = strrchr(opt->net, '/');
    snprintf(net->name, sizeof net->name, "%s", base ? base + 1 : opt->net);
    net->name[strcspn(net->name, ".")] = '\0';
    int result = read_lines(&r);
    if (result == 0)
        result = run_lines(&r, 0, r.nlines, &params);
    if (result == 0)
        result = check_sets(&r);
    if (result == 0 && (!net->nnodes || net->nodes[net->nnodes - 1].kind != TR_SOFTMAX))
        result = tr_fail("%s: the last statement must be softmax", opt->net);
    free(r.lines);
    return result;
}
