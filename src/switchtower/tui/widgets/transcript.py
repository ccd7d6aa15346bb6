"""The transcript view: it paints only the last blocks, more when the user scrolls up, and repaints a block only when it has
changed. It follows the end unless the user has scrolled away from it."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import ClassVar, NamedTuple

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from switchtower.presentation import transcript
from switchtower.presentation.transcript import TranscriptModel
from switchtower.tui.paint import blocks, palette

WINDOW_BLOCKS = 150
"""The number of blocks painted at first, and added each time the user reaches the top."""
_NEAR_TOP = 3


class _PaintedBlock(NamedTuple):
    key: tuple[object, ...]
    strips: list[Strip]


class TranscriptView(ScrollView, can_focus=True):
    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("home,g", "oldest", "Oldest", show=False),
        Binding("end,G", "newest", "Newest", show=False),
        Binding("left_square_bracket", "pick(-1)", "Card before", show=False),
        Binding("right_square_bracket", "pick(1)", "Card after", show=False),
        Binding("enter,space", "fold", "Unfold", show=False),
    ]

    class OlderRequested(Message):
        """The user has reached the top, and the journal has older events."""

    class FollowChanged(Message):
        """The end of the transcript has moved into view or out of it."""

        def __init__(self, *, at_end: bool) -> None:
            super().__init__()
            self.at_end = at_end

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._transcript = TranscriptModel()
        self._painter = blocks.BlockPainter()
        self._painted: list[_PaintedBlock] = []
        self._first = 0
        """The index of the first painted block."""
        self._starts: list[int] = [0]
        """The line at which each painted block starts, and the end of the last."""
        self._unfolded: set[int] = set()
        self._all_unfolded = False
        self._picked: int | None = None
        self._frame = 0
        self._has_older = False
        self._at_end = True
        self._width = 0
        self._greeting: list[Text] = []
        self._empty: list[Strip] = []

    # Content

    def show(self, transcript: TranscriptModel, *, has_older: bool) -> None:
        """Shows the transcript of another session."""
        self._transcript = transcript
        self._has_older = has_older
        self._unfolded.clear()
        self._picked = None
        self._painted.clear()
        self._first = max(0, len(transcript.blocks) - WINDOW_BLOCKS)
        self._at_end = True
        self.refresh_end()

    def refresh_end(self) -> None:
        """Repaints after the transcript has grown or changed at its end."""
        if not self._width:
            return
        count = len(self._transcript.blocks)
        if self._at_end and count - self._first > 2 * WINDOW_BLOCKS:
            self._painted.clear()
            self._first = count - WINDOW_BLOCKS
        self._first = min(self._first, count)
        self._paint()
        if self._at_end:
            self._scroll_to_end()

    def insert_blocks(self, count: int, *, has_older: bool) -> None:
        """Accounts for `count` new blocks before all others. The visible lines stay where they are."""
        self._has_older = has_older
        before = self._starts[-1]
        self._first += max(0, count)
        self._painted.clear()
        if self._picked is not None:
            self._picked = None
        self._grow_window(before)

    def _grow_window(self, lines_before: int) -> None:
        self._first = max(0, self._first - WINDOW_BLOCKS)
        self._painted.clear()
        self._paint()
        self.scroll_to(y=self.scroll_y + self._starts[-1] - lines_before, animate=False, immediate=True, force=True)

    def _scroll_to_end(self) -> None:
        self.scroll_end(animate=False, immediate=True, force=True)

    def tick(self) -> None:
        """Advances the animation of active blocks."""
        if any(blocks.is_animated(block) for block in self._transcript.blocks[-20:]):
            self._frame += 1
            self._paint()

    @property
    def is_at_end(self) -> bool:
        return self._at_end

    def show_greeting(self, lines: Iterable[Text]) -> None:
        """Sets the lines that are shown before the first message."""
        self._greeting = list(lines)
        if self._width:
            self._paint()

    def _paint(self) -> None:
        look = blocks.PaintOptions(
            max(20, self._width - 1), palette.DARK if self.app.current_theme.dark else palette.LIGHT, self._transcript.facts
        )
        window = self._transcript.blocks[self._first :]
        painted: list[_PaintedBlock] = []
        for at, block in enumerate(window):
            unfolded = self._is_unfolded(block)
            key = (
                id(block),
                block.version,
                look.width,
                look.palette.dark,
                unfolded,
                self._frame if blocks.is_animated(block) else 0,
                self._find_block_facts(block),
            )
            if at < len(self._painted) and self._painted[at].key == key:
                painted.append(self._painted[at])
            else:
                lines = self._painter.paint_block(block, look._replace(unfolded=unfolded, beat=self._frame))
                painted.append(_PaintedBlock(key, [Strip(line) for line in lines]))
        self._painted = painted
        self._empty = [] if painted else [Strip(line) for line in blocks.wrap_lines(self._greeting, look)]
        self._starts = [0, *accumulate(len(one.strips) for one in painted)]
        self.virtual_size = Size(self._width, self._starts[-1])
        self.refresh()

    def _is_unfolded(self, block: transcript.TranscriptBlock) -> bool:
        return (block.seq in self._unfolded) != self._all_unfolded

    def _find_block_facts(self, block: transcript.TranscriptBlock) -> object:
        facts = self._transcript.facts
        if isinstance(block, transcript.ApprovalBlock):
            return facts.get_decision(block.approval.approvalId)
        if isinstance(block, transcript.RunEndBlock) and (run := facts.runs.get(block.run_id or "")) is not None:
            return run.started_ms, run.ended_ms, run.tokens_in, run.tokens_out
        return None

    # Textual's methods

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        style = self.rich_style
        width = self.size.width
        if not self._transcript.blocks:
            strip = self._empty[y] if y < len(self._empty) else Strip.blank(width)
            return strip.crop_extend(0, width, style).apply_style(style)
        if line >= self._starts[-1]:
            return Strip.blank(width, style)
        at = bisect_right(self._starts, line) - 1
        strip = self._painted[at].strips[line - self._starts[at]]
        if self._picked is not None and self._first + at == self._picked and self.has_focus:
            strip = strip.crop_extend(0, width, None).apply_style(self._get_picked_style())
        strip = self._paint_selection(strip, line)
        return strip.crop_extend(0, width, style).apply_style(style).apply_offsets(0, line)

    def _get_picked_style(self) -> Style:
        if self.app.no_color:
            return Style(reverse=True)
        return Style(bgcolor="#21262d" if self.app.current_theme.dark else "#d8dee4")

    def _paint_selection(self, strip: Strip, line: int) -> Strip:
        if (selection := self.text_selection) is None or (span := selection.get_span(line)) is None:
            return strip
        start, end = span
        length = strip.cell_length
        end = length if end == -1 else min(end, length)
        if start >= end:
            return strip
        before, chosen, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end, length)
        chosen = Strip(chosen.apply_style(self.screen.get_component_rich_style("screen--selection")))
        return Strip.join([before, chosen, after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        text = "\n".join(strip.text.rstrip() for one in self._painted for strip in one.strips)
        return selection.extract(text), "\n"

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted and self._width:
            self._paint()

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            self._width = width
            if self._at_end:
                self._first = max(0, len(self._transcript.blocks) - WINDOW_BLOCKS)
            self._painted.clear()
            self._paint()
        if self._at_end:
            self.call_after_refresh(self._scroll_to_end)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        at_end = new_value >= self.max_scroll_y - 1
        if at_end != self._at_end:
            self._at_end = at_end
            self.post_message(self.FollowChanged(at_end=at_end))
        if new_value <= _NEAR_TOP and new_value < old_value:
            self._on_top_reached()

    def _on_top_reached(self) -> None:
        if self._first > 0:
            self.call_later(self._grow_window, self._starts[-1])
        elif self._has_older:
            self._has_older = False  # requested once, until the answer arrives
            self.post_message(self.OlderRequested())

    async def on_click(self, event: events.Click) -> None:
        line = self.scroll_offset.y + event.y
        if line < self._starts[-1] and self.text_selection is None:
            at = self._first + bisect_right(self._starts, line) - 1
            block = self._transcript.blocks[at]
            # Only a click on the first line folds: a user who clicks into the text wants to select it.
            if blocks.is_foldable(block) and (
                event.y + self.scroll_offset.y == self._starts[at - self._first] or event.chain == 2
            ):
                self._picked = at
                self._fold(block)

    # Keys

    def action_oldest(self) -> None:
        self.scroll_home(animate=False)
        self._on_top_reached()

    def action_newest(self) -> None:
        self.scroll_end(animate=False)

    def action_pick(self, step: int) -> None:
        """Selects the next card that can be unfolded."""
        cards_at = [at for at, block in enumerate(self._transcript.blocks) if at >= self._first and blocks.is_foldable(block)]
        if not cards_at:
            return
        if self._picked is None:
            top = self._first + bisect_right(self._starts, self.scroll_offset.y + self.size.height - 1) - 1
            behind = [at for at in cards_at if at <= top] or cards_at[:1]
            self._picked = behind[-1]
        else:
            further = [at for at in cards_at if (at > self._picked if step > 0 else at < self._picked)]
            if further:
                self._picked = further[0] if step > 0 else further[-1]
        start = self._starts[self._picked - self._first]
        if not self.scroll_offset.y <= start < self.scroll_offset.y + self.size.height:
            self.scroll_to(y=max(0, start - 2), animate=False)
        self.refresh()

    def action_fold(self) -> None:
        if self._picked is None:
            self.action_pick(-1)
        if self._picked is not None and self._picked < len(self._transcript.blocks):
            self._fold(self._transcript.blocks[self._picked])

    def fold_all(self) -> None:
        """Unfolds everything, or folds everything."""
        self._all_unfolded = not self._all_unfolded
        self._unfolded.clear()
        self._paint()
        if self._at_end:
            self._scroll_to_end()

    def _fold(self, block: transcript.TranscriptBlock) -> None:
        self._unfolded ^= {block.seq}
        was_at_end = self._at_end
        self._paint()
        if was_at_end and self._starts[-1] <= self.size.height:
            self._scroll_to_end()
