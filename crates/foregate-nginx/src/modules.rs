//! The modules that run inside NGINX: the same that ship with Foregate's own binary.

foregate_module::pipeline! {
    /// The steps of all modules, in the order of the binary's own list.
    pub fn shipped {
        use foregate_html::choosing;
        use foregate_modules::shipped;
        use foregate_waf::steps::waf;
        use foregate_html::rewriting;
    }
}
