// A primitive that calls a function of ours on the CPU, in the middle of MLX's lazy graph.
#include "shim.h"

#include <stdexcept>

#include "mlx/backend/common/unary.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

struct Rows {
  mx::Shape shape;
  mx::Strides strides;

  // Calls `row` with the offset in the input, in elements, of every row along the last axis.
  template <typename F>
  void each(F row) const {
    int64_t offset = 0;
    std::vector<int64_t> at(shape.size(), 0);
    const int axes = static_cast<int>(shape.size()) - 1;
    while (true) {
      row(offset);
      int axis = axes - 1;
      for (; axis >= 0; axis--) {
        offset += strides[axis];
        if (++at[axis] < shape[axis]) {
          break;
        }
        offset -= at[axis] * strides[axis];
        at[axis] = 0;
      }
      if (axis < 0) {
        return;
      }
    }
  }
};

// Elements from elements, in whatever order they lie.
class HostMap : public mx::UnaryPrimitive {
 public:
  HostMap(mx::Stream stream, const char* name, mlx_ffi_map_fn map)
      : UnaryPrimitive(stream), name_(name), map_(map) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    const auto& in = inputs[0];
    mx::set_unary_output_data(in, out);
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(in);
    encoder.set_output_array(out);
    const auto* from = in.data<char>();
    auto* to = out.data<char>();
    if (in.flags().contiguous) {
      encoder.dispatch([=, map = map_, size = in.data_size()] { map(from, 1, to, size); });
      return;
    }
    // Not contiguous, so it has an axis at least, and elements.
    const auto in_size = static_cast<int64_t>(in.itemsize());
    const size_t row_size = in.shape().back();
    const auto out_row = row_size * out.itemsize();
    encoder.dispatch([=, map = map_, stride = in.strides().back(),
                      rows = Rows{in.shape(), in.strides()}]() mutable {
      char* row = to;
      rows.each([&](int64_t offset) {
        map(from + offset * in_size, stride, row, row_size);
        row += out_row;
      });
    });
  }

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error("a host kernel has no GPU implementation");
  }

  const char* name() const override {
    return name_;
  }

  bool is_equivalent(const mx::Primitive& other) const override {
    return map_ == static_cast<const HostMap&>(other).map_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {inputs[0].shape()};
  }

 private:
  const char* name_;
  mlx_ffi_map_fn map_;
};

