// Functions of complex numbers, by way of double precision: the C++ library's, which knows cuts,
// infinities and the signs of zero, where MLX has formulas that overflow.
#include <complex>

#include "shim.h"

namespace {

using Wide = std::complex<double>;

template <Wide (*F)(Wide)>
void map(const void* in, ptrdiff_t stride, void* out, size_t size) {
  const auto* from = static_cast<const std::complex<float>*>(in);
  auto* to = static_cast<std::complex<float>*>(out);
  for (size_t i = 0; i < size; i++, from += stride) {
    to[i] = std::complex<float>(F(Wide(*from)));
  }
}

Wide acos(Wide z) { return std::acos(z); }
Wide acosh(Wide z) { return std::acosh(z); }
Wide asin(Wide z) { return std::asin(z); }
Wide asinh(Wide z) { return std::asinh(z); }
Wide atan(Wide z) { return std::atan(z); }
Wide atanh(Wide z) { return std::atanh(z); }
Wide cos(Wide z) { return std::cos(z); }
Wide cosh(Wide z) { return std::cosh(z); }
Wide exp(Wide z) { return std::exp(z); }
Wide log(Wide z) { return std::log(z); }
Wide sin(Wide z) { return std::sin(z); }
Wide sinh(Wide z) { return std::sinh(z); }
Wide tan(Wide z) { return std::tan(z); }
Wide tanh(Wide z) { return std::tanh(z); }

// The principal root.
Wide cbrt(Wide z) {
  if (z == 0.0) {
    return z;
  }
  const double modulus = std::cbrt(std::abs(z));
  const double angle = std::arg(z) / 3;
  // An infinite modulus times nothing is nothing here.
  return {modulus * std::cos(angle), angle == 0 ? angle : modulus * std::sin(angle)};
}

// exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2, which keeps what is small.
Wide expm1(Wide z) {
  const double half = std::sin(z.imag() / 2);
  const double real = std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half;
  return {real, std::exp(z.real()) * std::sin(z.imag())};
}

// |1 + z|^2 - 1 = x (2 + x) + y^2, likewise.
Wide log1p(Wide z) {
  const double excess = z.real() * (2 + z.real()) + z.imag() * z.imag();
  const double modulus = std::abs(z) < 0.5 ? std::log1p(excess) / 2 : std::log(std::abs(1.0 + z));
  return {modulus, std::arg(1.0 + z)};
}

Wide rsqrt(Wide z) { return 1.0 / std::sqrt(z); }
Wide sigmoid(Wide z) { return 1.0 / (1.0 + std::exp(-z)); }

} // namespace

extern "C" const mlx_ffi_complex_fns mlx_ffi_complex = {
    map<acos>, map<acosh>, map<asin>, map<asinh>, map<atan>,  map<atanh>,   map<cbrt>,
    map<cos>,  map<cosh>,  map<exp>,  map<expm1>, map<log>,   map<log1p>,   map<rsqrt>,
    map<sigmoid>, map<sin>, map<sinh>, map<tan>,  map<tanh>,
};
