"""`python -m bench.interpreter`: resident bytes of a validator that has imported all and loaded nothing."""

import importlib
import os

from bench.processes import memory_bytes

MODULES = (
    "outrider.rpc.process",
    "services.validator.server",
    "services.validator.settings",
    "outrider.runtime.loading",
    # Imported by the loader when it meets a model of the family.
    "transformers.models.llama.modeling_llama",
)


def main() -> None:
    """Import, then print one number."""
    for name in MODULES:
        importlib.import_module(name)
    print(memory_bytes(os.getpid(), "VmRSS") or 0)


if __name__ == "__main__":
    main()
