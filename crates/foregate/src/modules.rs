//! The one list of the modules that ship.

foregate_module::pipeline! {
    /// The steps of all modules that ship with the binary. The groups are merged phase by phase. In `response-body`,
    /// features are chosen first; then content codings are removed, documents are rewritten, and a coding is applied last.
    pub fn shipped {
        use foregate_html::choosing;
        use foregate_modules::shipped;
        use foregate_waf::steps::waf;
        use foregate_html::rewriting;
    }
}
