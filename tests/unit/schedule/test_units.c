/* Page units against a byte-by-byte account of the same iteration. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page_units.h"
#include "small.h"

enum { PAGE = 4096, PAGES = 12, OPS = 9, BLOCKS = 14 };

static bool alive(const struct vm_iter_block *b, uint32_t op)
{
    if (b->flags & VM_BLK_PERSISTENT)
        return true;
    return (op >= b->alloc_op && op < b->free_op) || op + OPS < b->free_op;
}

static bool share_time(const struct vm_iter_block *a, const struct vm_iter_block *b)
{
    for (uint32_t k = 0; k < OPS; k++)
        if (alive(a, k) && alive(b, k))
            return true;
    return false;
}

/* Random blocks, some of a few pages, some far smaller, some that wrap, none overlapping in bytes and
 * time. */
static size_t place(uint64_t *s, struct vm_iter_block *blocks, uint64_t *offsets)
{
    size_t n = 0;

    for (int tries = 0; tries < 400 && n < BLOCKS; tries++) {
        struct vm_iter_block b = {.fixed_offset = VM_UNPLACED};
        uint64_t kind = small_random(s) % 4, at;
        b.size = small_random(s) % 2 ? 512 * (1 + small_random(s) % 6) : 1 + small_random(s) % (3 * PAGE);
        at = small_random(s) % (PAGES * PAGE - b.size);
        at -= at % 512;
        b.alloc_op = (uint32_t)(small_random(s) % OPS);
        b.free_op = b.alloc_op + 1 + (uint32_t)(small_random(s) % (OPS - 1));
        if (b.free_op > OPS)
            b.flags = VM_BLK_WRAPS;
        if (kind == 0)
            b = (struct vm_iter_block){.size = b.size, .fixed_offset = VM_UNPLACED, .free_op = OPS,
                                       .flags = VM_BLK_PERSISTENT};
        bool ok = true;
        for (size_t i = 0; i < n && ok; i++)
            ok = at + b.size <= offsets[i] || offsets[i] + blocks[i].size <= at ||
                 !share_time(&b, &blocks[i]);
        if (!ok)
            continue;
        offsets[n] = at;
        blocks[n++] = b;
    }
    return n;
}

static void make(uint64_t seed, struct vm_iteration *it, uint64_t *offsets)
{
    static const uint8_t modes[] = {VM_READ, VM_RW, VM_WRITE | VM_TOTAL, VM_UNKNOWN, VM_WRITE};
    uint64_t s = seed;

    memset(it, 0, sizeof *it);
    it->blocks = calloc(BLOCKS, sizeof *it->blocks);
    it->ops = calloc(OPS, sizeof *it->ops);
    it->accesses = calloc((size_t)OPS * BLOCKS, sizeof *it->accesses);
    it->nblocks = place(&s, it->blocks, offsets);
    it->nops = OPS;
    for (uint32_t k = 0; k < OPS; k++) {
        it->ops[k] = (struct vm_iter_op){.dur_ns = 1000, .acc = (uint32_t)it->naccesses};
        for (uint32_t i = 0; i < it->nblocks; i++)
            if (alive(&it->blocks[i], k) && small_random(&s) % 3 == 0) {
                it->accesses[it->naccesses++] =
                    (struct vm_access){.block = i, .mode = modes[small_random(&s) % 5]};
                it->ops[k].nacc++;
            }
    }
}

static int mode_at(const struct vm_iteration *it, uint32_t block, uint32_t op)
{
    for (uint32_t i = 0; i < it->ops[op].nacc; i++)
        if (it->accesses[it->ops[op].acc + i].block == block)
            return it->accesses[it->ops[op].acc + i].mode;
    return 0;
}

/* Do the block's contents matter just after op k? Walks forward op by op until somebody reads or
 * overwrites them, or the block ends, at most once round. They must have been touched in this life. */
static bool matters_after(const struct vm_iteration *it, uint32_t block, uint32_t k)
{
    const struct vm_iter_block *b = &it->blocks[block];
    bool born = (b->flags & VM_BLK_PERSISTENT) != 0;

    if (!alive(b, k))
        return false;
    uint32_t age = k >= b->alloc_op ? k - b->alloc_op : k + OPS - b->alloc_op;
    for (uint32_t back = 0; back <= age && !born; back++)
        born = mode_at(it, block, (k + OPS - back) % OPS) != 0;
    if (!born)
        return false;
    uint32_t left = b->flags & VM_BLK_PERSISTENT ? OPS : b->free_op - b->alloc_op - age - 1;
    for (uint32_t i = 1; i <= left; i++) {
        int m = mode_at(it, block, (k + i) % OPS);
        if (m)
            return !(m == (VM_WRITE | VM_TOTAL));
    }
    return false;
}

