#include "simulate.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

#define RUN_AHEAD 1024u /* ops a host may have issued that the device has not finished */
#define IDLE DBL_MAX

static uint64_t capacity_of(const struct vm_page_units *u, const struct vm_machine *m,
                            const struct vm_sim_options *opt)
{
    return opt->capacity_pages ? opt->capacity_pages : m->device_bytes / u->page_bytes;
}

/* ---- queues ---------------------------------------------------------------------------------*/

static void push(struct vm_sim *s, struct vm_sim_requests *q, struct vm_sim_request r)
{
    if (vm_sim_requests_push(q, r))
        s->failed = true;
}

static void push_done(struct vm_sim *s, struct vm_sim_dones *q, struct vm_sim_done d)
{
    if (vm_sim_dones_push(q, d))
        s->failed = true;
}

/* ---- engines --------------------------------------------------------------------------------*/

static double rate(const struct vm_sim *s, bool out)
{
    bool both = s->eo.busy && s->ei.busy;

    if (out)
        return both && s->m->out_duplex_bps > 0 ? s->m->out_duplex_bps : s->m->out_bps;
    return both && s->m->in_duplex_bps > 0 ? s->m->in_duplex_bps : s->m->in_bps;
}

static double engine_end(const struct vm_sim *s, bool out)
{
    const struct vm_sim_engine *e = out ? &s->eo : &s->ei;

    if (!e->busy)
        return IDLE;
    return s->now + e->fixed_ns + e->rem_bytes / rate(s, out) * 1e9;
}

static void progress(struct vm_sim *s, bool out, double dt)
{
    struct vm_sim_engine *e = out ? &s->eo : &s->ei;

    if (!e->busy)
        return;
    double lat = dt < e->fixed_ns ? dt : e->fixed_ns;
    e->fixed_ns -= lat;
    e->rem_bytes -= (dt - lat) * rate(s, out) * 1e-9;
    if (e->rem_bytes < 0)
        e->rem_bytes = 0;
}

static void advance_to(struct vm_sim *s, double t)
{
    if (t > s->now) {
        progress(s, true, t - s->now);
        progress(s, false, t - s->now);
        vm_sim_account(s);
        s->now = t;
    }
}

static void start_copy(struct vm_sim *s, struct vm_sim_engine *e, struct vm_sim_request job)
{
    e->busy = true;
    e->rem_bytes = (double)job.npages * (double)s->u->page_bytes;
    e->fixed_ns = s->m->copy_latency_ns;
    e->job = job;
}

/* Is that a copy whose pages stay? */
static bool stays(const struct vm_sim *s, uint32_t move)
{
    return move != VM_NONE && s->moves[move].kind == VM_ACT_COPY;
}

/* Begins to copy pages that stay, unless an op was issued that uses them: that ends the wait for it. */
static void start_stay(struct vm_sim *s, struct vm_sim_request *r)
{
    struct vm_sim_unit *x = &s->su[r->unit];
    uint32_t dirty = s->u->units[r->unit].npages - x->clean, end = x->res - x->leaving;
    struct vm_sim_request job = *r;

    end = end < dirty ? end : dirty;
    job.npages = r->npages < end ? r->npages : end;
    if (x->use != r->use || x->dead || x->coming || !job.npages) {
        s->out.head++;
        return;
    }
    if (job.npages > s->opt.batch_pages)
        job.npages = s->opt.batch_pages;
    x->copying = s->u->units[r->unit].npages - end + job.npages;
    r->npages -= job.npages;
    start_copy(s, &s->eo, job);
}

