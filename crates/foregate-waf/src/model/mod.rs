//! Rules, typed: what SecLang says, with nothing left as text to understand.
