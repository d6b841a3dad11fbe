#include "simulate.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim_queue.h"
#include "use_heap.h"

#define RUN_AHEAD 1024u /* ops a host may have issued that the device has not finished */
#define IDLE DBL_MAX

struct sim_unit {
    uint32_t res;    /* pages [0, res) are on the device, those on their way out included */
    uint32_t leaving, coming; /* pages of the copies in flight                           */
    uint32_t clean;  /* pages [npages - clean, npages) have a valid host copy             */
    uint32_t use;    /* last use issued, VM_NONE before the first                         */
    uint32_t stamp;  /* of its entry in the victims' heap                                 */
    uint32_t queued; /* pages asked to leave whose copies have not begun                  */
    uint32_t asked;  /* pages that queued moves will fetch                                */
    uint64_t busy;   /* absolute op after which it is idle, plus 1                         */
    uint64_t wanted; /* absolute op that the host stands before and that uses it, plus 1   */
    bool dead;       /* contents dead; pages still attached are the pool's to reclaim      */
};

struct engine {
    bool busy;
    double rem_bytes, fixed_ns; /* what is left of the copy in flight */
    struct vm_sim_request job;         /* npages = pages of this copy        */
};

struct sim {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    const struct vm_move *moves;
    size_t nmoves;
    struct vm_sim_options opt;
    uint32_t *move_first; /* nops + 1 */
    uint32_t nops;
    struct sim_unit *su;
    uint32_t *owner; /* per page: dead unit whose chunk is still attached, or VM_NONE */
    uint32_t *graveyard; /* dead units, oldest first (ring) */
    size_t grave_head, grave_tail, grave_cap;
    uint64_t free_pages, dead_pages, capacity;
    double now, host;
    double *end_at; /* ring over RUN_AHEAD ops */
    uint64_t issued, finished; /* absolute ops */
    double last_end;
    struct vm_sim_requests out, in, urgent;
    struct vm_sim_dones out_done, in_done;
    struct engine eo, ei;
    struct vm_use_heap heap;
    struct vm_use_entry *kept; /* entries passed over in one search */
    size_t nkept, cap_kept;
    uint64_t waiting_op; /* the op the host stands before */
    bool waiting_room;   /* it lacks chunks for new contents */
    bool failed;
    /* measured */
    uint64_t out_pages, in_pages, demand_pages, peak;
    double area, area_at;
    double iter_start;
    double *start_ns, *out_done_ns;
};

static uint64_t capacity_of(const struct vm_page_units *u, const struct vm_machine *m,
                            const struct vm_sim_options *opt)
{
    return opt->capacity_pages ? opt->capacity_pages : m->device_bytes / u->page_bytes;
}

/* ---- queues ---------------------------------------------------------------------------------*/

static void push(struct sim *s, struct vm_sim_requests *q, struct vm_sim_request r)
{
    if (vm_sim_requests_push(q, r))
        s->failed = true;
}

static void push_done(struct sim *s, struct vm_sim_dones *q, struct vm_sim_done d)
{
    if (vm_sim_dones_push(q, d))
        s->failed = true;
}

/* ---- chunks ---------------------------------------------------------------------------------*/

static void account(struct sim *s)
{
    uint64_t used = s->capacity - s->free_pages - s->dead_pages;

    if (s->now > s->area_at) {
        s->area += (double)used * (s->now - s->area_at);
        s->area_at = s->now;
    }
    if (used > s->peak)
        s->peak = used;
}

static uint64_t slot_of(const struct sim *s, uint32_t unit)
{
    return s->u->units[unit].page - s->u->first_page;
}

/* The blocks of a unit are freed once its last op is issued: whoever comes to the same place next, in
 * stream order, takes over the chunks at once; anybody else must wait until the op is done. */
static void let_go(struct sim *s, uint32_t unit)
{
    struct sim_unit *x = &s->su[unit];

    for (uint32_t i = 0; i < x->res; i++)
        s->owner[slot_of(s, unit) + i] = unit;
    x->res = 0;
}

/* The unit's last op is done: the chunks still at its place are dead. */
static void bury(struct sim *s, uint32_t unit)
{
    struct sim_unit *x = &s->su[unit];
    uint32_t n = 0;

    let_go(s, unit);
    x->dead = true;
    for (uint32_t i = 0; i < s->u->units[unit].npages; i++)
        n += s->owner[slot_of(s, unit) + i] == unit;
    if (!n)
        return;
    account(s);
    s->dead_pages += n;
    account(s);
    if (s->grave_tail - s->grave_head == s->grave_cap) {
        size_t cap = 2 * s->grave_cap;
        uint32_t *p = malloc(cap * sizeof *p);
        if (!p) {
            s->failed = true;
            return;
        }
        for (size_t i = 0; i < s->grave_cap; i++)
            p[i] = s->graveyard[(s->grave_head + i) % s->grave_cap];
        free(s->graveyard);
        s->graveyard = p;
        s->grave_head = 0;
        s->grave_tail = s->grave_cap;
        s->grave_cap = cap;
    }
    s->graveyard[s->grave_tail++ % s->grave_cap] = unit;
}

