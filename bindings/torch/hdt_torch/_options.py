"""What a group is made with."""

import dataclasses
from typing import Optional


@dataclasses.dataclass
class Options:
    """What a group is made with: init_process_group("hdt", pg_options=Options(...)), or new_group()."""

    # A class of the daemon's configuration, [class.NAME]; the same on all ranks. None: that of
    # $HDT_CLASS_MAP for the group's description, else $HDT_CLASS, or the default.
    group_class: Optional[str] = None
    # Reductions give the same bits however ranks are placed, whatever a message's size.
    deterministic: bool = False
