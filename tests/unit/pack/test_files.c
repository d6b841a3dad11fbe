/* The files: packing problems as CSV, and operator logs turned into traces. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_dtr.h"
#include "iteration.h"
#include "pack_csv.h"

static int read_text(const char *text, struct vm_pack_csv *csv, struct vm_error *why)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int status = vm_pack_csv_read(f, "dir/t.csv", csv, why);
    fclose(f);
    return status;
}

Test(csv, reads_columns_in_any_order)
{
    struct vm_pack_csv csv;
    struct vm_error why = {""};
    int status = read_text("size, id ,note,upper,lower,offset,alignment,gaps\r\n"
                           "40,first,?,30,2,,8,7-9 12-14\r\n"
                           "\n"
                           "0,second,,9,1,128,,\n",
                           &csv, &why);
    cr_assert_eq(status, VM_OK, "%s", why.text);
    cr_assert_eq(csv.problem.nitems, 2);
    cr_assert_str_eq(csv.ids[0], "first");
    cr_assert_eq(csv.items[0].size, 40);
    cr_assert_eq(csv.items[0].lower, 2);
    cr_assert_eq(csv.items[0].upper, 30);
    cr_assert_eq(csv.items[0].align, 8);
    cr_assert_eq(csv.items[0].fixed, VM_UNPLACED);
    cr_assert_eq(csv.items[0].ngaps, 2);
    cr_assert_eq(csv.problem.gaps[1].lower, 12);
    cr_assert_eq(csv.problem.gaps[1].upper, 14);
    cr_assert_eq(csv.items[1].fixed, 128);
    cr_assert_eq(csv.items[1].ngaps, 0);
    vm_pack_csv_fini(&csv);
}

Test(csv, refuses_with_the_line_and_the_reason)
{
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"", "t.csv:1: the file is empty"},
        {"id,lower,upper\na,1,2\n", "t.csv:1: no column 'size'"},
        {"id,id,lower,upper,size\n", "t.csv:1: two columns are named 'id'"},
        {"id,lower,upper,size\na,1,2\n", "t.csv:2: size is missing"},
        {"id,lower,upper,size\na,1,2,3\nb,1,2,-3\n", "t.csv:3: size '-3' is not a whole number"},
        {"id,lower,upper,size\na,1,2,1e3\n", "t.csv:2: size '1e3'"},
        {"id,lower,upper,size\na,1,2,9223372036854775808\n", "t.csv:2: size '9223372036854775808'"},
        {"id,lower,upper,size\na,2,2,3\n", "t.csv:2: lower 2 is not below upper 2"},
        {"id,lower,upper,size\n,1,2,3\n", "t.csv:2: id is missing"},
        {"id,lower,upper,size,gaps\na,0,9,3,3-2\n", "t.csv:2: gap 3-2 is empty"},
        {"id,lower,upper,size,gaps\na,0,9,3,3:4\n", "t.csv:2: gaps '3:4'"},
        {"id,lower,upper,size,gaps\na,0,9,3,5-6 2-3\n", "t.csv:2: gap 2-3"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct vm_pack_csv csv = {0};
        struct vm_error why = {""};
        FILE *f = *bad[k].text ? fmemopen((void *)(uintptr_t)bad[k].text, strlen(bad[k].text), "r")
                               : fopen("/dev/null", "r");
        cr_assert_eq(vm_pack_csv_read(f, "dir/t.csv", &csv, &why), VM_EINVAL, "case %zu", k);
        fclose(f);
        cr_assert(strstr(why.text, bad[k].reason), "case %zu: %s", k, why.text);
        cr_assert_null(csv.items);
    }
}

Test(csv, zero_bytes_and_endless_lines)
{
    static const char zero[] = "id,lower\0,upper,size\n";
    struct vm_pack_csv csv;
    struct vm_error why;
    FILE *f = fmemopen((void *)(uintptr_t)zero, sizeof zero - 1, "r");
    cr_assert_eq(vm_pack_csv_read(f, "z", &csv, &why), VM_EINVAL);
    fclose(f);
    cr_assert(strstr(why.text, "z:1: a zero byte"), "%s", why.text);
    f = fopen("/dev/zero", "r");
    cr_assert_eq(vm_pack_csv_read(f, "z", &csv, &why), VM_EINVAL);
    fclose(f);
    char *line = malloc(3 << 20);
    memset(line, 'x', 3 << 20);
    f = fmemopen(line, 3 << 20, "r");
    cr_assert_eq(vm_pack_csv_read(f, "z", &csv, &why), VM_EINVAL);
    cr_assert(strstr(why.text, "longer than 1 MiB"), "%s", why.text);
    fclose(f);
    free(line);
}

static int import_text(const char *text, struct vm_trace *t, struct vm_error *why)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int status = vm_import_dtr(f, "t.log", t, why);
    fclose(f);
    return status;
}

#define CONSTANT(name, bytes)                          \
    "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"" name \
    "\"}\n{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"" bytes "\",\"NAME\":\"" name "\"}\n"
#define CALL(name, args, result, bytes, alias)                                                     \
    "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"" name "\",\"ARGS\":[" args "],\"RESULT\":[\"" result       \
    "\"],\"TIME\":\"30\"}\n{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"" bytes "\",\"NAME\":\"" result \
    "\"}\n{\"INSTRUCTION\":\"ALIAS\",\"ALIAS\":\"" alias "\",\"NAME\":\"" result "\"}\n"
#define RELEASE(name) "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"" name "\"}\n"

Test(dtr, aliases_share_and_the_last_handle_frees)
{
    struct vm_trace t = {0};
    struct vm_iteration it = {0};
    struct vm_error why = {""};
    int status = import_text(CONSTANT("w", "100")                        /* there before           */
                             CALL("conv", "\"w\"", "y", "64", "-1")      /* op 0: a fresh block    */
                             CALL("view", "\"y\"", "v", "64", "0")       /* op 1: the same storage */
                             RELEASE("y")
                             "{\"INSTRUCTION\":\"MUTATE\",\"NAME\":\"relu_\",\"ARGS\":[\"w\",\"v\"],"
                             "\"MUTATE\":[1],\"TIME\":\"7\"}\n"           /* op 2: in place         */
                             RELEASE("v")                                /* now the storage goes   */
                             CALL("loss", "\"w\"", "l", "4", "-1"),      /* op 3                   */
                             &t, &why);
    cr_assert_eq(status, VM_OK, "%s", why.text);
    cr_assert_eq(t.nblocks, 3);
    cr_assert_eq(vm_iteration_whole(&t, &it, &why), VM_OK, "%s", why.text);
    cr_assert_eq(it.nops, 4);
    cr_assert_eq(it.ops[2].dur_ns, 7);
    cr_assert_eq(it.ops[2].nacc, 2);
    const struct vm_iter_block *w = NULL, *y = NULL, *l = NULL;
    for (size_t b = 0; b < it.nblocks; b++) {
        w = it.blocks[b].size == 100 ? &it.blocks[b] : w;
        y = it.blocks[b].size == 64 ? &it.blocks[b] : y;
        l = it.blocks[b].size == 4 ? &it.blocks[b] : l;
    }
    cr_assert(w && y && l);
    cr_assert(w->flags & VM_BLK_PERSISTENT);
    cr_assert_eq(y->alloc_op, 0);
    cr_assert_eq(y->free_op, 3, "freed with its last handle, before op 3");
    cr_assert_eq(l->free_op, 4, "never freed: to the end");
    const struct vm_access *a = &it.accesses[it.ops[2].acc];
    unsigned mode = it.blocks[a[0].block].size == 64 ? a[0].mode : a[1].mode;
    cr_assert_eq(mode, VM_RW, "MUTATE reads and writes in place");
    a = &it.accesses[it.ops[0].acc];
    mode = it.blocks[a[0].block].size == 64 ? a[0].mode : a[1].mode;
    cr_assert_eq(mode, VM_WRITE | VM_TOTAL, "a result is written in full");
    vm_iteration_fini(&it);
    vm_trace_fini(&t);
}

