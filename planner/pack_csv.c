#include "pack_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE ((size_t)1 << 20)
enum { MOST_COLUMNS = 64 };

enum column { COL_ID, COL_LOWER, COL_UPPER, COL_SIZE, COL_OFFSET, COL_ALIGNMENT, COL_GAPS, NCOLUMNS };

static const char *const column_names[NCOLUMNS] = {"id",     "lower",     "upper", "size",
                                                   "offset", "alignment", "gaps"};

struct reader {
    FILE *in;
    const char *name;
    size_t line;
    char *text; /* the line, cut into fields in place */
    size_t cap;
    char *field[MOST_COLUMNS];
    size_t nfields;
    int at[NCOLUMNS]; /* field of each column, -1 = not there */
    struct vm_pack_csv out;
    size_t cap_items, cap_gaps;
    struct vm_error *why;
};

static int refuse(struct reader *r, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct reader *r, int status, const char *format, ...)
{
    char reason[160];
    va_list ap;
    va_start(ap, format);
    vsnprintf(reason, sizeof reason, format, ap);
    va_end(ap);
    for (char *c = reason; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* what the file holds must not get at the terminal */
    if (r->why)
        snprintf(r->why->text, sizeof r->why->text, "%.80s:%zu: %s", r->name, r->line, reason);
    return status;
}

/* The next line without its end. 1 = there is one, 0 = the file ended, negative = an error. */
static int next_line(struct reader *r)
{
    size_t n = 0;
    int c;
    r->line++;
    while ((c = getc(r->in)) != EOF && c != '\n') {
        if (c == 0)
            return refuse(r, VM_EINVAL, "a zero byte: this is not a text file");
        if (n + 2 > r->cap) {
            size_t cap = r->cap ? r->cap * 2 : 256;
            char *grown = realloc(r->text, cap);
            if (!grown)
                return refuse(r, VM_ENOMEM, "out of memory");
            r->text = grown;
            r->cap = cap;
        }
        r->text[n++] = (char)c;
        if (n > MAX_LINE)
            return refuse(r, VM_EINVAL, "the line is longer than 1 MiB");
    }
    if (c == EOF && ferror(r->in))
        return refuse(r, VM_EIO, "cannot be read");
    if (c == EOF && n == 0)
        return 0;
    if (n && r->text[n - 1] == '\r')
        n--;
    if (!r->text) { /* an empty first line */
        r->text = malloc(r->cap = 256);
        if (!r->text)
            return refuse(r, VM_ENOMEM, "out of memory");
    }
    r->text[n] = 0;
    return 1;
}

static char *trim(char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    char *end = s + strlen(s);
    while (end > s && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = 0;
    return s;
}

static int cut_fields(struct reader *r)
{
    char *s = r->text;
    for (r->nfields = 0;;) {
        if (r->nfields == MOST_COLUMNS)
            return refuse(r, VM_EINVAL, "more than %d columns", MOST_COLUMNS);
        char *comma = strchr(s, ',');
        if (comma)
            *comma = 0;
        r->field[r->nfields++] = trim(s);
        if (!comma)
            return VM_OK;
        s = comma + 1;
    }
}

static int read_header(struct reader *r)
{
    int got = next_line(r);
    if (got <= 0)
        return got ? got : refuse(r, VM_EINVAL, "the file is empty: it must begin with id,lower,upper,size");
    int status = cut_fields(r);
    if (status)
        return status;
    for (size_t c = 0; c < NCOLUMNS; c++) {
        r->at[c] = -1;
        for (size_t k = 0; k < r->nfields; k++)
            if (strcmp(r->field[k], column_names[c]) == 0) {
                if (r->at[c] >= 0)
                    return refuse(r, VM_EINVAL, "two columns are named '%s'", column_names[c]);
                r->at[c] = (int)k;
            }
        if (c <= COL_SIZE && r->at[c] < 0)
            return refuse(r, VM_EINVAL, "no column '%s': the file must begin with id,lower,upper,size",
                          column_names[c]);
    }
    return VM_OK;
}

/* A decimal number that fits 63 bits, to its end at `stop` (0 or a character). */
static const char *number(const char *s, char stop, uint64_t *out)
{
    uint64_t x = 0;
    if (*s < '0' || *s > '9')
        return NULL;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (x > (INT64_MAX - 9) / 10)
            return NULL;
        x = x * 10 + (uint64_t)(*s - '0');
    }
    *out = x;
    return *s == stop ? s : NULL;
}

/* The column's field, NULL where the line or the file lacks it or it is empty. */
static const char *field(const struct reader *r, enum column c)
{
    if (r->at[c] < 0 || (size_t)r->at[c] >= r->nfields || !*r->field[r->at[c]])
        return NULL;
    return r->field[r->at[c]];
}

static int take_number(struct reader *r, enum column c, int required, uint64_t *out)
{
    const char *text = field(r, c);
    if (!text)
        return required ? refuse(r, VM_EINVAL, "%s is missing", column_names[c]) : VM_OK;
    if (!number(text, 0, out))
        return refuse(r, VM_EINVAL, "%s '%.40s' is not a whole number from 0 to 2^63 - 1", column_names[c],
                      text);
    return VM_OK;
}

static int add_gap(struct reader *r, struct vm_pack_span gap)
{
    if (r->out.problem.ngaps == r->cap_gaps) {
        size_t cap = r->cap_gaps ? r->cap_gaps * 2 : 64;
        struct vm_pack_span *grown = realloc(r->out.gaps, cap * sizeof *grown);
        if (!grown)
            return refuse(r, VM_ENOMEM, "out of memory");
        r->out.gaps = grown;
        r->cap_gaps = cap;
    }
    r->out.gaps[r->out.problem.ngaps++] = gap;
    return VM_OK;
}

static int take_gaps(struct reader *r, struct vm_pack_item *it)
{
    const char *s = field(r, COL_GAPS);
    uint64_t at = it->lower;
    it->gap = (uint32_t)r->out.problem.ngaps;
    while (s && *s) {
        struct vm_pack_span gap;
        const char *dash = number(s, '-', &gap.lower);
        const char *end = dash ? number(dash + 1, ' ', &gap.upper) : NULL;
        if (dash && !end)
            end = number(dash + 1, 0, &gap.upper);
        if (!end)
            return refuse(r, VM_EINVAL, "gaps '%.40s' are not like \"7-9 12-14\"", s);
        if (gap.lower <= at || gap.upper <= gap.lower || gap.upper >= it->upper)
            return refuse(r, VM_EINVAL,
                          "gap %" PRIu64 "-%" PRIu64 " is empty, out of order or not inside the lifetime",
                          gap.lower, gap.upper);
        int status = add_gap(r, gap);
        if (status)
            return status;
        at = gap.upper;
        it->ngaps++;
        for (s = end; *s == ' ';)
            s++;
    }
    return VM_OK;
}

static int room_for_item(struct reader *r)
{
    size_t n = r->out.problem.nitems;
    if (n < r->cap_items)
        return VM_OK;
    if (n >= (size_t)1 << 28)
        return refuse(r, VM_EINVAL, "more than 2^28 blocks");
    size_t cap = n ? n * 2 : 256;
    struct vm_pack_item *items = realloc(r->out.items, cap * sizeof *items);
    if (items)
        r->out.items = items;
    char **ids = realloc(r->out.ids, cap * sizeof *ids);
    if (ids)
        r->out.ids = ids;
    if (!items || !ids)
        return refuse(r, VM_ENOMEM, "out of memory");
    r->cap_items = cap;
    return VM_OK;
}

static int take_item(struct reader *r)
{
    struct vm_pack_item it = {.fixed = VM_UNPLACED};
    const struct {
        enum column column;
        int required;
        uint64_t *to;
    } numbers[] = {{COL_LOWER, 1, &it.lower},  {COL_UPPER, 1, &it.upper},       {COL_SIZE, 1, &it.size},
                   {COL_OFFSET, 0, &it.fixed}, {COL_ALIGNMENT, 0, &it.align}};
    int status = cut_fields(r);
    for (size_t k = 0; status == VM_OK && k < sizeof numbers / sizeof *numbers; k++)
        status = take_number(r, numbers[k].column, numbers[k].required, numbers[k].to);
    if (status)
        return status;
    if (!field(r, COL_ID))
        return refuse(r, VM_EINVAL, "id is missing");
    if (it.lower >= it.upper)
        return refuse(r, VM_EINVAL, "lower %" PRIu64 " is not below upper %" PRIu64, it.lower, it.upper);
    status = take_gaps(r, &it);
    if (status == VM_OK)
        status = room_for_item(r);
    if (status)
        return status;
    size_t n = r->out.problem.nitems;
    r->out.ids[n] = strdup(field(r, COL_ID));
    if (!r->out.ids[n])
        return refuse(r, VM_ENOMEM, "out of memory");
    r->out.items[n] = it;
    r->out.problem.nitems = n + 1;
    return VM_OK;
}

static int read_all(struct reader *r)
{
    int status = read_header(r);
    while (status == VM_OK) {
        int got = next_line(r);
        if (got <= 0)
            return got;
        if (*trim(r->text))
            status = take_item(r);
    }
    return status;
}

int vm_pack_csv_read(FILE *in, const char *name, struct vm_pack_csv *out, struct vm_error *why)
{
    struct reader r = {.in = in, .name = name, .why = why};
    int status = read_all(&r);
    free(r.text);
    if (status) {
        vm_pack_csv_fini(&r.out);
        return status;
    }
    r.out.problem.items = r.out.items;
    r.out.problem.gaps = r.out.gaps;
    *out = r.out;
    return VM_OK;
}

void vm_pack_csv_fini(struct vm_pack_csv *csv)
{
    for (size_t i = 0; i < csv->problem.nitems; i++)
        free(csv->ids[i]);
    free(csv->ids);
    free(csv->items);
    free(csv->gaps);
    *csv = (struct vm_pack_csv){0};
}

int vm_pack_csv_write(FILE *to, const struct vm_pack_csv *csv, const uint64_t *offsets)
{
    fputs("id,lower,upper,size,offset\n", to);
    for (size_t i = 0; i < csv->problem.nitems; i++) {
        const struct vm_pack_item *it = &csv->items[i];
        fprintf(to, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", csv->ids[i], it->lower,
                it->upper, it->size, offsets[i]);
    }
    return fflush(to) || ferror(to) ? VM_EIO : VM_OK;
}
