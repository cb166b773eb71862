//! SecLang: text to the [model](crate::model).
