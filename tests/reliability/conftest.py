"""What the reliability tests share: modules beside this file, found by the same name in forked processes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
