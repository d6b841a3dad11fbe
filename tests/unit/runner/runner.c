/* runner.c: runs tests written for Criterion without its library, for builds with ThreadSanitizer.
 *
 * Criterion runs each test in a process of its own that shares an arena with the runner. Under
 * ThreadSanitizer the arena cannot be mapped ("Could not initialize inheritable arena"), with address
 * randomisation and without, because the sanitizer keeps most of the address space to itself. Here
 * a test is simply a forked child. Only what our tests use is here: Test with .init, .fini and .timeout,
 * the asserts, cr_skip. Arguments are ignored.
 */
#include <criterion/criterion.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_FAILED = 1, CHILD_SKIPPED = 77 };

extern struct criterion_test *const __start_cr_tst[], *const __stop_cr_tst[];
struct criterion_options criterion_options;

static const struct criterion_test *current;
static int failed; /* in the child: an expectation did not hold */

/* ---- what the macros of <criterion/criterion.h> call ------------------------------------------------- */

int cr_asprintf(char **text, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (*text)
        vsnprintf(*text, (size_t)n + 1, format, again);
    va_end(again);
    return *text ? n : -1;
}

void cr_asprintf_free(char *text)
{
    free(text);
}

/* The text of the condition, where there is one. */
char *cr_translate_assert_msg(int kind, ...)
{
    va_list list;
    va_start(list, kind);
    const char *text = va_arg(list, const char *);
    char *copy = strdup(text ? text : "");
    va_end(list);
    return copy;
}

void criterion_send_assert(struct criterion_assert_stats *s)
{
    if (!s->passed)
        fprintf(stderr, "%s:%u: %s::%s: assertion failed: %s\n", s->file, s->line, current->category,
                current->name, s->message ? s->message : "");
}

void cri_asserts_passed_incr(void)
{
}

void criterion_continue_test(void)
{
    failed = 1;
}

void criterion_abort_test(void)
{
    exit(CHILD_FAILED);
}

void criterion_skip_test(const char *format, ...)
{
    (void)format;
    exit(CHILD_SKIPPED);
}

void criterion_internal_test_setup(void)
{
    if (current->data->init)
        current->data->init();
}

void criterion_internal_test_main(void (*test)(void))
{
    test();
}

void criterion_internal_test_teardown(void)
{
    if (current->data->fini)
        current->data->fini();
}

/* ---- the runner ---------------------------------------------------------------------------------------- */

/* Runs one test in a child: its exit status, or 128 and the signal that ended it. */
static int run(const struct criterion_test *t)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        current = t;
        if (t->data->timeout > 0)
            alarm((unsigned)t->data->timeout * 10); /* the sanitizer is slow */
        t->test();
        exit(failed ? CHILD_FAILED : 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return CHILD_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
    unsigned ran = 0, bad = 0;
    for (struct criterion_test *const *t = __start_cr_tst; t < __stop_cr_tst; t++) {
        if (!*t || (*t)->data->disabled)
            continue;
        int status = run(*t);
        ran++;
        if (status == 0 || status == CHILD_SKIPPED)
            continue;
        bad++;
        fprintf(stderr, "%s::%s: failed with status %d\n", (*t)->category, (*t)->name, status);
    }
    printf("%u tests, %u failures\n", ran, bad);
    return bad || !ran;
}
