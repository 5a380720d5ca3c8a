// What Mlx adds to mlx-c.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"
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

// Functions of complex numbers of single precision.
typedef struct {
  mlx_ffi_map_fn arccos, arccosh, arcsin, arcsinh, arctan, arctanh, cbrt, cos, cosh, exp, expm1, log,
      log1p, rsqrt, sigmoid, sin, sinh, tan, tanh;
} mlx_ffi_complex_fns;

extern const mlx_ffi_complex_fns mlx_ffi_complex;

// Fills `out` from `inputs`, all of them row by row. Where that was asked for, `out` may be the first
// input.
typedef void (*mlx_ffi_call_fn)(void* payload, const void* const* inputs, void* out);

// An array of the given shape and type that `call` will fill from the inputs, which must be
// row-contiguous once they are computed. The stream must be a CPU's. `payload` is taken, also when
// this fails, and given to `drop` in the end.
int mlx_ffi_call(
    mlx_array* res,
    const mlx_vector_array inputs,
    const int* shape,
    size_t rank,
    mlx_dtype dtype,
    bool reuse,
    const char* name,
    mlx_ffi_call_fn call,
    void* payload,
    void (*drop)(void*),
    const mlx_stream s);

// An operand, and how many numbers its elements are apart along each axis of the shape that it
// broadcasts to.
typedef struct {
  const void* data;
  const int64_t* strides;
} mlx_ffi_input;

// Fills `outputs`, row by row, from `inputs`. Where that was asked for, an output may be the input of
// the same element.
typedef void (*mlx_ffi_elements_fn)(void* payload, const mlx_ffi_input* inputs, void* const* outputs);

// An array to be made.
typedef struct {
  const int* shape;
  size_t rank;
  mlx_dtype dtype;
} mlx_ffi_output;

// Arrays of these shapes and types that `call` will fill from the inputs, which broadcast to a shape
// of `rank` axes. At least one output. With `reuse` an input of an output's shape that nobody else
// needs makes room for it. `payload` and the stream are as above.
int mlx_ffi_elements(
    mlx_vector_array* res,
    const mlx_vector_array inputs,
    size_t rank,
    const mlx_ffi_output* outputs,
    size_t count,
    bool reuse,
    const char* name,
    mlx_ffi_elements_fn call,
    void* payload,
    void (*drop)(void*),
    const mlx_stream s);

// Says how far apart the elements of a result are along each axis, once those of the inputs are known.
// Whatever it says, they are as many as the shape has, without gaps.
typedef void (*mlx_ffi_place_fn)(void* payload, const mlx_ffi_input* inputs, int64_t* strides);

// Fills `out`, whose elements lie as was said.
typedef void (*mlx_ffi_placed_fn)(void* payload, const mlx_ffi_input* inputs, void* out);

// An array of the given shape and type, laid out as `place` says and filled by `call` from the inputs,
// which have as many axes. `payload` and the stream are as above.
int mlx_ffi_placed(
    mlx_array* res,
    const mlx_vector_array inputs,
    const int* shape,
    size_t rank,
    mlx_dtype dtype,
    const char* name,
    mlx_ffi_place_fn place,
    mlx_ffi_placed_fn call,
    void* payload,
    void (*drop)(void*),
    const mlx_stream s);

// From now on what the calling thread allocates must be within MLX's memory limit: beyond it,
// allocations throw.
void mlx_ffi_limit_thread(void);

// Bytes that MLX counts as active and does not have, since they could not be allocated.
size_t mlx_ffi_missing_memory(void);

#ifdef __cplusplus
}
#endif