static void start_out(struct vm_sim *s)
{
    while (!s->eo.busy && s->out.head < s->out.tail) {
        struct vm_sim_request *r = &s->out.r[s->out.head];
        struct vm_sim_unit *x = &s->su[r->unit];
        if (x->copying)
            return; /* the host has not seen yet that it is done */
        if (stays(s, r->move)) {
            start_stay(s, r);
            continue;
        }
        uint32_t can = x->res - x->leaving;
        uint32_t n = r->npages < can ? r->npages : can;
        if (x->use != r->use || x->dead || x->coming || !n) {
            x->queued -= r->npages;
            s->out.head++;
            continue;
        }
        uint32_t total = s->u->units[r->unit].npages;
        uint32_t top = x->res - x->leaving; /* pages [top - n, top) go next */
        uint32_t dirty_end = total - x->clean;
        struct vm_sim_request job = *r;
        if (top > dirty_end) { /* a valid copy exists: only unmap */
            job.npages = top - dirty_end < n ? top - dirty_end : n;
            x->leaving += job.npages;
            x->queued -= job.npages;
            r->npages -= job.npages;
            push_done(s, &s->out_done,
                      (struct vm_sim_done){s->now, job.unit, job.npages, job.move});
            continue;
        }
        job.npages = n < s->opt.batch_pages ? n : s->opt.batch_pages;
        x->leaving += job.npages;
        x->queued -= job.npages;
        r->npages -= job.npages;
        start_copy(s, &s->eo, job);
    }
}

/* Room for a fetch: while the host stands before an op that lacks chunks for new contents, a later
 * op's fetch must not take them. */
static bool may_fetch(const struct vm_sim *s, const struct vm_sim_request *r)
{
    return !s->waiting_room || r->need <= s->waiting_op;
}

static void start_in(struct vm_sim *s)
{
    while (!s->ei.busy) {
        struct vm_sim_requests *q = s->urgent.head < s->urgent.tail ? &s->urgent : &s->in;
        if (q->head == q->tail)
            return;
        struct vm_sim_request *r = &q->r[q->head];
        struct vm_sim_unit *x = &s->su[r->unit];
        uint32_t total = s->u->units[r->unit].npages;
        uint32_t lack = x->dead ? 0 : total - x->res - x->coming;
        uint32_t n = r->npages < lack ? r->npages : lack;
        if (x->leaving || (x->queued && x->use != r->use))
            return; /* its last pages are still on their way out */
        if (!n || r->need < s->issued) {
            if (q == &s->in)
                x->asked -= r->npages;
            q->head++;
            continue;
        }
        if (!x->res && !x->coming)
            vm_sim_clear_place(s, r->unit);
        uint64_t room = vm_sim_at_hand(s);
        if (!room || !may_fetch(s, r))
            return;
        if (n > room)
            n = (uint32_t)room;
        if (n > s->opt.batch_pages)
            n = s->opt.batch_pages;
        vm_sim_take(s, n);
        struct vm_sim_request job = *r;
        job.npages = n;
        r->npages -= n;
        if (q == &s->in)
            x->asked -= n;
        else if (x->asked >= n) /* the schedule would have fetched them, if a little later */
            job.move = 0;
        x->coming += n;
        start_copy(s, &s->ei, job);
        vm_sim_account(s);
    }
}

static void kick(struct vm_sim *s)
{
    start_out(s);
    start_in(s);
}

/* ---- events ---------------------------------------------------------------------------------*/

static void unmap_parked(struct vm_sim *s)
{
    s->host += (double)s->parked * s->m->unmap_ns;
    s->free_pages += s->parked;
    s->parked = 0;
}

static void finish_out(struct vm_sim *s)
{
    struct vm_sim_done d = s->out_done.d[s->out_done.head++];
    struct vm_sim_unit *x = &s->su[d.unit];
    uint32_t total = s->u->units[d.unit].npages;

    if (s->out_done_ns && d.move != VM_NONE)
        s->out_done_ns[d.move] = d.at - s->iter_start;
    if (stays(s, d.move)) {
        x->clean = x->copying > x->clean ? x->copying : x->clean;
        x->copying = 0;
        return;
    }
    vm_sim_account(s);
    x->leaving -= d.npages;
    x->res -= d.npages;
    if (x->clean < total - x->res)
        x->clean = total - x->res;
    s->parked += d.npages;
    if (!s->m->unmap_waits)
        unmap_parked(s);
    vm_sim_account(s);
}

