/* The race checker: happens-before by vector clocks, one component for each stream (a lane), in the
 * manner of FastTrack (Flanagan and Freund, PLDI 2009): for each stretch of physical memory the
 * last write and the reads since. An operation's clock joins those of all it waits for and what the
 * host had seen when it was issued. Accesses are checked when an operation executes; any order in
 * which operations execute respects the edges, so a race is found whichever side ran first.
 *
 * Host threads count as one: what one of them waited for orders what any of them issues later. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define MAX_LINES 50 /* of findings on stderr; all are counted */

struct sg_clock {
    unsigned n;
    uint32_t t[];
};
struct mark { /* an access that happened */
    unsigned lane, tick;
    uint64_t seq;
    const char *what;
    bool sealed; /* a write: the page became read-only since */
};
struct seg {
    uint64_t at, end;
    struct mark write; /* lane 0: none */
    struct mark *reads;
    unsigned nreads, creads;
    bool written;
};
struct sg_shadow {
    struct seg *seg; /* sorted, disjoint */
    size_t n, cap;
};
struct interned {
    char *text;
    UT_hash_handle hh;
};

static struct sg_clock *host; /* what the host has seen done */
static uint32_t *ticks;       /* of each lane; lane 0 is nobody's */
static unsigned nlanes = 1, clanes, *idle, nidle;
static struct interned *texts;
static unsigned lines;

static void *need(void *p)
{
    if (!p)
        abort(); /* the simulator itself is out of memory */
    return p;
}

/* ---- clocks ---- */
static void clock_reach(struct sg_clock **c, unsigned lane)
{
    unsigned old = *c ? (*c)->n : 0;
    if (lane < old)
        return;
    unsigned n = nlanes > lane ? nlanes : lane + 1;
    *c = need(realloc(*c, sizeof **c + n * sizeof(uint32_t)));
    memset((*c)->t + old, 0, (n - old) * sizeof(uint32_t));
    (*c)->n = n;
}

static void clock_join(struct sg_clock **c, const struct sg_clock *other)
{
    if (!other || !other->n)
        return;
    clock_reach(c, other->n - 1);
    for (unsigned i = 0; i < other->n; i++)
        if (other->t[i] > (*c)->t[i])
            (*c)->t[i] = other->t[i];
}

static bool clock_saw(const struct sg_clock *c, const struct mark *m)
{
    return m->lane == 0 || (c && m->lane < c->n && c->t[m->lane] >= m->tick);
}

unsigned sg_race_lane_new(void)
{
    if (nidle)
        return idle[--nidle];
    if (nlanes >= clanes) {
        clanes = clanes ? clanes * 2 : 64;
        ticks = need(realloc(ticks, clanes * sizeof *ticks));
        idle = need(realloc(idle, clanes * sizeof *idle));
    }
    ticks[nlanes] = 0;
    return nlanes++;
}

/* A lane can serve another stream when the host has seen all of it. */
void sg_race_lane_drop(unsigned lane)
{
    const struct mark last = {.lane = lane, .tick = lane && lane < nlanes ? ticks[lane] : 0};
    if (lane && (last.tick == 0 || clock_saw(host, &last)))
        idle[nidle++] = lane;
}

void sg_race_issue(struct sg_op *op, unsigned lane)
{
    op->lane = lane;
    op->tick = ++ticks[lane];
    clock_reach(&op->clock, lane);
    clock_join(&op->clock, host);
    op->clock->t[lane] = op->tick;
}

void sg_race_join(struct sg_op *op, const struct sg_op *pred)
{
    clock_join(&op->clock, pred->clock);
}

void sg_race_host_saw(const struct sg_op *op)
{
    clock_join(&host, op->clock);
}

void sg_race_mapped(struct sg_map *m)
{
    clock_join(&m->since, host);
}

void sg_race_unmapped(struct sg_map *m)
{
    free(m->since);
    m->since = NULL;
}

