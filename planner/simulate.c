#include "simulate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

static uint64_t capacity_of(const struct vm_page_units *u, const struct vm_machine *m,
                            const struct vm_sim_options *opt)
{
    return opt->capacity_pages ? opt->capacity_pages : m->device_bytes / u->page_bytes;
}

/* ---- the host thread ------------------------------------------------------------------------*/

static bool needs_contents(const struct vm_sim *s, const struct vm_page_unit *un, uint32_t use)
{
    if (use > un->use)
        return (s->u->uses[use - 1].flags & VM_PU_LIVE_AFTER) != 0;
    return (un->flags & VM_UNIT_CYCLIC) &&
           (s->u->uses[un->use + un->nuses - 1].flags & VM_PU_LIVE_AFTER);
}

static uint64_t pages_asked(const struct vm_sim_requests *q, uint64_t most)
{
    uint64_t n = 0;

    for (size_t i = q->head; i < q->tail && n < most; i++)
        n += q->r[i].npages;
    return n < most ? n : most;
}

/* Is everything op k needs there, or can it be had at once? Asks for what is missing. */
static bool ready(struct vm_sim *s, uint32_t k)
{
    uint64_t room = 0;
    bool ok = true;

    s->urgent.head = s->urgent.tail = 0;
    s->own_dead = 0;
    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct vm_sim_unit *x = &s->su[ref.unit];
        x->wanted = (uint32_t)s->issued + 1;
        if (needs_contents(s, un, ref.use) && !x->dead) {
            x->use = ref.use; /* takes back what is queued to leave */
            ok = ok && !x->copying;
            if (x->res == un->npages && !x->leaving)
                continue;
            ok = false;
            uint32_t lack = un->npages - x->res - x->coming;
            if (x->leaving || lack)
                vm_sim_push(s, &s->urgent,
                     (struct vm_sim_request){ref.unit, lack + x->leaving, ref.use, VM_NONE, s->issued});
        } else {
            if (x->leaving || x->coming || x->copying)
                ok = false;
            x->use = ref.use;
            uint32_t own = vm_sim_inherited(s, ref.unit);
            s->own_dead += own;
            room += un->npages - x->res - own;
        }
    }
    s->room = room;
    s->waiting_room = vm_sim_at_hand(s) < room + (room && !s->stuck ? pages_asked(&s->in, UINT64_MAX) : 0);
    return ok && !s->waiting_room;
}

static bool is_current(void *arg, const struct vm_use_entry *e)
{
    const struct vm_sim *s = arg;
    return s->su[e->unit].stamp == e->stamp && s->su[e->unit].res;
}

/* The host copies are stale from now on; what was read-only may be written. */
static void write_unit(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];
    uint32_t n = s->u->units[unit].npages, sealed = x->clean + x->res > n ? x->clean + x->res - n : 0;

    if (x->sealed && sealed)
        s->host += vm_sim_protect_ns(s, sealed);
    x->sealed = false;
    x->clean = 0;
}

