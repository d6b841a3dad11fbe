/* vdnn-all, vdnn-conv, vdnn-dyn: the rules of Rhu et al., "vDNN: Virtualized Deep Neural Networks for
 * Scalable, Memory-Efficient Neural Network Design", MICRO-49, 2016.
 *
 * The unit is the layer, what moves is its input X. In the forward pass X leaves after its last forward
 * consumer. In the backward pass, when layer m begins, one earlier layer's X is fetched: the search goes
 * down from m - 1 and takes the first that is away; a convolution that is not away ends it, so nothing
 * is fetched so early that it fills the memory. Whole blocks move, whether room is short or not: that is
 * the paper's rule, not the best one (see auto).
 *
 * vdnn-dyn tries, as the paper's profiling passes do, no offload, conv, all, and keeps the first that
 * runs without running out of memory. Choosing other convolution algorithms, the paper's remaining
 * passes, would change the sum: it is not done here.
 *
 * A trace without layer roles has no layers. Then every block that is used before the fullest op and not
 * again until after it takes the part of X, and the plan says so. */
#include "common.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    uint32_t block;    /* its X                                              */
    uint32_t last_op;  /* last op before the turn that uses X                */
    uint32_t need_op;  /* first op after it that needs X again               */
    uint32_t begin_op; /* first op of its backward pass                      */
    bool conv, away, fetched;
    uint32_t fetch_op; /* from this op on */
};

struct vdnn {
    const struct vm_paged *p;
    struct layer *layers;
    size_t n;
    bool by_roles;
};

enum which { WHICH_NONE, WHICH_CONV, WHICH_ALL };

static uint32_t first_backward(const struct vm_iteration *it)
{
    for (uint32_t k = 0; k < it->nops; k++)
        if (it->ops[k].flags & VM_OPF_BACKWARD)
            return k;
    return (uint32_t)it->nops;
}

static int add_layer(struct vdnn *v, size_t *cap, uint32_t block, bool conv)
{
    if (v->n == *cap) {
        size_t n = *cap ? 2 * *cap : 64;
        struct layer *p = realloc(v->layers, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        v->layers = p;
        *cap = n;
    }
    v->layers[v->n++] = (struct layer){.block = block, .conv = conv, .last_op = VM_NONE,
                                       .need_op = VM_NONE, .begin_op = VM_NONE,
                                       .fetch_op = VM_NONE};
    return VM_OK;
}

/* The kinds of layers whose X moves; activations work in place, the classifier stays. */
static bool extracts_features(unsigned layer)
{
    return layer == VM_LAYER_CONV || layer == VM_LAYER_POOL || layer == VM_LAYER_LRN ||
           layer == VM_LAYER_NORM;
}

/* The layers in forward order: every forward call that names an X. */
static int find_layers(struct vdnn *v)
{
    const struct vm_iteration *it = v->p->it;
    size_t cap = 0;

    for (uint32_t k = 0; k < it->nops; k++) {
        const struct vm_iter_op *op = &it->ops[k];
        if (!(op->flags & VM_OPF_FORWARD) || !(op->flags & VM_OPF_CALL_BEGIN) || !op->layer)
            continue;
        for (uint32_t i = op->acc; i < op->acc + op->nacc; i++)
            if (it->accesses[i].role == VM_ROLE_X) {
                if (add_layer(v, &cap, it->accesses[i].block, op->layer == VM_LAYER_CONV))
                    return VM_ENOMEM;
                v->layers[v->n - 1].away = extracts_features(op->layer);
                break;
            }
    }
    v->by_roles = v->n > 0;
    return VM_OK;
}

/* Without roles: one pseudo layer for each block that is cold over the fullest op, in the order in which
 * they were used last before it. */
static int find_cold(struct vdnn *v)
{
    const struct vm_page_units *u = &v->p->units;
    uint32_t *pages = malloc((u->nops + 1) * sizeof *pages), turn = 0;
    uint8_t *taken = calloc(v->p->it->nblocks + 1, 1);
    size_t cap = 0;
    int rc = pages && taken ? vm_page_units_curve(u, pages) : VM_ENOMEM;

    for (uint32_t k = 0; k < u->nops && !rc; k++)
        if (pages[k] > pages[turn])
            turn = k;
    for (uint32_t k = 0; k < turn && !rc; k++)
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1] && !rc; r++) {
            const struct vm_page_unit *un = &u->units[u->refs[r].unit];
            unsigned wraps;
            uint32_t next = vm_page_next_use(u, un, u->refs[r].use, &wraps);
            bool over = next != VM_NONE && !wraps && u->uses[next].op > turn &&
                        (u->uses[u->refs[r].use].flags & VM_PU_LIVE_AFTER);
            if (!over || (un->flags & (VM_UNIT_PINNED | VM_UNIT_SHARED)) || taken[un->block])
                continue;
            taken[un->block] = 1;
            rc = add_layer(v, &cap, un->block, true);
            if (!rc)
                v->layers[v->n - 1].away = true;
        }
    free(pages);
    free(taken);
    return rc;
}

