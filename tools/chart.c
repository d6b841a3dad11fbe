#include "chart.h"

#include <stdio.h>

#include "units.h"

#define WIDTH  72
#define HEIGHT 14

struct column {
    uint64_t work, live, alloc;
};

/* Column of an op by the time it starts. */
static size_t column_of(const struct loaded *l, size_t op)
{
    uint64_t whole = l->start_ns[l->it.nops];
    if (whole == 0)
        return 0;
    size_t c = (size_t)((double)l->start_ns[op] / (double)whole * WIDTH);
    return c < WIDTH ? c : WIDTH - 1;
}

/* A column shows the op with most live bytes of those that start in it, or the op that runs on. */
static void fill(const struct loaded *l, struct column *columns)
{
    size_t last = 0;
    bool set[WIDTH] = {false};
    for (size_t op = 0; op < l->it.nops; op++) {
        size_t c = column_of(l, op);
        struct column now = {l->live.work_bytes[op], l->live.live_bytes[op],
                             l->live.alloc_bytes[op]};
        for (size_t k = last + 1; k < c; k++)
            columns[k] = columns[last];
        if (!set[c] || now.live > columns[c].live)
            columns[c] = now;
        set[c] = true;
        last = c;
    }
    for (size_t k = last + 1; k < WIDTH; k++)
        columns[k] = columns[last];
}

void chart_print(const struct loaded *l, uint64_t budget)
{
    struct column columns[WIDTH] = {{0, 0, 0}};
    char text[24];
    uint64_t top = l->live.peak_alloc;
    fill(l, columns);
    int budget_row = budget && budget <= top ? (int)((double)budget / (double)top * HEIGHT) : -1;
    for (int row = HEIGHT - 1; row >= 0; row--) {
        double level = (row + 0.5) * (double)top / HEIGHT;
        bool label = row == HEIGHT - 1 || row == budget_row;
        printf("%10s |",
               label ? vm_size_text(row == budget_row ? budget : top, text, sizeof text) : "");
        for (int c = 0; c < WIDTH; c++) {
            const struct column *k = &columns[c];
            char mark = (double)k->work >= level    ? '#'
                        : (double)k->live >= level  ? '+'
                        : (double)k->alloc >= level ? '.'
                        : row == budget_row         ? '-'
                                                    : ' ';
            putchar(mark);
        }
        printf(row == budget_row ? " budget\n" : "\n");
    }
    char end[40];
    if (l->timed)
        vm_time_text(l->start_ns[l->it.nops], end, sizeof end);
    else
        snprintf(end, sizeof end, "op %zu", l->it.nops);
    printf("%10s +", "");
    for (int c = 0; c < WIDTH; c++)
        putchar('-');
    printf("\n%10s  0%*s\n", "", WIDTH - 1, end);
    printf("%10s  # used by the running op   + cold (contents wait)   . allocated, contents dead\n",
           "");
}