static bool on_page(const struct vm_iteration *it, const uint64_t *offsets, uint32_t b, uint64_t page)
{
    return offsets[b] < (page + 1) * PAGE && offsets[b] + it->blocks[b].size > page * PAGE;
}

/* What the units say of a page just after op k: 0 not there, 1 dead, 2 contents matter. */
static int unit_state(const struct vm_page_units *u, uint64_t page, uint32_t k)
{
    int state = 0;

    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        if (page < un->page || page >= un->page + un->npages)
            continue;
        for (uint32_t j = 0; j < un->nuses; j++) {
            unsigned wraps;
            uint32_t use = un->use + j, next = vm_page_next_use(u, un, use, &wraps);
            if (next == VM_NONE || !(u->uses[use].flags & VM_PU_LIVE_AFTER))
                continue;
            uint32_t from = u->uses[use].op, to = u->uses[next].op + (wraps ? OPS : 0);
            if ((k >= from && k < to) || (k + OPS >= from && k + OPS < to))
                state = 2;
        }
    }
    return state;
}

Test(units, against_bytes)
{
    unsigned shared = 0, wrapping = 0;

    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct vm_iteration it;
        struct vm_page_units u;
        struct vm_error why = {""};
        uint64_t offsets[BLOCKS];
        make(seed, &it, offsets);
        cr_assert_eq(vm_page_units_build(&it, offsets, PAGE, &u, &why), VM_OK, "%s", why.text);
        for (size_t i = 0; i < it.nblocks; i++)
            wrapping += (it.blocks[i].flags & VM_BLK_WRAPS) != 0;
        for (size_t i = 0; i < u.nunits; i++)
            shared += (u.units[i].flags & VM_UNIT_SHARED) != 0;
        for (uint32_t k = 0; k < OPS; k++)
            for (uint64_t page = 0; page < PAGES; page++) {
                unsigned want = 0, got = 0, live = 0, writes = 0, got_writes = 0;
                for (uint32_t b = 0; b < it.nblocks; b++) {
                    if (!on_page(&it, offsets, b, page))
                        continue;
                    int m = mode_at(&it, b, k);
                    want |= m != 0;
                    writes |= (m & (VM_WRITE | VM_UNKNOWN)) != 0;
                    live |= matters_after(&it, b, k);
                }
                for (uint32_t r = u.op_first[k]; r < u.op_first[k + 1]; r++) {
                    const struct vm_page_unit *un = &u.units[u.refs[r].unit];
                    if (page < un->page || page >= un->page + un->npages)
                        continue;
                    got++;
                    got_writes |= u.uses[u.refs[r].use].flags & VM_PU_WRITE;
                }
                cr_assert_eq(got, want, "seed %llu op %u page %llu: %u uses, %u wanted",
                             (unsigned long long)seed, k, (unsigned long long)page, got, want);
                cr_assert_eq(got_writes, writes, "seed %llu op %u page %llu: writes",
                             (unsigned long long)seed, k, (unsigned long long)page);
                cr_assert_eq(unit_state(&u, page, k) == 2, live,
                             "seed %llu op %u page %llu: contents matter %u",
                             (unsigned long long)seed, k, (unsigned long long)page, live);
            }
        vm_page_units_fini(&u);
        vm_iteration_fini(&it);
    }
    cr_assert_gt(shared, 1000);
    cr_assert_gt(wrapping, 1000);
}

Test(units, refuses)
{
    struct vm_iteration it;
    struct vm_page_units u;
    struct vm_error why = {""};
    uint64_t offsets[BLOCKS];

    make(3, &it, offsets);
    cr_assert_eq(vm_page_units_build(&it, offsets, 0, &u, &why), VM_EINVAL);
    cr_assert(strlen(why.text) > 10);
    it.accesses[0].block = 1000;
    cr_assert_eq(vm_page_units_build(&it, offsets, PAGE, &u, &why), VM_EINVAL);
    it.accesses[0].block = 0;
    offsets[0] = VM_UNPLACED;
    cr_assert_eq(vm_page_units_build(&it, offsets, PAGE, &u, &why), VM_EINVAL);
    vm_iteration_fini(&it);
}