/* Where each layer's X is used last going forward and first coming back. */
static void find_ops(struct vdnn *v)
{
    const struct vm_iteration *it = v->p->it;
    const struct vm_page_units *u = &v->p->units;
    uint32_t turn = first_backward(it);
    uint32_t *last = malloc((it->nblocks + 1) * sizeof *last);
    uint32_t *need = malloc((it->nblocks + 1) * sizeof *need);

    if (!last || !need)
        goto out;
    memset(last, 0xff, it->nblocks * sizeof *last);
    memset(need, 0xff, it->nblocks * sizeof *need);
    if (!v->by_roles) { /* the fullest op: the gap found in find_cold spans it */
        uint64_t most = 0;
        uint32_t *pages = malloc((u->nops + 1) * sizeof *pages);
        turn = 0;
        if (pages && !vm_page_units_curve(u, pages))
            for (uint32_t k = 0; k < u->nops; k++)
                if (pages[k] > most) {
                    most = pages[k];
                    turn = k;
                }
        free(pages);
    }
    for (uint32_t k = 0; k < it->nops; k++)
        for (uint32_t i = it->ops[k].acc; i < it->ops[k].acc + it->ops[k].nacc; i++) {
            uint32_t b = it->accesses[i].block;
            if (k < turn)
                last[b] = k;
            else if (need[b] == VM_NONE)
                need[b] = k;
        }
    for (size_t i = 0; i < v->n; i++) {
        struct layer *l = &v->layers[i];
        l->last_op = last[l->block];
        l->need_op = l->begin_op = need[l->block];
        if (l->last_op == VM_NONE || l->need_op == VM_NONE)
            l->away = false; /* not used again: nothing to bring back */
        for (size_t j = 0; j < i && l->away; j++)
            if (v->layers[j].block == l->block) /* a fork: its last consumer offloads */
                v->layers[j].away = false;
    }
out:
    free(last);
    free(need);
}

static void choose(struct vdnn *v, enum which which)
{
    for (size_t i = 0; i < v->n; i++) {
        struct layer *l = &v->layers[i];
        l->fetched = false;
        l->fetch_op = VM_NONE;
        if (which == WHICH_NONE || (which == WHICH_CONV && !l->conv))
            l->away = false;
    }
    for (size_t m = v->n; m-- > 0;) {
        if (v->layers[m].begin_op == VM_NONE)
            continue;
        for (size_t i = m; i-- > 0;) {
            struct layer *l = &v->layers[i];
            if (l->away && !l->fetched && l->need_op >= v->layers[m].begin_op) {
                l->fetched = true;
                l->fetch_op = v->layers[m].begin_op;
                break;
            }
            if (l->conv)
                break;
        }
    }
}

/* Moves of one unit that holds (part of) an X that is away: over the gap that spans the layer's turn. */
static bool gap_moves(const struct vdnn *v, const struct layer *l, uint32_t unit, struct vm_move out[2])
{
    const struct vm_page_units *u = &v->p->units;
    const struct vm_page_unit *un = &u->units[unit];

    for (uint32_t j = 0; j < un->nuses; j++) {
        uint32_t use = un->use + j, op = u->uses[use].op;
        unsigned wraps;
        uint32_t next = vm_page_next_use(u, un, use, &wraps);
        if (op != l->last_op || next == VM_NONE || wraps || u->uses[next].op < l->need_op ||
            !(u->uses[use].flags & VM_PU_LIVE_AFTER))
            continue;
        uint32_t need = u->uses[next].op, from = l->fetch_op != VM_NONE ? l->fetch_op : need - 1;
        if (from >= need)
            from = need - 1;
        if (from <= op)
            return false; /* the gap is empty: it would come back before it has gone */
        out[0] = (struct vm_move){.op = op, .need_op = need, .unit = unit, .use = use,
                                  .npages = un->npages, .kind = VM_ACT_OUT, .reason = VM_WHY_RULE};
        out[1] = (struct vm_move){.op = from, .need_op = need, .unit = unit, .use = next,
                                  .npages = un->npages, .kind = VM_ACT_IN, .reason = VM_WHY_RULE};
        return true;
    }
    return false;
}