/* Takes n chunks from the free ones, then from dead pages, oldest first. The caller has checked. */
static void take_chunks(struct sim *s, uint64_t n)
{
    uint64_t f = n < s->free_pages ? n : s->free_pages;

    account(s);
    s->free_pages -= f;
    n -= f;
    while (n && s->grave_head < s->grave_tail) {
        uint32_t unit = s->graveyard[s->grave_head % s->grave_cap];
        uint64_t base = slot_of(s, unit);
        bool left = false;
        for (uint32_t i = 0; i < s->u->units[unit].npages && s->su[unit].dead; i++) {
            if (s->owner[base + i] != unit)
                continue;
            if (!n) {
                left = true;
                break;
            }
            s->owner[base + i] = VM_NONE;
            s->dead_pages--;
            s->host += s->m->unmap_ns;
            n--;
        }
        if (!left)
            s->grave_head++;
    }
    account(s);
}

/* Chunks at the unit's place that its predecessor there has let go but not finished with. */
static uint32_t inherited(const struct sim *s, uint32_t unit)
{
    uint64_t base = slot_of(s, unit);
    uint32_t n = 0;

    for (uint32_t i = s->su[unit].res; i < s->u->units[unit].npages; i++)
        n += s->owner[base + i] != VM_NONE && !s->su[s->owner[base + i]].dead;
    return n;
}

/* Gives the unit the pages it lacks, contents undefined. */
static void provide(struct sim *s, uint32_t unit)
{
    struct sim_unit *x = &s->su[unit];
    uint64_t base = slot_of(s, unit);
    uint32_t need = 0;

    account(s);
    for (uint32_t i = x->res; i < s->u->units[unit].npages; i++) {
        uint32_t o = s->owner[base + i];
        if (o == VM_NONE) {
            need++;
            continue;
        }
        s->dead_pages -= s->su[o].dead;
        s->owner[base + i] = VM_NONE;
    }
    take_chunks(s, need);
    s->host += need * (s->m->map_ns + s->m->access_ns);
    x->res = s->u->units[unit].npages;
    x->dead = false;
    account(s);
}

/* A page that comes back finds its place held by an earlier unit only before the first whole iteration:
 * then that chunk is let go. */
static void clear_place(struct sim *s, uint32_t unit)
{
    uint64_t base = slot_of(s, unit);

    for (uint32_t i = 0; i < s->u->units[unit].npages; i++) {
        uint32_t o = s->owner[base + i];
        if (o == VM_NONE || !s->su[o].dead || o == unit)
            continue;
        s->owner[base + i] = VM_NONE;
        s->dead_pages--;
        s->free_pages++;
    }
}

/* ---- engines --------------------------------------------------------------------------------*/

static double rate(const struct sim *s, bool out)
{
    bool both = s->eo.busy && s->ei.busy;

    if (out)
        return both && s->m->out_duplex_bps > 0 ? s->m->out_duplex_bps : s->m->out_bps;
    return both && s->m->in_duplex_bps > 0 ? s->m->in_duplex_bps : s->m->in_bps;
}

static double engine_end(const struct sim *s, bool out)
{
    const struct engine *e = out ? &s->eo : &s->ei;

    if (!e->busy)
        return IDLE;
    return s->now + e->fixed_ns + e->rem_bytes / rate(s, out) * 1e9;
}

static void progress(struct sim *s, bool out, double dt)
{
    struct engine *e = out ? &s->eo : &s->ei;

    if (!e->busy)
        return;
    double lat = dt < e->fixed_ns ? dt : e->fixed_ns;
    e->fixed_ns -= lat;
    e->rem_bytes -= (dt - lat) * rate(s, out) * 1e-9;
    if (e->rem_bytes < 0)
        e->rem_bytes = 0;
}

static void advance_to(struct sim *s, double t)
{
    if (t > s->now) {
        progress(s, true, t - s->now);
        progress(s, false, t - s->now);
        account(s);
        s->now = t;
    }
}

