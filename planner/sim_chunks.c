/* Whose chunks are where: free, dead, parked, attached to a place (sim_state.h). */
#include <stdlib.h>

#include "sim_state.h"

void vm_sim_account(struct vm_sim *s)
{
    uint64_t used = s->capacity - s->free_pages - s->dead_pages;

    if (s->now > s->area_at) {
        s->area += (double)used * (s->now - s->area_at);
        s->area_at = s->now;
    }
    if (used > s->peak)
        s->peak = used;
}

static uint64_t slot_of(const struct vm_sim *s, uint32_t unit)
{
    return s->u->units[unit].slot;
}

/* The unit's chunk stays at its place. One that an earlier unit left there, before the first whole iteration,
 * is free. */
static void attach(struct vm_sim *s, uint64_t slot, uint32_t unit)
{
    uint32_t o = s->owner[slot];

    if (o != VM_NONE) {
        s->dead_pages -= s->su[o].dead;
        s->let_go -= !s->su[o].dead;
        s->free_pages++;
    }
    s->owner[slot] = unit;
}

void vm_sim_let_go(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];

    for (uint32_t i = 0; i < x->res - x->leaving; i++)
        attach(s, slot_of(s, unit) + i, unit);
    s->let_go += x->res - x->leaving;
    x->res = x->leaving;
    x->sealed = false;
}

static void exhume(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];

    *(x->before ? &s->su[x->before - 1].after : &s->grave_first) = x->after;
    *(x->after ? &s->su[x->after - 1].before : &s->grave_last) = x->before;
    x->buried = false;
}

void vm_sim_bury(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];
    uint32_t n = 0;

    vm_sim_let_go(s, unit);
    x->dead = true;
    for (uint32_t i = 0; i < s->u->units[unit].npages; i++)
        n += s->owner[slot_of(s, unit) + i] == unit;
    if (!n)
        return;
    vm_sim_account(s);
    s->let_go -= n;
    s->dead_pages += n;
    vm_sim_account(s);
    if (x->buried)
        exhume(s, unit);
    x->buried = true;
    x->before = s->grave_last;
    x->after = 0;
    *(x->before ? &s->su[x->before - 1].after : &s->grave_first) = unit + 1;
    s->grave_last = unit + 1;
}

uint64_t vm_sim_at_hand(const struct vm_sim *s)
{
    return s->free_pages + (s->m->unmap_waits ? 0 : s->dead_pages);
}

/* Ops until a unit begins on the page; 2 * nops: none does. */
static uint32_t ops_to_birth(const struct vm_sim *s, uint64_t slot)
{
    const uint32_t *b = s->births + s->birth_at[slot];
    uint32_t n = s->birth_at[slot + 1] - s->birth_at[slot], k = (uint32_t)(s->issued % s->nops);
    uint32_t lo = 0, hi = n;

    if (!n)
        return 2 * s->nops;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (b[mid] < k)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n ? b[lo] - k : b[0] + s->nops - k;
}

static bool is_dead_page(const struct vm_sim *s, uint32_t unit, uint64_t slot)
{
    return s->owner[slot] == unit && s->su[unit].dead;
}

/* Takes the unit's dead pages where nothing begins within `spared` ops, up to *n. Are some left? */
static bool rob_grave(struct vm_sim *s, uint32_t unit, uint64_t *n, uint32_t spared)
{
    uint64_t base = slot_of(s, unit);
    bool left = false;

    for (uint32_t p = 0; p < s->u->units[unit].npages; p++) {
        if (!is_dead_page(s, unit, base + p))
            continue;
        if (!*n)
            return true;
        if (ops_to_birth(s, base + p) < spared) {
            left = true;
            continue;
        }
        s->owner[base + p] = VM_NONE;
        s->dead_pages--;
        s->free_pages++;
        s->host += s->m->unmap_ns;
        (*n)--;
    }
    return left;
}

/* One pass over the graveyard: takes pages where nothing begins within `spared` ops, up to n. What is left. */
static uint64_t reclaim_pass(struct vm_sim *s, uint64_t n, uint32_t spared)
{
    for (uint32_t at = s->grave_first, next; at && n; at = next) {
        next = s->su[at - 1].after;
        if (!rob_grave(s, at - 1, &n, spared))
            exhume(s, at - 1);
    }
    return n;
}

void vm_sim_reclaim(struct vm_sim *s, uint64_t n, bool all)
{
    static const uint32_t spared[] = {VM_BORN_SOON, 1, 0};

    for (size_t i = s->opt.knows_dead ? 0 : 1; i < (all ? 3 : 2) && n; i++)
        n = reclaim_pass(s, n, spared[i]);
}

int vm_sim_index_births(struct vm_sim *s)
{
    const struct vm_page_units *u = s->u;
    size_t total = 0;

    s->birth_at = calloc(u->nslots + 3, sizeof *s->birth_at);
    if (!s->birth_at)
        return VM_ENOMEM;
    for (size_t i = 0; i < u->nunits; i++)
        if (u->units[i].nuses && !(u->units[i].flags & VM_UNIT_CYCLIC))
            for (uint32_t p = 0; p < u->units[i].npages; p++, total++)
                s->birth_at[slot_of(s, (uint32_t)i) + p + 2]++;
    for (uint64_t p = 2; p < u->nslots + 3; p++)
        s->birth_at[p] += s->birth_at[p - 1];
    s->births = malloc((total + 1) * sizeof *s->births);
    if (!s->births)
        return VM_ENOMEM;
    for (uint32_t k = 0; k < u->nops; k++) /* in the order of ops, so that each page's list ascends */
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
            const struct vm_page_unit *un = &u->units[u->refs[r].unit];
            if (u->refs[r].use != un->use || (un->flags & VM_UNIT_CYCLIC))
                continue;
            for (uint32_t p = 0; p < un->npages; p++)
                s->births[s->birth_at[slot_of(s, u->refs[r].unit) + p + 1]++] = k;
        }
    return VM_OK;
}

void vm_sim_take(struct vm_sim *s, uint64_t n)
{
    vm_sim_account(s);
    if (n > s->free_pages)
        vm_sim_reclaim(s, n - s->free_pages, true);
    s->free_pages -= n < s->free_pages ? n : s->free_pages;
    vm_sim_account(s);
}

uint32_t vm_sim_inherited(const struct vm_sim *s, uint32_t unit)
{
    uint64_t base = slot_of(s, unit);
    uint32_t n = 0;

    for (uint32_t i = s->su[unit].res; i < s->u->units[unit].npages; i++) {
        uint32_t o = s->owner[base + i];
        n += o != VM_NONE && (s->m->unmap_waits || !s->su[o].dead);
    }
    return n;
}

void vm_sim_provide(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];
    uint64_t base = slot_of(s, unit);
    uint32_t need = 0;

    vm_sim_account(s);
    for (uint32_t i = x->res; i < s->u->units[unit].npages; i++) {
        uint32_t o = s->owner[base + i];
        if (o == VM_NONE) {
            need++;
            continue;
        }
        if (s->su[o].dead)
            s->dead_pages--;
        else
            s->let_go--;
        s->owner[base + i] = VM_NONE;
    }
    vm_sim_take(s, need);
    s->host += need * (s->m->map_ns + s->m->access_ns) + (need ? s->m->access_call_ns : 0);
    x->res = s->u->units[unit].npages;
    x->dead = false;
    vm_sim_account(s);
}

void vm_sim_clear_place(struct vm_sim *s, uint32_t unit)
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
