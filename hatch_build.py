"""The build hook: compiles `ingest/native/*.c` at install; without a compiler, or where it fails, the Python implementations are used."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Native(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the shared objects to the wheel, and its tag says for which platform they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build beside the sources (an editable install finds them there) and include what was built."""
        del version
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / "ingest" / "native"
        spec = importlib.util.spec_from_file_location("native", folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        native = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(native)
        try:
            built = native.build(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the compiled readers were not built, the Python ones are used: {error}")
            return
        if built:
            build_data["artifacts"] += [f"ingest/native/{path.name}" for path in built]
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
