// The login: a cookie that scripts cannot read, if the daemon sets one; otherwise a token in memory that is gone with the tab.
import * as http from "../net/http";
import { covers, type Role } from "../model/roles";
import { firstToken } from "../model/route";

interface Me {
  name: string;
  token_id: string | null;
  expires_at?: string | null;
  role?: string | null;
}

interface Health {
  name: string;
  version: string;
  features?: string[];
}

class Auth {
  status = $state<"checking" | "in" | "out" | "away">("checking");
  me = $state<Me | null>(null);
  version = $state("");
  features = $state<string[]>([]);
  /** The reason why a user who was logged in must log in again. */
  why = $state<string | null>(null);
  private expiry: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    http.whenRefused(() => this.expired());
  }

  has(feature: string): boolean {
    return this.features.includes(feature);
  }

  /** Returns whether the user's role includes this one. */
  may(needed: Role): boolean {
    return this.me !== null && covers(this.me.role, needed);
  }

  async start(): Promise<void> {
    const brought = firstToken(window.location.href);
    if (brought) {
      // The token leaves the URL first, so that no history, screenshot or referrer contains it.
      window.history.replaceState(null, "", brought.rest);
      try {
        await this.take(http.send<{ access_token: string }>("POST", "/auth/token", { token: brought.token }));
        return;
      } catch (failure) {
        if (!(failure instanceof http.Away)) this.why = "This link has been used already or is too old. Make a new one with `tower token url`.";
      }
    }
    await this.look();
  }

  /** Loads the current user, which decides what the page shows. */
  async look(): Promise<boolean> {
    try {
      this.me = await http.get<Me>("/auth/me");
      // The daemon's capabilities must be known before anything is shown.
      await this.readHealth();
      this.status = "in";
      this.why = null;
      this.remind();
      return true;
    } catch (failure) {
      if (failure instanceof http.HttpError && failure.status === 401) this.out(null);
      else if (this.status !== "in") this.status = "away";
      return false;
    }
  }

  async login(username: string, password: string): Promise<void> {
    await this.take(http.send<{ access_token: string }>("POST", "/auth/login", { username, password }));
  }

  private async take(granting: Promise<{ access_token: string }>): Promise<void> {
    http.setBearer(null);
    const granted = await granting;
    try {
      await http.get<Me>("/auth/me"); // through the cookie that was just set
    } catch {
      http.setBearer(granted.access_token);
    }
    await this.look();
  }

  async logout(): Promise<void> {
    try {
      await http.send("POST", "/auth/logout");
    } catch {
      // The owner's token cannot be revoked; the page only forgets it.
    }
    http.setBearer(null);
    this.out(null);
  }

  expired(): void {
    if (this.status === "in") this.out("Your login has ended. Log in again to go on where you were.");
  }

  private out(why: string | null): void {
    clearTimeout(this.expiry);
    this.why = why ?? this.why;
    this.me = null;
    this.status = "out";
  }

  private remind(): void {
    clearTimeout(this.expiry);
    const until = this.me?.expires_at ? Date.parse(this.me.expires_at) - Date.now() : NaN;
    if (until > 0 && until < 2 ** 31) this.expiry = setTimeout(() => void this.look(), until + 1000);
  }

  private async readHealth(): Promise<void> {
    try {
      const health = await http.get<Health>("/health");
      this.version = health.version;
      this.features = health.features ?? [];
    } catch {
      // The page works without the health report.
    }
  }
}

export const auth = new Auth();
