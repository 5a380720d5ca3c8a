// Stands in for mlx-c's error handling, whose default handler exits the process and whose caller
// passes MLX's message as a printf format. Here the message is kept per thread, as it is.
#include "shim.h"

#include <string>

namespace {
thread_local std::string last_error;
}

extern "C" void _mlx_error(const char*, const int, const char* text, ...) {
  try {
    last_error = text ? text : "";
  } catch (...) {
    last_error.clear();
  }
}

extern "C" const char* mlx_ffi_last_error(void) {
  return last_error.c_str();
}
