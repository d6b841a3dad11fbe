/* What happens in the plan simulator as time passes: copies begin and end, ops end, and the host does what follows
 * from that (sim_state.h). */
#include <limits.h>

#include "sim_state.h"

/* ---- queues ---------------------------------------------------------------------------------*/

void vm_sim_push(struct vm_sim *s, struct vm_sim_requests *q, struct vm_sim_request r)
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
        return VM_SIM_NEVER;
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

/* A busy host starts no copies but those it has issued already. */
static bool may_start(const struct vm_sim *s, const struct vm_sim_engine *e)
{
    return e->queued || (!s->blocked && s->host <= s->now);
}

/* host_ns: what the host does before it can issue the copy; an engine that has work does not wait for it. */
static void start_copy(struct vm_sim *s, struct vm_sim_engine *e, struct vm_sim_request job, double host_ns)
{
    bool idle = s->now > e->ended;

    e->busy = true;
    e->begun = s->now;
    e->rem_bytes = (double)job.npages * (double)s->u->page_bytes;
    e->fixed_ns = s->m->copy_latency_ns;
    e->job = job;
    if (s->blocked || s->host > s->now) {
        e->queued--;
    } else {
        e->queued = e->urgent ? UINT_MAX : VM_FLIGHTS - 1;
        e->fixed_ns += idle ? host_ns : 0;
    }
    s->host = (s->host > s->now ? s->host : s->now) + host_ns;
}

double vm_sim_protect_ns(const struct vm_sim *s, uint32_t npages)
{
    return npages * s->m->access_ns + s->m->access_call_ns;
}

bool vm_sim_stays(const struct vm_sim *s, uint32_t move)
{
    return move != VM_NONE && s->moves[move].kind == VM_ACT_COPY;
}

/* Begins to copy pages that stay, unless an op was issued that uses them: that ends the wait for it. False: the
 * host is busy. */
static bool start_stay(struct vm_sim *s, struct vm_sim_request *r)
{
    struct vm_sim_unit *x = &s->su[r->unit];
    uint32_t dirty = s->u->units[r->unit].npages - x->clean, end = x->res - x->leaving;
    struct vm_sim_request job = *r;

    end = end < dirty ? end : dirty;
    job.npages = r->npages < end ? r->npages : end;
    if (x->use != r->use || x->dead || x->coming || !job.npages) {
        s->out.head++;
        return true;
    }
    if (!may_start(s, &s->eo))
        return false;
    if (job.npages > s->opt.batch_pages)
        job.npages = s->opt.batch_pages;
    x->copying = s->u->units[r->unit].npages - end + job.npages;
    r->npages -= job.npages;
    start_copy(s, &s->eo, job, vm_sim_protect_ns(s, job.npages));
    return true;
}

static void start_out(struct vm_sim *s)
{
    while (!s->eo.busy && s->out.head < s->out.tail) {
        struct vm_sim_request *r = &s->out.r[s->out.head];
        struct vm_sim_unit *x = &s->su[r->unit];
        if (x->copying)
            return; /* the host has not seen yet that it is done */
        if (vm_sim_stays(s, r->move)) {
            if (!start_stay(s, r))
                return;
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
            x->reseals = true;
            x->leaving += job.npages;
            x->queued -= job.npages;
            r->npages -= job.npages;
            push_done(s, &s->out_done,
                      (struct vm_sim_done){s->now, s->now, job.unit, job.npages, job.move});
            continue;
        }
        if (!may_start(s, &s->eo))
            return;
        job.npages = n < s->opt.batch_pages ? n : s->opt.batch_pages;
        x->leaving += job.npages;
        x->queued -= job.npages;
        r->npages -= job.npages;
        start_copy(s, &s->eo, job, vm_sim_protect_ns(s, job.npages));
    }
}

/* Fetches take chunks before an op's new contents do: the schedule counted on them. But not for ever, and not before
 * the host has looked what the op can take of those that it unmapped. */
static bool may_fetch(const struct vm_sim *s, const struct vm_sim_request *r)
{
    if (s->held && s->urgent.head == s->urgent.tail)
        return false;
    return !s->waiting_room || !s->stuck || r->need <= s->waiting_op;
}

/* Pages that a copy of the schedule fetches at most: no more than are in flight where the op that waits can take what
 * they leave. */
