/* Runs a fuzz target without a fuzzer: every file named (or in a folder named), each as it is and
 * then damaged --rounds times from --seed. For compilers without libFuzzer, and for the test suite.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned state;

static unsigned draw(size_t below)
{
    state = state * 1664525u + 1013904223u;
    return (unsigned)((state >> 8) % below);
}

/* Changes, cuts, doubles and swaps pieces of the text. `room` bytes are at data; the new length. */
static size_t damage(uint8_t *data, size_t n, size_t room)
{
    static const char bytes[] = "{}[],:\"0123456789-+.eE\\u \n\trwtuxNaN";
    for (unsigned k = 1 + draw(6); k > 0 && n > 1; k--) {
        size_t at = draw(n), len = 1 + draw(n < 64 ? n : 64);
        if (at + len > n)
            len = n - at;
        switch (draw(5)) {
        case 0:
            data[at] = (uint8_t)bytes[draw(sizeof bytes - 1)];
            break;
        case 1:
            data[at] = (uint8_t)draw(256);
            break;
        case 2: /* cut out */
            memmove(data + at, data + at + len, n - at - len);
            n -= len;
            break;
        case 3: /* double */
            if (n + len <= room) {
                memmove(data + at + len, data + at, n - at);
                n += len;
            }
            break;
        default:
            n = draw(8) ? n : at + 1; /* truncate, sometimes */
            break;
        }
    }
    return n;
}

static int run_file(const char *path, unsigned rounds)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    size_t n = (size_t)st.st_size, room = 2 * n + 1024;
    uint8_t *text = malloc(n + 1), *copy = malloc(room);
    if (!text || !copy || fread(text, 1, n, f) != n) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    fclose(f);
    LLVMFuzzerTestOneInput(text, n);
    for (unsigned r = 0; r < rounds; r++) {
        memcpy(copy, text, n);
        size_t len = damage(copy, n, room);
        uint8_t *exact = malloc(len ? len : 1); /* so that a sanitizer sees the end */
        if (!exact)
            return 1;
        memcpy(exact, copy, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
    }
    free(text);
    free(copy);
    return 0;
}

static int run_path(const char *path, unsigned rounds, unsigned *files)
{
    char name[4096];
    DIR *d = opendir(path);
    int rc = 0;
    if (!d) {
        ++*files;
        return run_file(path, rounds);
    }
    for (struct dirent *e; (e = readdir(d)) && rc == 0;)
        if (e->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, e->d_name);
            rc = run_path(name, rounds, files);
        }
    closedir(d);
    return rc;
}

int main(int argc, char **argv)
{
    unsigned rounds = 0, files = 0;
    int rc = 0;
    state = 1;
    for (int i = 1; i < argc && rc == 0; i++) {
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            state = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            rc = run_path(argv[i], rounds, &files);
    }
    if (files == 0) {
        fprintf(stderr, "usage: %s [--rounds N] [--seed N] FILE|FOLDER...\n", argv[0]);
        return 2;
    }
    printf("%u files, %u damaged copies of each: survived\n", files, rounds);
    return rc;
}
