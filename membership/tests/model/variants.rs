//! The names of an enum's variants as serde knows them, so that a table of them can never miss one
//! that was added.

use serde::{
    Deserialize, Deserializer,
    de::{Visitor, value::Error},
    forward_to_deserialize_any,
};

/// Names of `T`'s variants, in their order. Empty if `T` is no enum.
pub fn of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // It always fails, after it was asked for one of its variants.
    let _ = T::deserialize(Asker(&mut names));
    names
}

struct Asker<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asker<'_> {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        Err(serde::de::Error::custom("only asked"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("no enum"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The variant of a value, by its `Debug`, which begins with it.
pub fn name(value: &impl std::fmt::Debug) -> String {
    struct First(String);
    impl std::fmt::Write for First {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let end = text.find([' ', '(', '{']);
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
            // An error ends the writing, which is all that is wanted.
            if end.is_some() {
                Err(std::fmt::Error)
            } else {
                Ok(())
            }
        }
    }
    let mut first = First(String::new());
    let _ = std::fmt::Write::write_fmt(&mut first, format_args!("{value:?}"));
    first.0
}

#[test]
fn variants_are_named_as_they_are_written() {
    use annulus_membership::{PermitFault, Rejection};
    let faults = of::<PermitFault>();
    assert_eq!(faults, ["Grace", "Moving", "Unverified", "TooFew"]);
    assert_eq!(name(&PermitFault::Grace(7)), "Grace");
    assert_eq!(name(&Rejection::NoWeight), "NoWeight");
    assert!(of::<u32>().is_empty());
}
