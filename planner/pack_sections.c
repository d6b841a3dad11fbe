#include "pack_sections.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vm_pack_refuse(struct vm_error *why, int status, const char *format, ...)
{
    if (why) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(why->text, sizeof why->text, format, ap);
        va_end(ap);
    }
    return status;
}

void vm_sort_pairs(struct vm_sort_pair *pairs, struct vm_sort_pair *scratch, size_t n)
{
    uint64_t any = 0, all = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        any |= pairs[i].key;
        all &= pairs[i].key;
    }
    struct vm_sort_pair *from = pairs, *to = scratch;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((((any ^ all) >> shift) & 0xff) == 0)
            continue; /* this byte is the same in every key */
        size_t start[257] = {0};
        for (size_t i = 0; i < n; i++)
            start[((from[i].key >> shift) & 0xff) + 1]++;
        for (unsigned b = 0; b < 256; b++)
            start[b + 1] += start[b];
        for (size_t i = 0; i < n; i++)
            to[start[(from[i].key >> shift) & 0xff]++] = from[i];
        struct vm_sort_pair *t = from;
        from = to;
        to = t;
    }
    if (from != pairs)
        memcpy(pairs, from, n * sizeof *pairs);
}

static int check_item(const struct vm_pack_problem *p, size_t i, struct vm_error *why)
{
    const struct vm_pack_item *it = &p->items[i];
    if (it->lower >= it->upper)
        return vm_pack_refuse(why, VM_EINVAL, "item %zu: lifetime [%llu, %llu) is empty", i,
                              (unsigned long long)it->lower, (unsigned long long)it->upper);
    if (it->size > INT64_MAX)
        return vm_pack_refuse(why, VM_EINVAL, "item %zu: size %llu is above 2^63 - 1", i,
                              (unsigned long long)it->size);
    if (it->fixed != VM_UNPLACED && it->fixed > INT64_MAX - it->size)
        return vm_pack_refuse(why, VM_EINVAL, "item %zu: fixed offset %llu ends above 2^63 - 1", i,
                              (unsigned long long)it->fixed);
    if (it->fixed != VM_UNPLACED && it->align > 1 && it->fixed % it->align != 0)
        return vm_pack_refuse(why, VM_EINVAL, "item %zu: fixed offset %llu is not a multiple of %llu",
                              i, (unsigned long long)it->fixed, (unsigned long long)it->align);
    if ((uint64_t)it->gap + it->ngaps > p->ngaps && it->ngaps)
        return vm_pack_refuse(why, VM_EINVAL, "item %zu: gaps %u to %llu of %zu do not exist", i,
                              it->gap, (unsigned long long)it->gap + it->ngaps, p->ngaps);
    uint64_t at = it->lower;
    for (uint32_t g = 0; g < it->ngaps; g++) {
        const struct vm_pack_span *gap = &p->gaps[it->gap + g];
        if (gap->lower <= at || gap->lower >= gap->upper || gap->upper >= it->upper)
            return vm_pack_refuse(why, VM_EINVAL,
                                  "item %zu: gap [%llu, %llu) is empty, out of order or not inside "
                                  "its lifetime",
                                  i, (unsigned long long)gap->lower, (unsigned long long)gap->upper);
        at = gap->upper;
    }
    return VM_OK;
}

/* Number of live spans over all items, or an error. */
static int count_spans(const struct vm_pack_problem *p, size_t *nspans, struct vm_error *why)
{
    size_t total = 0;
    uint64_t bytes = 0;
    if (p->nitems > UINT32_MAX / 4 || p->ngaps > UINT32_MAX / 4)
        return vm_pack_refuse(why, VM_EINVAL, "%zu items with %zu gaps are more than 2^30", p->nitems,
                              p->ngaps);
    for (size_t i = 0; i < p->nitems; i++) {
        int status = check_item(p, i, why);
        if (status)
            return status;
        uint64_t worst = p->items[i].size;
        if (p->items[i].align > 1)
            worst = vm_align_up(worst, p->items[i].align); /* room its alignment may waste */
        if (worst > INT64_MAX || bytes > INT64_MAX - worst)
            return vm_pack_refuse(why, VM_EINVAL, "item %zu: the sizes add up to more than 2^63 - 1", i);
        bytes += worst;
        total += (size_t)p->items[i].ngaps + 1;
    }
    if (total > UINT32_MAX / 4)
        return vm_pack_refuse(why, VM_EINVAL, "%zu live spans are more than 2^30", total);
    *nspans = total;
    return VM_OK;
}