/* A unit that came back before its use may be a victim again, though the last resort. */
static void enlist(struct vm_sim *s, uint32_t unit)
{
    const struct vm_page_unit *un = &s->u->units[unit];
    struct vm_sim_unit *x = &s->su[unit];
    unsigned wraps;
    uint32_t next = x->use == VM_NONE ? un->use : vm_page_next_use(s->u, un, x->use, &wraps);

    if (next == VM_NONE || (un->flags & VM_UNIT_PINNED))
        return;
    uint64_t ahead = (s->u->uses[next].op + s->nops - s->issued % s->nops) % s->nops;
    uint64_t key = s->opt.rule == VM_DEMAND_LRU ? UINT64_MAX - s->issued : s->issued + ahead;
    if (vm_use_heap_push(&s->heap, key, unit, ++x->stamp))
        s->failed = true;
}

static void finish_in(struct vm_sim *s)
{
    struct vm_sim_done d = s->in_done.d[s->in_done.head++];
    struct vm_sim_unit *x = &s->su[d.unit];

    x->coming -= d.npages;
    x->res += d.npages;
    enlist(s, d.unit);
    s->host += d.npages * (s->m->map_ns + s->m->access_ns);
}

/* Pages that have a valid copy go at once: they do not wait for the copies of others. */
static void ask_out(struct vm_sim *s, uint32_t unit, uint32_t npages, uint32_t move)
{
    struct vm_sim_unit *x = &s->su[unit];
    uint32_t top = x->res - x->leaving, dirty_end = s->u->units[unit].npages - x->clean;
    uint32_t bare = top > dirty_end && !x->coming && !x->copying ? top - dirty_end : 0;

    bare = bare < npages ? bare : npages;
    if (bare) {
        x->leaving += bare;
        npages -= bare;
        push_done(s, &s->out_done, (struct vm_sim_done){s->now, unit, bare, move});
    }
    if (!npages)
        return;
    push(s, &s->out, (struct vm_sim_request){unit, npages, s->su[unit].use, move, 0});
    s->su[unit].queued += npages;
}

static void op_finished(struct vm_sim *s)
{
    uint64_t abs = s->finished++;
    uint32_t k = (uint32_t)(abs % s->nops);

    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct vm_sim_unit *x = &s->su[ref.unit];
        if (x->use != ref.use || x->busy != abs + 1)
            continue;
        bool ends = !(un->flags & VM_UNIT_CYCLIC) && ref.use == un->use + un->nuses - 1;
        if (ends || (s->opt.knows_dead && !(un->flags & VM_UNIT_PINNED) &&
                     !(s->u->uses[ref.use].flags & VM_PU_LIVE_AFTER)))
            vm_sim_bury(s, ref.unit);
    }
    for (uint32_t i = s->move_first[k]; i < s->move_first[k + 1]; i++) {
        const struct vm_move *mv = &s->moves[i];
        if (s->su[mv->unit].use != mv->use || s->su[mv->unit].dead)
            continue;
        if (mv->kind == VM_ACT_OUT)
            ask_out(s, mv->unit, mv->npages, i);
        else if (mv->kind == VM_ACT_COPY)
            push(s, &s->out, (struct vm_sim_request){mv->unit, mv->npages, mv->use, i, 0});
    }
}