static void issue(struct vm_sim *s, uint32_t k)
{
    s->host += s->m->call_ns;
    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct vm_sim_unit *x = &s->su[ref.unit];
        unsigned wraps;
        if (x->res < un->npages)
            vm_sim_provide(s, ref.unit);
        x->dead = false;
        x->use = ref.use;
        x->busy = (uint32_t)s->issued + 1;
        if (s->u->uses[ref.use].flags & VM_PU_WRITE)
            write_unit(s, ref.unit);
        uint32_t next = vm_page_next_use(s->u, un, ref.use, &wraps);
        if (next == VM_NONE && !vm_sim_lingers(s, un))
            vm_sim_let_go(s, ref.unit);
        if ((next == VM_NONE && !vm_sim_lingers(s, un)) || (un->flags & VM_UNIT_PINNED))
            continue;
        uint64_t key;
        if (s->opt.rule == VM_DEMAND_LRU)
            key = UINT64_MAX - s->issued;
        else if (next == VM_NONE)
            key = s->issued - k + s->u->uses[un->use].op + s->nops;
        else
            key = s->issued - k + s->u->uses[next].op + (wraps ? s->nops : 0);
        if (vm_use_heap_push(&s->heap, key, ref.unit, ++x->stamp))
            s->failed = true;
    }
    for (uint32_t i = s->end_first[k]; i < s->end_first[k + 1]; i++) {
        const struct vm_page_unit *un = &s->u->units[s->ends[i]];
        struct vm_sim_unit *x = &s->su[s->ends[i]];
        if (x->dead || x->use != un->use + un->nuses - 1)
            continue;
        vm_sim_let_go(s, s->ends[i]);
        x->freed = (uint32_t)s->issued + 1;
    }
    if (s->heap.n > 2 * s->u->nunits + 1024) /* stale entries must not outgrow the units */
        vm_use_heap_filter(&s->heap, is_current, s);
    double start = s->host > s->last_end ? s->host : s->last_end;
    s->last_end = start + (double)s->u->dur_ns[k];
    s->end_at[s->issued % VM_SIM_RUN_AHEAD] = s->last_end;
    if (s->u->op_flags[k] & VM_OPF_BLOCKS)
        s->host = s->last_end;
    if (s->start_ns)
        s->start_ns[k] = start - s->iter_start;
    s->issued++;
    s->ahead_ns += (double)s->u->dur_ns[k];
    for (uint32_t i = s->move_first[k]; i < s->move_first[k + 1]; i++) {
        const struct vm_move *mv = &s->moves[i];
        s->out_soon += mv->kind == VM_ACT_OUT ? mv->npages : 0;
        s->moves_soon += mv->kind != VM_ACT_IN;
        if (mv->kind != VM_ACT_IN)
            continue;
        s->su[mv->unit].asked += mv->npages;
        vm_sim_push(s, &s->in,
             (struct vm_sim_request){mv->unit, mv->npages, mv->use, i, s->issued - 1 - k + mv->need_op});
    }
}

/* Sends pages away, those first that the rule names. False: there are none that can go. */
static bool evict(struct vm_sim *s, uint64_t need)
{
    struct vm_use_entry e;
    bool found = false;

    s->nkept = 0;
    while (need && vm_use_heap_pop(&s->heap, &e)) {
        struct vm_sim_unit *x = &s->su[e.unit];
        if (x->stamp != e.stamp || x->dead || !x->res)
            continue;
        if (x->wanted != s->issued + 1 && !x->coming && !x->copying) {
            uint32_t gone = x->queued + x->leaving, here = x->res - (gone < x->res ? gone : x->res);
            uint32_t n = here < need ? here : (uint32_t)need;
            bool idle = x->busy <= s->finished;
            if (!idle) /* its turn comes when its op is done: others need not go instead */
                here = UINT32_MAX;
            else if (n)
                vm_sim_ask_out(s, e.unit, n, VM_NONE);
            need -= n;
            found = found || (n && idle);
            if (n == here)
                continue;
        }
        if (s->nkept == s->cap_kept) {
            size_t cap = s->cap_kept ? 2 * s->cap_kept : 64;
            struct vm_use_entry *p = realloc(s->kept, cap * sizeof *p);
            if (!p) {
                s->failed = true;
                return false;
            }
            s->kept = p;
            s->cap_kept = cap;
        }
        s->kept[s->nkept++] = e;
    }
    for (size_t i = 0; i < s->nkept; i++)
        if (vm_use_heap_push(&s->heap, s->kept[i].key, s->kept[i].unit, s->kept[i].stamp))
            s->failed = true;
    if (found)
        vm_sim_kick(s);
    return found;
}

