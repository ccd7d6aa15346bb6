// The permissions of users: each role includes the one before it. The daemon enforces them; the page only hides the rest.
export const ROLES = ["viewer", "approver", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

export const MEANINGS: Record<Role, string> = {
  viewer: "Lists, watches and reads.",
  approver: "Also decides approvals and answers dialogs.",
  operator: "Also starts, steers, types, stops, renames, forks and deletes.",
  admin: "Also manages users, tokens and hosts, reads the audit and loosens the policy.",
};

/** A daemon that sends no role is older than roles, and every user could do everything. */
export function covers(role: string | null | undefined, needed: Role): boolean {
  if (role === null || role === undefined) return true;
  return ROLES.indexOf(role as Role) >= ROLES.indexOf(needed);
}
