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

class HostKernel : public mx::UnaryPrimitive {
 public:
  HostKernel(mx::Stream stream, const char* name, mlx_ffi_map_fn map)
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
    return map_ == static_cast<const HostKernel&>(other).map_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {inputs[0].shape()};
  }

 private:
  const char* name_;
  mlx_ffi_map_fn map_;
};

} // namespace

extern "C" int mlx_ffi_map(
    mlx_array* res,
    const mlx_array x,
    mlx_dtype dtype,
    const char* name,
    mlx_ffi_map_fn map,
    const mlx_stream s) {
  try {
    const auto& input = mlx_array_get_(x);
    auto primitive = std::make_shared<HostKernel>(mlx_stream_get_(s), name, map);
    mlx_array_set_(
        *res,
        mx::array(input.shape(), mlx_dtype_to_cpp(dtype), std::move(primitive), {input}));
    return 0;
  } catch (const std::exception& e) {
    _mlx_error(__FILE__, __LINE__, e.what());
    return 1;
  } catch (...) {
    _mlx_error(__FILE__, __LINE__, "an unknown exception");
    return 1;
  }
}