/* Lets the next event happen. False when nothing is under way. */
static bool step(struct vm_sim *s, double until)
{
    double t_out = engine_end(s, true), t_in = engine_end(s, false);
    double t_op = IDLE, t_od = IDLE, t_id = IDLE;

    if (s->finished < s->issued)
        t_op = s->end_at[s->finished % RUN_AHEAD];
    if (s->out_done.head < s->out_done.tail)
        t_od = s->out_done.d[s->out_done.head].at;
    if (s->in_done.head < s->in_done.tail)
        t_id = s->in_done.d[s->in_done.head].at;
    /* what the host has to notice cannot happen before the host is free */
    double seen = t_op < t_od ? t_op : t_od;
    seen = t_id < seen ? t_id : seen;
    if (seen < s->host)
        seen = s->host;
    double copy = t_out < t_in ? t_out : t_in;
    double t = copy < seen ? copy : seen;
    if (t >= IDLE || t > until)
        return false;
    advance_to(s, t);
    if (copy <= seen) {
        struct vm_sim_engine *e = t_out <= t_in ? &s->eo : &s->ei;
        struct vm_sim_done d = {t, e->job.unit, e->job.npages, e->job.move};
        e->busy = false;
        if (e == &s->eo) {
            s->out_pages += d.npages;
            s->demand_pages += e->job.move == VM_NONE ? d.npages : 0;
            push_done(s, &s->out_done, d);
        } else {
            s->in_pages += d.npages;
            s->demand_pages += e->job.move == VM_NONE ? d.npages : 0;
            push_done(s, &s->in_done, d);
        }
    } else {
        if (s->host < t)
            s->host = t;
        if (t_id <= t_op && t_id <= t_od)
            finish_in(s);
        else if (t_od <= t_op)
            finish_out(s);
        else
            op_finished(s);
    }
    kick(s);
    return true;
}

/* ---- the host thread ------------------------------------------------------------------------*/

static bool needs_contents(const struct vm_sim *s, const struct vm_page_unit *un, uint32_t use)
{
    if (use > un->use)
        return (s->u->uses[use - 1].flags & VM_PU_LIVE_AFTER) != 0;
    return (un->flags & VM_UNIT_CYCLIC) &&
           (s->u->uses[un->use + un->nuses - 1].flags & VM_PU_LIVE_AFTER);
}

/* Is everything op k needs there, or can it be had at once? Asks for what is missing. */
static bool ready(struct vm_sim *s, uint32_t k)
{
    uint64_t room = 0;
    bool ok = true;

    s->urgent.head = s->urgent.tail = 0;
    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct vm_sim_unit *x = &s->su[ref.unit];
        x->wanted = s->issued + 1;
        if (needs_contents(s, un, ref.use) && !x->dead) {
            x->use = ref.use; /* takes back what is queued to leave */
            ok = ok && !x->copying;
            if (x->res == un->npages && !x->leaving)
                continue;
            ok = false;
            uint32_t lack = un->npages - x->res - x->coming;
            if (x->leaving || lack)
                push(s, &s->urgent,
                     (struct vm_sim_request){ref.unit, lack + x->leaving, ref.use, VM_NONE, s->issued});
        } else {
            if (x->leaving || x->coming || x->copying)
                ok = false;
            x->use = ref.use;
            room += un->npages - x->res - vm_sim_inherited(s, ref.unit);
        }
    }
    s->room = room;
    s->waiting_room = vm_sim_at_hand(s) < room;
    return ok && !s->waiting_room;
}

static bool is_current(void *arg, const struct vm_use_entry *e)
{
    const struct vm_sim *s = arg;
    return s->su[e->unit].stamp == e->stamp && s->su[e->unit].res;
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
        x->busy = s->issued + 1;
        if (s->u->uses[ref.use].flags & VM_PU_WRITE)
            x->clean = 0;
        uint32_t next = vm_page_next_use(s->u, un, ref.use, &wraps);
        if (next == VM_NONE)
            vm_sim_let_go(s, ref.unit);
        if (next == VM_NONE || (un->flags & VM_UNIT_PINNED))
            continue;
        uint64_t key;
        if (s->opt.rule == VM_DEMAND_LRU)
            key = UINT64_MAX - s->issued;
        else
            key = s->issued - k + s->u->uses[next].op + (wraps ? s->nops : 0);
        if (vm_use_heap_push(&s->heap, key, ref.unit, ++x->stamp))
            s->failed = true;
    }
    if (s->heap.n > 2 * s->u->nunits + 1024) /* stale entries must not outgrow the units */
        vm_use_heap_filter(&s->heap, is_current, s);
    double start = s->host > s->last_end ? s->host : s->last_end;
    s->last_end = start + (double)s->u->dur_ns[k];
    s->end_at[s->issued % RUN_AHEAD] = s->last_end;
    if (s->start_ns)
        s->start_ns[k] = start - s->iter_start;
    s->issued++;
    for (uint32_t i = s->move_first[k]; i < s->move_first[k + 1]; i++) {
        const struct vm_move *mv = &s->moves[i];
        if (mv->kind != VM_ACT_IN)
            continue;
        s->su[mv->unit].asked += mv->npages;
        push(s, &s->in,
             (struct vm_sim_request){mv->unit, mv->npages, mv->use, i, s->issued - 1 - k + mv->need_op});
    }
}