static void start_copy(struct sim *s, struct engine *e, struct vm_sim_request job)
{
    e->busy = true;
    e->rem_bytes = (double)job.npages * (double)s->u->page_bytes;
    e->fixed_ns = s->m->copy_latency_ns;
    e->job = job;
}

static void start_out(struct sim *s)
{
    while (!s->eo.busy && s->out.head < s->out.tail) {
        struct vm_sim_request *r = &s->out.r[s->out.head];
        struct sim_unit *x = &s->su[r->unit];
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
static bool may_fetch(const struct sim *s, const struct vm_sim_request *r)
{
    return !s->waiting_room || r->need <= s->waiting_op;
}

static void start_in(struct sim *s)
{
    while (!s->ei.busy) {
        struct vm_sim_requests *q = s->urgent.head < s->urgent.tail ? &s->urgent : &s->in;
        if (q->head == q->tail)
            return;
        struct vm_sim_request *r = &q->r[q->head];
        struct sim_unit *x = &s->su[r->unit];
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
            clear_place(s, r->unit);
        uint64_t room = s->free_pages + s->dead_pages;
        if (!room || !may_fetch(s, r))
            return;
        if (n > room)
            n = (uint32_t)room;
        if (n > s->opt.batch_pages)
            n = s->opt.batch_pages;
        take_chunks(s, n);
        struct vm_sim_request job = *r;
        job.npages = n;
        r->npages -= n;
        if (q == &s->in)
            x->asked -= n;
        else if (x->asked >= n) /* the schedule would have fetched them, if a little later */
            job.move = 0;
        x->coming += n;
        start_copy(s, &s->ei, job);
        account(s);
    }
}

static void kick(struct sim *s)
{
    start_out(s);
    start_in(s);
}

/* ---- events ---------------------------------------------------------------------------------*/

static void finish_out(struct sim *s)
{
    struct vm_sim_done d = s->out_done.d[s->out_done.head++];
    struct sim_unit *x = &s->su[d.unit];
    uint32_t total = s->u->units[d.unit].npages;

    account(s);
    x->leaving -= d.npages;
    x->res -= d.npages;
    if (x->clean < total - x->res)
        x->clean = total - x->res;
    s->free_pages += d.npages;
    s->host += d.npages * s->m->unmap_ns;
    account(s);
    if (s->out_done_ns && d.move != VM_NONE)
        s->out_done_ns[d.move] = d.at - s->iter_start;
}

/* A unit that came back before its use may be a victim again, though the last resort. */
static void enlist(struct sim *s, uint32_t unit)
{
    const struct vm_page_unit *un = &s->u->units[unit];
    struct sim_unit *x = &s->su[unit];
    unsigned wraps;
    uint32_t next = x->use == VM_NONE ? un->use : vm_page_next_use(s->u, un, x->use, &wraps);

    if (next == VM_NONE || (un->flags & VM_UNIT_PINNED))
        return;
    uint64_t ahead = (s->u->uses[next].op + s->nops - s->issued % s->nops) % s->nops;
    uint64_t key = s->opt.rule == VM_DEMAND_LRU ? UINT64_MAX - s->issued : s->issued + ahead;
    if (vm_use_heap_push(&s->heap, key, unit, ++x->stamp))
        s->failed = true;
}

static void finish_in(struct sim *s)
{
    struct vm_sim_done d = s->in_done.d[s->in_done.head++];
    struct sim_unit *x = &s->su[d.unit];

    x->coming -= d.npages;
    x->res += d.npages;
    enlist(s, d.unit);
    s->host += d.npages * (s->m->map_ns + s->m->access_ns);
}

static void ask_out(struct sim *s, uint32_t unit, uint32_t npages, uint32_t move)
{
    push(s, &s->out, (struct vm_sim_request){unit, npages, s->su[unit].use, move, 0});
    s->su[unit].queued += npages;
}

static void op_finished(struct sim *s)
{
    uint64_t abs = s->finished++;
    uint32_t k = (uint32_t)(abs % s->nops);

    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct sim_unit *x = &s->su[ref.unit];
        if (x->use != ref.use || x->busy != abs + 1)
            continue;
        bool ends = !(un->flags & VM_UNIT_CYCLIC) && ref.use == un->use + un->nuses - 1;
        if (ends || (s->opt.knows_dead && !(un->flags & VM_UNIT_PINNED) &&
                     !(s->u->uses[ref.use].flags & VM_PU_LIVE_AFTER)))
            bury(s, ref.unit);
    }
    for (uint32_t i = s->move_first[k]; i < s->move_first[k + 1]; i++) {
        const struct vm_move *mv = &s->moves[i];
        if (mv->kind == VM_ACT_OUT && s->su[mv->unit].use == mv->use && !s->su[mv->unit].dead)
            ask_out(s, mv->unit, mv->npages, i);
    }
}

/* Lets the next event happen. False when nothing is under way. */
static bool step(struct sim *s, double until)
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
        struct engine *e = t_out <= t_in ? &s->eo : &s->ei;
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

static bool needs_contents(const struct sim *s, const struct vm_page_unit *un, uint32_t use)
{
    if (use > un->use)
        return (s->u->uses[use - 1].flags & VM_PU_LIVE_AFTER) != 0;
    return (un->flags & VM_UNIT_CYCLIC) &&
           (s->u->uses[un->use + un->nuses - 1].flags & VM_PU_LIVE_AFTER);
}

/* Is everything op k needs there, or can it be had at once? Asks for what is missing. */
static bool ready(struct sim *s, uint32_t k)
{
    uint64_t room = 0;
    bool ok = true;

    s->urgent.head = s->urgent.tail = 0;
    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct sim_unit *x = &s->su[ref.unit];
        x->wanted = s->issued + 1;
        if (needs_contents(s, un, ref.use) && !x->dead) {
            x->use = ref.use; /* takes back what is queued to leave */
            if (x->res == un->npages && !x->leaving)
                continue;
            ok = false;
            uint32_t lack = un->npages - x->res - x->coming;
            if (x->leaving || lack)
                push(s, &s->urgent,
                     (struct vm_sim_request){ref.unit, lack + x->leaving, ref.use, VM_NONE, s->issued});
        } else {
            if (x->leaving || x->coming)
                ok = false;
            x->use = ref.use;
            room += un->npages - x->res - inherited(s, ref.unit);
        }
    }
    s->waiting_room = s->free_pages + s->dead_pages < room;
    return ok && !s->waiting_room;
}

