//! What a row of the op table expands to.

/// Calls a function of mlx-c that makes one array: `c!(mlx_sum_axes(x, [axes], keep), s)`.
///
/// A plain argument is passed by its `Raw` form, one in brackets as a pointer and a length. The
/// call above expands to
/// `Array::build("mlx_sum_axes", |res| unsafe { mlx_sum_axes(res, x, axes, axes.len(), keep, s) })`.
macro_rules! c {
    ($call:ident($($args:tt)*), $s:expr) => {
        c!(@go $call, $s, []; $($args)*)
    };
    (@go $call:ident, $s:expr, [$($done:tt)*]; [$slice:expr] $(, $($rest:tt)*)?) => {
        c!(@go $call, $s, [$($done)* $slice.as_ptr(), $slice.len(),]; $($($rest)*)?)
    };
    (@go $call:ident, $s:expr, [$($done:tt)*]; $arg:expr $(, $($rest:tt)*)?) => {
        c!(@go $call, $s, [$($done)* $crate::ops::Raw::raw(&$arg),]; $($($rest)*)?)
    };
    (@go $call:ident, $s:expr, [$($done:tt)*];) => {
        $crate::array::Array::build(stringify!($call), |res| {
            // SAFETY: every handle and slice is borrowed for the call, and the types are those
            // that the header declares.
            unsafe { ::mlx_ffi::$call(res, $($done)* $s.raw()) }
        })
    };
}

/// The op table. A row is
/// `Name(attribute: Type, ...) -> outputs => place |operands, stream| body;` where the attributes,
/// the number of outputs (1 if left out) and the place are optional. The place is `cpu` where the
/// op has no GPU kernel, `host` where a host kernel of the same name comes before the body, and
/// `run` where the body takes the [`Run`] in place of the stream.
///
/// The rows make the enum [`Op`], which is also the wire format: a variant decodes from its name
/// in snake case or from a tuple tagged by it, with the attributes in order. Its methods are all
/// derived from the rows.
macro_rules! ops {
    ($($name:ident $(( $($attr:ident : $ty:ty),+ ))? $(-> $outputs:literal)?
        => $($place:ident)? |$xs:pat_param, $s:ident| $body:expr;)*) => {
        /// An operation of MLX with its attributes.
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "nif", derive(rustler::NifTaggedEnum), rustler(decode))]
        #[allow(missing_docs)]
        pub enum Op {
            $($name $(( $($ty),+ ))?,)*
        }

        impl Op {
            /// Every op with the names of its attributes and the number of its outputs.
            pub const TABLE: &[(&str, &[&str], usize)] = &[
                $((stringify!($name), &[$($(stringify!($attr)),+)?], ops!(@outputs $($outputs)?)),)*
            ];

            pub(crate) fn variant(&self) -> &'static str {
                match self { $(Self::$name { .. } => stringify!($name),)* }
            }

            fn fixed_outputs(&self) -> usize {
                match self { $(Self::$name { .. } => ops!(@outputs $($outputs)?),)* }
            }

            fn needs_cpu(&self) -> bool {
                match self { $(Self::$name { .. } => ops!(@cpu $($place)?),)* }
            }

            /// The ops that a function of ours computes on a CPU.
            pub const HOSTED: &[&str] = ops!(@hosted [] $($($place)? $name,)*);

            /// The function of ours that computes it on a CPU.
            pub(crate) fn hosted(&self) -> Option<$crate::host::Unary> {
                match self { $(Self::$name { .. } => ops!(@function $($place)?, $name),)* }
            }

            fn has_attributes(&self) -> bool {
                match self { $(Self::$name { .. } => !<[&str]>::is_empty(&[$($(stringify!($attr)),+)?]),)* }
            }

            /// Each row by its name, with any attributes at all.
            #[cfg(test)]
            fn rows() -> Vec<(&'static str, proptest::strategy::BoxedStrategy<Self>)> {
                use proptest::strategy::{Just, Strategy};
                vec![$((
                    stringify!($name),
                    // A row without attributes is made of nothing.
                    (Just(()), $($(<$ty as properties::Any>::any(stringify!($attr)),)+)?)
                        .prop_map(|((), $($($attr,)+)?)| Self::$name $(($($attr),+))?)
                        .boxed(),
                ),)*]
            }

            // Control rows have attributes for others to read.
            #[allow(unused_variables)]
            fn call(
                &self,
                operands: &[&Array],
                stream: &Stream,
                run: &Run,
                made: &mut Made,
            ) -> Result<()> {
                match self {
                    $(Self::$name $(( $($attr),+ ))? => match operands {
                        $xs => {
                            let $s = ops!(@given $($place)?, stream, run);
                            $($(let $attr = $crate::ops::Attribute::get($attr);)+)?
                            ops!(@made $($place)?, $name, operands, $s, $body).push(made);
                        }
                        #[allow(unreachable_patterns)]
                        _ => return Err(wrong_operands(operands.len())),
                    },)*
                }
                Ok(())
            }
        }

        #[cfg(test)]
        mod each {
            $(
                #[test]
                #[allow(non_snake_case)]
                #[cfg_attr(miri, ignore = "calls MLX")]
                fn $name() {
                    let rows = super::Op::rows().into_iter();
                    let row = rows.filter(|(name, _)| *name == stringify!($name));
                    let name = concat!(module_path!(), "::", stringify!($name));
                    row.for_each(|(_, op)| super::properties::row(name, op));
                }
            )*
        }
    };
    (@outputs) => { 1 };
    (@outputs $outputs:literal) => { $outputs };
    (@cpu) => { false };
    (@cpu cpu) => { true };
    (@cpu host) => { false };
    (@cpu run) => { false };
    (@given run, $stream:expr, $run:expr) => { $run };
    (@given $($place:ident)?, $stream:expr, $run:expr) => { $stream };
    (@function host, $name:ident) => { Some($crate::host::Unary::$name) };
    (@function $($place:ident)?, $name:ident) => { None };
    (@made host, $name:ident, $operands:expr, $s:expr, $body:expr) => {
        match $crate::host::unary($crate::host::Unary::$name, $operands[0], $s) {
            Some(made) => made?,
            None => ($body)?,
        }
    };
    (@made $($place:ident)?, $name:ident, $operands:expr, $s:expr, $body:expr) => { ($body)? };
    (@hosted [$($names:expr,)*] host $name:ident, $($rest:tt)*) => {
        ops!(@hosted [$($names,)* stringify!($name),] $($rest)*)
    };
    (@hosted [$($names:expr,)*] cpu $name:ident, $($rest:tt)*) => {
        ops!(@hosted [$($names,)*] $($rest)*)
    };
    (@hosted [$($names:expr,)*] run $name:ident, $($rest:tt)*) => {
        ops!(@hosted [$($names,)*] $($rest)*)
    };
    (@hosted [$($names:expr,)*] $name:ident, $($rest:tt)*) => {
        ops!(@hosted [$($names,)*] $($rest)*)
    };
    (@hosted [$($names:expr,)*]) => { &[$($names),*] };
}