void sg_race_clock_free(struct sg_op *op)
{
    free(op->clock);
    op->clock = NULL;
}

void sg_race_retire(struct sg_ctx *c, const struct sg_op *op)
{
    clock_join(&c->retired, op->clock);
}

void sg_race_join_retired(struct sg_op *op, const struct sg_ctx *c)
{
    clock_join(op ? &op->clock : &host, c->retired);
}

/* ---- findings ---- */
static const char *intern(const char *text)
{
    struct interned *i;
    HASH_FIND_STR(texts, text, i);
    if (!i) {
        i = need(calloc(1, sizeof *i));
        i->text = need(strdup(text));
        HASH_ADD_KEYPTR(hh, texts, i->text, strlen(i->text), i);
    }
    return i->text;
}

static const char *name_of(const struct sg_op *op)
{
    char text[128];
    switch (op->kind) {
    case SG_OP_KERNEL:
        snprintf(text, sizeof text, "kernel %s", op->u.kernel.name);
        return intern(text);
    case SG_OP_COPY:
        return op->u.copy.src_host   ? "copy from the host"
               : op->u.copy.dst_host ? "copy to the host"
                                     : "copy on the device";
    case SG_OP_MEMSET:
        return "memset";
    default:
        return "operation";
    }
}

static void found(uint64_t *counter, const char *line)
{
    ++*counter;
    if (lines++ < MAX_LINES)
        sg_note("simgpu: %s", line);
    if (sg.cfg.race_abort)
        abort();
}

static void race(const struct mark *a, const char *how_a, const struct sg_op *b, const char *how_b,
                 uint64_t va, size_t bytes)
{
    char line[480];
    snprintf(line, sizeof line,
             "race: %s by %s (operation %llu, lane %u) and %s by %s (operation %llu, lane %u) of "
             "%#llx+%zu: nothing makes operation %llu wait for operation %llu%s",
             how_a, a->what, (unsigned long long)a->seq, a->lane, how_b, name_of(b),
             (unsigned long long)b->seq, b->lane, (unsigned long long)va, bytes,
             (unsigned long long)b->seq, (unsigned long long)a->seq,
             a->sealed ? ", which was over when the page became read-only" : "");
    found(&sg.races, line);
}

void sg_race_through(struct sg_op *op, const struct sg_map *m, uint64_t va)
{
    clock_join(&op->clock, m->since);
    if (op->kind != SG_OP_KERNEL || op->seq > m->after)
        return;
    char line[320];
    snprintf(line, sizeof line,
             "late map: %s (operation %llu, lane %u) uses %#llx, which was mapped after it was issued",
             name_of(op), (unsigned long long)op->seq, op->lane, (unsigned long long)va);
    found(&sg.late, line);
}

/* ---- shadow memory ---- */
static struct sg_shadow *shadow_of(struct sg_phys *p)
{
    if (!p->shadow)
        p->shadow = need(calloc(1, sizeof *p->shadow));
    return p->shadow;
}

static size_t seg_lower(const struct sg_shadow *s, uint64_t at)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->seg[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct seg *seg_insert(struct sg_shadow *s, size_t i, uint64_t at, uint64_t end,
                              bool written)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 4;
        s->seg = need(realloc(s->seg, s->cap * sizeof *s->seg));
    }
    memmove(&s->seg[i + 1], &s->seg[i], (s->n - i) * sizeof *s->seg);
    s->n++;
    s->seg[i] = (struct seg){.at = at, .end = end, .written = written};
    return &s->seg[i];
}

static void seg_split(struct sg_shadow *s, uint64_t at)
{
    size_t i = seg_lower(s, at);
    if (i == s->n || s->seg[i].at >= at || s->seg[i].end <= at)
        return;
    struct seg *low = seg_insert(s, i, s->seg[i].at, at, s->seg[i].written), *high = low + 1;
    low->write = high->write;
    if (high->nreads) {
        low->reads = need(malloc(high->nreads * sizeof *low->reads));
        memcpy(low->reads, high->reads, high->nreads * sizeof *low->reads);
        low->nreads = low->creads = high->nreads;
    }
    high->at = at;
}

