/* Candidates come from stretches of ops that were seen before: the distance to the last time is a
 * candidate period. A stretch that crosses what happens once an iteration (the loss, the update)
 * gives the iteration itself. A candidate waits until it has repeated once in full, is looked at
 * (period_check.c) and is then found, asked for more repeats, or put off.
 */
#include "period.h"

#include <string.h>

#include "grow.h"
#include "period_check.h"
#include "period_sequence.h"
#include "trace.h"

#define LONG_STRETCH   16 /* ops that must be equal before a distance is worth a look         */
#define SHORT_STRETCH  2  /* the same for periods below SHORT_PERIODS                          */
#define SHORT_PERIODS  32
#define MAX_CANDIDATES 64
#define MAX_BROKEN     16
#define MAX_MULTIPLE   4 /* a period whose blocks alternate is tried in multiples up to this */
/* Without typed calls a repeat must cover this many ops: set-up loops are short. */
#define UNTYPED_OPS 12
/* In a program that has layers, what repeats without one is a part of the iteration (kernels that count
 * in 32 bits do a large tensor in pieces), unless it goes on for longer than everything before it and
 * than this many ops. */
#define BETWEEN_LAYERS 512
/* A run that broke off after up to this many repeats may have been a part of the iteration. */
#define BROKEN_TRUST 32

struct candidate {
    size_t p;
    size_t due;     /* position at which to look at it again */
    unsigned looks; /* looks that ended in a refusal         */
    bool multiple;  /* of a shorter candidate                */
};

struct vm_period_finder {
    struct vm_sequence seq;
    struct vm_check check;
    struct vm_last_seen long_seen, short_seen;
    size_t next_event;
    uint64_t live_bytes;
    uint32_t live_count;
    struct candidate candidates[MAX_CANDIDATES];
    size_t ncandidates;
    size_t next_due; /* least `due` of the candidates */
    struct {
        size_t p, repeats;
    } broken[MAX_BROKEN];
    size_t nbroken;
    bool has_layers;   /* with weights: in this sequence, or in one before it */
    size_t last_layer; /* position just after the last one; 0: none           */
    struct vm_period now; /* ops == 0: none */
    size_t now_start;     /* from here on every op equals the one now.ops before it */
    size_t steps[3];      /* positions of the last three marks */
    unsigned nsteps;
    struct vm_period *runs;
    size_t nruns, cap_runs;
    bool keep_runs;
};

int vm_period_finder_new(struct vm_period_finder **out)
{
    struct vm_period_finder *f = calloc(1, sizeof *f);
    if (!f)
        return VM_ENOMEM;
    f->next_due = SIZE_MAX;
    *out = f;
    return VM_OK;
}

void vm_period_finder_free(struct vm_period_finder *f)
{
    if (!f)
        return;
    vm_sequence_fini(&f->seq);
    vm_last_seen_fini(&f->long_seen);
    vm_last_seen_fini(&f->short_seen);
    free(f->check.ops);
    free(f->check.blocks);
    free(f->runs);
    free(f);
}

uint32_t vm_period_event(const struct vm_period_finder *f, size_t position)
{
    return f->check.ops[position].event;
}

static void schedule(struct vm_period_finder *f)
{
    f->next_due = SIZE_MAX;
    for (size_t i = 0; i < f->ncandidates; i++)
        if (f->candidates[i].due < f->next_due)
            f->next_due = f->candidates[i].due;
}

static void drop_candidate(struct vm_period_finder *f, size_t i)
{
    f->candidates[i] = f->candidates[--f->ncandidates];
}

/* Throws out what the sequence has left meanwhile; if all still hold, the one due last. */
static void make_room(struct vm_period_finder *f)
{
    size_t latest = 0;
    for (size_t i = f->ncandidates; i-- > 0;)
        if (!vm_sequence_repeats(&f->seq, f->candidates[i].p))
            drop_candidate(f, i);
    if (f->ncandidates < MAX_CANDIDATES)
        return;
    for (size_t i = 1; i < f->ncandidates; i++)
        if (f->candidates[i].due > f->candidates[latest].due)
            latest = i;
    drop_candidate(f, latest);
}

static void add_candidate(struct vm_period_finder *f, size_t p, bool multiple)
{
    for (size_t i = 0; i < f->ncandidates; i++)
        if (f->candidates[i].p == p)
            return;
    size_t n = f->seq.n, run = vm_sequence_run(&f->seq, p);
    if (run == 0)
        return;
    if (f->ncandidates == MAX_CANDIDATES)
        make_room(f);
    size_t due = run >= p ? n : n - run + p;
    f->candidates[f->ncandidates++] = (struct candidate){.p = p, .due = due, .multiple = multiple};
    schedule(f);
}