/* Fills first[] and the events: value = 2 * span (death) or 2 * span + 1 (birth), key = time. Deaths
 * are written before births, so that the stable sort keeps them first at equal times. */
static void collect_events(const struct vm_pack_problem *p, struct vm_sections *s, size_t nspans,
                           struct vm_sort_pair *ev)
{
    uint32_t span = 0;
    for (size_t i = 0; i < p->nitems; i++) {
        const struct vm_pack_item *it = &p->items[i];
        s->first[i] = span;
        uint64_t from = it->lower;
        for (uint32_t g = 0; g <= it->ngaps; g++, span++) {
            uint64_t to = g < it->ngaps ? p->gaps[it->gap + g].lower : it->upper;
            ev[span] = (struct vm_sort_pair){to, 2 * span};
            ev[nspans + span] = (struct vm_sort_pair){from, 2 * span + 1};
            if (g < it->ngaps)
                from = p->gaps[it->gap + g].upper;
        }
    }
    s->first[p->nitems] = span;
}

static void walk_events(struct vm_sections *s, const struct vm_sort_pair *ev, size_t nevents)
{
    uint32_t current = 0;
    int died = 0;
    for (size_t e = 0; e < nevents; e++) {
        struct vm_section_range *r = &s->ranges[ev[e].value / 2];
        if (ev[e].value & 1) {
            if (died)
                current++;
            died = 0;
            r->lo = current;
        } else {
            died = 1;
            r->hi = current + 1;
        }
    }
    s->nsections = nevents ? current + 1 : 0;
}

static int sum_loads(const struct vm_pack_problem *p, struct vm_sections *s)
{
    s->load = calloc((size_t)s->nsections + 1, sizeof *s->load);
    if (!s->load)
        return VM_ENOMEM;
    for (size_t i = 0; i < p->nitems; i++)
        for (uint32_t r = s->first[i]; r < s->first[i + 1]; r++) {
            s->load[s->ranges[r].lo] += p->items[i].size;
            s->load[s->ranges[r].hi] -= p->items[i].size; /* wraps back when summed */
        }
    for (uint32_t t = 0; t < s->nsections; t++) {
        if (t)
            s->load[t] += s->load[t - 1];
        if (s->load[t] > s->max_live)
            s->max_live = s->load[t];
    }
    return VM_OK;
}

int vm_sections_init(struct vm_sections *s, const struct vm_pack_problem *p, struct vm_error *why)
{
    size_t nspans = 0;
    struct vm_sections out = {.nitems = p->nitems};
    int status = count_spans(p, &nspans, why);
    if (status)
        return status;
    out.first = malloc((p->nitems + 1) * sizeof *out.first);
    out.ranges = malloc((nspans + 1) * sizeof *out.ranges);
    struct vm_sort_pair *ev = malloc((4 * nspans + 1) * sizeof *ev);
    status = out.first && out.ranges && ev ? VM_OK : VM_ENOMEM;
    if (status == VM_OK) {
        collect_events(p, &out, nspans, ev);
        vm_sort_pairs(ev, ev + 2 * nspans, 2 * nspans);
        walk_events(&out, ev, 2 * nspans);
        status = sum_loads(p, &out);
    }
    free(ev);
    if (status) {
        vm_sections_fini(&out);
        return vm_pack_refuse(why, status, "no memory to pack %zu items", p->nitems);
    }
    *s = out;
    return VM_OK;
}

void vm_sections_fini(struct vm_sections *s)
{
    free(s->first);
    free(s->ranges);
    free(s->load);
    *s = (struct vm_sections){0};
}

int vm_sections_conflict(const struct vm_sections *s, size_t a, size_t b)
{
    uint32_t i = s->first[a], j = s->first[b];
    while (i < s->first[a + 1] && j < s->first[b + 1]) {
        const struct vm_section_range *x = &s->ranges[i], *y = &s->ranges[j];
        if (x->lo < y->hi && y->lo < x->hi)
            return 1;
        if (x->hi <= y->hi)
            i++;
        else
            j++;
    }
    return 0;
}

int vm_pack_max_live(const struct vm_pack_problem *p, uint64_t *bytes, struct vm_error *why)
{
    struct vm_sections s;
    int status = vm_sections_init(&s, p, why);
    if (status)
        return status;
    *bytes = s.max_live;
    vm_sections_fini(&s);
    return VM_OK;
}
