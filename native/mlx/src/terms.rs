//! Lists of Elixir terms. Those of Rustler are taken to end in the empty list, and panic where they
//! end in anything else, which whoever writes the term decides.

use rustler::{Decoder, Error, ListIterator, NifResult, Term};

/// The elements of a list, if it is one to its end.
pub fn elements(term: Term<'_>) -> NifResult<ListIterator<'_>> {
    term.list_length()?;
    term.decode()
}

/// A list of decoded elements.
pub struct List<T>(pub Vec<T>);

impl<'a, T: Decoder<'a>> Decoder<'a> for List<T> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let each = elements(term)?.map(|element| element.decode());
        Ok(Self(each.collect::<NifResult<_>>()?))
    }
}

/// Answers an operation, none of whose attributes is a list with another end.
pub(crate) fn checked(op: Term<'_>) -> NifResult<Term<'_>> {
    let attributes = rustler::types::tuple::get_tuple(op).unwrap_or_default();
    let proper = |term: &Term| !term.is_list() || term.list_length().is_ok();
    match attributes.iter().all(proper) {
        true => Ok(op),
        false => Err(Error::BadArg),
    }
}
