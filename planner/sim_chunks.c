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
    return s->u->units[unit].page - s->u->first_page;
}

void vm_sim_let_go(struct vm_sim *s, uint32_t unit)
{
    struct vm_sim_unit *x = &s->su[unit];

    for (uint32_t i = 0; i < x->res; i++)
        s->owner[slot_of(s, unit) + i] = unit;
    x->res = 0;
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
    s->dead_pages += n;
    vm_sim_account(s);
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

uint64_t vm_sim_at_hand(const struct vm_sim *s)
{
    return s->free_pages + (s->m->unmap_waits ? 0 : s->dead_pages);
}

void vm_sim_reclaim(struct vm_sim *s, uint64_t n)
{
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
            s->free_pages++;
            s->host += s->m->unmap_ns;
            n--;
        }
        if (!left)
            s->grave_head++;
    }
}

void vm_sim_take(struct vm_sim *s, uint64_t n)
{
    vm_sim_account(s);
    if (n > s->free_pages)
        vm_sim_reclaim(s, n - s->free_pages);
    s->free_pages -= n < s->free_pages ? n : s->free_pages;
    vm_sim_account(s);
}

uint32_t vm_sim_inherited(const struct vm_sim *s, uint32_t unit)
{
    uint64_t base = slot_of(s, unit);
    uint32_t n = 0;

    for (uint32_t i = s->su[unit].res; i < s->u->units[unit].npages; i++)
        n += s->owner[base + i] != VM_NONE &&
             (s->m->unmap_waits || !s->su[s->owner[base + i]].dead);
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
        s->dead_pages -= s->su[o].dead;
        s->owner[base + i] = VM_NONE;
    }
    vm_sim_take(s, need);
    s->host += need * (s->m->map_ns + s->m->access_ns);
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