/* Pages on their way out. */
static uint64_t leaving(const struct vm_sim *s)
{
    uint64_t n = s->parked + s->out_soon;

    if (s->eo.busy && !vm_sim_stays(s, s->eo.job.move))
        n += s->eo.job.npages;
    for (size_t i = s->out.head; i < s->out.tail; i++)
        n += vm_sim_stays(s, s->out.r[i].move) ? 0 : s->out.r[i].npages;
    for (size_t i = s->out_done.head; i < s->out_done.tail; i++)
        n += vm_sim_stays(s, s->out_done.d[i].move) ? 0 : s->out_done.d[i].npages;
    return n;
}

/* After an op: pages that used longest ago leave in time, so that some are always free. */
static void keep_float(struct vm_sim *s)
{
    uint64_t soon = vm_sim_at_hand(s) + leaving(s), dead = s->m->unmap_waits ? s->dead_pages : 0;

    if (soon >= s->opt.float_pages)
        return;
    uint64_t need = s->opt.float_pages - soon;
    s->dead_due = dead < need ? dead : need;
    if (need > s->dead_due)
        evict(s, need - s->dead_due);
}

/* Free chunks that the op's own pages leave over. */
static uint64_t left_over(const struct vm_sim *s)
{
    uint64_t there = vm_sim_at_hand(s);

    return there - pages_asked(&s->urgent, there);
}

/* Of those, the ones that fetches of the schedule will take. */
static uint64_t spoken_for(const struct vm_sim *s)
{
    return s->stuck ? 0 : pages_asked(&s->in, left_over(s));
}

/* Chunks that the op the host stands before lacks: for its own pages that are away and for new contents. */
static uint64_t missing(const struct vm_sim *s)
{
    uint64_t own = pages_asked(&s->urgent, UINT64_MAX), there = vm_sim_at_hand(s);
    uint64_t left = left_over(s) - spoken_for(s);

    return (own > there ? own - there : 0) + (s->room > left ? s->room - left : 0);
}

/* Sees to it that enough is leaving: dead pages for all who wait, contents only for the op itself. False: chunks
 * are missing and nothing leaves. */
static bool send_away(struct vm_sim *s)
{
    uint64_t lack = missing(s), coming = leaving(s) + spoken_for(s);
    uint64_t all = lack + pages_asked(&s->in, UINT64_MAX);
    uint64_t dead = s->let_go + (s->m->unmap_waits ? s->dead_pages : 0); /* else those are at hand */

    if (!lack)
        return true;
    dead -= s->stuck ? 0 : s->own_dead;
    s->dead_due = all > coming ? all - coming : 0;
    if (s->dead_due > dead)
        s->dead_due = dead;
    if (lack > coming + s->dead_due)
        evict(s, lack - coming - s->dead_due);
    return s->dead_due || leaving(s) || s->finished < s->issued; /* what an op in progress uses goes later */
}

/* ---- where unmapping waits for the device -----------------------------------------------------*/

/* The device rests: what has left is unmapped, and the dead pages that are due. Copies in flight are waited for. */
static void rest(struct vm_sim *s)
{
    vm_sim_cut_in(s);
    s->held |= s->ei.busy;
    s->blocked = true;
    while (vm_sim_end_copy(s, VM_SIM_NEVER))
        vm_sim_kick(s);
    s->blocked = false;
    vm_sim_account(s);
    if (s->host < s->now)
        s->host = s->now;
    vm_sim_unmap_parked(s);
    vm_sim_reclaim(s, s->dead_due, s->stuck);
    s->dead_due = 0;
    vm_sim_account(s);
}

/* May a rest of so many ns wait for the copies in flight? */
static bool is_patient(const struct vm_sim *s, double patience_ns)
{
    double bytes = s->eo.busy ? (double)s->eo.job.npages * (double)s->u->page_bytes : 0;
    double in = s->ei.busy ? s->ei.rem_bytes : 0, most = VM_FLIGHTS * (double)s->u->page_bytes;

    bytes += in < most ? in : most;
    return bytes / s->m->in_bps * 1e9 <= patience_ns;
}