/* Makes [at, end) a run of whole segments without a gap; gives the index of the first. */
static size_t cover(struct sg_phys *p, uint64_t at, uint64_t end)
{
    struct sg_shadow *s = shadow_of(p);
    seg_split(s, at);
    seg_split(s, end);
    size_t first = seg_lower(s, at);
    uint64_t pos = at;
    for (size_t i = first; pos < end; i++) {
        if (i == s->n || s->seg[i].at > pos)
            seg_insert(s, i, pos, i < s->n && s->seg[i].at < end ? s->seg[i].at : end,
                       p->host_writes);
        pos = s->seg[i].end;
    }
    return first;
}

static void drop_reads(struct seg *g)
{
    free(g->reads);
    g->reads = NULL;
    g->nreads = g->creads = 0;
}

/* After a write the run [first, last] is of one piece. */
static void merge(struct sg_shadow *s, size_t first, size_t last)
{
    if (last == first)
        return;
    s->seg[first].end = s->seg[last].end;
    for (size_t i = first + 1; i <= last; i++)
        drop_reads(&s->seg[i]);
    memmove(&s->seg[first + 1], &s->seg[last + 1], (s->n - last - 1) * sizeof *s->seg);
    s->n -= last - first;
}

static void add_read(struct seg *g, const struct mark *m)
{
    for (unsigned i = 0; i < g->nreads; i++)
        if (g->reads[i].lane == m->lane) {
            g->reads[i] = *m;
            return;
        }
    if (g->nreads == g->creads) {
        g->creads = g->creads ? g->creads * 2 : 2;
        g->reads = need(realloc(g->reads, g->creads * sizeof *g->reads));
    }
    g->reads[g->nreads++] = *m;
}

static void check_read(struct sg_op *op, struct seg *g, const struct mark *m, uint64_t va)
{
    size_t bytes = (size_t)(g->end - g->at);
    if (!g->written && op->kind != SG_OP_COPY) { /* a copy passes undefined bytes on */
        char line[320];
        snprintf(
            line, sizeof line,
            "undefined: %s (operation %llu, lane %u) reads %#llx+%zu, which nothing has written",
            name_of(op), (unsigned long long)op->seq, op->lane, (unsigned long long)va, bytes);
        found(&sg.undefined, line);
        g->written = true; /* once for each stretch */
    }
    if (!clock_saw(op->clock, &g->write))
        race(&g->write, "write", op, "read", va, bytes);
    add_read(g, m);
}

static void check_write(struct sg_op *op, struct seg *g, const struct mark *m, uint64_t va)
{
    size_t bytes = (size_t)(g->end - g->at);
    if (!clock_saw(op->clock, &g->write))
        race(&g->write, "write", op, "write", va, bytes);
    for (unsigned i = 0; i < g->nreads; i++)
        if (!clock_saw(op->clock, &g->reads[i])) {
            race(&g->reads[i], "read", op, "write", va, bytes);
            break;
        }
    drop_reads(g);
    g->write = *m;
    g->written = true;
}

void sg_race_access(struct sg_op *op, struct sg_phys *p, uint64_t off, size_t bytes, int mode,
                    uint64_t va)
{
    const struct mark m = {.lane = op->lane, .tick = op->tick, .seq = op->seq, .what = name_of(op)};
    size_t first = cover(p, off, off + bytes), last = first;
    struct sg_shadow *s = p->shadow;
    for (size_t i = first; i < s->n && s->seg[i].at < off + bytes; i++) {
        struct seg *g = &s->seg[i];
        uint64_t at = va + (g->at - off);
        if (mode & SIMGPU_READ)
            check_read(op, g, &m, at);
        if (mode & SIMGPU_WRITE)
            check_write(op, g, &m, at);
        last = i;
    }
    if (mode & SIMGPU_WRITE)
        merge(s, first, last);
}