Test(dtr, refuses_with_the_line_and_the_reason)
{
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x\"}\n", "t.log:1: 'x' was never defined"},
        {CONSTANT("x", "8") RELEASE("x") RELEASE("x"), "t.log:4: 'x' was released before"},
        {CONSTANT("x", "-8"), "t.log:2: MEMORY '-8'"},
        {CONSTANT("x", "99999999999999999999"), "t.log:2: MEMORY '99999999999999999999'"},
        {CONSTANT("x", "8") CALL("f", "\"x\"", "y", "8", "3"), "t.log:5: ALIAS names argument 3 of 1"},
        {CONSTANT("x", "8") "{\"INSTRUCTION\":\"ALIAS\",\"ALIAS\":\"-1\",\"NAME\":\"x\"}\n",
         "t.log:3: 'x' is not a result"},
        {"{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[],\"RESULT\":[]}\n", "TIME is missing"},
        {"{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"q\"],\"RESULT\":[],\"TIME\":\"1\"}\n",
         "'q' was never defined"},
        {"{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":7,\"RESULT\":[],\"TIME\":\"1\"}\n",
         "ARGS is not an array"},
        {"{\"NAME\":\"f\"}\n", "INSTRUCTION is missing"},
        {"{\"INSTRUCTION\":", "t.log:1:"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct vm_trace t = {0};
        struct vm_error why = {""};
        cr_assert_eq(import_text(bad[k].text, &t, &why), VM_EINVAL, "case %zu", k);
        cr_assert(strstr(why.text, bad[k].reason), "case %zu: %s", k, why.text);
        cr_assert_eq(t.nevents, 0);
    }
}