static uint32_t planned_most(const struct vm_sim *s)
{
    return s->m->unmap_waits && s->waiting_room ? VM_FLIGHTS : s->opt.batch_pages;
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
        if (q == &s->in && s->stuck) /* the op has taken its own */
            room -= room < s->room ? room : s->room;
        if (!room || !may_fetch(s, r) || !may_start(s, &s->ei))
            return;
        if (n > room)
            n = (uint32_t)room;
        s->ei.urgent = q == &s->urgent; /* the op's own are issued all at once */
        if (n > planned_most(s) && !(s->ei.urgent && s->m->unmap_waits))
            n = planned_most(s);
        vm_sim_take(s, n);
        struct vm_sim_request job = *r;
        job.npages = n;
        r->npages -= n;
        if (q == &s->in)
            x->asked -= n;
        else if (x->asked >= n) /* the schedule would have fetched them, if a little later */
            job.move = 0;
        x->coming += n;
        start_copy(s, &s->ei, job, 0);
        vm_sim_account(s);
    }
}

bool vm_sim_cut_in(struct vm_sim *s)
{
    struct vm_sim_engine *e = &s->ei;
    double page = (double)s->u->page_bytes, spare = e->rem_bytes - VM_FLIGHTS * page;

    if (!e->busy || e->urgent)
        return false;
    e->queued = 0;
    if (spare < page)
        return false;
    struct vm_sim_request *r = &s->in.r[s->in.head]; /* nothing was taken from the queue since it began */
    uint32_t n = (uint32_t)(spare / page);
    vm_sim_account(s);
    e->rem_bytes -= n * page;
    e->job.npages -= n;
    r->npages += n;
    s->su[r->unit].coming -= n;
    s->su[r->unit].asked += n;
    s->free_pages += n;
    return true;
}

void vm_sim_kick(struct vm_sim *s)
{
    start_out(s);
    start_in(s);
    if (!s->eo.busy) /* what comes next is issued behind nothing */
        s->eo.queued = 0;
    if (!s->ei.busy)
        s->ei.queued = 0;
}

/* ---- events ---------------------------------------------------------------------------------*/

void vm_sim_unmap_parked(struct vm_sim *s)
{
    s->host += (double)s->parked * s->m->unmap_ns + s->parked_runs * s->m->unmap_call_ns;
    s->free_pages += s->parked;
    s->parked = s->parked_runs = 0;
}

static void finish_out(struct vm_sim *s)
{
    struct vm_sim_done d = s->out_done.d[s->out_done.head++];
    struct vm_sim_unit *x = &s->su[d.unit];
    uint32_t total = s->u->units[d.unit].npages;

    if (s->out_done_ns && d.move != VM_NONE)
        s->out_done_ns[d.move] = d.at - s->iter_start;
    if (vm_sim_stays(s, d.move)) {
        x->clean = x->copying > x->clean ? x->copying : x->clean;
        x->copying = 0;
        x->sealed = true;
        return;
    }
    vm_sim_account(s);
    x->leaving -= d.npages;
    x->res -= d.npages;
    x->sealed &= x->res > 0;
    if (x->clean < total - x->res)
        x->clean = total - x->res;
    s->parked_runs += !s->parked || s->parked_unit != d.unit;
    s->parked_unit = d.unit;
    s->parked += d.npages;
    if (!s->m->unmap_waits)
        vm_sim_unmap_parked(s);
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

/* Does the op write that the unit comes back for? */
static bool comes_to_write(const struct vm_sim *s, uint32_t unit)
{
    const struct vm_page_unit *un = &s->u->units[unit];
    const struct vm_sim_unit *x = &s->su[unit];
    uint32_t use = x->use;
    unsigned wraps;

    if (use == VM_NONE || x->wanted != (uint32_t)s->issued + 1)
        use = use == VM_NONE ? un->use : vm_page_next_use(s->u, un, use, &wraps);
    return use != VM_NONE && (s->u->uses[use].flags & VM_PU_WRITE);
}

/* The pages came one by one, and a host that was free since `free` has mapped all but the last. */
static void finish_in(struct vm_sim *s, double free)
{
    struct vm_sim_done d = s->in_done.d[s->in_done.head++];
    struct vm_sim_unit *x = &s->su[d.unit];
    double page_ns = s->m->map_ns + s->m->access_ns + s->m->access_call_ns;
    double first = d.begun + (d.at - d.begun) / d.npages, from = free > first ? free : first;

    x->coming -= d.npages;
    x->res += d.npages;
    x->sealed |= x->reseals && !comes_to_write(s, d.unit);
    enlist(s, d.unit);
    double end = from + d.npages * page_ns;
    s->host = end > s->host + page_ns ? end : s->host + page_ns;
}

void vm_sim_ask_out(struct vm_sim *s, uint32_t unit, uint32_t npages, uint32_t move)
{
    struct vm_sim_unit *x = &s->su[unit];
    uint32_t top = x->res - x->leaving, dirty_end = s->u->units[unit].npages - x->clean;
    uint32_t bare = top > dirty_end && !x->coming && !x->copying ? top - dirty_end : 0;

    bare = bare < npages ? bare : npages;
    if (bare) {
        x->reseals = true;
        x->leaving += bare;
        npages -= bare;
        push_done(s, &s->out_done, (struct vm_sim_done){s->now, s->now, unit, bare, move});
    }
    if (!npages)
        return;
    vm_sim_push(s, &s->out, (struct vm_sim_request){unit, npages, s->su[unit].use, move, 0});
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
        bool last = !(un->flags & VM_UNIT_CYCLIC) && ref.use == un->use + un->nuses - 1;
        if (last && vm_sim_lingers(s, un))
            continue;
        if (last || (s->opt.knows_dead && !(un->flags & VM_UNIT_PINNED) &&
                     !(s->u->uses[ref.use].flags & VM_PU_LIVE_AFTER)))
            vm_sim_bury(s, ref.unit);
    }
    for (uint32_t i = s->end_first[k]; i < s->end_first[k + 1]; i++)
        if (s->su[s->ends[i]].freed == abs + 1)
            vm_sim_bury(s, s->ends[i]);
    for (uint32_t i = s->move_first[k]; i < s->move_first[k + 1]; i++) {
        const struct vm_move *mv = &s->moves[i];
        s->out_soon -= mv->kind == VM_ACT_OUT ? mv->npages : 0;
        s->moves_soon -= mv->kind != VM_ACT_IN;
        if (s->su[mv->unit].use != mv->use || s->su[mv->unit].dead)
            continue;
        if (mv->kind == VM_ACT_OUT)
            vm_sim_ask_out(s, mv->unit, mv->npages, i);
        else if (mv->kind == VM_ACT_COPY)
            vm_sim_push(s, &s->out, (struct vm_sim_request){mv->unit, mv->npages, mv->use, i, 0});
    }
}

