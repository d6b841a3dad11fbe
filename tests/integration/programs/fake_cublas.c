/* A library that answers cublasSasum_v2 with a number of its own, so that one sees which copy was
 * called. CALLER makes a second library of it that is linked with the first and calls it. */
#ifdef CALLER
int cublasSasum_v2(void *handle, int n, const float *x, int incx, float *result);
int CALLER(void);
int CALLER(void)
{
    float result;
    return cublasSasum_v2((void *)8, 0, (const float *)8, 1, &result);
}
#else
int cublasSasum_v2(void *handle, int n, const float *x, int incx, float *result);
int cublasGetPointerMode_v2(void *handle, int *mode);
int cublasSasum_v2(void *handle, int n, const float *x, int incx, float *result)
{
    return STATUS;
}
int cublasGetPointerMode_v2(void *handle, int *mode)
{
    *mode = 0;
    return 0;
}
#endif
