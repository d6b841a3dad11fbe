/* Tests that fail, to prove that the runner notices: an assertion, an expectation, a crash, a data race. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>

static int shared;

static void *count(void *unused)
{
    for (int i = 0; i < 1000; i++)
        shared++;
    return unused;
}

Test(right, a_test_that_passes)
{
    cr_assert_eq(shared, 0);
}

Test(wrong, an_assertion)
{
    cr_assert_eq(shared, 1, "shared is %d", shared);
}

Test(wrong, an_expectation)
{
    cr_expect(shared == 1);
    cr_expect(shared == 0);
}

Test(wrong, a_crash)
{
    abort();
}

Test(wrong, a_race)
{
    pthread_t t;
    cr_assert_eq(pthread_create(&t, NULL, count, NULL), 0);
    count(NULL);
    pthread_join(t, NULL);
}