// Arrays from others that broadcast to a shape of so many axes, however those lie.
class HostElements : public mx::Primitive {
 public:
  HostElements(
      mx::Stream stream,
      const char* name,
      size_t rank,
      bool reuses,
      mlx_ffi_elements_fn call,
      std::shared_ptr<void> payload)
      : Primitive(stream),
        name_(name),
        rank_(rank),
        reuses_(reuses),
        call_(call),
        payload_(std::move(payload)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    std::vector<bool> reused(inputs.size(), false);
    for (auto& out : outputs) {
      if (!reuses_ || !reuse(inputs, out, reused)) {
        out.set_data(mx::allocator::malloc(out.nbytes()));
      }
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    const size_t rank = rank_;
    std::vector<const void*> from;
    std::vector<int64_t> strides(inputs.size() * rank, 0);
    for (size_t i = 0; i < inputs.size(); i++) {
      const auto& in = inputs[i];
      encoder.set_input_array(in);
      from.push_back(in.data<char>());
      const size_t missing = rank - in.ndim();
      for (size_t axis = missing; axis < rank; axis++) {
        const int at = static_cast<int>(axis - missing);
        strides[i * rank + axis] = in.shape(at) == 1 ? 0 : in.strides(at);
      }
    }
    std::vector<void*> to;
    for (auto& out : outputs) {
      encoder.set_output_array(out);
      to.push_back(out.data<char>());
    }
    encoder.dispatch([call = call_, payload = payload_, rank, from = std::move(from),
                      strides = std::move(strides), to = std::move(to)] {
      std::vector<mlx_ffi_input> views;
      for (size_t i = 0; i < from.size(); i++) {
        views.push_back({from[i], strides.data() + i * rank});
      }
      call(payload.get(), views.data(), to.data());
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("a host kernel has no GPU implementation");
  }

  const char* name() const override {
    return name_;
  }

 private:
  // An element is written after it was read, so an input that nobody else needs makes room, unless
  // it is a part of much more that would stay with the result.
  static bool
  reuse(const std::vector<mx::array>& inputs, mx::array& out, std::vector<bool>& reused) {
    for (size_t i = 0; i < inputs.size(); i++) {
      const auto& in = inputs[i];
      if (!reused[i] && mx::is_donatable(in, out) && in.flags().row_contiguous &&
          in.shape() == out.shape()) {
        out.copy_shared_buffer(in);
        reused[i] = true;
        return true;
      }
    }
    return false;
  }

  const char* name_;
  size_t rank_;
  bool reuses_;
  mlx_ffi_elements_fn call_;
  std::shared_ptr<void> payload_;
};

// One array from others, all of them row by row.
class HostCall : public mx::UnaryPrimitive {
 public:
  HostCall(
      mx::Stream stream,
      const char* name,
      bool reuses,
      mlx_ffi_call_fn call,
      std::shared_ptr<void> payload)
      : UnaryPrimitive(stream),
        name_(name),
        reuses_(reuses),
        call_(call),
        payload_(std::move(payload)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    // What nobody else needs makes room, unless it is a part of much more that would stay.
    if (reuses_ && mx::is_donatable(inputs[0], out) && inputs[0].flags().row_contiguous) {
      out.copy_shared_buffer(inputs[0]);
    } else {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<const void*> from;
    for (const auto& in : inputs) {
      if (!in.flags().row_contiguous) {
        throw std::runtime_error("the input of a host kernel is not contiguous");
      }
      encoder.set_input_array(in);
      from.push_back(in.data<char>());
    }
    encoder.set_output_array(out);
    encoder.dispatch([call = call_, payload = payload_, from = std::move(from),
                      to = static_cast<void*>(out.data<char>())] {
      call(payload.get(), from.data(), to);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error("a host kernel has no GPU implementation");
  }

  const char* name() const override {
    return name_;
  }

 private:
  const char* name_;
  bool reuses_;
  mlx_ffi_call_fn call_;
  std::shared_ptr<void> payload_;
};

// One array from others, however those lie, laid out as they suggest.
class HostPlaced : public mx::UnaryPrimitive {
 public:
  HostPlaced(
      mx::Stream stream,
      const char* name,
      mlx_ffi_place_fn place,
      mlx_ffi_placed_fn call,
      std::shared_ptr<void> payload)
      : UnaryPrimitive(stream),
        name_(name),
        place_(place),
        call_(call),
        payload_(std::move(payload)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    const size_t rank = out.ndim();
    std::vector<const void*> from;
    std::vector<int64_t> strides;
    for (const auto& in : inputs) {
      encoder.set_input_array(in);
      from.push_back(in.data<char>());
      for (int axis = 0; axis < static_cast<int>(rank); axis++) {
        strides.push_back(in.shape(axis) == 1 ? 0 : in.strides(axis));
      }
    }
    auto placed = out.strides();
    const auto views = [rank](const auto& from, const auto& strides) {
      std::vector<mlx_ffi_input> views;
      for (size_t i = 0; i < from.size(); i++) {
        views.push_back({from[i], strides.data() + i * rank});
      }
      return views;
    };
    place_(payload_.get(), views(from, strides).data(), placed.data());
    const auto [size, by_rows, by_columns] = mx::check_contiguity(out.shape(), placed);
    mx::array::Flags flags = out.flags();
    flags.contiguous = true;
    flags.row_contiguous = by_rows;
    flags.col_contiguous = by_columns;
    out.set_data(mx::allocator::malloc(out.nbytes()), out.size(), std::move(placed), flags);
    encoder.set_output_array(out);
    encoder.dispatch([call = call_, payload = payload_, views, from = std::move(from),
                      strides = std::move(strides), to = static_cast<void*>(out.data<char>())] {
      call(payload.get(), views(from, strides).data(), to);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error("a host kernel has no GPU implementation");
  }

  const char* name() const override {
    return name_;
  }

 private:
  const char* name_;
  mlx_ffi_place_fn place_;
  mlx_ffi_placed_fn call_;
  std::shared_ptr<void> payload_;
};

// What a call of ours answers: 0, or 1 with the exception's text kept as the thread's last error.
template <typename F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    _mlx_error(__FILE__, __LINE__, e.what());
  } catch (...) {
    _mlx_error(__FILE__, __LINE__, "an unknown exception");
  }
  return 1;
}

} // namespace

extern "C" int mlx_ffi_map(
    mlx_array* res,
    const mlx_array x,
    mlx_dtype dtype,
    const char* name,
    mlx_ffi_map_fn map,
    const mlx_stream s) {
  return guarded([&] {
    const auto& input = mlx_array_get_(x);
    auto primitive = std::make_shared<HostMap>(mlx_stream_get_(s), name, map);
    mlx_array_set_(
        *res,
        mx::array(input.shape(), mlx_dtype_to_cpp(dtype), std::move(primitive), {input}));
  });
}

extern "C" int mlx_ffi_call(
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
    const mlx_stream s) {
  return guarded([&] {
    std::shared_ptr<void> owned(payload, drop);
    auto primitive =
        std::make_shared<HostCall>(mlx_stream_get_(s), name, reuse, call, std::move(owned));
    mlx_array_set_(
        *res,
        mx::array(
            mx::Shape(shape, shape + rank),
            mlx_dtype_to_cpp(dtype),
            std::move(primitive),
            mlx_vector_array_get_(inputs)));
  });
}

extern "C" int mlx_ffi_placed(
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
    const mlx_stream s) {
  return guarded([&] {
    std::shared_ptr<void> owned(payload, drop);
    auto primitive = std::make_shared<HostPlaced>(
        mlx_stream_get_(s), name, place, call, std::move(owned));
    mlx_array_set_(
        *res,
        mx::array(
            mx::Shape(shape, shape + rank),
            mlx_dtype_to_cpp(dtype),
            std::move(primitive),
            mlx_vector_array_get_(inputs)));
  });
}

extern "C" int mlx_ffi_elements(
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
    const mlx_stream s) {
  return guarded([&] {
    std::shared_ptr<void> owned(payload, drop);
    auto primitive = std::make_shared<HostElements>(
        mlx_stream_get_(s), name, rank, reuse, call, std::move(owned));
    std::vector<mx::Dtype> types;
    std::vector<mx::Shape> shapes;
    for (size_t i = 0; i < count; i++) {
      const auto& out = outputs[i];
      types.push_back(mlx_dtype_to_cpp(out.dtype));
      shapes.emplace_back(out.shape, out.shape + out.rank);
    }
    mlx_vector_array_set_(
        *res,
        mx::array::make_arrays(
            std::move(shapes), types, std::move(primitive), mlx_vector_array_get_(inputs)));
  });
}
