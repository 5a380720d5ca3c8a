// Refers to a cblas symbol, for two reasons: a linker that drops unneeded libraries then keeps
// the BLAS ahead of libmlx, and the file that really serves the calls can be named at run time.
#include "shim.h"

#ifdef MLX_FFI_BLAS
#include <dlfcn.h>

extern "C" void cblas_sgemm();

extern "C" const char* mlx_ffi_blas(void) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&cblas_sgemm), &info) && info.dli_fname) {
    return info.dli_fname;
  }
  return "";
}
#else
extern "C" const char* mlx_ffi_blas(void) {
  return "";
}
#endif
