"""How an exported page looks: light or dark as the reader's system is, one column, good on a phone and on paper."""

CSS = """
:root { color-scheme: light dark; --ink: #1d2328; --soft: #5b6670; --paper: #fbfbf9; --card: #ffffff; --line: #dfe3e6;
  --user: #eef4fb; --code: #f2f3f1; --accent: #1f5fa8; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #9aa5af; --paper: #14171a; --card: #1b1f23; --line: #2f363c;
    --user: #1b2a3a; --code: #22272c; --accent: #7db4f0; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
header, main, footer { max-width: 52rem; margin: 0 auto; padding: 1rem; }
header { padding-top: 2rem; }
h1 { margin: 0 0 .75rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .5rem 1.25rem; margin: 0;
  padding: .9rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
dt { color: var(--soft); font-size: .78rem; }
dd { margin: 0; overflow-wrap: anywhere; }
article { margin: 1rem 0; padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
article.user { background: var(--user); }
article > h2 { display: flex; justify-content: space-between; gap: 1rem; margin: 0 0 .4rem;
  font-size: .82rem; color: var(--soft); }
article > h2 time { font-weight: normal; white-space: nowrap; }
p { margin: .5rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .7rem .8rem; overflow: auto; max-height: 32rem; background: var(--code); border-radius: .4rem;
  font: .86rem/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .5rem 0; border: 1px solid var(--line); border-radius: .4rem; padding: .35rem .7rem; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; overflow-wrap: anywhere; }
summary code { font-size: .86rem; }
.failed > summary, .error { color: var(--bad); }
.note { color: var(--soft); font-size: .85rem; }
img { max-width: 100%; height: auto; border-radius: .4rem; }
footer { color: var(--soft); font-size: .8rem; padding-bottom: 2rem; }
@media print { article, dl { break-inside: avoid; } pre { max-height: none; } }
"""