/* From now on a write of the page is a fault: what a copy to the host takes afterwards is all that was written. */
void sg_race_sealed(struct sg_phys *p)
{
    for (size_t i = 0; p->shadow && i < p->shadow->n; i++)
        p->shadow->seg[i].write.sealed = true;
}

void sg_race_host_write(struct sg_phys *p, uint64_t off, size_t bytes)
{
    if (!sg.cfg.racecheck)
        return;
    size_t first = cover(p, off, off + bytes);
    for (size_t i = first; i < p->shadow->n && p->shadow->seg[i].at < off + bytes; i++)
        p->shadow->seg[i].written = true;
}

/* The next piece of [va, end) that lies in one mapping. */
static struct sg_phys *piece(uint64_t va, uint64_t end, uint64_t *off, size_t *bytes)
{
    const struct sg_range *r = sg_range_find(va);
    const struct sg_map *m = r ? sg_map_at(r, va) : NULL;
    if (!m || !m->phys)
        return NULL;
    uint64_t stop = m->va + (r->kind == SG_VMM ? m->bytes : r->bytes);
    *off = va - m->va;
    *bytes = (size_t)((stop < end ? stop : end) - va);
    return m->phys;
}

void sg_race_undefine(uint64_t va, size_t bytes)
{
    uint64_t off;
    size_t n;
    for (uint64_t end = va + bytes; va < end; va += n) {
        struct sg_phys *p = piece(va, end, &off, &n);
        if (!p)
            return;
        for (size_t i = cover(p, off, off + n); i < p->shadow->n && p->shadow->seg[i].at < off + n;
             i++)
            p->shadow->seg[i].written = false;
    }
}

/* A dense copy was made: what was undefined at the source is undefined at the destination. */
void sg_race_copied(uint64_t dst, uint64_t src, size_t bytes)
{
    uint64_t off, end = src + bytes;
    size_t n;
    for (uint64_t va = src; va < end; va += n) {
        struct sg_phys *p = piece(va, end, &off, &n);
        if (!p)
            return;
        size_t i = cover(p, off, off + n);
        for (; i < p->shadow->n && p->shadow->seg[i].at < off + n; i++) {
            const struct seg g = p->shadow->seg[i];
            if (!g.written)
                sg_race_undefine(dst + (va - src) + (g.at - off), (size_t)(g.end - g.at));
        }
    }
}

/* The host frees or unmaps: everything that touched the bytes must be known to be done. */
void sg_race_free(struct sg_phys *p, uint64_t off, size_t bytes, uint64_t va, const char *what)
{
    struct sg_shadow *s = p->shadow;
    if (!s)
        return;
    for (size_t i = seg_lower(s, off); i < s->n && s->seg[i].at < off + bytes; i++) {
        const struct seg *g = &s->seg[i];
        const struct mark *m = clock_saw(host, &g->write) ? NULL : &g->write;
        for (unsigned k = 0; k < g->nreads && !m; k++)
            if (!clock_saw(host, &g->reads[k]))
                m = &g->reads[k];
        if (!m)
            continue;
        char line[400];
        snprintf(
            line, sizeof line,
            "early %s: %#llx+%zu is still in use by %s (operation %llu, lane %u): the host has "
            "not waited for it",
            what, (unsigned long long)va, bytes, m->what, (unsigned long long)m->seq, m->lane);
        found(&sg.early, line);
        return;
    }
}

void sg_race_forget(struct sg_phys *p)
{
    if (!p->shadow)
        return;
    for (size_t i = 0; i < p->shadow->n; i++)
        drop_reads(&p->shadow->seg[i]);
    free(p->shadow->seg);
    free(p->shadow);
    p->shadow = NULL;
}