static bool is_pager_busy(const struct vm_sim *s)
{
    return s->parked || s->dead_due || s->moves_soon || s->eo.busy || s->ei.busy || s->out.head < s->out.tail ||
           s->in.head < s->in.tail || s->out_done.head < s->out_done.tail ||
           s->in_done.head < s->in_done.tail;
}

/* Before op k: once so much is issued, the host lets the device come to rest while there is anything to move. */
static void rest_between(struct vm_sim *s, uint32_t k)
{
    double limit = (double)VM_AHEAD_NS, patience = (double)s->u->dur_ns[k] / 20;

    if (s->opt.window_ns > 0 && s->opt.window_ns < limit)
        limit = s->opt.window_ns;
    if (s->ahead_ns + (double)s->u->dur_ns[k] < limit)
        return;
    while (is_pager_busy(s) && s->finished < s->issued && vm_sim_step(s, VM_SIM_NEVER))
        ;
    if (s->finished < s->issued)
        return;
    s->ahead_ns = 0;
    if (s->host < s->now)
        s->host = s->now;
    if (is_patient(s, patience))
        rest(s);
    s->held = false;
    vm_sim_kick(s);
    uint64_t asked = pages_asked(&s->in, VM_RECYCLE_MOST), coming = leaving(s);
    if (s->free_pages || asked <= coming || !s->dead_pages)
        return;
    s->dead_due = asked - coming < s->dead_pages ? asked - coming : s->dead_pages;
    if (!is_patient(s, patience))
        return;
    rest(s);
    s->held = false;
    vm_sim_kick(s);
}

/* Op k lacks chunks, the device has nothing to do: unmaps, unless what leaves now is lacking too, or its own pages
 * come. */
static bool rest_for_room(struct vm_sim *s)
{
    uint64_t there = s->parked + s->dead_due;
    bool more = s->eo.busy || s->out.head < s->out.tail;

    if (!s->m->unmap_waits || s->out_done.head < s->out_done.tail || s->in_done.head < s->in_done.tail ||
        (s->ei.busy && s->ei.urgent))
        return false;
    if (s->finished < s->issued || !there || (missing(s) > there + spoken_for(s) && more)) {
        if (s->held) {
            s->held = false;
            vm_sim_kick(s);
        }
        return false;
    }
    uint64_t before = s->free_pages;
    rest(s);
    bool gained = s->free_pages > before;
    vm_sim_kick(s);
    return gained;
}

/* Op k waits until all it needs is there. False: it never will be, or out of memory. */
static bool wait_for_pages(struct vm_sim *s, uint32_t k)
{
    bool waited = false;

    s->stuck = false;
    for (; !ready(s, k); waited = true) {
        if (s->failed)
            return false;
        if (s->m->unmap_waits && s->waiting_room && vm_sim_cut_in(s))
            continue;
        if (!s->stuck && s->waiting_room && s->finished == s->issued && left_over(s) >= s->room) {
            s->stuck = true; /* there are chunks enough, though pages that come back later want them */
            continue;
        }
        vm_sim_kick(s);
        if (!send_away(s) && !s->stuck) {
            s->stuck = !vm_sim_step(s, s->host); /* fetches take first what the host has just unmapped */
            continue;
        }
        if (rest_for_room(s) || vm_sim_step(s, VM_SIM_NEVER))
            continue;
        if (s->stuck)
            return false;
        s->stuck = true;
    }
    s->stuck = s->waiting_room = s->held = false;
    if (waited && s->finished == s->issued)
        s->ahead_ns = 0;
    return true;
}

/* Contents of ops far ahead would take room that returning pages need sooner. */
static void hold_back(struct vm_sim *s)
{
    double until = s->last_end - s->opt.window_ns;

    if (!(s->opt.window_ns > 0))
        return;
    while (s->finished < s->issued && until > (s->host > s->now ? s->host : s->now) && vm_sim_step(s, until))
        ;
    if (s->finished < s->issued && s->host < until)
        s->host = until;
}

