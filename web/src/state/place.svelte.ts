// The current view. It is stored only in the URL's fragment.
import { parse, spell, type Route } from "../model/route";

class Place {
  route = $state.raw<Route>(parse(window.location.hash));

  constructor() {
    window.addEventListener("hashchange", () => {
      this.route = parse(window.location.hash);
    });
  }
}

export const place = new Place();

export function go(route: Route): void {
  window.location.hash = spell(route);
}