static int make_moves(const struct vdnn *v, struct vm_schedule *s)
{
    const struct vm_page_units *u = &v->p->units;
    uint32_t *layer_of = malloc((v->p->it->nblocks + 1) * sizeof *layer_of);

    s->moves = malloc((2 * u->nunits + 1) * sizeof *s->moves);
    s->nmoves = 0;
    if (!layer_of || !s->moves) {
        free(layer_of);
        vm_schedule_fini(s);
        return VM_ENOMEM;
    }
    memset(layer_of, 0xff, v->p->it->nblocks * sizeof *layer_of);
    for (uint32_t i = 0; i < v->n; i++)
        if (v->layers[i].away)
            layer_of[v->layers[i].block] = i;
    for (uint32_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        if ((un->flags & (VM_UNIT_PINNED | VM_UNIT_SHARED)) || layer_of[un->block] == VM_NONE)
            continue;
        if (gap_moves(v, &v->layers[layer_of[un->block]], i, s->moves + s->nmoves))
            s->nmoves += 2;
    }
    free(layer_of);
    return vm_schedule_finish(u, s->moves, s->nmoves);
}

static int try_rule(struct vdnn *v, enum which which, struct vm_schedule *s, struct vm_error *why)
{
    struct vm_sim_options so = {.capacity_pages = v->p->capacity, .knows_dead = 1,
                                .window_ns = vm_schedule_window(&v->p->units, v->p->machine)};

    memset(s, 0, sizeof *s);
    choose(v, which);
    int rc = make_moves(v, s);
    if (rc)
        return rc;
    s->window_ns = so.window_ns;
    for (size_t i = 0; i < s->nmoves; i++) {
        s->out_pages += s->moves[i].kind == VM_ACT_OUT ? s->moves[i].npages : 0;
        s->in_pages += s->moves[i].kind == VM_ACT_IN ? s->moves[i].npages : 0;
    }
    rc = vm_simulate(&v->p->units, v->p->machine, s->moves, s->nmoves, &so, &s->sim, NULL, NULL);
    if (rc) {
        vm_schedule_fini(s);
        if (rc == VM_UNFIT)
            vm_unfit_text(&v->p->units, v->p->capacity, why);
    }
    return rc;
}

/* The first of none, conv, all that runs without demand paging, else all. */
static int try_dynamic(struct vdnn *v, struct vm_schedule *s, struct vm_error *why)
{
    static const enum which order[] = {WHICH_NONE, WHICH_CONV, WHICH_ALL};
    struct layer *saved = malloc((v->n + 1) * sizeof *saved);
    int rc = VM_ENOMEM;

    if (!saved)
        return rc;
    if (v->n)
        memcpy(saved, v->layers, v->n * sizeof *saved);
    for (size_t i = 0; i < 3; i++) {
        if (v->n)
            memcpy(v->layers, saved, v->n * sizeof *saved);
        rc = try_rule(v, order[i], s, why);
        if (rc || !s->sim.demand_pages || i == 2)
            break;
        vm_schedule_fini(s);
    }
    free(saved);
    return rc;
}

static int plan_vdnn(const struct vm_policy_input *in, const char *name, enum which which, bool dynamic,
                     struct vm_plan *plan, struct vm_error *why)
{
    struct vm_paged p;
    struct vdnn v = {.p = &p};
    struct vm_schedule s = {0};
    int rc = vm_paged_init(in, &p, why);

    if (rc)
        return rc;
    rc = find_layers(&v);
    if (!rc && !v.n)
        rc = find_cold(&v);
    if (!rc) {
        find_ops(&v);
        rc = dynamic ? try_dynamic(&v, &s, why) : try_rule(&v, which, &s, why);
    }
    if (!rc) {
        rc = vm_paged_plan(name, in, &p, &s, plan);
        vm_schedule_fini(&s);
    }
    if (!rc && !v.by_roles && why)
        snprintf(why->text, sizeof why->text,
                 "%s: the trace names no layers; blocks that are cold over the fullest op move", name);
    free(v.layers);
    vm_paged_fini(&p);
    return rc;
}

static int plan_all(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    return plan_vdnn(in, "vdnn-all", WHICH_ALL, false, plan, why);
}

static int plan_conv(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    return plan_vdnn(in, "vdnn-conv", WHICH_CONV, false, plan, why);
}

static int plan_dyn(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    return plan_vdnn(in, "vdnn-dyn", WHICH_ALL, true, plan, why);
}

const struct vm_policy vm_policy_vdnn_all = {
    .name = "vdnn-all",
    .summary = "vDNN: the input of every convolution, pooling and normalisation layer moves",
    .plan = plan_all,
    .uses_plan = 1,
    .may_page = 1,
    .changes_sum = 0,
};

const struct vm_policy vm_policy_vdnn_conv = {
    .name = "vdnn-conv",
    .summary = "vDNN: the input of every convolution layer moves",
    .plan = plan_conv,
    .uses_plan = 1,
    .may_page = 1,
    .changes_sum = 0,
};

const struct vm_policy vm_policy_vdnn_dyn = {
    .name = "vdnn-dyn",
    .summary = "vDNN: nothing, convolution inputs or all inputs, the first that fits",
    .plan = plan_dyn,
    .uses_plan = 1,
    .may_page = 1,
    .changes_sum = 0,
};
