//! Painting: everything is brought into range, what will be visible is read, then it is drawn.

use ratatui::buffer::Buffer;

use super::{App, Dirty};
use crate::tui::{
    cache, load,
    model::View,
    view::{self, Scene},
};

impl App {
    /// Paints a frame: brings everything into range, reads what will be visible, draws.
    pub fn paint(&mut self, buf: &mut Buffer) {
        self.model.size = (buf.area.width, buf.area.height);
        self.model.settle(self.timeline.story());
        let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
        load::load(&mut self.timeline, &mut self.cache, &wants);
        self.unread = load::is_unread(&self.timeline, &self.cache, &wants);
        self.lay(&wants);
        if let Some(View::Compare(_)) = self.model.views.last() {
            // What there is to show is known only now.
            let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
            load::load(&mut self.timeline, &mut self.cache, &wants);
        }
        let scene = Scene {
            model: &self.model,
            story: self.timeline.story(),
            chronicle: self.timeline.chronicle(),
            cache: &self.cache,
            theme: &self.theme,
            source: &self.shown,
        };
        view::draw(&scene, buf);
        self.follower.settle(self.moment.now, self.model.beside(self.timeline.story()), buf);
    }

    /// Tells the views how much of their documents there is.
    fn lay(&mut self, wants: &cache::Wants) {
        let document = self.cache.document().filter(|_| wants.document.is_some());
        match self.model.views.last_mut() {
            Some(View::Entry(view)) => view.lines = document.map_or(0, |document| document.lines.len()),
            Some(View::Inspect(view)) => view.lay(document, self.cache.is_complete()),
            Some(View::Compare(view)) => {
                let sides = wants.comparison.filter(|sides| self.cache.has_comparison(sides));
                view.lay(sides.and_then(|_| self.cache.comparison()));
            }
            _ => {}
        }
        self.model.settle(self.timeline.story());
    }

    /// Reads a little more of what the views ask for and the first frame did not wait for.
    pub(super) fn read_on(&mut self) {
        let wants = cache::wants(&self.model, self.timeline.story(), &self.cache);
        self.unread = load::more(&mut self.timeline, &mut self.cache, &wants);
        // Whoever waits for the whole of it waits no longer than that.
        self.limiter.mark(if self.unread { Dirty::Soon } else { Dirty::Now });
    }
}
