// MLX's allocator with a limit that holds. MLX's own limit only slows it down, and on a CPU it
// writes through whatever pointer the system's malloc answers, null included.
#include "shim.h"

#include <dlfcn.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "mlx/allocator.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/memory.h"
#include "mlx/stream.h"
#include "mlx/utils.h"

namespace {

namespace mx = mlx::core;

// Only threads of ours are refused memory. What MLX computes on its own threads is under way
// already, and needs no more than some room to work in.
thread_local bool limited = false;

// Bytes that MLX counts as active and never got: it counts before it looks.
std::atomic<size_t> missing{0};

// Scalars are always to be had: every operation makes some.
constexpr size_t scalar = 64;

bool exceeds(size_t size) {
  if (size <= scalar) {
    return false;
  }
  const size_t limit = mx::get_memory_limit();
  const size_t active = mx::get_active_memory() - missing;
  return size > limit || active > limit - size;
}

[[noreturn]] void refuse(size_t size) {
  throw std::runtime_error(
      "[malloc] Unable to allocate " + std::to_string(size) + " bytes: " +
      std::to_string(mx::get_active_memory() - missing) +
      " bytes are in use, and the memory limit is " + std::to_string(mx::get_memory_limit()) +
      " bytes; free arrays or work in smaller pieces");
}

// The kernel clears the pages of a new array one by one as they are first written, which takes up to
// three times as long as writing them. Where it may use large pages there are 512 times fewer. Those
// are used that lie in the array whole, so none of them holds anything else.
void enlarge_pages([[maybe_unused]] mx::allocator::Buffer buffer, [[maybe_unused]] size_t size) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t page = 2 << 20;
  // On a GPU a buffer is no address that is the kernel's to page, and asking for one moves it.
  static const bool paged = !mx::cu::is_available();
  if (size < 2 * page || !paged) {
    return;
  }
  const auto start = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t last = (start + size) / page * page;
  // Where it cannot, pages stay small.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

class Limited : public mx::allocator::Allocator {
 public:
  explicit Limited(mx::allocator::Allocator& inner) : inner_(inner) {}

  mx::allocator::Buffer malloc(size_t size) override {
    if (limited && exceeds(size)) {
      // What is being computed holds memory. And it may use what is freed on the way out of here.
      settle();
      if (exceeds(size)) {
        refuse(size);
      }
    }
    auto buffer = inner_.malloc(size);
    if (!buffer.ptr() && size > 0) {
      missing += size;
      if (limited) {
        settle();
      }
      refuse(size);
    }
    enlarge_pages(buffer, size);
    return buffer;
  }

  void free(mx::allocator::Buffer buffer) override {
    inner_.free(buffer);
  }

  size_t size(mx::allocator::Buffer buffer) const override {
    return inner_.size(buffer);
  }

  mx::allocator::Buffer make_buffer(void* ptr, size_t size) override {
    return inner_.make_buffer(ptr, size);
  }

  void release(mx::allocator::Buffer buffer) override {
    inner_.release(buffer);
  }

 private:
  static void settle() {
    mx::synchronize(mx::default_stream(mx::Device::cpu));
  }

  mx::allocator::Allocator& inner_;
};

// glibc gives large blocks back to the kernel as soon as they are freed, which then clears every page
// of the next one: for an array of some megabytes that takes longer than computing it. So it keeps
// some, unless whoever started the process has asked for something else.
void keep_blocks() {
#ifdef __GLIBC__
  for (const char* asked : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(asked)) {
      return;
    }
  }
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
#endif
}

mx::allocator::Allocator& inner() {
  using Get = mx::allocator::Allocator& (*)();
  auto get = reinterpret_cast<Get>(dlsym(RTLD_NEXT, "_ZN3mlx4core9allocator9allocatorEv"));
  if (!get) {
    throw std::runtime_error("[malloc] MLX's allocator was not found");
  }
  return get();
}

} // namespace

// What the symbol that libmlx asks for answers here: src/allocator.rs exports it.
extern "C" void* mlx_ffi_allocator(void) {
  // Never destroyed: threads may use it until the very end.
  static auto* allocator = [] {
    keep_blocks();
    return new Limited(inner());
  }();
  return static_cast<mx::allocator::Allocator*>(allocator);
}

extern "C" void mlx_ffi_limit_thread(void) {
  limited = true;
}

extern "C" size_t mlx_ffi_missing_memory(void) {
  return missing;
}
