"""Applies presets to new sessions: the request's own fields take precedence over the preset, and the preset over the defaults.

A preset of the workspace may only restrict: of its policy and limits and the default ones, the stricter apply. The templates that
a message can start with, as `/name`, are skills and prompts from files, and the commands of extensions. Blocks.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from switchtower.core import commands, errors, events, policy
from switchtower.core.ports import host_services
from switchtower.engines.agent.presets import PresetCatalog, PresetFile
from switchtower.engines.agent.prompts import templates as prompt_templates
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
from switchtower.extensions.loader import ExtensionLoader, to_one_line

AUTO = "auto"
"""The provider of a session that leaves the choice to the daemon."""
_MAX_NAMED = 20

_Number = TypeVar("_Number", int, float)

CheckModel = Callable[[str | None, str | None], None]
"""Raises a `CoreError` when a session could not have this provider and model."""


def apply_preset(
    command: commands.StartSession, presets: PresetCatalog, *, usual_policy: str, usual: events.Budget
) -> commands.StartSession:
    """Returns the command with the settings of the preset that it names. Raises `InvalidCommand` when the preset does not exist
    or cannot be used."""
    if command.preset is None:
        return replace(command, resolved_preset=None)
    found = _find_preset(command.preset, command.workspace.root, presets)
    said = found.parsed
    provider, model = command.provider, command.model
    if provider == AUTO:
        provider = said.provider or AUTO
    # A model belongs to one provider.
    if model is None and provider == (said.provider or AUTO):
        model = said.model
    profile, budget = said.policy, said.budget
    if found.origin == "workspace":
        profile, budget = _pick_stricter(profile, usual_policy), _pick_tighter(budget, usual)
    return replace(
        command,
        provider=provider,
        model=model,
        policy=command.policy or profile,
        thinking=command.thinking or said.thinking,
        budget=fill_budget(command.budget, budget),
        resolved_preset=found.preset,
    )


def list_presets(presets: PresetCatalog, workspace: str, check_model: CheckModel) -> list[host_services.PresetInfo]:
    return [_make_preset_info(found, check_model) for found in presets.list_presets(workspace)]


def fill_budget(asked: events.Budget | None, usual: events.Budget) -> events.Budget:
    """Returns the requested budget; fields that it leaves open are the default ones."""
    if asked is None:
        return usual
    return events.Budget(
        max_turns=asked.max_turns or usual.max_turns,
        max_tokens=asked.max_tokens or usual.max_tokens,
        max_cost=asked.max_cost or usual.max_cost,
        max_minutes=asked.max_minutes or usual.max_minutes,
    )


def _find_preset(name: str, root: str, presets: PresetCatalog) -> PresetFile:
    found = presets.find_preset(name, root)
    if found is None:
        names = presets.list_names(root)
        more = ", …" if len(names) > _MAX_NAMED else ""
        hint = f"there are {', '.join(names[:_MAX_NAMED])}{more}" if names else "put one into `.tower/presets/NAME.toml`"
        shown = name if len(name) <= 100 and name.isprintable() else "of this name"
        raise errors.InvalidCommand(f"there is no preset `{shown}`", hint=hint)
    if found.problem:
        raise errors.InvalidCommand(f"the preset {found.problem}")
    return found


def _make_preset_info(found: PresetFile, check_model: CheckModel) -> host_services.PresetInfo:
    said, reason = found.parsed, found.problem
    if not reason:
        try:
            check_model(said.provider, said.model)
        except errors.CoreError as refusal:
            reason = refusal.message
    return host_services.PresetInfo(
        name=found.name,
        origin=found.origin,
        path=found.path,
        description=said.description,
        provider=said.provider,
        model=said.model,
        policy=said.policy,
        thinking=said.thinking,
        servers=tuple(said.servers),
        usable=not reason,
        reason=reason,
    )


def _pick_stricter(profile: str | None, usual: str) -> str:
    return usual if profile is None else min(profile, usual, key=policy.PROFILES.index)


def _pick_tighter(budget: events.Budget, usual: events.Budget) -> events.Budget:
    return events.Budget(
        max_turns=_pick_least(budget.max_turns, usual.max_turns),
        max_tokens=_pick_least(budget.max_tokens, usual.max_tokens),
        max_cost=_pick_least(budget.max_cost, usual.max_cost),
        max_minutes=_pick_least(budget.max_minutes, usual.max_minutes),
    )


def _pick_least(one: _Number | None, other: _Number | None) -> _Number | None:
    """None is no limit."""
    return min((limit for limit in (one, other) if limit is not None), default=None)


KIND, ORIGIN = "extension", "plugin"


def list_templates(store: PromptCatalog, extensions: ExtensionLoader, workspace: str) -> list[host_services.TemplateInfo]:
    listed = [
        host_services.TemplateInfo(template.name, template.kind, template.description, template.path, template.origin)
        for template in store.list_templates(workspace)
    ]
    taken = {offer.name: offer.path for offer in listed}
    return [*listed, *_list_extension_commands(extensions, taken)]


def _list_extension_commands(extensions: ExtensionLoader, taken: dict[str, str]) -> Iterator[host_services.TemplateInfo]:
    loaded = extensions.load()
    for name, offer in sorted(loaded.offers.items()):
        description = to_one_line(offer.command.description)
        if name in taken:
            description = f"{description} (`/{name}` is `{taken[name]}` here)"
            name = f"{prompt_templates.EXTENSION_PREFIX}:{name}"
        yield host_services.TemplateInfo(name, KIND, description, offer.path, ORIGIN)
    for broken in loaded.broken:
        yield host_services.TemplateInfo(broken.name, KIND, f"cannot be used: {broken.reason}", broken.path, ORIGIN)
