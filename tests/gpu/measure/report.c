/* A clock, samples, and the lines that say what was found. */
#include "measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void sample(struct samples *s, double value)
{
    if (s->n < sizeof s->v / sizeof s->v[0])
        s->v[s->n++] = value;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void begin(const char *unit, const char *format, va_list args)
{
    printf("{\"name\": \"");
    vprintf(format, args);
    printf("\", \"unit\": \"%s\"", unit);
}

static void end(void)
{
    printf("}\n");
    fflush(stdout);
}

void report_samples(const struct samples *s, const char *unit, const char *format, ...)
{
    struct samples sorted = *s;
    va_list args;
    if (!s->n)
        return;
    qsort(sorted.v, sorted.n, sizeof sorted.v[0], ascending);
    va_start(args, format);
    begin(unit, format, args);
    va_end(args);
    printf(", \"min\": %.6g, \"median\": %.6g, \"p90\": %.6g, \"max\": %.6g, \"n\": %zu",
           sorted.v[0], sorted.v[sorted.n / 2], sorted.v[sorted.n * 9 / 10], sorted.v[sorted.n - 1],
           sorted.n);
    end();
}

void report_number(double value, const char *unit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    begin(unit, format, args);
    va_end(args);
    printf(", \"value\": %.9g", value);
    end();
}

void report_text(const char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    begin("", format, args);
    va_end(args);
    printf(", \"value\": \"%s\"", text);
    end();
}
