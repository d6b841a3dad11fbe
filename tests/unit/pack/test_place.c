/* Placement of an iteration's blocks, paged and contiguous. */
#include <criterion/criterion.h>

#include "instances.h"
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#define MIB  (1024u * 1024)
#define PAGE (2 * MIB)

/* An iteration under construction: ops in order, blocks with alloc and free ops. */
struct builder {
    struct vm_iteration it;
    struct vm_iter_block blocks[4096];
    struct vm_iter_op ops[4096];
    struct vm_access accesses[16384];
};

static uint32_t add_block(struct builder *b, uint64_t size, uint32_t alloc, uint32_t end)
{
    b->blocks[b->it.nblocks] = (struct vm_iter_block){.size = size, .fixed_offset = VM_UNPLACED,
                                                      .alloc_op = alloc, .free_op = end,
                                                      .alloc_ordinal = VM_NONE};
    return (uint32_t)b->it.nblocks++;
}

static void touch(struct builder *b, uint32_t block)
{
    struct vm_iter_op *op = &b->ops[b->it.nops - 1];
    b->accesses[b->it.naccesses++] = (struct vm_access){.block = block, .mode = VM_RW};
    op->nacc++;
}

static uint32_t add_op(struct builder *b)
{
    b->ops[b->it.nops] = (struct vm_iter_op){.acc = (uint32_t)b->it.naccesses};
    return (uint32_t)b->it.nops++;
}

static struct builder *new_builder(void)
{
    struct builder *b = calloc(1, sizeof *b);
    b->it.blocks = b->blocks;
    b->it.ops = b->ops;
    b->it.accesses = b->accesses;
    return b;
}

/* Checks the result against the iteration itself, moment by moment, with no help from the packer:
 * each block is live over its ops, cyclically; fixed ones outside of the pool do not matter. */
static void expect_disjoint(const struct vm_iteration *it, const uint64_t *offsets)
{
    struct vm_pack_item *items = calloc(it->nblocks + 1, sizeof *items);
    struct vm_pack_span *gaps = calloc(it->nblocks + 1, sizeof *gaps);
    struct vm_error why;
    for (size_t k = 0; k < it->nblocks; k++) {
        const struct vm_iter_block *x = &it->blocks[k];
        items[k] = (struct vm_pack_item){.size = x->size, .lower = x->alloc_op, .upper = x->free_op,
                                         .fixed = x->fixed_offset};
        if (x->free_op > it->nops) {
            items[k].lower = 0;
            items[k].upper = it->nops;
            items[k].gap = (uint32_t)k;
            items[k].ngaps = 1;
            gaps[k] = (struct vm_pack_span){x->free_op - it->nops, x->alloc_op};
        }
    }
    struct vm_pack_problem p = {items, it->nblocks, gaps, it->nblocks};
    cr_assert_eq(vm_verify_packing(&p, offsets, 0, NULL, &why), VM_OK, "%s", why.text);
    free(items);
    free(gaps);
}

/* The most pages live at once: a page is live while any block on it is. */
static uint64_t most_pages_live(const struct vm_iteration *it, const uint64_t *offsets,
                                uint64_t pool_bytes)
{
    uint64_t npages = pool_bytes / PAGE + 1, most = 0;
    char *live = malloc(npages);
    for (uint32_t op = 0; op < it->nops; op++) {
        memset(live, 0, npages);
        uint64_t n = 0;
        for (size_t k = 0; k < it->nblocks; k++) {
            const struct vm_iter_block *x = &it->blocks[k];
            int here = (op >= x->alloc_op && op < x->free_op) || op + it->nops < x->free_op;
            if (!here || x->fixed_offset != VM_UNPLACED)
                continue;
            for (uint64_t page = offsets[k] / PAGE; page <= (offsets[k] + x->size - 1) / PAGE; page++) {
                n += !live[page];
                live[page] = 1;
            }
        }
        if (n > most)
            most = n;
    }
    free(live);
    return most;
}

static uint64_t most_bytes_live(const struct vm_iteration *it)
{
    uint64_t most = 0;
    for (uint32_t op = 0; op < it->nops; op++) {
        uint64_t n = 0;
        for (size_t k = 0; k < it->nblocks; k++) {
            const struct vm_iter_block *x = &it->blocks[k];
            if ((op >= x->alloc_op && op < x->free_op) || op + it->nops < x->free_op)
                n += x->fixed_offset == VM_UNPLACED ? x->size : 0;
        }
        if (n > most)
            most = n;
    }
    return most;
}

/* Unrolled recurrent net: `steps` cells of 1 MiB maps kept for the backward pass, temporaries, small
 * persistent weights, and one block that crosses the iteration's end. */
