//! Routes with conditions in addition to their paths.
//!
//! Such routes are few, and are kept in a list next to the compiled matcher of their site. Those that
//! come before the route that the matcher has found are tried in order. Sites without such routes skip
//! this.

use std::sync::Arc;

use super::path::{PathPattern, Unreachable};
use super::routes::{RouteId, hides};
use crate::settings::RouteConditions;

/// The routes with conditions of a site; most have none.
pub type Conditional = Option<Arc<[ConditionalRoute]>>;

/// A route with conditions.
#[derive(Debug)]
pub struct ConditionalRoute {
    /// Its paths.
    pub pattern: PathPattern,
    /// Its conditions.
    pub conditions: Arc<RouteConditions>,
    pub(super) route: RouteId,
    place: RouteOrder,
}

/// The position of a route in the order of trial: routes without wildcards first, then the order of
/// the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RouteOrder {
    /// True if the route's pattern has wildcards.
    pub(super) is_wild: bool,
    /// The number of routes without conditions before it in the file.
    pub(super) before: usize,
}

impl ConditionalRoute {
    /// Returns true if this route is tried after `plain`, a route without conditions.
    pub(super) fn is_behind(&self, plain: RouteOrder) -> bool {
        self.place > plain
    }

    /// The conditional routes of a site, in the order in which they are tried.
    ///
    /// # Errors
    ///
    /// Returns the routes that are unreachable, because an earlier route without conditions, or with the
    /// same conditions, matches all their paths.
    pub(super) fn order(
        all: &[(PathPattern, RouteId, Option<Arc<RouteConditions>>)],
    ) -> Result<Conditional, Vec<Unreachable>> {
        let (mut routes, mut unreachable, mut before) = (Vec::new(), Vec::new(), 0);
        for (index, (pattern, route, conditions)) in all.iter().enumerate() {
            let Some(conditions) = conditions else {
                before += 1;
                continue;
            };
            let by = all[..index].iter().position(|(earlier, _, others)| {
                let at_least = others.as_ref().is_none_or(|others| others == conditions);
                at_least && hides(earlier, pattern)
            });
            unreachable.extend(by.map(|by| Unreachable { index, by }));
            let place = RouteOrder { is_wild: !pattern.is_literal(), before };
            let (pattern, conditions) = (pattern.clone(), Arc::clone(conditions));
            routes.push(Self { pattern, conditions, route: *route, place });
        }
        if !unreachable.is_empty() {
            return Err(unreachable);
        }
        routes.sort_by_key(|route| route.place);
        Ok((!routes.is_empty()).then(|| routes.into()))
    }
}
