"""One instruction, cut into its parts."""

from collections.abc import Collection
from dataclasses import dataclass

from translator.scope import Unsupported, search, split_operands


@dataclass(frozen=True)
class Instruction:
    """The mnemonic, its modifiers (the last one is mostly the type), and the operands."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Instruction":
        """Cut `add.rn.f32 %f1, %f2, %f3` into its parts."""
        opcode, operands = search(r"^([\w.:]+)\s*(.*)$", text).groups()
        name, *modifiers = opcode.split(".")
        return cls(name, tuple(modifiers), tuple(split_operands(operands)))

    @property
    def opcode(self) -> str:
        """The mnemonic with all modifiers."""
        return ".".join((self.name, *self.modifiers))

    @property
    def type(self) -> str:
        """The last modifier."""
        return self.modifiers[-1]

    def has(self, modifier: str) -> bool:
        """Return whether the modifier is there."""
        return modifier in self.modifiers

    def find(self, choices: Collection[str]) -> str | None:
        """Return the first modifier out of `choices`, None without one."""
        return next((x for x in self.modifiers if x in choices), None)

    def pick(self, choices: Collection[str]) -> str:
        """Return the first modifier out of `choices`, of which one must be there."""
        found = self.find(choices)
        if found is None:
            raise Unsupported(f"none of {', '.join(choices)}")
        return found