/* Pages that op k lacks beyond those that are free. */
static uint64_t shortage(const struct vm_sim *s, uint32_t k)
{
    uint64_t lack = 0, room = s->free_pages + s->parked + s->dead_pages;

    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        uint32_t unit = s->u->refs[r].unit;
        lack += s->u->units[unit].npages - s->su[unit].res;
    }
    return lack > room ? lack - room : 1;
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
        if (x->wanted != s->issued + 1 && x->busy <= s->finished && !x->leaving && !x->coming &&
            !x->copying) {
            uint32_t here = x->res - (x->queued < x->res ? x->queued : x->res);
            uint32_t n = here < need ? here : (uint32_t)need;
            if (n)
                ask_out(s, e.unit, n, VM_NONE);
            need -= n;
            found = found || n;
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
        kick(s);
    return found;
}

/* Nothing under way will make room: evict what the rule names. */
static bool demand(struct vm_sim *s, uint32_t k)
{
    return evict(s, shortage(s, k));
}

/* After an op: pages that used longest ago leave in time, so that some are always free. */
static void keep_float(struct vm_sim *s)
{
    uint64_t soon = s->free_pages + s->dead_pages + s->parked;

    if (s->eo.busy)
        soon += s->eo.job.npages;
    for (size_t i = s->out.head; i < s->out.tail && soon < s->opt.float_pages; i++)
        soon += s->out.r[i].npages;
    if (soon < s->opt.float_pages)
        evict(s, s->opt.float_pages - soon);
}

/* ---- where unmapping waits for the device -----------------------------------------------------*/

static uint64_t pages_asked(const struct vm_sim_requests *q)
{
    uint64_t n = 0;

    for (size_t i = q->head; i < q->tail && n < VM_RECYCLE_MOST; i++)
        n += q->r[i].npages;
    return n;
}

/* The device rests: what has left is unmapped, and as many dead pages as `wanted` chunks still take. */
static void rest(struct vm_sim *s, uint64_t wanted)
{
    vm_sim_account(s);
    if (s->host < s->now)
        s->host = s->now;
    unmap_parked(s);
    if (wanted > s->free_pages)
        vm_sim_reclaim(s, wanted - s->free_pages);
    vm_sim_account(s);
    kick(s);
}

/* Before op k: once the host is a little ahead, it lets the device come to rest if there is something
 * to unmap that somebody waits for. */
static void rest_between(struct vm_sim *s, uint32_t k)
{
    double ahead = s->last_end - (s->host > s->now ? s->host : s->now);
    double limit = (double)VM_AHEAD_NS;
    uint64_t wanted = pages_asked(&s->in);

    if (s->opt.window_ns > 0 && s->opt.window_ns < limit)
        limit = s->opt.window_ns;
    if (ahead + (double)s->u->dur_ns[k] < limit || (!s->parked && (!wanted || !s->dead_pages)))
        return;
    while (s->finished < s->issued && step(s, IDLE))
        ;
    rest(s, wanted);
}

/* Op k lacks chunks, the device has nothing to do: unmaps, unless what leaves now is lacking too. */
static bool rest_for_room(struct vm_sim *s)
{
    uint64_t wanted = s->room + pages_asked(&s->urgent), there = s->free_pages;

    if (!s->m->unmap_waits || s->finished < s->issued || wanted <= there || !(s->parked + s->dead_pages) ||
        (there + s->parked + s->dead_pages < wanted && s->eo.busy))
        return false;
    bool parked = s->parked > 0;
    uint64_t dead = s->dead_pages;
    rest(s, wanted);
    return parked || s->dead_pages < dead; /* dead pages at the op's own place stay there */
}