static struct builder *recurrent(uint32_t steps)
{
    struct builder *b = new_builder();
    uint32_t nops = 2 * steps + 1, kept[1024][4];
    for (uint32_t w = 0; w < 8; w++)
        add_block(b, 300000 + w * 1000, 0, nops);
    for (uint32_t t = 0; t < steps; t++) {
        add_op(b);
        for (uint32_t k = 0; k < 4; k++) {
            kept[t][k] = add_block(b, k == 3 ? 5 * MIB : MIB + 4096 * k, t, nops - 1 - t);
            touch(b, kept[t][k]);
        }
        uint32_t scratch = add_block(b, 700000, t, t + 1);
        touch(b, scratch);
        touch(b, t % 8);
    }
    for (uint32_t t = steps; t-- > 0;) {
        uint32_t op = add_op(b);
        for (uint32_t k = 0; k < 4; k++)
            touch(b, kept[t][k]);
        uint32_t scratch = add_block(b, 900000, op, op + 1);
        touch(b, scratch);
    }
    add_op(b);
    add_block(b, 3 * MIB, nops - 1, nops + 2);
    return b;
}

Test(place, paged_recurrent_net_stays_near_the_load)
{
    struct builder *b = recurrent(120);
    struct vm_machine m = {.page_bytes = PAGE};
    uint64_t offsets[4096], bytes = 0;
    struct vm_error why;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, &why), VM_OK, "%s", why.text);
    expect_disjoint(&b->it, offsets);
    uint64_t pages = most_pages_live(&b->it, offsets, bytes);
    double rounded = 0; /* each large block rounded to its pages */
    for (uint32_t op = 119; op < 120; op++)
        for (size_t k = 0; k < b->it.nblocks; k++)
            if (op >= b->blocks[k].alloc_op && op < b->blocks[k].free_op)
                rounded += b->blocks[k].size >= PAGE
                               ? (double)((b->blocks[k].size + PAGE - 1) / PAGE)
                               : (double)b->blocks[k].size / PAGE;
    cr_assert_leq((double)pages, 1.03 * rounded + 4, "%llu pages live, load %.1f",
                  (unsigned long long)pages, rounded);
    cr_assert_leq(bytes, (uint64_t)(1.02 * (double)pages * PAGE) + 4 * PAGE);
    for (size_t k = 0; k < b->it.nblocks; k++)
        cr_assert(b->blocks[k].size < PAGE || offsets[k] % PAGE == 0);
    free(b);
}

Test(place, contiguous_is_tight_and_aligned)
{
    struct builder *b = recurrent(60);
    uint64_t offsets[4096], bytes = 0;
    struct vm_error why;
    cr_assert_eq(vm_place_contiguous(&b->it, 4096, 0, offsets, &bytes, &why), VM_OK, "%s", why.text);
    expect_disjoint(&b->it, offsets);
    uint64_t live = most_bytes_live(&b->it);
    cr_assert_leq((double)bytes, 1.01 * (double)live);
    for (size_t k = 0; k < b->it.nblocks; k++) {
        cr_assert_eq(offsets[k] % 512, 0);
        cr_assert_geq(offsets[k], 4096);
        cr_assert_leq(offsets[k] + b->blocks[k].size, 4096 + bytes);
    }
    free(b);
}

Test(place, small_blocks_idle_together_share_pages)
{
    struct builder *b = new_builder();
    for (uint32_t w = 0; w < 64; w++) /* 16 pages of 4 blocks; touched in a scattered order */
        add_block(b, PAGE / 4, 0, 64);
    for (uint32_t op = 0; op < 64; op++) {
        add_op(b);
        touch(b, op * 37 % 64);
    }
    struct vm_machine m = {.page_bytes = PAGE};
    uint64_t offsets[64], bytes = 0, spread = 0;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, NULL), VM_OK);
    cr_assert_eq(bytes, 16 * (uint64_t)PAGE);
    for (uint64_t page = 0; page < 16; page++) {
        uint32_t first = 64, last = 0;
        for (uint32_t op = 0; op < 64; op++)
            if (offsets[op * 37 % 64] / PAGE == page) {
                first = op < first ? op : first;
                last = op > last ? op : last;
            }
        spread += last - first;
    }
    cr_assert_leq(spread, 16 * 3, "blocks of a page are touched %llu ops apart in all",
                  (unsigned long long)spread);
    free(b);
}

