"""What changes nothing: state, messages, figures, what there is to choose from; and the page that a session is exported to."""

import asyncio
import os
from pathlib import Path

from msgspec import UNSET

from switchtower.core.workshop import TemplateOffer
from switchtower.protocols.pi import messages
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import Standing
from switchtower.protocols.pi.stored import jsonl
from switchtower.protocols.pi.view import stats
from switchtower.protocols.pi.view.export.document import page


class LookHandlers:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def get_state(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        return ports.Handled(data=standing.info)

    async def get_messages(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        transcript = await self._hall.transcript(standing.id)
        return ports.Handled(data={"messages": transcript.messages()})

    async def get_last_assistant_text(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        return ports.Handled(data={"text": await self._hall.last_assistant_text(standing.id)})

    async def get_session_stats(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        session_id = standing.id
        session = await self._hall.tower.session(session_id)
        path = self._hall.files.path_of(session_id, standing.name)
        return ports.Handled(data=stats.session_stats(session, path, name=standing.name))

    async def get_context_usage(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        session = await self._hall.tower.session(standing.id)
        window = self._hall.models.of(standing.provider, standing.model).contextWindow
        return ports.Handled(data=stats.context_usage(session, window))

    # Discovery

    async def get_available_models(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        return ports.Handled(data={"models": await self._hall.models.refresh()})

    async def get_commands(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        offers = await self._hall.tower.workshop.of(standing.id).templates(standing.root)
        return ports.Handled(data={"commands": [_command(offer, standing.root) for offer in offers]})

    async def get_skills(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        offers = await self._hall.tower.workshop.of(standing.id).templates(standing.root)
        skills = [
            {
                "name": offer.name,
                "description": offer.description,
                "filePath": os.path.join(standing.root, offer.path),  # noqa: PTH118 - an absolute one stays as it is
                "source": offer.origin,
            }
            for offer in offers
            if offer.kind == "skill"
        ]
        return ports.Handled(data={"skills": skills})

    def get_tools(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        tools = self._hall.tower.workshop.tools()
        return ports.Handled(data={"tools": [{"name": tool.name, "description": tool.description} for tool in tools]})

    # Export

    async def export_html(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.ExportHtml)
        session_id = standing.id
        page_by_default = Path(self._hall.settings.exports_dir) / f"{standing.name}.html"
        target = self._target(request.body.outputPath, standing, page_by_default)
        session = await self._hall.tower.session(session_id)
        transcript = await self._hall.transcript(session_id)
        await asyncio.to_thread(_write, target, page(standing.info, stats.session_stats(session), transcript.messages()))
        return ports.Handled(data={"path": str(target)})

    async def export_jsonl(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        """A file that real pi loads; without a path it is the session's `sessionFile`, so that there is a file from then on."""
        assert isinstance(request.body, messages.ExportJsonl)
        file_by_default = Path(self._hall.files.path_of(standing.id, standing.name))
        target = self._target(request.body.outputPath, standing, file_by_default)
        session = await self._hall.tower.session(standing.id)
        transcript = await self._hall.transcript(standing.id)
        lines = jsonl.export_jsonl(
            standing.name,
            standing.root,
            session.created_at_ms,
            transcript.messages(),
            name=session.title or None,
            model=None if standing.info.model is UNSET else standing.info.model,
            thinking=standing.thinking,
        )
        await asyncio.to_thread(_write, target, b"".join(lines).decode())
        return ports.Handled(data={"path": str(target)})

    def _target(self, asked: str | None, standing: Standing, by_default: Path) -> Path:
        """What is exported is written into the session's own folder or into ours, and nowhere else."""
        exports = Path(self._hall.settings.exports_dir)
        if asked is None:
            return by_default
        if not asked.endswith(by_default.suffix) or "\0" in asked:
            raise ports.Refused(f"Validation failed: outputPath: must end with {by_default.suffix}")
        root = Path(os.path.realpath(standing.root))
        target = Path(os.path.realpath(root / asked))
        if not any(target.is_relative_to(folder) for folder in (root, exports)):
            raise ports.Refused("Validation failed: outputPath: must be in the session's folder")
        return target


def _command(offer: TemplateOffer, root: str) -> dict[str, str]:
    told = {"name": offer.name, "description": offer.description, "source": offer.kind}
    # An extension has no file that a client could open.
    return told if offer.kind == "extension" else {**told, "path": os.path.join(root, offer.path)}  # noqa: PTH118


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)  # a page is there whole or not at all
    except OSError as problem:
        raise ports.Refused(f"It could not be written to {target}: {problem.strerror}") from None
