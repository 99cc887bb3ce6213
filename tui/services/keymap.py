"""The user's keys: a YAML file of actions and the keys that do them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from schema.errors import SchemaError, nearest
from schema.located import locate
from tui.services.folders import config_folder


def keymap_file() -> Path:
    return config_folder() / "keys.yaml"


def load_keymap(path: Path, actions: Collection[str]) -> dict[str, str]:
    """Keys by action, several of them parted by commas; empty if there is no file.

    Raises SchemaError with every problem: unknown actions, values that are no keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read as a keymap: {error}") from None
    located = locate(text, str(path))
    told = located.data if isinstance(located.data, dict) else {}
    if located.data is not None and not isinstance(located.data, dict):
        located.report((1, 1), "expected lines like 'remove-query: x'")
    for action, keys in told.items():
        if action not in actions:
            located.report(located.key_place((action,)), f"no action {action!r}{nearest(action, actions)}")
        elif not isinstance(keys, str) or not keys.strip():
            located.report(
                located.value_place((action,)), f"{action}: expected a key like ctrl+r, or several: x,delete"
            )
    if located.problems:
        raise SchemaError(sorted(located.problems, key=lambda p: (p.line, p.column)))
    return {action: ",".join(key.strip() for key in str(keys).split(",")) for action, keys in told.items()}