/* Ops that a repeat of untyped ops must have gone on for. */
static size_t untyped_wanted(const struct vm_period_finder *f, size_t p)
{
    size_t n = f->seq.n, before = n - vm_sequence_run(&f->seq, p);
    if (!f->has_layers || f->last_layer + p > n)
        return UNTYPED_OPS;
    return before > BETWEEN_LAYERS ? before : BETWEEN_LAYERS;
}

static size_t repeats_wanted(const struct vm_period_finder *f, enum vm_verdict v, size_t p)
{
    size_t want = v == VM_REPEAT_TRAINING ? 2 : v == VM_REPEAT_UNTYPED ? 3 : 5;
    size_t ops = v == VM_REPEAT_UNTYPED ? untyped_wanted(f, p) : 0;
    if (want * p < ops)
        want = (ops + p - 1) / p;
    if (v != VM_REPEAT_TRAINING)
        for (size_t i = 0; i < f->nbroken; i++)
            if (f->broken[i].p == p && f->broken[i].repeats < BROKEN_TRUST &&
                f->broken[i].repeats + 1 > want)
                want = f->broken[i].repeats + 1;
    return want;
}

static void set_found(struct vm_period_finder *f, size_t p, size_t start, bool by_step)
{
    f->now = (struct vm_period){.ops = p, .found = f->seq.n, .by_step = by_step};
    f->now_start = start;
    f->ncandidates = 0;
    f->next_due = SIZE_MAX;
}

/* One operation again and again, of which nothing is known but that it may change something: a kernel
 * that does a large tensor piece by piece looks like that. Nor would a plan for it be worth anything,
 * as it uses all of its blocks always. */
static bool are_pieces(const struct vm_period_finder *f, enum vm_verdict v, size_t p)
{
    return v == VM_REPEAT_UNTYPED && vm_sequence_run(&f->seq, 1) + 1 >= p;
}

/* Looks at candidate i, whose time has come. Returns true if it is the period. */
static bool look(struct vm_period_finder *f, const struct vm_trace *t, size_t i)
{
    struct candidate *c = &f->candidates[i];
    size_t n = f->seq.n, p = c->p, run = vm_sequence_run(&f->seq, p);
    if (run < p) {
        drop_candidate(f, i);
        return false;
    }
    enum vm_verdict v = vm_check_repeat(&f->check, t, p);
    if (v >= VM_REPEAT_PARTIAL && !are_pieces(f, v, p)) {
        size_t want = repeats_wanted(f, v, p);
        if (run / p + 1 >= want) {
            set_found(f, p, n - run, false);
            return true;
        }
        c->due = n - run + (want - 1) * p;
        return false;
    }
    unsigned wait = c->looks < 4 ? 0 : c->looks - 3;
    c->due = n + (p << (wait < 10 ? wait : 10));
    c->looks++;
    if (v == VM_REPEAT_FOREIGN && !c->multiple)
        for (size_t k = 2; k <= MAX_MULTIPLE; k++)
            add_candidate(f, k * p, true);
    return false;
}

static void look_at_due(struct vm_period_finder *f, const struct vm_trace *t)
{
    for (size_t i = f->ncandidates; i-- > 0;)
        if (i < f->ncandidates && f->candidates[i].due <= f->seq.n && look(f, t, i))
            return;
    schedule(f);
}

void vm_period_distrust(struct vm_period_finder *f, size_t ops, size_t repeats)
{
    size_t slot = 0;
    while (slot < f->nbroken && f->broken[slot].p != ops)
        slot++;
    if (slot == MAX_BROKEN)
        slot = ops % MAX_BROKEN;
    else if (slot == f->nbroken)
        f->nbroken++;
    f->broken[slot].p = ops;
    f->broken[slot].repeats = repeats;
}

bool vm_period_has_layers(const struct vm_period_finder *f)
{
    return f->has_layers;
}

void vm_period_expect_layers(struct vm_period_finder *f)
{
    f->has_layers = true;
}

/* The sequence left the period. */
static int end_run(struct vm_period_finder *f)
{
    vm_period_distrust(f, f->now.ops, f->now.repeats);
    if (f->keep_runs) {
        if (VM_GROW(f->runs, f->cap_runs, f->nruns + 1) < 0)
            return VM_ENOMEM;
        f->runs[f->nruns++] = f->now;
    }
    f->now.ops = 0;
    return VM_OK;
}

static int propose(struct vm_period_finder *f, struct vm_last_seen *seen, size_t stretch,
                   size_t longest)
{
    size_t n = f->seq.n, previous;
    if (n < stretch)
        return VM_OK;
    if (vm_last_seen_put(seen, vm_sequence_hash(&f->seq, n - stretch, n), n, &previous) < 0)
        return VM_ENOMEM;
    if (previous && n - previous < longest && f->now.ops == 0 && f->nsteps < 2)
        add_candidate(f, n - previous, false);
    return VM_OK;
}

