// What Mlx adds to mlx-c.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif

// The text of the last error on this thread, or "" when there is none; valid until the next call
// into MLX on this thread.
const char* mlx_ffi_last_error(void);

#ifdef __cplusplus
}
#endif