static bool run_op(struct vm_sim *s, uint32_t k)
{
    s->waiting_op = s->issued;
    while (step(s, s->host))
        ;
    while (s->issued - s->finished >= RUN_AHEAD - 1 && step(s, IDLE))
        ;
    /* contents of ops far ahead would take room that returning pages need sooner */
    while (s->opt.window_ns > 0 && s->finished < s->issued &&
           s->last_end - s->opt.window_ns > (s->host > s->now ? s->host : s->now) &&
           step(s, s->last_end - s->opt.window_ns))
        ;
    if (s->opt.window_ns > 0 && s->finished < s->issued && s->host < s->last_end - s->opt.window_ns)
        s->host = s->last_end - s->opt.window_ns;
    if (s->m->unmap_waits && s->opt.knows_dead) /* without a plan nobody knows how far ahead the host is */
        rest_between(s, k);
    while (!ready(s, k)) {
        if (s->failed)
            return false;
        kick(s);
        if (!rest_for_room(s) && !step(s, IDLE) && !demand(s, k))
            return false;
    }
    s->waiting_room = false;
    issue(s, k);
    kick(s);
    if (s->opt.float_pages)
        keep_float(s);
    return !s->failed;
}

/* ---- set-up ---------------------------------------------------------------------------------*/

static int sim_init(struct vm_sim *s)
{
    const struct vm_page_units *u = s->u;

    s->nops = (uint32_t)u->nops;
    s->su = calloc(u->nunits + 1, sizeof *s->su);
    s->owner = malloc((u->npages + 1) * sizeof *s->owner);
    s->grave_cap = 1024;
    s->graveyard = malloc(s->grave_cap * sizeof *s->graveyard);
    s->end_at = malloc(RUN_AHEAD * sizeof *s->end_at);
    s->move_first = calloc(u->nops + 2, sizeof *s->move_first);
    if (!s->su || !s->owner || !s->graveyard || !s->end_at || !s->move_first)
        return VM_ENOMEM;
    memset(s->owner, 0xff, (u->npages + 1) * sizeof *s->owner);
    for (size_t i = 0; i < s->nmoves; i++) {
        if (s->moves[i].op >= u->nops || s->moves[i].unit >= u->nunits ||
            (i && s->moves[i].op < s->moves[i - 1].op))
            return VM_EINVAL;
        s->move_first[s->moves[i].op + 1]++;
    }
    for (size_t k = 0; k < u->nops; k++)
        s->move_first[k + 1] += s->move_first[k];
    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        s->su[i].use = VM_NONE;
        s->su[i].clean = un->npages;
        if (!un->nuses && (un->flags & VM_UNIT_PINNED))
            s->free_pages += un->npages; /* taken below */
    }
    uint64_t pinned = s->free_pages;
    if (pinned > s->capacity)
        return VM_UNFIT;
    s->free_pages = s->capacity - pinned;
    return VM_OK;
}

static void sim_fini(struct vm_sim *s)
{
    free(s->su);
    free(s->owner);
    free(s->graveyard);
    free(s->end_at);
    free(s->move_first);
    free(s->out.r);
    free(s->in.r);
    free(s->urgent.r);
    free(s->out_done.d);
    free(s->in_done.d);
    free(s->kept);
    vm_use_heap_fini(&s->heap);
}

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
    if (!s.opt.batch_pages)
        s.opt.batch_pages = VM_COPY_PAGES;
    if (!(m->out_bps > 0) || !(m->in_bps > 0) || !u->page_bytes)
        return VM_EINVAL;
    if (vm_page_units_work(u, NULL) > s.capacity)
        return VM_UNFIT;
    int rc = sim_init(&s);
    if (!rc && u->nops)
        rc = sim_run(&s, &r);
    else if (!rc)
        memset(&r, 0, sizeof r);
    sim_fini(&s);
    if (!rc)
        *res = r;
    return rc;
}
