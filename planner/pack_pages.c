/* The chunked variant: colouring. Items are taken in the order of birth and get free pages, the ones
 * freed last first. With one span an item that needs as many pages as are live at once. An item with
 * gaps must have its pages free in all of its spans; such items come first, by size, and each page
 * remembers them so that the others do not collide with a later span. */
#include "pack_sections.h"

#include <stdlib.h>

#define NIL UINT32_MAX

/* Spans of items with gaps, reserved on a page, ascending. */
struct booking {
    struct vm_section_range *at;
    uint32_t n, cap;
};

struct colouring {
    const struct vm_pack_problem *p;
    const struct vm_sections *s;
    uint64_t page;
    uint32_t *pages;
    size_t *first;
    struct booking *book; /* for each page */
    uint32_t npages, cap;
    uint32_t *stack, nstack; /* free pages, the last freed on top */
};

static int grow(struct colouring *c)
{
    if (c->npages < c->cap)
        return VM_OK;
    uint32_t cap = c->cap ? c->cap * 2 : 64;
    struct booking *book = realloc(c->book, cap * sizeof *book);
    if (book)
        c->book = book;
    uint32_t *stack = realloc(c->stack, cap * sizeof *stack);
    if (stack)
        c->stack = stack;
    if (!book || !stack)
        return VM_ENOMEM;
    c->cap = cap;
    return VM_OK;
}

/* A new page, NIL without memory. */
static uint32_t new_page(struct colouring *c)
{
    if (grow(c))
        return NIL;
    c->book[c->npages] = (struct booking){0};
    return c->npages++;
}

static int booked(const struct booking *b, uint32_t lo, uint32_t hi)
{
    uint32_t from = 0, to = b->n; /* the first span that ends above lo */
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (b->at[mid].hi <= lo)
            from = mid + 1;
        else
            to = mid;
    }
    return from < b->n && b->at[from].lo < hi;
}

static int book(struct booking *b, struct vm_section_range r)
{
    if (b->n == b->cap) {
        uint32_t cap = b->cap ? b->cap * 2 : 4;
        struct vm_section_range *at = realloc(b->at, cap * sizeof *at);
        if (!at)
            return VM_ENOMEM;
        b->at = at;
        b->cap = cap;
    }
    uint32_t k = b->n++;
    for (; k > 0 && b->at[k - 1].lo > r.lo; k--)
        b->at[k] = b->at[k - 1];
    b->at[k] = r;
    return VM_OK;
}

/* Items with gaps: the first pages that are free in all of their spans. */
static int colour_broken(struct colouring *c, size_t i)
{
    const struct vm_sections *s = c->s;
    uint32_t page = 0;
    for (size_t k = c->first[i]; k < c->first[i + 1]; page++) {
        if (page == c->npages && new_page(c) == NIL)
            return VM_ENOMEM;
        int taken = 0;
        for (uint32_t r = s->first[i]; r < s->first[i + 1] && !taken; r++)
            taken = booked(&c->book[page], s->ranges[r].lo, s->ranges[r].hi);
        if (taken)
            continue;
        for (uint32_t r = s->first[i]; r < s->first[i + 1]; r++)
            if (book(&c->book[page], s->ranges[r]))
                return VM_ENOMEM;
        c->pages[k++] = page;
    }
    return VM_OK;
}

/* The others, in the order of birth: free pages from the top that no booked span meets. */
static int colour_plain(struct colouring *c, size_t i)
{
    struct vm_section_range r = c->s->ranges[c->s->first[i]];
    uint32_t look = c->nstack;
    for (size_t k = c->first[i]; k < c->first[i + 1]; k++) {
        while (look > 0 && booked(&c->book[c->stack[look - 1]], r.lo, r.hi))
            look--;
        if (look == 0) {
            if ((c->pages[k] = new_page(c)) == NIL)
                return VM_ENOMEM;
            continue;
        }
        c->pages[k] = c->stack[--look];
        for (uint32_t m = look; m + 1 < c->nstack; m++)
            c->stack[m] = c->stack[m + 1];
        c->nstack--;
    }
    return VM_OK;
}

