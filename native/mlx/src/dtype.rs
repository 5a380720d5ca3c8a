//! The element types of MLX: the one table of names, sizes and codes.

use mlx_ffi as ffi;

macro_rules! dtypes {
    ($($name:ident = $raw:ident, $kind:ident $bits:literal, $bytes:literal;)*) => {
        /// An element type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Dtype {
            $(
                #[doc = concat!("MLX's ", stringify!($raw), ".")]
                $name,
            )*
        }

        impl Dtype {
            /// Every type, in MLX's order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub(crate) fn raw(self) -> ffi::mlx_dtype {
                match self { $(Self::$name => ffi::$raw,)* }
            }

            pub(crate) fn from_raw(raw: ffi::mlx_dtype) -> Self {
                match raw {
                    $(ffi::$raw => Self::$name,)*
                    // MLX has no other; a new one would be a new MLX, which the build rejects.
                    _ => Self::Uint8,
                }
            }

            /// The size of one element in bytes.
            pub fn size(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }

            /// Nx's name for the type, a kind and a number of bits; MLX's bool is `("bool", 8)`.
            pub fn parts(self) -> (&'static str, u8) {
                match self { $(Self::$name => (stringify!($kind), $bits),)* }
            }
        }

        #[cfg(feature = "nif")]
        mod terms {
            use super::Dtype;
            use rustler::{Atom, Decoder, Encoder, Env, Error, NifResult, Term};

            mod atoms {
                rustler::atoms! { bool, u, s, f, bf, c }
            }

            impl<'a> Decoder<'a> for Dtype {
                fn decode(term: Term<'a>) -> NifResult<Self> {
                    if let Ok((kind, bits)) = term.decode::<(Atom, u8)>() {
                        $(if bits == $bits && kind == atoms::$kind() { return Ok(Self::$name); })*
                    } else if term.decode::<Atom>().is_ok_and(|name| name == atoms::bool()) {
                        return Ok(Self::Bool);
                    }
                    Err(Error::BadArg)
                }
            }

            impl Encoder for Dtype {
                fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
                    match self {
                        Self::Bool => atoms::bool().encode(env),
                        $(Self::$name => (atoms::$kind(), $bits as u8).encode(env),)*
                    }
                }
            }
        }
    };
}

#[allow(unreachable_patterns)]
mod table {
    use super::ffi;
    dtypes! {
        Bool = MLX_BOOL, bool 8, 1;
        Uint8 = MLX_UINT8, u 8, 1;
        Uint16 = MLX_UINT16, u 16, 2;
        Uint32 = MLX_UINT32, u 32, 4;
        Uint64 = MLX_UINT64, u 64, 8;
        Int8 = MLX_INT8, s 8, 1;
        Int16 = MLX_INT16, s 16, 2;
        Int32 = MLX_INT32, s 32, 4;
        Int64 = MLX_INT64, s 64, 8;
        Float16 = MLX_FLOAT16, f 16, 2;
        Float32 = MLX_FLOAT32, f 32, 4;
        Float64 = MLX_FLOAT64, f 64, 8;
        Bfloat16 = MLX_BFLOAT16, bf 16, 2;
        Complex64 = MLX_COMPLEX64, c 64, 8;
    }
}

pub use table::Dtype;

impl Dtype {
    /// Whether it is a type of whole numbers, bool left out.
    pub fn is_integer(self) -> bool {
        matches!(self.parts().0, "u" | "s")
    }
}