static bool run_op(struct vm_sim *s, uint32_t k)
{
    s->waiting_op = s->issued;
    while (vm_sim_step(s, s->host))
        ;
    while (s->issued - s->finished >= VM_SIM_RUN_AHEAD - 1 && vm_sim_step(s, VM_SIM_NEVER))
        ;
    if (!s->m->unmap_waits)
        hold_back(s);
    else if (s->opt.knows_dead) /* there is a plan */
        rest_between(s, k);
    if (!wait_for_pages(s, k))
        return false;
    issue(s, k);
    vm_sim_kick(s);
    if (s->opt.float_pages)
        keep_float(s);
    while ((s->u->op_flags[k] & VM_OPF_WAITED) && s->finished < s->issued && vm_sim_step(s, VM_SIM_NEVER))
        ;
    return !s->failed;
}

/* ---- set-up ---------------------------------------------------------------------------------*/

static int sim_run(struct vm_sim *s, struct vm_sim_result *res)
{
    unsigned max = s->opt.max_iterations ? s->opt.max_iterations : 8;
    double before = 0, period = 0, earlier = 0, earliest = 0;

    memset(res, 0, sizeof *res);
    for (uint32_t k = 0; k < s->nops; k++)
        res->compute_ns += (double)s->u->dur_ns[k];
    for (unsigned it = 0; it < max; it++) {
        s->out_pages = s->in_pages = s->demand_pages = s->peak = 0;
        s->area = 0;
        s->area_at = s->now;
        s->iter_start = s->last_end;
        double area_start = s->now;
        if (s->out_done_ns)
            memset(s->out_done_ns, 0, s->nmoves * sizeof *s->out_done_ns);
        for (uint32_t k = 0; k < s->nops; k++)
            if (!run_op(s, k))
                return s->failed ? VM_ENOMEM : VM_UNFIT;
        earliest = earlier;
        earlier = period;
        period = s->last_end - before;
        before = s->last_end;
        res->out_pages = s->out_pages;
        res->in_pages = s->in_pages;
        res->demand_pages = s->demand_pages;
        res->peak_pages = s->peak;
        res->avg_pages = s->now > area_start ? s->area / (s->now - area_start) : 0;
        res->iterations = it + 1;
        if (it && s->opt.limit_ns > 0 && period > s->opt.limit_ns)
            break;
        double d = period - earlier;
        if (it >= 2 && d < 5e-4 * period && d > -5e-4 * period)
            break;
    }
    res->iteration_ns = period;
    if (res->iterations == max && max >= 4) /* not steady: what a run would measure is a mean */
        res->iteration_ns = (period + earlier + earliest) / 3;
    return VM_OK;
}

int vm_simulate(const struct vm_page_units *u, const struct vm_machine *m,
                const struct vm_move *moves, size_t nmoves, const struct vm_sim_options *opt,
                struct vm_sim_result *res, double *start_ns, double *out_done_ns)
{
    struct vm_sim s = {.u = u, .m = m, .moves = moves, .nmoves = nmoves, .opt = *opt};
    struct vm_sim_result r;

    s.start_ns = start_ns;
    s.out_done_ns = out_done_ns;
    s.capacity = capacity_of(u, m, opt);
    if (!(m->out_bps > 0) || !(m->in_bps > 0) || !u->page_bytes)
        return VM_EINVAL;
    if (!s.opt.batch_pages)
        s.opt.batch_pages = m->unmap_waits ? vm_run_pages(u->page_bytes, true) : VM_COPY_PAGES;
    if (vm_page_units_work(u, NULL) > s.capacity)
        return VM_UNFIT;
    int rc = vm_sim_init(&s);
    if (!rc && u->nops)
        rc = sim_run(&s, &r);
    else if (!rc)
        memset(&r, 0, sizeof r);
    vm_sim_fini(&s);
    if (!rc)
        *res = r;
    return rc;
}
