//! The one list of the modules that ship.

foregate_module::pipeline! {
    /// The steps of all modules that ship with the binary. Groups are merged phase by phase: in `response-body` content
    /// codings come off after features are chosen, and on, as the last, after documents are rewritten.
    pub fn shipped {
        use foregate_html::choosing;
        use foregate_modules::shipped;
        use foregate_waf::steps::waf;
        use foregate_html::rewriting;
    }
}
