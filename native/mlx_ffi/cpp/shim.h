// What Mlx adds to mlx-c.
#pragma once
#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

// The text of the last error on this thread, or "" when there is none; valid until the next call
// into MLX on this thread.
const char* mlx_ffi_last_error(void);

// Computes `size` elements of `out`, one after the other, from those of `in`, which are `stride`
// elements apart. Where `stride` is 1, `out` may be `in`.
typedef void (*mlx_ffi_map_fn)(const void* in, ptrdiff_t stride, void* out, size_t size);

// An array of x's shape whose elements `map` will compute from those of x, when they are needed.
// The stream must be a CPU's. `name` must live as long as the process.
int mlx_ffi_map(
    mlx_array* res,
    const mlx_array x,
    mlx_dtype dtype,
    const char* name,
    mlx_ffi_map_fn map,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