static bool is_current(void *arg, const struct vm_use_entry *e)
{
    const struct sim *s = arg;
    return s->su[e->unit].stamp == e->stamp && s->su[e->unit].res;
}

static void issue(struct sim *s, uint32_t k)
{
    s->host += s->m->call_ns;
    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        struct vm_page_ref ref = s->u->refs[r];
        const struct vm_page_unit *un = &s->u->units[ref.unit];
        struct sim_unit *x = &s->su[ref.unit];
        unsigned wraps;
        if (x->res < un->npages)
            provide(s, ref.unit);
        x->dead = false;
        x->use = ref.use;
        x->busy = s->issued + 1;
        if (s->u->uses[ref.use].flags & VM_PU_WRITE)
            x->clean = 0;
        uint32_t next = vm_page_next_use(s->u, un, ref.use, &wraps);
        if (next == VM_NONE)
            let_go(s, ref.unit);
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
static uint64_t shortage(const struct sim *s, uint32_t k)
{
    uint64_t lack = 0, room = s->free_pages + s->dead_pages;

    for (uint32_t r = s->u->op_first[k]; r < s->u->op_first[k + 1]; r++) {
        uint32_t unit = s->u->refs[r].unit;
        lack += s->u->units[unit].npages - s->su[unit].res;
    }
    return lack > room ? lack - room : 1;
}

/* Nothing under way will make room: evict what the rule names. */
static bool demand(struct sim *s, uint32_t k)
{
    struct vm_use_entry e;
    uint64_t need = shortage(s, k);
    bool found = false;

    s->nkept = 0;
    while (need && vm_use_heap_pop(&s->heap, &e)) {
        struct sim_unit *x = &s->su[e.unit];
        if (x->stamp != e.stamp || x->dead || !x->res)
            continue;
        if (x->wanted != s->issued + 1 && x->busy <= s->finished && !x->leaving && !x->coming) {
            uint32_t n = x->res < need ? x->res : (uint32_t)need;
            ask_out(s, e.unit, n, VM_NONE);
            need -= n;
            found = true;
            if (n == x->res)
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

static bool run_op(struct sim *s, uint32_t k)
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
    while (!ready(s, k)) {
        if (s->failed)
            return false;
        kick(s);
        if (!step(s, IDLE) && !demand(s, k))
            return false;
    }
    s->waiting_room = false;
    issue(s, k);
    kick(s);
    return !s->failed;
}

/* ---- set-up ---------------------------------------------------------------------------------*/

static int sim_init(struct sim *s)
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

static void sim_fini(struct sim *s)
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

static int sim_run(struct sim *s, struct vm_sim_result *res)
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
    struct sim s = {.u = u, .m = m, .moves = moves, .nmoves = nmoves, .opt = *opt};
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