static int walk(struct colouring *c, const struct vm_sort_pair *births, size_t n, uint32_t *dying,
                uint32_t *next)
{
    uint32_t now = 0;
    for (size_t b = 0; b < n; b++) {
        uint32_t i = births[b].value, born = (uint32_t)births[b].key;
        for (; now <= born; now++)
            for (uint32_t d = dying[now]; d != NIL; d = next[d])
                for (size_t k = c->first[d]; k < c->first[d + 1]; k++)
                    c->stack[c->nstack++] = c->pages[k];
        int status = colour_plain(c, i);
        if (status)
            return status;
        uint32_t end = c->s->ranges[c->s->first[i]].hi;
        next[i] = dying[end];
        dying[end] = i;
    }
    return VM_OK;
}

static int colour(struct colouring *c)
{
    const struct vm_sections *s = c->s;
    size_t n = c->p->nitems, k = 0;
    struct vm_sort_pair *pairs = malloc((2 * n + 1) * sizeof *pairs);
    uint32_t *dying = malloc(((size_t)s->nsections + 1) * sizeof *dying);
    uint32_t *next = malloc((n + 1) * sizeof *next);
    int status = pairs && dying && next ? VM_OK : VM_ENOMEM;
    for (size_t i = 0; status == VM_OK && i < n; i++)
        if (s->first[i + 1] - s->first[i] > 1)
            pairs[k++] = (struct vm_sort_pair){~c->p->items[i].size, (uint32_t)i};
    if (status == VM_OK)
        vm_sort_pairs(pairs, pairs + k, k);
    for (size_t b = 0; b < k && status == VM_OK; b++)
        status = colour_broken(c, pairs[b].value);
    if (status == VM_OK) {
        for (uint32_t page = c->npages; page-- > 0;)
            c->stack[c->nstack++] = page; /* the lowest on top */
        for (uint32_t t = 0; t <= s->nsections; t++)
            dying[t] = NIL;
        k = 0;
        for (size_t i = 0; i < n; i++)
            if (s->first[i + 1] - s->first[i] == 1)
                pairs[k++] = (struct vm_sort_pair){s->ranges[s->first[i]].lo, (uint32_t)i};
        vm_sort_pairs(pairs, pairs + k, k);
        status = walk(c, pairs, k, dying, next);
    }
    free(pairs);
    free(dying);
    free(next);
    return status;
}

/* Lays out first[]; the number of pages an item needs is its size rounded up. */
static int count_pages(struct colouring *c, struct vm_error *why)
{
    uint64_t total = 0;
    c->first = malloc((c->p->nitems + 1) * sizeof *c->first);
    if (!c->first)
        return VM_ENOMEM;
    for (size_t i = 0; i < c->p->nitems; i++) {
        if (c->p->items[i].fixed != VM_UNPLACED)
            return vm_pack_refuse(why, VM_EINVAL, "item %zu is fixed: pages have no order", i);
        c->first[i] = (size_t)total;
        total += c->p->items[i].size / c->page + (c->p->items[i].size % c->page != 0);
        if (total > UINT32_MAX / 4)
            return vm_pack_refuse(why, VM_EINVAL, "pages of %llu bytes: more than 2^30 are needed",
                                  (unsigned long long)c->page);
    }
    c->first[c->p->nitems] = (size_t)total;
    c->pages = malloc(((size_t)total + 1) * sizeof *c->pages);
    return c->pages ? VM_OK : VM_ENOMEM;
}

int vm_pack_pages(const struct vm_pack_problem *p, uint64_t page_bytes, uint32_t **pages,
                  size_t **first, uint32_t *npages, struct vm_error *why)
{
    struct vm_sections s;
    if (page_bytes == 0)
        return vm_pack_refuse(why, VM_EINVAL, "a page must have at least one byte");
    int status = vm_sections_init(&s, p, why);
    if (status)
        return status;
    struct colouring c = {.p = p, .s = &s, .page = page_bytes};
    status = count_pages(&c, why);
    if (status == VM_OK)
        status = colour(&c);
    if (status == VM_ENOMEM)
        vm_pack_refuse(why, status, "no memory to colour %zu items", p->nitems);
    for (uint32_t k = 0; k < c.npages; k++)
        free(c.book[k].at);
    free(c.book);
    free(c.stack);
    vm_sections_fini(&s);
    if (status) {
        free(c.pages);
        free(c.first);
        return status;
    }
    *pages = c.pages;
    *first = c.first;
    *npages = c.npages;
    return VM_OK;
}