bool vm_sim_end_copy(struct vm_sim *s, double until)
{
    double t_out = engine_end(s, true), t_in = engine_end(s, false), t = t_out < t_in ? t_out : t_in;
    struct vm_sim_engine *e = t_out <= t_in ? &s->eo : &s->ei;

    if (t >= VM_SIM_NEVER || t > until)
        return false;
    advance_to(s, t);
    struct vm_sim_done d = {e->begun, s->now, e->job.unit, e->job.npages, e->job.move};
    e->busy = false;
    e->ended = s->now;
    s->demand_pages += e->job.move == VM_NONE ? d.npages : 0;
    if (e == &s->eo) {
        s->out_pages += d.npages;
        push_done(s, &s->out_done, d);
    } else {
        s->in_pages += d.npages;
        s->held = s->m->unmap_waits && e->urgent;
        push_done(s, &s->in_done, d);
    }
    return true;
}

static bool wants_copy(const struct vm_sim *s)
{
    return (!s->eo.busy && s->out.head < s->out.tail) ||
           (!s->ei.busy && (s->in.head < s->in.tail || s->urgent.head < s->urgent.tail));
}

bool vm_sim_step(struct vm_sim *s, double until)
{
    double t_op = VM_SIM_NEVER, t_od = VM_SIM_NEVER, t_id = VM_SIM_NEVER, free = s->host;

    if (s->finished < s->issued)
        t_op = s->end_at[s->finished % VM_SIM_RUN_AHEAD];
    if (s->out_done.head < s->out_done.tail)
        t_od = s->out_done.d[s->out_done.head].at;
    if (s->in_done.head < s->in_done.tail)
        t_id = s->in_done.d[s->in_done.head].at;
    /* what the host has to notice cannot happen before the host is free */
    double seen = t_op < t_od ? t_op : t_od;
    seen = t_id < seen ? t_id : seen;
    if (seen < s->host)
        seen = s->host;
    if (s->host > s->now && s->host < seen && wants_copy(s)) /* it was busy and is not any more */
        seen = s->host;
    if (vm_sim_end_copy(s, seen < until ? seen : until)) {
        vm_sim_kick(s);
        return true;
    }
    if (seen >= VM_SIM_NEVER || seen > until)
        return false;
    advance_to(s, seen);
    if (s->host < seen)
        s->host = seen;
    if (t_id <= seen && t_id <= t_op && t_id <= t_od)
        finish_in(s, free);
    else if (t_od <= seen && t_od <= t_op)
        finish_out(s);
    else if (t_op <= seen)
        op_finished(s);
    vm_sim_kick(s);
    return true;
}