Test(place, keeps_fixed_blocks_and_goes_round_them)
{
    struct builder *b = recurrent(30);
    b->blocks[0].fixed_offset = 0; /* below the pool: no matter */
    b->blocks[1].fixed_offset = 64 * MIB - 1024;
    b->blocks[2].fixed_offset = 80 * MIB + 512;
    b->blocks[3].fixed_offset = (uint64_t)1 << 40;
    struct vm_machine m = {.page_bytes = PAGE};
    for (int paged = 0; paged < 2; paged++) {
        uint64_t offsets[4096], bytes = 0;
        struct vm_error why;
        int status = paged ? vm_place(&b->it, &m, 64 * MIB, offsets, &bytes, &why)
                           : vm_place_contiguous(&b->it, 64 * MIB, 0, offsets, &bytes, &why);
        cr_assert_eq(status, VM_OK, "%s", why.text);
        expect_disjoint(&b->it, offsets);
        cr_assert_eq(offsets[3], (uint64_t)1 << 40);
        cr_assert_leq(bytes, 2 * most_bytes_live(&b->it), "a block far up must not stretch the pool");
        for (size_t k = 4; k < b->it.nblocks; k++) {
            cr_assert_geq(offsets[k], 64 * MIB);
            if (paged) /* no page is shared with a block that cannot be moved */
                cr_assert(offsets[k] / PAGE != offsets[2] / PAGE);
        }
    }
    free(b);
}

Test(place, order_of_frees_between_two_ops_counts)
{
    /* Both live only between ops 0 and 1, one after the other: they may share. */
    struct builder *b = new_builder();
    add_op(b);
    add_op(b);
    uint32_t x = add_block(b, 4 * MIB, 1, 1), y = add_block(b, 4 * MIB, 1, 1);
    struct vm_iter_mem mem[] = {{1, x, 0}, {1, x, 1}, {1, y, 0}, {1, y, 1}};
    b->it.mem = mem;
    b->it.nmem = 4;
    uint64_t offsets[2], bytes = 0;
    cr_assert_eq(vm_place_contiguous(&b->it, 0, 0, offsets, &bytes, NULL), VM_OK);
    cr_assert_eq(bytes, 4 * MIB);
    struct vm_iter_mem nested[] = {{1, x, 0}, {1, y, 0}, {1, x, 1}, {1, y, 1}};
    b->it.mem = nested;
    cr_assert_eq(vm_place_contiguous(&b->it, 0, 0, offsets, &bytes, NULL), VM_OK);
    cr_assert_eq(bytes, 8 * MIB);
    free(b);
}

Test(place, bad_iterations_are_refused)
{
    struct builder *b = new_builder();
    struct vm_machine m = {.page_bytes = PAGE};
    uint64_t offsets[4], bytes = 0;
    struct vm_error why;
    add_op(b);
    uint32_t x = add_block(b, MIB, 0, 1);
    struct vm_iter_mem twice[] = {{0, x, 0}, {0, x, 0}}, stranger[] = {{0, 9, 0}};
    b->it.mem = twice;
    b->it.nmem = 2;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, &why), VM_EINVAL);
    cr_assert(strstr(why.text, "allocated twice"), "%s", why.text);
    b->it.mem = stranger;
    b->it.nmem = 1;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, &why), VM_EINVAL);
    cr_assert(strstr(why.text, "names block 9"), "%s", why.text);
    b->it.nmem = 0;
    m.page_bytes = 3 * MIB;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, &why), VM_EINVAL);
    m.page_bytes = PAGE;
    cr_assert_eq(vm_place(&b->it, &m, 4096, offsets, &bytes, &why), VM_EINVAL);
    b->blocks[x].size = UINT64_MAX;
    cr_assert_eq(vm_place(&b->it, &m, 0, offsets, &bytes, &why), VM_EINVAL);
    b->blocks[x].size = 0;
    cr_assert_eq(vm_place(&b->it, &m, PAGE, offsets, &bytes, &why), VM_OK, "%s", why.text);
    cr_assert_eq(bytes, 0);
    free(b);
}

/* A block whose older instance goes after the younger one came is alive at every moment, whatever the order of
 * allocations and frees makes of its life. */
Test(place, a_block_that_meets_its_successor_is_always_there)
{
    for (int paged = 0; paged < 2; paged++) {
        struct builder *b = new_builder();
        for (int i = 0; i < 4; i++)
            add_op(b);
        uint32_t x = add_block(b, 3 * MIB, 1, 1 + 4), y = add_block(b, 3 * MIB, 2, 4);
        b->blocks[x].flags = VM_BLK_WRAPS;
        struct vm_iter_mem mem[] = {{1, x, 0}, {1, x, 1}, {2, y, 0}, {4, y, 1}};
        b->it.mem = mem;
        b->it.nmem = 4;
        struct vm_machine m = {.page_bytes = PAGE};
        struct vm_error why = {""};
        uint64_t offsets[2], pool;
        int rc = paged ? vm_place(&b->it, &m, 0, offsets, &pool, &why)
                       : vm_place_contiguous(&b->it, 0, 0, offsets, &pool, &why);
        cr_assert_eq(rc, VM_OK, "%s", why.text);
        uint64_t apart = offsets[x] > offsets[y] ? offsets[x] - offsets[y] : offsets[y] - offsets[x];
        cr_assert_geq(apart, 3 * MIB, "they overlap: %llu and %llu", (unsigned long long)offsets[x],
                      (unsigned long long)offsets[y]);
        free(b);
    }
}
