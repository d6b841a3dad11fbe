/* forks.c: processes that fork before and after CUDA is up. */
#include "api.h"

#include <sys/wait.h>
#include <unistd.h>

static int status_of(pid_t pid)
{
    int status = 0;
    TRUE_(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int work(void)
{
    uint32_t *p, word = 0;
    if (cudaMalloc((void **)&p, 4096) != cudaSuccess)
        return (int)cudaGetLastError();
    api_fill(0, p, 4, 1024);
    OK(cudaMemcpy(&word, p + 1023, 4, cudaMemcpyDeviceToHost));
    OK(cudaFree(p));
    return word == 4 ? 0 : 1;
}

int main(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(work());
    printf("a child of a process without CUDA: %d\n", status_of(pid));
    printf("the parent itself: %d\n", work());
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        void *p;
        cudaError_t e = cudaMalloc(&p, 16);
        _exit(e == cudaSuccess ? 0 : 100 + (int)e);
    }
    int s = status_of(pid);
    printf("a child of a process with CUDA up is refused: %d\n", s > 100 && s < 256);
    printf("the parent goes on: %d\n", work());
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(1);
    }
    printf("a child that runs another program: %d\n", status_of(pid));
    return 0;
}
