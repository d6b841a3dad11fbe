/* Training data on the host: a CSV file of samples, or seeded synthetic samples. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer.h"

/* splitmix64 */
uint64_t tr_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

float tr_random_unit(uint64_t *state)
{
    return (float)(tr_random(state) >> 40) * 0x1p-24f;
}

/* A stream of the file's text; a name that ends in .gz goes through gzip. */
static FILE *open_text(const char *path, pid_t *child)
{
    size_t len = strlen(path);
    *child = -1;
    FILE *f = fopen(path, "r");
    if (!f || len < 3 || strcmp(path + len - 3, ".gz") != 0)
        return f;
    int fds[2];
    if (pipe(fds) != 0) {
        fclose(f);
        return NULL;
    }
    *child = fork();
    if (*child == 0) {
        dup2(fileno(f), 0);
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execlp("gzip", "gzip", "-dc", (char *)NULL);
        _exit(127);
    }
    fclose(f);
    close(fds[1]);
    return fdopen(fds[0], "r");
}

/* One line "v,v,...,label" with grey values of 0..16; false if it is not one. */
static bool parse_sample(char *line, int dim, int classes, float *x, int *label)
{
    char *s = line, *end;
    for (int i = 0; i <= dim; i++) {
        long v = strtol(s, &end, 10);
        if (end == s || v < 0)
            return false;
        if (i < dim) {
            if (v > 16 || *end != ',')
                return false;
            x[i] = (float)v / 16.0f;
            s = end + 1;
        } else {
            *label = (int)v;
            return v < classes && (*end == '\n' || *end == '\r' || *end == '\0');
        }
    }
    return false;
}

static int load(struct tr_data *d, FILE *f, const char *path, int classes)
{
    char line[4096];
    int cap = 0;
    while (fgets(line, sizeof line, f)) {
        if (d->count == cap) {
            cap = cap ? cap * 2 : 1024;
            float *x = realloc(d->x, (size_t)cap * (size_t)d->dim * sizeof *x);
            if (x)
                d->x = x;
            int *label = realloc(d->label, (size_t)cap * sizeof *label);
            if (label)
                d->label = label;
            if (!x || !label)
                return tr_fail("out of host memory");
        }
        if (!parse_sample(line, d->dim, classes, d->x + (size_t)d->count * (size_t)d->dim,
                          &d->label[d->count]))
            return tr_fail("%s:%d: expected %d values of 0..16 and a label below %d", path,
                           d->count + 1, d->dim, classes);
        d->count++;
    }
    return d->count ? 0 : tr_fail("%s: no samples", path);
}

static void shuffle(struct tr_data *d)
{
    for (int i = d->count - 1; i > 0; i--) {
        int k = (int)(tr_random(&d->rng) % (uint64_t)(i + 1)), swap = d->order[i];
        d->order[i] = d->order[k];
        d->order[k] = swap;
    }
    d->next = 0;
}

int tr_data_open(struct trainer *t)
{
    struct tr_data *d = &t->data;
    const struct tr_net *net = &t->net;
    size_t batch = (size_t)net->batch, classes = (size_t)net->classes;
    d->dim = net->c * net->h * net->w * net->steps;
    d->rng = t->opt.seed * 2 + 1;
    t->host_x = calloc(batch * (size_t)d->dim, sizeof *t->host_x);
    t->host_labels = calloc(batch * classes, sizeof *t->host_labels);
    t->host_probs = calloc(batch * classes, sizeof *t->host_probs);
    t->host_label = calloc(batch, sizeof *t->host_label);
    if (!t->host_x || !t->host_labels || !t->host_probs || !t->host_label)
        return tr_fail("out of host memory");
    if (!t->opt.data)
        return 0;
    pid_t child;
    FILE *f = open_text(t->opt.data, &child);
    if (!f)
        return tr_fail("%s: %s", t->opt.data, strerror(errno));
    int r = load(d, f, t->opt.data, net->classes);
    fclose(f);
    if (child > 0)
        waitpid(child, NULL, 0);
    if (r != 0)
        return r;
    d->order = malloc((size_t)d->count * sizeof *d->order);
    if (!d->order)
        return tr_fail("out of host memory");
    for (int i = 0; i < d->count; i++)
        d->order[i] = i;
    shuffle(d);
    return 0;
}

/* Noise around a pattern that depends on the class, so that there is something to learn. */
static void synthesize(struct tr_data *d, float *x, int label)
{
    uint64_t pattern = (uint64_t)label * 77 + 1;
    float mean[64];
    for (int i = 0; i < 64; i++)
        mean[i] = tr_random_unit(&pattern) - 0.5f;
    for (int i = 0; i < d->dim; i += 2) { /* two values from one draw */
        uint64_t r = tr_random(&d->rng);
        x[i] = mean[i & 63] + (float)(r & 0xffff) * 0x1p-16f - 0.5f;
        if (i + 1 < d->dim)
            x[i + 1] = mean[(i + 1) & 63] + (float)(r >> 48) * 0x1p-16f - 0.5f;
    }
}

/* Sequences are stored step by step: [steps][batch][features]. */
static void scatter(const struct trainer *t, const float *sample, int index)
{
    int features = t->data.dim / t->net.steps;
    for (int s = 0; s < t->net.steps; s++)
        memcpy(t->host_x + ((size_t)s * (size_t)t->net.batch + (size_t)index) * (size_t)features,
               sample + (size_t)s * (size_t)features, (size_t)features * sizeof *sample);
}

void tr_data_batch(struct trainer *t)
{
    struct tr_data *d = &t->data;
    const struct tr_net *net = &t->net;
    float *row = net->steps > 1 ? malloc((size_t)d->dim * sizeof *row) : NULL;
    memset(t->host_labels, 0, (size_t)net->batch * (size_t)net->classes * sizeof(float));
    for (int i = 0; i < net->batch; i++) {
        const float *sample;
        if (d->count) {
            if (d->next == d->count)
                shuffle(d);
            int k = d->order[d->next++];
            sample = d->x + (size_t)k * (size_t)d->dim;
            t->host_label[i] = d->label[k];
        } else {
            t->host_label[i] = (int)(tr_random(&d->rng) % (uint64_t)net->classes);
            float *x = row ? row : t->host_x + (size_t)i * (size_t)d->dim;
            synthesize(d, x, t->host_label[i]);
            sample = x;
        }
        if (row)
            scatter(t, sample, i);
        else if (d->count)
            memcpy(t->host_x + (size_t)i * (size_t)d->dim, sample,
                   (size_t)d->dim * sizeof *sample);
        t->host_labels[(size_t)i * (size_t)net->classes + (size_t)t->host_label[i]] = 1.0f;
    }
    free(row);
}

void tr_data_close(struct tr_data *d)
{
    free(d->x);
    free(d->label);
    free(d->order);
    *d = (struct tr_data){ 0 };
}
