/* Stands for PyTorch's CUDA library: only its file name matters to libvmem. */
int fake_torch_is_here(void);
int fake_torch_is_here(void)
{
    return 1;
}