static void count_repeats(struct vm_period_finder *f)
{
    size_t whole = (f->seq.n - f->now_start) / f->now.ops;
    f->now.repeats = whole + 1;
    f->now.end = f->now_start + whole * f->now.ops;
}

static int push_op(struct vm_period_finder *f, const struct vm_trace *t, size_t event)
{
    const struct vm_event *e = &t->events[event];
    struct vm_check *c = &f->check;
    if (VM_GROW(c->ops, c->cap_ops, c->nops + 1) < 0 ||
        vm_sequence_push(&f->seq, e->sig + e->op_kind) < 0)
        return VM_ENOMEM;
    c->ops[c->nops++] = (struct vm_seen_op){
        .event = (uint32_t)event, .live_count = f->live_count, .live_bytes = f->live_bytes};
    if (vm_layer_has_weights(e->layer)) {
        f->has_layers = true;
        f->last_layer = f->seq.n;
    }
    if (f->now.ops && !vm_sequence_repeats(&f->seq, f->now.ops) && end_run(f) < 0)
        return VM_ENOMEM;
    if (propose(f, &f->long_seen, LONG_STRETCH, SIZE_MAX) < 0 ||
        propose(f, &f->short_seen, SHORT_STRETCH, SHORT_PERIODS) < 0)
        return VM_ENOMEM;
    if (f->seq.n >= f->next_due)
        look_at_due(f, t);
    if (f->now.ops)
        count_repeats(f);
    return VM_OK;
}

/* A mark of the program's: three in a row at equal distance, around equal work, give the period. */
static int push_step(struct vm_period_finder *f, const struct vm_trace *t)
{
    size_t n = f->seq.n;
    if (f->nsteps && f->steps[2] == n)
        return VM_OK; /* two marks with nothing between them are one */
    f->steps[0] = f->steps[1];
    f->steps[1] = f->steps[2];
    f->steps[2] = n;
    f->nsteps += f->nsteps < 3;
    if (f->nsteps == 2) {
        f->ncandidates = 0;
        f->next_due = SIZE_MAX;
    }
    size_t p = n - f->steps[1];
    if (f->now.ops && f->nsteps >= 2 && f->now.ops != p && end_run(f) < 0)
        return VM_ENOMEM;
    if (f->nsteps < 3 || f->now.ops || f->steps[1] - f->steps[0] != p)
        return VM_OK;
    size_t run = vm_sequence_run(&f->seq, p);
    if (run < p || vm_check_repeat(&f->check, t, p) == VM_REPEAT_FOREIGN)
        return VM_OK;
    set_found(f, p, n - run, true);
    count_repeats(f);
    return VM_OK;
}

/* Blocks that existed before the trace began are alive from the start. */
static int know_blocks(struct vm_period_finder *f, const struct vm_trace *t)
{
    struct vm_check *c = &f->check;
    if (VM_GROW(c->blocks, c->cap_blocks, t->nblocks) < 0)
        return VM_ENOMEM;
    for (; c->nblocks < t->nblocks; c->nblocks++) {
        c->blocks[c->nblocks] = (struct vm_seen_block){0};
        if (t->blocks[c->nblocks].alloc_event == VM_NONE) {
            f->live_bytes += t->blocks[c->nblocks].size;
            f->live_count++;
        }
    }
    return VM_OK;
}

int vm_period_feed(struct vm_period_finder *f, const struct vm_trace *t, struct vm_period *found)
{
    if (know_blocks(f, t) < 0)
        return VM_ENOMEM;
    for (; f->next_event < t->nevents; f->next_event++) {
        const struct vm_event *e = &t->events[f->next_event];
        int rc = VM_OK;
        if (e->kind == VM_EV_OP) {
            rc = push_op(f, t, f->next_event);
        } else if (e->kind == VM_EV_STEP) {
            rc = push_step(f, t);
        } else if (e->kind == VM_EV_ALLOC) {
            f->live_bytes += t->blocks[e->block].size;
            f->live_count++;
            f->check.blocks[e->block].birth = (uint32_t)f->seq.n;
        } else if (e->kind == VM_EV_FREE) {
            f->live_bytes -= t->blocks[e->block].size;
            f->live_count--;
        }
        if (rc < 0)
            return rc;
    }
    if (f->now.ops == 0)
        return VM_NOTFOUND;
    *found = f->now;
    return VM_OK;
}

int vm_period_runs(const struct vm_trace *t, struct vm_period **runs, size_t *nruns)
{
    struct vm_period_finder *f;
    struct vm_period last;
    int rc = vm_period_finder_new(&f);
    if (rc < 0)
        return rc;
    f->keep_runs = true;
    rc = vm_period_feed(f, t, &last);
    if (rc == VM_OK)
        rc = end_run(f);
    if (rc >= 0) {
        *runs = f->runs;
        *nruns = f->nruns;
        f->runs = NULL;
    }
    vm_period_finder_free(f);
    return rc < 0 ? rc : VM_OK;
}
